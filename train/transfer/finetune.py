"""Fine-tuning on a task: a config becomes a job for the training loop."""

import copy
import functools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
from etils import epath

from data.examples import pipeline
from data.tasks import registry
from train.engine import sharding, state
from train.host import processes
from train.host.console import say
from train.run import checkpoint, metrics, training, workdirs
from train.run.job import Job, Keep, Program, Stage, StayAlive
from train.transfer import (
  assemble,
  bodies,
  several,
  task_data,
  task_outputs,
  task_plan,
)
from train.transfer.program import TaskProgram


def check_config(
  config: ml_collections.ConfigDict, *, dry_run: bool = False
) -> None:
  """Checks all of a config that needs neither data, weights nor devices."""
  del dry_run  # labelled sets are small
  task_plan.check_settings(config)
  for name in task_data.task_names(config) or (config.task.name,):
    if name != 'own':
      task_data.with_languages(config, registry.find(name))


def make(
  config: ml_collections.ConfigDict,
  workdir: epath.PathLike,
  *,
  shared: tuple[TaskProgram, ...] | None = None,
) -> Job | None:
  """Plans a run of a checked config: opens sets and weights, builds steps.

  `shared` is the plan of the same config with another seed, whose compiled
  steps are reused. Returns None for a finished run, and prints its results.
  """
  workdir = epath.Path(workdir)

  # ---- Workdir and devices -------------------------------------------------
  results = workdirs.read_results(workdir)
  saved = checkpoint.latest_step(workdir)
  if results is None and saved is None and shared is None:
    assemble.check_fits(config)
    source = epath.Path(config.data.source).expanduser()
    if not (config.data.source.startswith('tfds') or source.exists()):
      raise FileNotFoundError(f'data.source={source}: there is no such folder')
  mesh = training.find_devices(config) if shared is None else shared[0].mesh
  task_plan.check_batches(config, mesh)

  if results is not None:
    sized = bodies.program_of(config).with_sizes_of(config, workdir)
    task_plan.check_continuation(config, workdir, sized)
    say(f'{workdir} holds a finished run of this config.')
    of_several = shared is not None
    task_plan.print_results(results, workdir, of_several=of_several)
    return None

  # ---- Sets, model, objective, optimiser ------------------------------------
  programs = shared or assemble.plan_all(
    config, mesh, workdir=None if saved is None else workdir
  )
  if saved is not None:
    task_plan.check_continuation(config, workdir, programs[0].config)
  config = task_plan.with_run_keys(programs[0].config, config)
  return FineTuning(config, programs, workdir, of_several=shared is not None)


class FineTuning(Job):
  """A fine-tuning, on one task or on several in turns, of planned tasks."""

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    programs: tuple[TaskProgram, ...],
    workdir: epath.Path,
    *,
    of_several: bool,
  ):
    """Takes the plans of the tasks, which its steps and state are of.

    `of_several` says whether it is one of several runs, whose ends are short.
    """
    train, first = config.train, programs[0]
    self.config, self.mesh, self.shapes = config, first.mesh, first.shapes
    self.total_steps = first.total_steps
    self.save_every = train.checkpoint_every or first.eval_every
    self.score_every = first.eval_every
    self._programs, self._workdir = programs, workdir
    self._of_several = of_several
    self._seed = train.seed
    sizes = [len(program.splits['train'].features) for program in programs]
    self._turns = several.Turns(sizes, self.total_steps, self._seed)
    self._rows = sharding.local_rows(self.mesh, train.global_batch)
    self._main = [f'eval/{p.task.name}/{p.task.metrics[0]}' for p in programs]
    self.keep = Keep(
      self._main[0] if self._is_alone else several.MEAN,
      best=train.select == 'best',
      patience=train.patience,
      plateau=train.plateau,
    )
    self.steps = {
      self._named('train', program): program.train_step for program in programs
    }
    self.steps |= {
      self._named('predict', program): program.predict_step
      for program in programs
    }
    # Of the last score: task -> split -> logits.
    self._last_logits: dict[str, Any] = {}
    self._largest, self.num_later = [], 0
    for program, own_steps in zip(programs, self._turns.totals, strict=True):
      found, more = task_plan.largest_steps(
        program,
        self._seed,
        int(own_steps),
        self.arguments(()),
        functools.partial(self._named, program=program),
      )
      self._largest += found
      self.num_later += more

  @property
  def _is_alone(self) -> bool:
    return len(self._programs) == 1

  def _named(self, step: str, program: TaskProgram) -> str:
    return step if self._is_alone else f'{step} {program.task.name}'

  def stage(self, step: int) -> Stage:
    """Returns the step of the task whose turn it is after `step` steps."""
    program = self._programs[self._turns.at(step)[0]]
    return Stage(
      self._named('train', program), program.model, program.objective
    )

  def batch(self, step: int, whole: bool) -> pipeline.Batch:
    """Returns the host batch after `step` steps, whole or our own rows."""
    number, turn = self._turns.at(step)
    batches = self._programs[number].splits['train'].batches
    return batches.train_batch(
      turn,
      pipeline.ALL_ROWS if whole else self._rows,
      self.config.train.global_batch,
      self._seed,
      int(self._turns.totals[number]),
    )

  def arguments(self, scores: Sequence[float]) -> tuple:
    """Returns the seed and, where scores lower it, the factor of the rate."""
    if self.keep.plateau is None:
      return (jnp.int32(self._seed),)
    return jnp.int32(self._seed), jnp.float32(self.keep.rate(scores))

  def work(
    self, step: int, batch: Mapping[str, jax.Array]
  ) -> tuple[int, float]:
    """Returns tokens and model FLOPs of the step after `step` steps."""
    program = self._programs[self._turns.at(step)[0]]
    return batch['token_mask'].size, program.step_flops(batch)

  def programs(self, done: int) -> Iterable[Program]:
    """Returns the steps on the longest rows."""
    del done
    return self._largest

  def create(self) -> state.TrainState:
    """Returns the state at step 0, with the initial weights."""
    first = self._programs[0]
    created = first.begin(self._seed)
    if first.is_begun:  # read by each process
      processes.check_same(lambda: state.checksums(created.params))
    return created

  def facts(self) -> dict[str, Any]:
    """Returns the tasks' settings and the digests of their sets."""
    return {
      name: value
      for program in self._programs
      for name, value in task_plan.facts(program).items()
    }

  def write(self, workdir: epath.Path) -> None:
    """Writes the vocabulary, and what the weights need beside it."""
    self._programs[0].write(workdir)

  def _with_compiled(
    self, compiled: Mapping[str, Any], program: TaskProgram
  ) -> TaskProgram:
    program = copy.copy(program)
    program.predict_step = compiled[self._named('predict', program)]
    return program

  def score(
    self,
    compiled: Mapping[str, Any],
    params: Any,
    step: int,
    stay_alive: StayAlive,
  ) -> dict[str, float]:
    """Returns each task's metrics on dev and, of several, their mean."""
    del step
    row = {}
    for program in self._programs:
      name = program.task.name
      found, self._last_logits[name] = task_outputs.score_dev(
        self._with_compiled(compiled, program), params, stay_alive
      )
      row |= {f'eval/{name}/{key}': value for key, value in found.items()}
    if not self._is_alone:
      row[several.MEAN] = statistics.fmean(row[name] for name in self._main)
    return row

  def finish(
    self,
    compiled: Mapping[str, Any],
    params: Any,
    workdir: epath.Path,
    is_scored: bool,
    stay_alive: StayAlive,
  ) -> dict[str, Any]:
    """Scores all splits, and writes answers and predictions."""
    figures, intervals = {}, {}
    for program in self._programs:
      name = program.task.name
      folder = self._workdir
      if not self._is_alone:
        folder = folder / several.FOLDER / name
      known = self._last_logits.get(name, {}) if is_scored else {}
      found, bounds = task_outputs.score_all(
        self._with_compiled(compiled, program),
        params,
        folder,
        known,
        stay_alive,
      )
      figures |= found | task_outputs.oracles(
        program,
        lambda metric: processes.of_first(
          metrics.history(workdir, metric, self.total_steps)
        ),
      )
      intervals |= bounds
    if not self._is_alone:
      mean = statistics.fmean(figures[name] for name in self._main)
      figures = {several.MEAN: mean} | figures
    sizes = [
      len(program.splits['train'].examples) for program in self._programs
    ]
    return {
      'main_metric': self.keep.metric,
      'metrics': figures,
      'intervals': intervals,
      'train_size': sum(sizes),
    }

  def print_plan(self, workdir: epath.Path, in_detail: bool) -> None:
    """Prints the run's sizes, always in detail."""
    del in_detail
    task_plan.print_plan(self._programs, workdir)

  def score_line(self, step: int, row: Mapping[str, float]) -> str:
    """Returns the metrics of a score as one line."""
    return task_plan.evaluation_line(step, row)

  def print_results(
    self, results: Mapping[str, Any], workdir: epath.Path
  ) -> None:
    """Prints the end of a run."""
    task_plan.print_results(results, workdir, of_several=self._of_several)
