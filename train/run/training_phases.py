"""Phases of a run: steps, sequence length and batch size."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import ml_collections

SCHEDULES = ('continue', 'restart')


class Phase(NamedTuple):
  """A stretch of training at one sequence length."""

  steps: int
  length: int
  global_batch: int
  schedule: str


def phase_at(phases: Sequence[Phase], step: int) -> Phase:
  """Returns the phase of the training step that follows `step` steps."""
  for phase in phases:
    if step < phase.steps:
      return phase
    step -= phase.steps
  raise ValueError(f'{step} steps beyond the last phase')


def phases_after(phases: Sequence[Phase], steps: int) -> list[Phase]:
  """Returns the phases that end after `steps` steps; the last at least."""
  ends = itertools.accumulate(phase.steps for phase in phases)
  left = [p for p, end in zip(phases, ends, strict=True) if end > steps]
  return left or list(phases[-1:])


def cut_phases(phases: Sequence[Phase], steps: int) -> list[Phase]:
  """Returns the phases of the first `steps` steps only."""
  cut = []
  for phase in phases:
    if steps > 0:
      cut.append(phase._replace(steps=min(steps, phase.steps)))
      steps -= phase.steps
  return cut


def resolve_phases(
  config: ml_collections.ConfigDict, num_windows: Mapping[int, int]
) -> tuple[Phase, ...]:
  """Returns the checked phases with every override applied.

  `num_windows`, length -> training windows, gives the steps of `num_epochs`.
  """
  train = config.train
  phases = [Phase(*phase) for phase in check_phases(config)]
  if train.num_epochs is not None:
    (phase,) = phases
    windows = num_windows[phase.length]
    steps = -(-int(windows * train.num_epochs) // phase.global_batch)
    phases = [phase._replace(steps=max(1, steps))]
  return tuple(phases)


def check_phases(config: ml_collections.ConfigDict) -> list[Phase]:
  """Returns checked phases, with all overrides but `num_epochs`."""
  train = config.train
  phases = []
  for phase in train.phases:
    if (
      not isinstance(phase, tuple | list)
      or len(phase) != 4
      or not all(isinstance(n, int) and n > 0 for n in phase[:3])
      or phase[3] not in SCHEDULES
    ):
      raise ValueError(
        f'train.phases: {phase!r} is not (steps, length, global_batch,'
        f' schedule) with positive integers and a schedule of {SCHEDULES}'
      )
    phases.append(Phase(*phase))
  if not phases:
    raise ValueError('train.phases is empty: at least one phase is needed')
  if train.steps is not None and train.num_epochs is not None:
    raise ValueError('train.steps and train.num_epochs: set one, not both')
  for key in ('steps', 'num_epochs', 'global_batch'):
    value = getattr(train, key)
    if value is None:
      continue
    if len(phases) > 1:
      raise ValueError(
        f'train.{key} overrides a single phase, but train.phases has'
        f' {len(phases)}: override train.phases itself'
      )
    if key != 'num_epochs':
      phases = [phases[0]._replace(**{key: value})]
  return phases


def check_lengths(config: ml_collections.ConfigDict) -> None:
  """Checks that no phase is longer than the model's `max_length`."""
  for phase in check_phases(config):
    if phase.length > config.model.max_length:
      raise ValueError(
        f'train.phases: length {phase.length} is longer than what the model'
        f' reads, model.max_length={config.model.max_length}'
      )
