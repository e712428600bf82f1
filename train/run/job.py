"""A planned run: plain functions for all that differs between kinds of runs."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import ml_collections
from etils import epath
from flax import linen as nn
from jax.sharding import Mesh

from data.examples import pipeline
from train.engine.state import TrainState
from train.engine.steps import Objective
from train.run import checkpoint


class Program(NamedTuple):
  """A step to compile before anything is written.

  Attributes:
    label: the step, for messages.
    remedy: the keys that make it smaller, for messages.
    step: its name in `Job.steps`.
    arguments: shapes with shardings.
  """

  label: str
  remedy: str
  step: str
  arguments: tuple


class Keep(NamedTuple):
  """Which model a run ends with, when it ends early, and at which rate.

  Attributes:
    metric: the score; larger is better.
    best: keep the model with the best score, else the last.
    patience: end after so many scores in a row without a new best one.
    plateau: halve the learning rate after more than so many scores in a row
      without a new best one; None: never.
  """

  metric: str
  best: bool
  patience: int | None
  plateau: int | None = None

  def is_best(self, scores: Sequence[float]) -> bool:
    """Returns whether to keep the last score's model as the best one."""
    return self.best and all(scores[-1] > score for score in scores[:-1])

  def is_over(self, scores: Sequence[float]) -> bool:
    """Returns whether `patience` scores have passed since the best one."""
    if self.patience is None or len(scores) <= self.patience:
      return False
    return len(scores) - 1 - scores.index(max(scores)) >= self.patience

  def rate(self, scores: Sequence[float]) -> float:
    """Returns the factor of the learning rate after these scores.

    As AllenNLP 0.9.0's reduce_on_plateau, which is PyTorch's
    ReduceLROnPlateau(mode='max', factor=0.5, patience=plateau): a new best
    score is more than 1.0001 times the old one. Rates below PyTorch's eps of
    1e-8 are halved too.
    """
    rate, best, bad = 1.0, -math.inf, 0
    if self.plateau is None:
      return rate
    for score in scores:
      bad += 1
      if score > best * (1 + 1e-4):
        best, bad = score, 0
      if bad > self.plateau:
        rate, bad = rate / 2, 0
    return rate


StayAlive = Callable[[], None]


@dataclasses.dataclass(frozen=True)
class Job:
  """A planned run: sizes, and functions for all that differs between jobs.

  Attributes:
    config: the resolved config, as written into the workdir.
    mesh: the devices.
    model: steps done -> the module of the next training step.
    shapes: the training state as ShapeDtypeStructs.
    steps: name -> jitted step, (state or parameters, batch, ...) -> results.
    arguments: scores so far -> those of a training step, beside state and
      batch.
    total_steps: of the whole run.
    save_every: steps between checkpoints.
    score_every: steps between scores.
    keep_checkpoints: number of checkpoints kept.
    profile: (first step, number of steps) to trace, or ().
    keep: the rule for the final model; None: the last checkpoint's.
    programs: steps done -> the largest programs of the remaining steps.
    num_later: number of smaller programs that are compiled later.
    step_name: steps done -> the next training step's name in `steps`.
    objective: steps done -> the next training step's objective.
    batch: (steps done, whole) -> the next host batch, whole or our own rows.
    work: (steps done, batch) -> tokens and model FLOPs of the next step.
    create: () -> the state at step 0.
    restore: checkpoints -> (steps done, state).
    facts: () -> {name: JSON value}, to be equal on all processes.
    write: workdir -> None; writes the workdir's files but config.json.
    print_plan: (workdir, in detail) -> None.
    score: (compiled steps, parameters, steps done, stay alive) -> metrics.
    score_line: (steps done, metrics) -> one line for people.
    finish: (compiled steps, parameters, workdir, whether the parameters are
      the last score's, stay alive) -> entries of results.json with `metrics`.
    print_results: (results, workdir) -> None.
  """

  config: ml_collections.ConfigDict
  mesh: Mesh
  model: Callable[[int], nn.Module]
  shapes: TrainState
  steps: Mapping[str, Callable[..., Any]]
  arguments: Callable[[Sequence[float]], tuple]
  total_steps: int
  save_every: int
  score_every: int
  keep_checkpoints: int
  profile: Sequence[int]
  keep: Keep | None
  programs: Callable[[int], Iterable[Program]]
  num_later: int
  step_name: Callable[[int], str]
  objective: Callable[[int], Objective]
  batch: Callable[[int, bool], pipeline.Batch]
  work: Callable[[int, Mapping[str, jax.Array]], tuple[int, float]]
  create: Callable[[], TrainState]
  restore: Callable[[checkpoint.Checkpoints], tuple[int, TrainState]]
  facts: Callable[[], Mapping[str, Any]]
  write: Callable[[epath.Path], None]
  print_plan: Callable[[epath.Path, bool], None]
  score: Callable[[Mapping[str, Callable], Any, int, StayAlive], dict]
  score_line: Callable[[int, Mapping[str, float]], str]
  finish: Callable[
    [Mapping[str, Callable], Any, epath.Path, bool, StayAlive], dict[str, Any]
  ]
  print_results: Callable[[Mapping[str, Any], epath.Path], None]
