"""Checks a fine-tuning, and prints its plan and its results."""

import functools
import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence

import jax
import ml_collections
import numpy as np
from etils import epath
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from configs import transfer, variants
from data import storage
from data.examples import pipeline
from data.inputs import framing
from data.scoring.kinds import KINDS
from data.tasks import files, registry
from train.engine import memory, sharding
from train.engine.state import TrainState
from train.host import console, device, processes
from train.host.files import Json
from train.run import ledger, settings, workdirs
from train.run.job import Program
from train.run.settings import FlatConfig, Value
from train.run.workdirs import Results
from train.transfer import bodies, tag_paths, task_outputs
from train.transfer.assemble import COUNTS
from train.transfer.program import TaskProgram
from train.transfer.task_data import DEV, Split

SELECT = ('best', 'last')
# eval_every is not free: scores decide on the kept model and on the end.
FREE_KEYS = {*settings.FREE_KEYS, 'eval.global_batch'} - {'train.eval_every'}
PATHS = (
  'data.source',
  'data.tokenizer',
  'init.weights',
  'init.teacher',
  'task.word_vectors',
  'distill.text',
)


def check_settings(config: ml_collections.ConfigDict) -> None:
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
    task.long_text in framing.LONG_TEXTS,
    'task.long_text',
    f'one of {framing.LONG_TEXTS}',
  )
  ensure(
    task.name != 'own' or config.own.kind in KINDS,
    'own.kind',
    f'one of {", ".join(KINDS)}',
  )
  ensure(
    task.name != 'own' or not task.test_languages,
    'task.test_languages',
    "none with task.name='own', whose files are of one language",
  )
  ensure(
    task.crf in tag_paths.SCHEMES,
    'task.crf',
    f'one of {tuple(tag_paths.SCHEMES)}',
  )
  bodies.program_of(config).check_keys(config)


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
  old = workdirs.read_config(workdir)
  new = with_run_keys(planned, config)
  differing = differing_keys(settings.flatten(old), settings.flatten(new))
  if differing:
    raise ValueError(
      f'{workdir} holds a run of another config:'
      f'{settings.describe_differing(differing)}'
      '\nPass the same values, or another --workdir. To begin a new run with'
      ' these weights:\n'
      f'  --workdir=ANOTHER --config.init.weights={workdir}'
    )


def differing_keys(
  old: FlatConfig, new: FlatConfig
) -> dict[str, tuple[Value, Value]]:
  """Returns {key: (old, new)} of two flat configs of tasks.

  Two spellings of a path do not differ.
  """
  return {
    key: (before, after)
    for key, (before, after) in settings.differing_keys(
      old, new, FREE_KEYS
    ).items()
    if key not in PATHS or _resolve(before) != _resolve(after)
  }


def _resolve(path: str | None) -> str | None:
  if path is None or files.is_named(path) or storage.is_remote(path):
    return path
  return str(epath.Path(path).expanduser().resolve())


def with_run_keys(
  planned: ml_collections.ConfigDict, config: ml_collections.ConfigDict
) -> ml_collections.ConfigDict:
  """Returns a run's config with the seed of one run."""
  return settings.with_overrides(planned, {'train.seed': config.train.seed})


def facts(program: TaskProgram) -> dict[str, Json]:
  """Returns digests of all that each process reads by itself."""
  digests = {
    f'the examples of {program.task.name}, {name}': digest(split)
    for name, split in program.splits.items()
  }
  return {
    f'the labels of {program.task.name}': list(program.task.labels),
    **digests,
    **program.facts(),
    **program.files(),
  }


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


def print_plan(
  programs: Sequence[TaskProgram],
  workdir: epath.PathLike,
  num_parameters: int,
  steps: str,
) -> None:
  """Prints the plan of a run of one task, or of several.

  `steps` says how many there are, of how many examples.
  """
  first = programs[0]
  config, mesh = first.config, first.mesh
  axes = ' x '.join(f'{axis} {size}' for axis, size in mesh.shape.items())
  rows = [
    ('workdir', workdir),
    ('devices', device.describe_devices(config.model.dtype)),
    ('mesh', axes),
  ]
  for program in programs:
    rows.append(('task', f'{program.task.title} ({program.task.kind})'))
    for name, split in program.splits.items():
      note = '' if split.is_labelled else ', without labels'
      windows = ''
      if len(split.features) != len(split.examples):
        windows = f' in {len(split.features):,} windows'
      cut = split.features.truncated
      cut = f', {cut:,} of them cut' if cut else ''
      if cut and 'long_text' in config.task and program.task.labels:
        cut += f' (task.long_text={config.task.long_text})'
      text = f'{len(split.examples):,} examples{windows}{cut}{note}'
      rows.append((name, text))
    if program.task.labels:
      rows.append(('labels', _short(program.task.labels)))
  rows += [
    (
      'model',
      f'{config.model.name}, {config.model.num_layers} layers,'
      f' {num_parameters:,} parameters',
    ),
    *first.describe(),
    *([('recipe', recipe)] if (recipe := recipe_of(config)) else []),
    ('training', steps),
  ]
  console.table(rows, 'Plan')


def recipe_of(config: ml_collections.ConfigDict) -> str:
  """Returns the recipe of `configs.transfer` that a config has, as text.

  It is the one with the fewest other values of those keys that differ between
  recipes; these values are named. Of a model that reads words it is ''.
  """
  name = config.task.name
  if config.model.name in variants.WORD_MODELS:
    return ''
  recipes = {
    recipe: settings.flatten(
      transfer.get_config(f'task={name},recipe={recipe}')
    )
    for recipe in transfer.RECIPES
  }
  first = recipes[transfer.RECIPES[0]]
  keys = [
    key
    for key in first
    if any(values[key] != first[key] for values in recipes.values())
  ]
  ours = settings.flatten(config)
  others = {
    recipe: [key for key in keys if values[key] != ours[key]]
    for recipe, values in recipes.items()
  }
  recipe = min(others, key=lambda recipe: len(others[recipe]))
  changes = ', '.join(
    f'{key}={ours[key]} for {recipes[recipe][key]}' for key in others[recipe]
  )
  text = f'{recipe} ({config.optim.name}, rate {config.optim.learning_rate:g})'
  return f'{text}, but {changes}' if changes else text


def largest_steps(
  program: TaskProgram,
  shapes: TrainState,
  seed: int,
  own_steps: int,
  arguments: tuple[jax.Array, ...],
  named: Callable[[str], str],
) -> tuple[list[Program], int]:
  """Returns a task's largest steps, and the number of its smaller ones.

  Args:
    program: of the task.
    shapes: the training state as ShapeDtypeStructs.
    seed: of the run.
    own_steps: number of the run's steps that train the task.
    arguments: the arguments of a training step after state and batch.
    named: kind of step -> its name in `Job.steps`.
  """
  config, mesh = program.config, program.mesh
  rows, scored = config.train.global_batch, config.eval.global_batch
  training = program.splits['train'].batches
  lengths = training.train_lengths(rows, seed, own_steps)
  batch = training.train_batch(
    lengths[max(lengths)], pipeline.ALL_ROWS, rows, seed, own_steps
  )
  scoring = {
    length: split.batches
    for name, split in program.splits.items()
    if name == DEV or (name != 'train' and split.is_labelled)
    for length in split.batches.eval_lengths(scored)
  }
  largest = scoring[max(scoring)].longest_batch(scored)
  everywhere = NamedSharding(mesh, PartitionSpec())
  found = [
    Program(
      f'training step of {_size(batch)}',
      memory.SMALLER_STEP.format(2 * config.train.micro_batches),
      named('train'),
      (
        shapes,
        memory.batch_shapes(batch, mesh),
        *(
          # As the loop's own, which are made under the mesh; else the step is
          # compiled twice.
          jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere)
          for x in arguments
        ),
      ),
    ),
    Program(
      f'scoring of {_size(largest)}',
      memory.SMALLER_EVALUATION,
      named('predict'),
      (shapes.params, memory.batch_shapes(largest, mesh)),
    ),
  ]
  return found, len(lengths) + len(scoring) - 2


def _size(batch: Mapping[str, np.ndarray]) -> str:
  return ' x '.join(map(str, batch['tokens'].shape))


def epochs(programs: Sequence[TaskProgram], total_steps: int) -> str:
  """Returns the examples of a step and the epochs of a run as text."""
  config = programs[0].config
  batch = config.train.global_batch
  read = total_steps * batch
  training_sets = [program.splits['train'] for program in programs]
  num_rows = sum(len(split.features) for split in training_sets)
  num_examples = sum(len(split.examples) for split in training_sets)
  of_windows = f'{read / num_rows:.3g}'
  if num_rows == num_examples:
    of_one = '' if len(programs) == 1 else ' of one task'
    return f'{batch} examples{of_one}, {of_windows} epochs'
  if config.train.count == 'rows':
    return f'{batch} windows, {of_windows} epochs of these'
  return (
    f'{batch} windows, {read / num_examples:.3g} epochs by the number of'
    f' examples, {of_windows} by that of windows'
  )


def _short(labels: tuple[str, ...]) -> str:
  shown = ', '.join(labels[:8])
  return shown + (f', ... ({len(labels)})' if len(labels) > 8 else '')


def evaluation_line(step: int, row: Mapping[str, float]) -> str:
  """Returns one line of dev's metrics; of one task without its name."""
  row = {name: value for name, value in row.items() if '/test@' not in name}
  names = [name.removeprefix('eval/') for name in row]
  if len({name.partition('/')[0] for name in names}) == 1:
    names = [name.partition('/')[2] for name in names]
  figures = ', '.join(
    f'{name} {value:.4f}'
    for name, value in zip(names, row.values(), strict=True)
  )
  return f'step {step}: {DEV} {figures}'


def _print_languages(task: str, figures: Mapping[str, float]) -> None:
  """Prints the table of a task's languages: its first metric by split.

  results.json has the other metrics.
  """
  declared = registry.find(task)
  metric = declared.metrics[0]

  def cell(split: str, language: str, ending: str = '') -> str:
    place = split if language == declared.language else f'{split}@{language}'
    value = figures.get(
      '/'.join(
        filter(
          None, ('eval', task, '' if place == DEV else place, metric + ending)
        )
      )
    )
    return '' if value is None else f'{value:.4f}'

  languages = dict.fromkeys(
    name.split('/')[2].partition('@')[2] for name in figures if '@' in name
  )
  rows = [('', f'{"dev":8}{"test":8}oracle')]
  for language in (declared.language, *languages):
    dev, test = cell(DEV, language), cell('test', language)
    oracle = cell('test', language, task_outputs.ORACLE)
    if not oracle and (oracle := cell(DEV, language, task_outputs.ORACLE)):
      oracle += ' (of dev: there is no test set)'
    rows.append((language, f'{dev or "-":8}{test or "-":8}{oracle or "-"}'))
  console.table(
    rows,
    f'Languages of {task}, {metric}; trained on {declared.language}. Oracle:'
    " with the model of the evaluation that the language's own dev set chooses",
    console.show,
  )


def _no_better(results: Results) -> str:
  """Returns the words for a model that one answer for all texts equals.

  It does so by all of dev's metrics, or by the one that chooses models; else
  the result is ''.
  """
  metrics, of_all = results['metrics'], results.get('constant', {})
  constant = {  # of dev: its names are eval/<task>/<metric>
    name: value for name, value in of_all.items() if name.count('/') == 2
  }
  found = [name for name in constant if metrics[name] <= constant[name]]
  told = 'the model is no better than the commonest label for all texts'
  if found and len(found) == len(constant):
    return told.capitalize()
  main = results.get('main_metric')
  return f'By {main.removeprefix("eval/")} {told}' if main in found else ''


def print_results(
  results: Results, workdir: epath.PathLike, *, of_several: bool
) -> None:
  """Prints a run's metrics; unless `of_several`, also how to use the model."""
  rows, constant = [], results.get('constant', {})
  for name, value in results['metrics'].items():
    if '@' in name:
      continue
    low, high = results['intervals'].get(name, (None, None))
    interval = '' if low is None else f'  ({low:.4f} to {high:.4f})'
    if name in constant:
      interval += f'  one answer for all: {constant[name]:.4f}'
    rows.append((name.removeprefix('eval/'), f'{value:.4f}{interval}'))
  console.table(
    rows,
    f'After step {results["best_step"]} of {results["steps"]}'
    f' ({console.duration(results["seconds"])}, {results["device"]});'
    ' in brackets 95 % of resampled sets',
    console.show,
  )
  if by := _no_better(results):
    console.show(
      f'\n{by}: try another optim.learning_rate or train.seed, more epochs, or'
      ' the recipe stable (--config transfer:task=NAME,recipe=stable).'
    )
  for task in dict.fromkeys(
    name.split('/')[1] for name in results['metrics'] if '@' in name
  ):
    _print_languages(task, results['metrics'])
  if processes.is_first():
    spent = ledger.read(workdir)
    if spent:
      console.show('\n' + ledger.sentence(spent))
  use = ''
  if not of_several:
    names = results['config'].get('task.names')
    task = f' --task {names[0]}' if names else ''
    use = (
      f' To use the model: python -m train.predict {shlex.quote(str(workdir))}'
      f'{task} --input FILE'
      ' --output FILE'
    )
  console.show(
    f'Everything is in {workdir}: results.json, predictions, curves.png,'
    f' metrics.csv.{use}'
  )
