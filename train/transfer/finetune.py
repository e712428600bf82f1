"""Fine-tuning on a task: a config becomes a job for the training loop."""

import dataclasses
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
  several,
  task_data,
  task_job,
  task_outputs,
  task_plan,
)
from train.transfer.task_job import TaskJob


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
  shared: tuple[TaskJob, ...] | None = None,
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
    task_job.check_fits(config)
    source = epath.Path(config.data.source).expanduser()
    if not (config.data.source.startswith('tfds') or source.exists()):
      raise FileNotFoundError(f'data.source={source}: there is no such folder')
  mesh = training.find_devices(config) if shared is None else shared[0].mesh
  task_plan.check_batches(config, mesh)

  if results is not None:
    sized = task_job.with_sizes_of(config, workdir)
    task_plan.check_continuation(config, workdir, sized)
    say(f'{workdir} holds a finished run of this config.')
    of_several = shared is not None
    task_plan.print_results(results, workdir, of_several=of_several)
    return None

  # ---- Sets, model, objective, optimiser ------------------------------------
  jobs = shared or task_job.plan_all(
    config, mesh, workdir=None if saved is None else workdir
  )
  if saved is not None:
    task_plan.check_continuation(config, workdir, jobs[0].config)
  config = task_plan.with_run_keys(jobs[0].config, config)
  return FineTuning(config, jobs, workdir, of_several=shared is not None)


class FineTuning(Job):
  """A fine-tuning, on one task or on several in turns, of planned tasks."""

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    jobs: tuple[TaskJob, ...],
    workdir: epath.Path,
    *,
    of_several: bool,
  ):
    """Takes the plans of the tasks, which its steps and state are of.

    `of_several` says whether it is one of several runs, whose ends are short.
    """
    train, first = config.train, jobs[0]
    self.config, self.mesh, self.shapes = config, first.mesh, first.shapes
    self.total_steps = first.total_steps
    self.save_every = train.checkpoint_every or first.eval_every
    self.score_every = first.eval_every
    self._jobs, self._workdir, self._of_several = jobs, workdir, of_several
    self._seed = train.seed
    sizes = [len(job.splits['train'].features) for job in jobs]
    self._turns = several.Turns(sizes, self.total_steps, self._seed)
    self._rows = sharding.local_rows(self.mesh, train.global_batch)
    self._main = [f'eval/{j.task.name}/{j.task.metrics[0]}' for j in jobs]
    self.keep = Keep(
      self._main[0] if self._is_alone else several.MEAN,
      best=train.select == 'best',
      patience=train.patience,
      plateau=train.plateau,
    )
    self.steps = {self._named('train', job): job.train_step for job in jobs}
    self.steps |= {
      self._named('predict', job): job.predict_step for job in jobs
    }
    # Of the last score: task -> split -> logits.
    self._last_logits: dict[str, Any] = {}
    self._programs, self.num_later = [], 0
    for job, own_steps in zip(jobs, self._turns.totals, strict=True):
      found, more = task_plan.programs(
        job,
        self._seed,
        int(own_steps),
        self.arguments(()),
        functools.partial(self._named, job=job),
      )
      self._programs += found
      self.num_later += more

  @property
  def _is_alone(self) -> bool:
    return len(self._jobs) == 1

  def _named(self, step: str, job: TaskJob) -> str:
    return step if self._is_alone else f'{step} {job.task.name}'

  def stage(self, step: int) -> Stage:
    """Returns the step of the task whose turn it is after `step` steps."""
    job = self._jobs[self._turns.at(step)[0]]
    return Stage(self._named('train', job), job.model, job.objective)

  def batch(self, step: int, whole: bool) -> pipeline.Batch:
    """Returns the host batch after `step` steps, whole or our own rows."""
    number, turn = self._turns.at(step)
    batches = self._jobs[number].splits['train'].batches
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
    job = self._jobs[self._turns.at(step)[0]]
    return batch['token_mask'].size, job.step_flops(batch)

  def programs(self, done: int) -> Iterable[Program]:
    """Returns the steps on the longest rows."""
    del done
    return self._programs

  def create(self) -> state.TrainState:
    """Returns the state at step 0, with the initial weights."""
    first = self._jobs[0]
    created = first.begin(self._seed)
    if first.reader.is_begun:  # read by each process
      processes.check_same(lambda: state.checksums(created.params))
    return created

  def facts(self) -> dict[str, Any]:
    """Returns the tasks' settings and the digests of their sets."""
    return {
      name: value
      for job in self._jobs
      for name, value in task_plan.facts(job).items()
    }

  def write(self, workdir: epath.Path) -> None:
    """Writes the vocabulary, and what the weights need beside it."""
    first = self._jobs[0]
    first.reader.write(workdir, first.task)

  def _with_compiled(
    self, compiled: Mapping[str, Any], job: TaskJob
  ) -> TaskJob:
    step = compiled[self._named('predict', job)]
    return dataclasses.replace(job, predict_step=step)

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
    for job in self._jobs:
      name = job.task.name
      found, self._last_logits[name] = task_outputs.score_dev(
        self._with_compiled(compiled, job), params, stay_alive
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
    for job in self._jobs:
      name = job.task.name
      folder = self._workdir
      if not self._is_alone:
        folder = folder / several.FOLDER / name
      known = self._last_logits.get(name, {}) if is_scored else {}
      found, bounds = task_outputs.score_all(
        self._with_compiled(compiled, job), params, folder, known, stay_alive
      )
      figures |= found | task_outputs.oracles(
        job,
        lambda metric: processes.of_first(
          metrics.history(workdir, metric, self.total_steps)
        ),
      )
      intervals |= bounds
    if not self._is_alone:
      mean = statistics.fmean(figures[name] for name in self._main)
      figures = {several.MEAN: mean} | figures
    sizes = [len(job.splits['train'].examples) for job in self._jobs]
    return {
      'main_metric': self.keep.metric,
      'metrics': figures,
      'intervals': intervals,
      'train_size': sum(sizes),
    }

  def print_plan(self, workdir: epath.Path, in_detail: bool) -> None:
    """Prints the run's sizes, always in detail."""
    del in_detail
    task_plan.print_plan(self._jobs, workdir)

  def score_line(self, step: int, row: Mapping[str, float]) -> str:
    """Returns the metrics of a score as one line."""
    return task_plan.evaluation_line(step, row)

  def print_results(
    self, results: Mapping[str, Any], workdir: epath.Path
  ) -> None:
    """Prints the end of a run."""
    task_plan.print_results(results, workdir, of_several=self._of_several)
