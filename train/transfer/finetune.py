"""Fine-tuning on a task: a config becomes a job for the training loop."""

import dataclasses
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
from train.run import checkpoint, training, workdirs
from train.run.job import Job, Keep, StayAlive
from train.transfer import encoders, task_job, task_outputs, task_plan
from train.transfer.task_job import TaskJob


def check(config: ml_collections.ConfigDict, *, dry_run: bool = False) -> None:
  """Checks all of a config that needs neither data, weights nor devices."""
  del dry_run  # labelled sets are small
  task_plan.check(config)
  if config.task.name != 'own':
    registry.find(config.task.name)


def make(
  config: ml_collections.ConfigDict,
  workdir: epath.PathLike,
  *,
  shared: TaskJob | None = None,
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
  mesh = training.find_devices(config) if shared is None else shared.mesh
  task_plan.check_batches(config, mesh)

  def print_results(results: Mapping[str, Any], workdir: epath.Path) -> None:
    task_plan.print_results(results, workdir, of_several=shared is not None)

  if results is not None:
    sized = encoders.with_sizes_of(config, workdir)
    task_plan.check_continuation(config, workdir, sized)
    say(f'{workdir} holds a finished run of this config.')
    print_results(results, workdir)
    return None

  # ---- Sets, model, objective, optimiser ------------------------------------
  parts = shared or task_job.plan(
    config, mesh, workdir=None if saved is None else workdir
  )
  if saved is not None:
    task_plan.check_continuation(config, workdir, parts.config)
  config = task_plan.with_run_keys(parts.config, config)
  seed, total_steps = config.train.seed, parts.total_steps
  size = config.train.global_batch
  rows = sharding.local_rows(mesh, size)
  training_set, dev = parts.splits['train'].batches, parts.splits[task_job.DEV]
  name = f'eval/{parts.task.name}'
  dev_logits = None  # of the last score

  def batch(step: int, whole: bool) -> pipeline.Batch:
    chosen = pipeline.ALL_ROWS if whole else rows
    return training_set.train_batch(step, chosen, size, seed, total_steps)

  def create() -> state.TrainState:
    created = parts.begin(seed)
    if parts.encoder.weights is not None:  # read by each process
      processes.check_same(lambda: state.checksums(created.params))
    return created

  def with_compiled(compiled: Mapping[str, Any]) -> TaskJob:
    return dataclasses.replace(parts, predict_step=compiled['predict'])

  def score(
    compiled: Mapping[str, Any], params: Any, step: int, stay_alive: StayAlive
  ) -> dict[str, float]:
    del step
    nonlocal dev_logits
    dev_logits, loss = task_outputs.run_model(
      with_compiled(compiled), params, dev, stay_alive
    )
    answers = task_outputs.predict(
      parts,
      dev,
      dev_logits,
      no_answer=task_outputs.has_no_answers(dev),
      threshold=task_outputs.tune_threshold(parts, dev, dev_logits),
    )
    found = task_outputs.score(parts, dev, answers)
    return {f'{name}/loss': loss} | {
      f'{name}/{metric}': value for metric, value in found.items()
    }

  def finish(
    compiled: Mapping[str, Any],
    params: Any,
    workdir: epath.Path,
    is_scored: bool,
    stay_alive: StayAlive,
  ) -> dict[str, Any]:
    known = dev_logits if is_scored else None
    figures, intervals = task_outputs.score_all(
      with_compiled(compiled), params, workdir, known, stay_alive
    )
    return {
      'metrics': figures,
      'intervals': intervals,
      'train_size': len(parts.splits['train'].examples),
    }

  keep = Keep(
    f'{name}/{parts.task.metrics[0]}',
    best=config.train.select == 'best',
    patience=config.train.patience,
    plateau=config.train.plateau,
  )

  def arguments(scores: Sequence[float]) -> tuple:
    if keep.plateau is None:
      return (jnp.int32(seed),)
    return jnp.int32(seed), jnp.float32(keep.rate(scores))

  programs = task_plan.programs(parts, seed, arguments(()))
  return Job(
    config=config,
    mesh=mesh,
    model=parts.model,
    shapes=parts.shapes,
    steps={'train': parts.train_step, 'predict': parts.predict_step},
    arguments=arguments,
    total_steps=total_steps,
    save_every=config.train.checkpoint_every or parts.eval_every,
    score_every=parts.eval_every,
    keep_checkpoints=1,
    profile=(),
    keep=keep,
    programs=lambda done: programs[0],
    num_later=programs[1],
    step_name=lambda step: 'train',
    objective=lambda step: parts.objective,
    batch=batch,
    work=lambda step, batch: (
      batch['token_mask'].size,
      parts.step_flops(batch),
    ),
    create=create,
    restore=lambda checkpoints: checkpoints.restore(parts.shapes),
    facts=lambda: task_plan.facts(parts),
    write=lambda workdir: task_plan.write_workdir(workdir, parts),
    print_plan=lambda workdir, in_detail: task_plan.print_plan(parts, workdir),
    score=score,
    score_line=lambda step, row: task_plan.evaluation_line(
      step, row, parts.task
    ),
    finish=finish,
    print_results=print_results,
  )
