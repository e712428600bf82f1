"""Fine-tuning on a task: a config becomes a job for the training loop."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import ml_collections
from etils import epath

from data.examples import pipeline
from data.tasks import registry
from train.engine import sharding, state
from train.host import processes
from train.host.console import say
from train.run import checkpoint, metrics, training, workdirs
from train.run.job import Job, Keep, StayAlive
from train.transfer import (
  several,
  task_data,
  task_job,
  task_outputs,
  task_plan,
)
from train.transfer.task_job import TaskJob


def check(config: ml_collections.ConfigDict, *, dry_run: bool = False) -> None:
  """Checks all of a config that needs neither data, weights nor devices."""
  del dry_run  # labelled sets are small
  task_plan.check(config)
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
    task_job.check(config)
    source = epath.Path(config.data.source).expanduser()
    if not (config.data.source.startswith('tfds') or source.exists()):
      raise FileNotFoundError(f'data.source={source}: there is no such folder')
  mesh = training.find_devices(config) if shared is None else shared[0].mesh
  task_plan.check_batches(config, mesh)

  def print_results(results: Mapping[str, Any], workdir: epath.Path) -> None:
    task_plan.print_results(results, workdir, of_several=shared is not None)

  if results is not None:
    sized = task_job.with_sizes_of(config, workdir)
    task_plan.check_continuation(config, workdir, sized)
    say(f'{workdir} holds a finished run of this config.')
    print_results(results, workdir)
    return None

  # ---- Sets, model, objective, optimiser ------------------------------------
  jobs = shared or task_job.plan_all(
    config, mesh, workdir=None if saved is None else workdir
  )
  first = jobs[0]
  if saved is not None:
    task_plan.check_continuation(config, workdir, first.config)
  config = task_plan.with_run_keys(first.config, config)
  seed, total_steps = config.train.seed, first.total_steps
  size = config.train.global_batch
  rows = sharding.local_rows(mesh, size)
  turns = several.Turns(
    [len(job.splits['train'].features) for job in jobs], total_steps, seed
  )
  alone = len(jobs) == 1
  main = [f'eval/{job.task.name}/{job.task.metrics[0]}' for job in jobs]
  last_logits: dict[str, Any] = {}  # of the last score: task -> split -> them

  def named(step: str, job: TaskJob) -> str:
    return step if alone else f'{step} {job.task.name}'

  def folder_of(job: TaskJob) -> epath.Path:
    return workdir if alone else workdir / several.FOLDER / job.task.name

  def job_of(step: int) -> TaskJob:
    return jobs[turns.at(step)[0]]

  def batch(step: int, whole: bool) -> pipeline.Batch:
    number, turn = turns.at(step)
    return (
      jobs[number]
      .splits['train']
      .batches.train_batch(
        turn,
        pipeline.ALL_ROWS if whole else rows,
        size,
        seed,
        int(turns.totals[number]),
      )
    )

  def create() -> state.TrainState:
    created = first.begin(seed)
    if first.reader.is_begun:  # read by each process
      processes.check_same(lambda: state.checksums(created.params))
    return created

  def with_compiled(compiled: Mapping[str, Any], job: TaskJob) -> TaskJob:
    return dataclasses.replace(
      job, predict_step=compiled[named('predict', job)]
    )

  def score(
    compiled: Mapping[str, Any], params: Any, step: int, stay_alive: StayAlive
  ) -> dict[str, float]:
    del step
    row = {}
    for job in jobs:
      name = job.task.name
      found, last_logits[name] = task_outputs.score_dev(
        with_compiled(compiled, job), params, stay_alive
      )
      row |= {f'eval/{name}/{key}': value for key, value in found.items()}
    if not alone:
      row[several.MEAN] = statistics.fmean(row[metric] for metric in main)
    return row

  def finish(
    compiled: Mapping[str, Any],
    params: Any,
    workdir: epath.Path,
    is_scored: bool,
    stay_alive: StayAlive,
  ) -> dict[str, Any]:
    figures, intervals = {}, {}
    for job in jobs:
      known = last_logits.get(job.task.name, {}) if is_scored else {}
      found, bounds = task_outputs.score_all(
        with_compiled(compiled, job), params, folder_of(job), known, stay_alive
      )
      figures |= found | task_outputs.oracles(
        job,
        lambda metric: processes.of_first(
          metrics.history(workdir, metric, total_steps)
        ),
      )
      intervals |= bounds
    if not alone:
      mean = statistics.fmean(figures[metric] for metric in main)
      figures = {several.MEAN: mean} | figures
    return {
      'main_metric': keep.metric,
      'metrics': figures,
      'intervals': intervals,
      'train_size': sum(len(job.splits['train'].examples) for job in jobs),
    }

  keep = Keep(
    main[0] if alone else several.MEAN,
    best=config.train.select == 'best',
    patience=config.train.patience,
    plateau=config.train.plateau,
  )

  def arguments(scores: Sequence[float]) -> tuple:
    if keep.plateau is None:
      return (jnp.int32(seed),)
    return jnp.int32(seed), jnp.float32(keep.rate(scores))

  programs, num_later = [], 0
  for job, own_steps in zip(jobs, turns.totals, strict=True):
    found, more = task_plan.programs(
      job,
      seed,
      int(own_steps),
      arguments(()),
      lambda step, j=job: named(step, j),
    )
    programs += found
    num_later += more
  return Job(
    config=config,
    mesh=mesh,
    model=lambda step: job_of(step).model,
    shapes=first.shapes,
    steps={named('train', job): job.train_step for job in jobs}
    | {named('predict', job): job.predict_step for job in jobs},
    arguments=arguments,
    total_steps=total_steps,
    save_every=config.train.checkpoint_every or first.eval_every,
    score_every=first.eval_every,
    keep_checkpoints=1,
    profile=(),
    keep=keep,
    programs=lambda done: programs,
    num_later=num_later,
    step_name=lambda step: named('train', job_of(step)),
    objective=lambda step: job_of(step).objective,
    batch=batch,
    work=lambda step, batch: (
      batch['token_mask'].size,
      job_of(step).step_flops(batch),
    ),
    create=create,
    restore=lambda checkpoints: checkpoints.restore(first.shapes),
    facts=lambda: {
      name: value
      for job in jobs
      for name, value in task_plan.facts(job).items()
    },
    write=lambda workdir: first.reader.write(workdir, first.task),
    print_plan=lambda workdir, in_detail: task_plan.print_plan(jobs, workdir),
    score=score,
    score_line=task_plan.evaluation_line,
    finish=finish,
    print_results=print_results,
  )
