"""Phases of a run: steps, sequence length, batch size, and unit of masks."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import ml_collections

SCHEDULES = ('continue', 'restart')
STORED = 'stored'
# What `masking` masks whole; it imports JAX.
UNITS = ('piece', 'word', 'span', STORED)


class Phase(NamedTuple):
  """A stretch of training at one sequence length.

  Attributes:
    unit: of masks, or stored:FOLDER; empty where it is `objective.unit`.
  """

  steps: int
  length: int
  global_batch: int
  schedule: str
  unit: str = ''

  @property
  def kind(self) -> tuple[int, str]:
    """Length and unit; phases that have the same share examples and steps."""
    return self.length, self.unit

  @property
  def name(self) -> str:
    """The kind as text, a part of the names of the steps."""
    return f'{self.length} {self.unit}'.rstrip()

  @property
  def folder(self) -> str:
    """The folder of a store of its own, or ''."""
    return self.unit.partition(':')[2]


def unit_of(config: ml_collections.ConfigDict, kind: tuple[int, str]) -> str:
  """Returns the `objective.unit` of a kind of phases."""
  return kind[1].partition(':')[0] or config.objective.unit


def masks(config: ml_collections.ConfigDict) -> bool:
  """Returns whether a run predicts masked tokens."""
  has_unit = 'objective' in config and 'unit' in config.objective
  return has_unit and config.train.objective != 'lm'


def has_units(config: ml_collections.ConfigDict, kind: tuple[int, str]) -> bool:
  """Returns whether a kind of phases masks the units of a store."""
  return masks(config) and unit_of(config, kind) == STORED


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


def steps_before_restart(phases: Sequence[Phase]) -> int:
  """Returns the steps of the phases before the first that restarts."""
  before = itertools.takewhile(lambda p: p.schedule != 'restart', phases[1:])
  return phases[0].steps + sum(phase.steps for phase in before)


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
      or len(phase) not in (4, 5)
      or not all(isinstance(n, int) and n > 0 for n in phase[:3])
      or phase[3] not in SCHEDULES
    ):
      raise ValueError(
        f'train.phases: {phase!r} is not (steps, length, global_batch,'
        f' schedule) with positive integers and a schedule of {SCHEDULES}'
      )
    if len(phase) == 5 and not isinstance(phase[4], str):
      raise ValueError(
        f'train.phases: {phase!r} has the fifth field {phase[4]!r}, expected'
        f' the name of a unit: one of {UNITS}, or {STORED}:FOLDER'
      )
    phases.append(_without_default(Phase(*phase), config))
  if not phases:
    raise ValueError('train.phases is empty: at least one phase is needed')
  if train.steps is not None and train.num_epochs is not None:
    raise ValueError(
      f'train.steps={train.steps} and train.num_epochs={train.num_epochs:g}:'
      ' set one, not both; a config that counts epochs is made shorter by a'
      ' smaller train.num_epochs, such as 0.1'
    )
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


def _without_default(phase: Phase, config: ml_collections.ConfigDict) -> Phase:
  """Returns a phase with a checked unit, or none if it is the config's."""
  if not phase.unit:
    return phase
  if not masks(config):
    raise ValueError(
      f'train.phases: {tuple(phase)!r} has the unit {phase.unit!r}, but'
      f' train.objective={config.train.objective!r} of'
      f' model.name={config.model.name!r} masks nothing'
    )
  if phase.unit not in UNITS and not (
    phase.unit.startswith(f'{STORED}:') and phase.folder
  ):
    raise ValueError(
      f'train.phases: {tuple(phase)!r} has the unit {phase.unit!r}, expected'
      f' one of {UNITS}, or {STORED}:FOLDER'
    )
  if phase.unit == config.objective.unit:
    return phase._replace(unit='')
  return phase


def check_lengths(config: ml_collections.ConfigDict) -> None:
  """Checks that no phase is longer than the model's `max_length`."""
  for phase in check_phases(config):
    if phase.length > config.model.max_length:
      raise ValueError(
        f'train.phases: length {phase.length} is longer than what the model'
        f' reads, model.max_length={config.model.max_length}'
      )
