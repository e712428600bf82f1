"""A planned run: the interface of each kind of run to the training loop."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import ml_collections
from etils import epath
from flax import linen as nn
from jax.sharding import Mesh

from data.examples import pipeline
from models.layers import Params
from train.engine.state import TrainState
from train.engine.steps import Objective
from train.host.files import Json
from train.run import checkpoint
from train.run.workdirs import Results


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


class Stage(NamedTuple):
  """A training step: its name, its model and its objective.

  Attributes:
    name: its key in `Job.steps`.
    model: the module that it trains.
    objective: the transforms and losses by which it trains.
  """

  name: str
  model: nn.Module
  objective: Objective


class Job:
  """A planned run, as the training loop sees it.

  `PreTraining` (`train.pretrain.job`) and `FineTuning`
  (`train.transfer.finetune`) are its two kinds.

  Attributes:
    config: the resolved config, as written into the workdir.
    mesh: the devices.
    shapes: the training state as ShapeDtypeStructs.
    steps: name -> jitted step, (state or parameters, batch, ...) -> results.
    total_steps: of the whole run.
    save_every: steps between checkpoints.
    score_every: steps between scores.
    keep_checkpoints: number of checkpoints kept.
    profile: (first step, number of steps) to trace, or ().
    keep: the rule for the final model; None: the last checkpoint's.
    num_later: number of smaller programs that are compiled later.
    usual_mfu: a guess of the share of a device's peak that its steps reach.
  """

  config: ml_collections.ConfigDict
  mesh: Mesh
  shapes: TrainState
  steps: Mapping[str, jax.stages.Wrapped]
  total_steps: int
  save_every: int
  score_every: int
  keep_checkpoints: int = 1
  profile: Sequence[int] = ()
  keep: Keep | None = None
  num_later: int = 0
  usual_mfu: float

  # ---- A step ---------------------------------------------------------------

  def stage(self, step: int) -> Stage:
    """Returns the stage of the training step that follows `step` steps."""
    raise NotImplementedError

  def batch(self, step: int, whole: bool) -> pipeline.Batch:
    """Returns the host batch that follows `step` steps.

    It is `whole`, or has the rows of this process alone.
    """
    raise NotImplementedError

  def arguments(self, scores: Sequence[float]) -> tuple:
    """Returns the arguments of a training step after state and batch."""
    del scores
    return ()

  def work(
    self, step: int, batch: Mapping[str, jax.Array]
  ) -> tuple[int, float]:
    """Returns tokens and model FLOPs of the step that follows `step` steps."""
    raise NotImplementedError

  def programs(self, done: int) -> Iterable[Program]:
    """Returns the largest programs of the steps that remain after `done`."""
    raise NotImplementedError

  # ---- The state and the files ----------------------------------------------

  def create(self) -> TrainState:
    """Returns the state at step 0."""
    raise NotImplementedError

  def restore(
    self, checkpoints: checkpoint.Checkpoints
  ) -> tuple[int, TrainState]:
    """Returns (steps done, state) of the newest sound checkpoint."""
    return checkpoints.restore(self.shapes)

  def facts(self) -> Mapping[str, Json]:
    """Returns name -> value, which must be equal on all processes."""
    raise NotImplementedError

  def write(self, workdir: epath.Path) -> None:
    """Writes the workdir's files but config.json."""
    raise NotImplementedError

  # ---- Scores ---------------------------------------------------------------

  def score(
    self,
    compiled: Mapping[str, Callable],
    params: Params,
    step: int,
    stay_alive: StayAlive,
  ) -> dict[str, float]:
    """Returns the metrics of parameters after `step` steps.

    `compiled` are the `steps`, as the loop calls them.
    """
    raise NotImplementedError

  def finish(
    self,
    compiled: Mapping[str, Callable],
    params: Params,
    workdir: epath.Path,
    is_scored: bool,
    stay_alive: StayAlive,
  ) -> dict[str, Json]:
    """Returns entries of results.json, `metrics` among them.

    `is_scored` says whether the last score was of these parameters.
    """
    raise NotImplementedError

  # ---- What people read -----------------------------------------------------

  def print_plan(self, workdir: epath.Path, in_detail: bool) -> None:
    """Prints the run's sizes, before anything is compiled."""
    raise NotImplementedError

  def score_line(self, step: int, row: Mapping[str, float]) -> str:
    """Returns the metrics of a score as one line."""
    raise NotImplementedError

  def print_results(self, results: Results, workdir: epath.Path) -> None:
    """Prints the end of a run."""
    raise NotImplementedError
