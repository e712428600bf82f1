"""Checks and prints a fine-tuning run: its plan, and its results."""

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import ml_collections
from etils import epath
from jax.sharding import Mesh

from data.examples import pipeline
from data.scoring.kinds import KINDS
from data.tasks.examples import Task
from models import features
from train.engine import memory, sharding
from train.host import console, files, processes
from train.host.console import say
from train.params import opened
from train.run import ledger, settings
from train.run.job import Program
from train.transfer.task_data import Split
from train.transfer.task_job import COUNTS, DEV, TaskJob

SELECT = ('best', 'last')
# Values for configs older than a key.
BEFORE = {'train.count': 'rows'}
# eval_every is not free: scores decide on the kept model and on the end.
FREE_KEYS = {*settings.FREE_KEYS, 'eval.global_batch'} - {'train.eval_every'}
PATHS = ('data.source', 'data.tokenizer', 'init.weights')


def check(config: ml_collections.ConfigDict) -> None:
  """Checks all of a config that needs neither data, weights nor devices."""
  train, task = config.train, config.task
  ensure = functools.partial(settings.expect, config)
  settings.check_common(config)
  ensure(train.count in COUNTS, 'train.count', f'one of {tuple(COUNTS)}')
  ensure(train.select in SELECT, 'train.select', f'one of {SELECT}')
  ensure(
    train.patience is None or train.select == 'best',
    'train.patience',
    "none with train.select='last': where a run stops for want of a better"
    " score, the last model is not the best; pass train.select='best' too",
  )
  ensure(
    task.name != 'own' or config.own.kind in KINDS,
    'own.kind',
    f'one of {", ".join(KINDS)}',
  )
  known = (*features.FEATURES, 'mix')
  ensure(task.features in known, 'task.features', f'one of {", ".join(known)}')


def check_batches(config: ml_collections.ConfigDict, mesh: Mesh) -> None:
  """Checks that the batches of a config divide over a mesh."""
  size = config.train.global_batch
  sizes = {f'train.global_batch={size}': size}
  settings.check_batches(config, sizes, sharding.batch_parts(mesh))


def check_continuation(
  config: ml_collections.ConfigDict,
  workdir: epath.Path,
  planned: ml_collections.ConfigDict,
) -> None:
  """Checks that a workdir's run has the same config, else ValueError.

  `planned` is the given `config` with the model's sizes.
  """
  old = settings.read_workdir_config(workdir)
  new = with_run_keys(planned, config)
  differing = differing_keys(settings.flatten(old), settings.flatten(new))
  if differing:
    raise ValueError(
      f'{workdir} holds a run of another config:'
      f'{settings.describe_differing(differing)}'
      '\nPass the same values, or another --workdir'
    )


def differing_keys(
  old: Mapping[str, Any], new: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
  """Returns {key: (old, new)} of two flat configs of tasks.

  Two spellings of a path do not differ; old configs take keys from `BEFORE`.
  """
  old, new = (BEFORE | dict(flat) for flat in (old, new))
  return {
    key: (before, after)
    for key, (before, after) in settings.differing_keys(
      old, new, FREE_KEYS
    ).items()
    if key not in PATHS or _resolve(before) != _resolve(after)
  }


def _resolve(path: str | None) -> str | None:
  if path is None or '://' in path:
    return path
  return str(epath.Path(path).expanduser().resolve())


def with_run_keys(
  planned: ml_collections.ConfigDict, config: ml_collections.ConfigDict
) -> ml_collections.ConfigDict:
  """Returns a job's config with the seed of one run."""
  return settings.with_overrides(planned, {'train.seed': config.train.seed})


def write_workdir(workdir: epath.Path, job: TaskJob) -> None:
  """Writes the tokenizer, and the facts about encoder and head."""
  files.write_atomically(
    workdir / opened.IMPORTED_FILE,
    json.dumps(
      {
        'kind': 'fine-tuning',
        'tokenizer': job.encoder.tokenizer is not None,
        'fields': opened.fields_beside(job.encoder.module),
        'labels': {str(i): name for i, name in enumerate(job.task.labels)},
      },
      indent=2,
    )
    + '\n',
  )
  if job.encoder.tokenizer is not None:
    job.encoder.tokenizer.save(workdir)


def facts(job: TaskJob) -> dict[str, Any]:
  """Returns digests of the data that each process reads by itself."""
  digests = {
    f'the examples of {name}': digest(split)
    for name, split in job.splits.items()
  }
  return {'the labels': list(job.task.labels), **digests}


def digest(split: Split) -> str:
  """Returns a SHA-256 of a split: its examples and features."""
  sha = hashlib.sha256()
  for example in split.examples:
    sha.update(repr(example).encode())
  for name, value in vars(split.features).items():
    sha.update(name.encode())
    array = hasattr(value, 'tobytes')
    sha.update(value.tobytes() if array else repr(value).encode())
  return sha.hexdigest()


def print_plan(job: TaskJob, workdir: epath.PathLike) -> None:
  """Prints the plan of a run."""
  config, mesh = job.config, job.mesh
  axes = ' x '.join(f'{axis} {size}' for axis, size in mesh.shape.items())
  train = job.splits['train']
  rows = [
    ('workdir', workdir),
    ('devices', f'{jax.device_count()} x {jax.devices()[0].device_kind}'),
    ('mesh', axes),
    ('task', f'{job.task.title} ({job.task.kind})'),
  ]
  for name, split in job.splits.items():
    note = '' if split.is_labelled else ', without labels'
    windows = ''
    if len(split.features) != len(split.examples):
      windows = f' in {len(split.features):,} windows'
    cut = split.features.truncated
    cut = f', {cut:,} of them cut' if cut else ''
    rows.append((name, f'{len(split.examples):,} examples{windows}{cut}{note}'))
  if job.task.labels:
    rows.append(('labels', _short(job.task.labels)))
  rows += [
    (
      'model',
      f'{config.model.name}, {config.model.num_layers} layers,'
      f' {job.num_parameters:,} parameters'
      + (', the encoder frozen' if config.task.frozen else ''),
    ),
    ('weights', config.init.weights or 'none: without pre-training'),
    (
      'training',
      f'{job.total_steps:,} steps of {_epochs(job, train)},'
      f' dev every {job.eval_every:,} steps',
    ),
  ]
  console.table(rows, 'Plan')


def programs(
  job: TaskJob, seed: int, arguments: tuple[jax.Array, ...]
) -> tuple[list[Program], int]:
  """Returns the largest steps of a run, and the number of smaller ones.

  `arguments` are those of a training step, see `train.run.job.Job`.
  """
  config, mesh = job.config, job.mesh
  rows, scored = config.train.global_batch, config.eval.global_batch
  training = job.splits['train'].batches
  lengths = training.train_lengths(rows, seed, job.total_steps)
  batch = training.train_batch(
    lengths[max(lengths)], pipeline.ALL_ROWS, rows, seed, job.total_steps
  )
  scoring = {
    length: split.batches
    for name, split in job.splits.items()
    if name == DEV or (name != 'train' and split.is_labelled)
    for length in split.batches.eval_lengths(scored)
  }
  largest = scoring[max(scoring)].longest_batch(scored)
  found = [
    Program(
      f'training step of {_size(batch)}',
      memory.SMALLER_STEP.format(2 * config.train.micro_batches),
      'train',
      (
        job.shapes,
        memory.batch_shapes(batch, mesh),
        *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arguments),
      ),
    ),
    Program(
      f'scoring of {_size(largest)}',
      memory.SMALLER_EVALUATION,
      'predict',
      (job.shapes.params, memory.batch_shapes(largest, mesh)),
    ),
  ]
  return found, len(lengths) + len(scoring) - 2


def _size(batch: Mapping[str, Any]) -> str:
  return ' x '.join(map(str, batch['tokens'].shape))


def _epochs(job: TaskJob, train: Split) -> str:
  """Returns the examples of a step and the epochs of a run as text."""
  batch = job.config.train.global_batch
  read = job.total_steps * batch
  of_windows = f'{read / len(train.features):.3g}'
  if len(train.features) == len(train.examples):
    return f'{batch} examples, {of_windows} epochs'
  if job.config.train.count == 'rows':
    return f'{batch} windows, {of_windows} epochs of these'
  return (
    f'{batch} windows, {read / len(train.examples):.3g} epochs by the number of'
    f' examples, {of_windows} by that of windows'
  )


def _short(labels: tuple[str, ...]) -> str:
  shown = ', '.join(labels[:8])
  return shown + (f', ... ({len(labels)})' if len(labels) > 8 else '')


def evaluation_line(step: int, row: Mapping[str, float], task: Task) -> str:
  """Returns one line of dev's metrics."""
  prefix = f'eval/{task.name}/'
  figures = ', '.join(
    f'{name.removeprefix(prefix)} {value:.4f}' for name, value in row.items()
  )
  return f'step {step}: {DEV} {figures}'


def print_results(
  results: Mapping[str, Any], workdir: epath.PathLike, *, of_several: bool
) -> None:
  """Prints a run's metrics; if it is not `of_several`, a command to use it."""
  rows = []
  for name, value in results['metrics'].items():
    low, high = results['intervals'].get(name, (None, None))
    interval = '' if low is None else f'  ({low:.4f} to {high:.4f})'
    rows.append((name.removeprefix('eval/'), f'{value:.4f}{interval}'))
  console.table(
    rows,
    f'After step {results["best_step"]} of {results["steps"]}'
    f' ({console.duration(results["seconds"])}, {results["device"]});'
    ' in brackets 95 % of resampled sets',
  )
  if processes.is_first():
    spent = ledger.read(workdir)
    if spent:
      say('\n' + ledger.sentence(spent))
  say(
    f'Everything is in {workdir}: results.json, predictions, curves.png,'
    ' metrics.csv.'
    + (
      ''
      if of_several
      else ' To use the model: python -m train.predict'
      f' {workdir} --input FILE --output FILE'
    )
  )
