"""What a fine-tuning will do, checked and printed; and what it has done."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
from etils import epath

from data.examples import pipeline
from data.tasks.examples import Task
from models import features
from train.engine import memory, optim
from train.host import console, files, processes
from train.host.console import say
from train.params import opened
from train.run import checkpoint, ledger, metrics, settings
from train.transfer.task_data import Split
from train.transfer.task_job import DEV, TaskJob

SELECT = ('best', 'last')
COUNT = ('bert', 'gpt', 'rows')
# What was so before there was a key for it.
BEFORE = {'train.count': 'rows'}
# How often a model is scored decides which is kept, and when a run is over.
FREE_KEYS = {*settings.FREE_KEYS, 'eval.global_batch'} - {'train.eval_every'}
PATHS = ('data.source', 'data.tokenizer', 'init.weights')


def check(config: ml_collections.ConfigDict, batch_parts: int) -> None:
  """Checks all of a config that needs neither data nor weights.

  Args:
    config: of a task.
    batch_parts: over how many devices the mesh splits a batch.

  Raises:
    ValueError: naming the key, what was found and what was expected.
  """
  train, task = config.train, config.task
  ensure = functools.partial(settings.expect, config)
  for key in ('micro_batches', 'log_every', 'hang_minutes', 'global_batch'):
    ensure(getattr(train, key) > 0, f'train.{key}', 'a positive number')
  for key in ('steps', 'eval_every', 'checkpoint_every', 'patience'):
    value = getattr(train, key)
    ensure(value is None or value > 0, f'train.{key}', 'a positive number')
  ensure(
    train.steps is not None or train.num_epochs > 0,
    'train.num_epochs',
    'a positive number',
  )
  ensure(train.count in COUNT, 'train.count', f'one of {COUNT}')
  ensure(train.select in SELECT, 'train.select', f'one of {SELECT}')
  ensure(
    train.patience is None or train.select == 'best',
    'train.patience',
    "none with train.select='last': where a run stops for want of a better"
    " score, the last model is not the best; pass train.select='best' too",
  )
  ensure(
    train.platform in settings.PLATFORMS,
    'train.platform',
    f'one of {settings.PLATFORMS}',
  )
  ensure(
    config.data.loader in settings.LOADERS,
    'data.loader',
    f'one of {settings.LOADERS}',
  )
  for key in ('train_limit', 'eval_limit'):
    value = getattr(config.data, key)
    ensure(value is None or value > 0, f'data.{key}', 'a positive number')
  for key in (
    'doc_stride',
    'max_question',
    'max_answer',
    'n_best',
    'bilstm_dim',
  ):
    ensure(getattr(task, key) > 0, f'task.{key}', 'a positive number')
  for key in ('lm_weight', 'soft_classes', 'bilstm_layers'):
    ensure(getattr(task, key) >= 0, f'task.{key}', '0 or more')
  ensure(
    task.mix_l2 is None or task.mix_l2 >= 0, 'task.mix_l2', '0 or more, or none'
  )
  for key in ('dropout_rate', 'attention_dropout_rate'):
    rate = getattr(config.model, key, 0.0)
    ensure(0 <= rate < 1, f'model.{key}', 'a share in [0, 1)')
  known = (*features.FEATURES, 'mix')
  ensure(task.features in known, 'task.features', f'one of {", ".join(known)}')
  ensure(
    0 <= config.optim.warmup_fraction < 1,
    'optim.warmup_fraction',
    'a share in [0, 1)',
  )
  ensure(
    config.optim.name in optim.OPTIMIZERS,
    'optim.name',
    f'one of {optim.OPTIMIZERS}',
  )
  for key, parts in (
    ('train.global_batch', train.micro_batches * batch_parts),
    ('eval.global_batch', batch_parts),
  ):
    section, _, name = key.partition('.')
    size = getattr(getattr(config, section), name)
    ensure(
      size > 0 and size % parts == 0,
      key,
      f'a multiple of {parts}: of the devices that the mesh splits a batch'
      ' over, and of train.micro_batches',
    )


def check_continuation(
  config: ml_collections.ConfigDict,
  workdir: epath.Path,
  planned: ml_collections.ConfigDict,
) -> None:
  """Refuses to go on with a run of another config.

  Args:
    config: as it was given.
    workdir: of the run.
    planned: the same with the model's sizes.

  Raises:
    ValueError: naming the keys that differ.
  """
  old = settings.read_workdir_config(workdir)
  new = with_run_keys(planned, config)
  differing = differing_keys(settings.flatten(old), settings.flatten(new))
  if differing:
    lines = [
      f'  {key}: {old!r} there, {new!r} here'
      for key, (old, new) in differing.items()
    ]
    raise ValueError(
      f'{workdir} holds a run of another config:\n'
      + '\n'.join(lines)
      + '\nPass the same values, or another --workdir'
    )


def differing_keys(
  old: Mapping[str, Any], new: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
  """Returns {key: (old, new)} of two flat configs of tasks.

  Free keys are left out, and paths that are written in two ways. A key that a
  config is too old to have has the value of `BEFORE`.
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
  """Returns a job's config with what a run may have for itself: its seed."""
  return settings.with_overrides(planned, {'train.seed': config.train.seed})


def write_workdir(
  config: ml_collections.ConfigDict, workdir: epath.Path, job: TaskJob
) -> None:
  """Makes a workdir that needs nothing else: config, tokenizer, model.

  Raises:
    OSError: if the folder cannot be written.
  """
  files.write_atomically(
    workdir / 'config.json', settings.as_json(config) + '\n'
  )
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


def check_same(job: TaskJob, saved: int | None) -> None:
  """Checks that all processes read the same sets; all of them call it.

  Args:
    job: as this process planned it.
    saved: the step that its run continues after.

  Raises:
    ValueError: naming what differs, and which processes found what.
  """
  digests = {
    f'the examples of {name}': digest(split)
    for name, split in job.splits.items()
  }
  labels = list(job.task.labels)
  processes.check_same({'steps': saved, 'the labels': labels} | digests)


def digest(split: Split) -> str:
  """Returns a SHA-256 of a split: its examples, and what the model reads."""
  sha = hashlib.sha256()
  for example in split.examples:
    sha.update(repr(example).encode())
  for name, value in vars(split.features).items():
    sha.update(name.encode())
    array = hasattr(value, 'tobytes')
    sha.update(value.tobytes() if array else repr(value).encode())
  return sha.hexdigest()


def drop_later_models(kept: checkpoint.Checkpoints, first_step: int) -> None:
  """Removes a best model of a step that is not done yet: it comes again."""
  step = kept.latest()
  if step is not None and step > first_step:
    kept.delete(step)


@dataclasses.dataclass
class History:
  """The scores of dev so far.

  Attributes:
    values: in their order.
  """

  values: list[float]

  @classmethod
  def read(cls, workdir: epath.Path, metric: str, step: int) -> 'History':
    """Returns that of a run that continues after `step`."""
    return cls(
      [
        value
        for at, name, value in metrics.read_metrics(workdir)
        if name == metric and at <= step
      ]
    )

  def add(self, value: float) -> None:
    """Adds the next one."""
    self.values.append(value)

  def is_best(self) -> bool:
    """Whether the last is better than all before it."""
    *before, last = self.values
    return all(last > value for value in before)

  def is_over(self, config: ml_collections.ConfigDict) -> bool:
    """Whether `train.patience` scores have passed without a best."""
    patience = config.train.patience
    if patience is None or len(self.values) <= patience:
      return False
    best = self.values.index(max(self.values))
    return len(self.values) - 1 - best >= patience


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


def memory_of(job: TaskJob, seed: int) -> memory.Plan:
  """Compiles the largest steps of a run; returns the memory that they need.

  Args:
    job: the job.
    seed: of the run.
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
  return memory.plan(
    job.shapes,
    [
      memory.compile_program(
        f'training step of {_size(batch)}',
        memory.SMALLER_STEP.format(2 * config.train.micro_batches),
        job.train_step,
        job.shapes,
        memory.batch_shapes(batch, mesh),
        jax.ShapeDtypeStruct((), jnp.int32),
      ),
      memory.compile_program(
        f'scoring of {_size(largest)}',
        memory.SMALLER_EVALUATION,
        job.predict_step,
        job.shapes.params,
        memory.batch_shapes(largest, mesh),
      ),
    ],
    mesh,
    loader=config.data.loader,
    num_later=len(lengths) + len(scoring) - 2,
  )


def _size(batch: Mapping[str, Any]) -> str:
  return ' x '.join(map(str, batch['tokens'].shape))


def _epochs(job: TaskJob, train: Split) -> str:
  """Returns what a step reads, and how often a run reads all that there is."""
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
  """Returns one line of dev's figures."""
  prefix = f'eval/{task.name}/'
  figures = ', '.join(
    f'{name.removeprefix(prefix)} {value:.4f}' for name, value in row.items()
  )
  return f'step {step}: {DEV} {figures}'


def print_results(
  results: Mapping[str, Any], workdir: epath.PathLike, *, of_several: bool
) -> None:
  """Prints a finished run's figures.

  Args:
    results: of the run.
    workdir: its own.
    of_several: its model may be dropped for a better one.
  """
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
