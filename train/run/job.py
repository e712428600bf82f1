"""A planned run: in plain functions, all that differs between kinds of runs."""

import dataclasses
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
  """A step to be compiled before anything is written.

  Attributes:
    label: what the step computes, for people.
    remedy: the keys that make it smaller, for people.
    step: its name in `Job.steps`.
    arguments: shapes with shardings.
  """

  label: str
  remedy: str
  step: str
  arguments: tuple


class Keep(NamedTuple):
  """Which model a run ends with, and when it ends early.

  Attributes:
    metric: of the scores; the larger, the better.
    best: keep the model with the best score; False keeps the last one.
    patience: end after so many scores in a row without a new best one.
  """

  metric: str
  best: bool
  patience: int | None

  def is_best(self, scores: Sequence[float]) -> bool:
    """Returns whether the last score is the best, and the best model kept."""
    return self.best and all(scores[-1] > score for score in scores[:-1])

  def is_over(self, scores: Sequence[float]) -> bool:
    """Returns whether `patience` scores have passed since the best one."""
    if self.patience is None or len(scores) <= self.patience:
      return False
    return len(scores) - 1 - scores.index(max(scores)) >= self.patience


StayAlive = Callable[[], None]


@dataclasses.dataclass(frozen=True)
class Job:
  """A planned run: its sizes, and in plain functions all that is its own.

  Attributes:
    config: complete, as it is written into the workdir.
    mesh: the devices.
    model: the module.
    shapes: the training state as ShapeDtypeStructs.
    steps: name -> jitted step, (state or parameters, batch, ...) -> results.
    arguments: of a training step, beside state and batch.
    total_steps: of the whole run.
    save_every: steps between checkpoints.
    score_every: steps between scores.
    keep_checkpoints: how many.
    profile: (first step, number of steps) to trace, or ().
    keep: which model the run ends with; None: the last checkpoint's.
    programs: steps done -> the largest programs of the steps to come.
    num_later: how many smaller programs are compiled when they come.
    step_name: steps done -> the name in `steps` of the next training step.
    objective: steps done -> the objective of the next training step.
    batch: (steps done, whole) -> host batch of the next step: this process's
      rows, or the whole global batch.
    work: (steps done, batch) -> tokens and model FLOPs of the next step.
    create: () -> the state at step 0.
    restore: checkpoints -> (steps done, state).
    facts: () -> {name: JSON value} that all processes must have found alike.
    write: workdir -> None; writes all that the workdir needs but config.json.
    print_plan: (workdir, in detail) -> None.
    score: (compiled steps, parameters, steps done, stay alive) -> metrics.
    score_line: (steps done, metrics) -> one line for people.
    finish: (compiled steps, parameters, workdir, whether the parameters are
      those of the last score, stay alive) -> entries of results.json, `metrics`
      among them.
    print_results: (results, workdir) -> None.
  """

  config: ml_collections.ConfigDict
  mesh: Mesh
  model: nn.Module
  shapes: TrainState
  steps: Mapping[str, Callable[..., Any]]
  arguments: tuple
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
