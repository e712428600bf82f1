r"""Fine-tunes small encoders by several recipes, to choose the default one.

Recipes differ in bias correction and in the peak of the rate. Each run trains
on the first task, seed and recipe that the output lacks, and is written as soon
as it has ended: a stopped command continues. Scores are those of the last
model, on dev. The encoders are the first layers of the weights, and their
vocabulary is cut to the pieces that occur, which changes no figure and saves
the optimiser's work on the others.

  taskset -c 1 python tests/bench/recipes.py --weights MiniLM --data glue \
    --layers 3,6 --seeds 3 --output results/recipes_finetuning.json
"""

import argparse
import functools
import itertools
import json
import pathlib
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import ml_collections
from etils import epath

from data.tasks import registry
from train.engine import optim, sharding
from train.host import device, files
from train.host.console import say
from train.run import command, settings, training
from train.run.training_phases import Phase
from train.transfer import assemble, finetune, task_outputs


class Recipe(NamedTuple):
  """What differs between two fine-tunings.

  Attributes:
    optimizer: 'bert_adam' or 'adamw', the same with bias correction.
    learning_rate: the peak.
  """

  optimizer: str
  learning_rate: float


RECIPES = {
  'bert 5e-5': Recipe('bert_adam', 5e-5),
  'corrected 5e-5': Recipe('adamw', 5e-5),
  'corrected 1e-4': Recipe('adamw', 1e-4),
  'corrected 2e-4': Recipe('adamw', 2e-4),
}
SIZE = 2_400  # examples to train on, evenly spaced; RTE has 2,490
TASKS = ('mrpc', 'stsb', 'sst2', 'cola', 'rte')
SPLITS = 'train', 'dev'
# What tells a run from the others of an output.
KEY = ('layers', 'seed', 'recipe', 'task', 'train_size', 'batch')
# Fewer lengths than are usual: each costs a compilation.
LENGTHS = (12, 24, 32, 48, 64)
SHARED = {
  'task.max_length': LENGTHS[-1],
  'train.num_epochs': 3.0,
  'data.eval_limit': 400,
  'train.platform': 'cpu',
}
# The rate is an argument of the step, so that rates and tasks share programs.
RATE_AS_ARGUMENT = {
  'optim.schedule': 'constant',
  'optim.learning_rate': 1.0,
  'optim.warmup_fraction': 0.0,
}


def cut_vocabulary(
  weights: pathlib.Path,
  data: str,
  sizes: Mapping[str, int],
  folder: pathlib.Path,
) -> None:
  """Writes a BERT with only those pieces that occur in the rows of tasks.

  `sizes` maps a task to its number of training examples.

  Raises:
    FileNotFoundError: if weights or data are not there.
    ValueError: if a text is cut into other pieces by the smaller vocabulary.
  """
  from safetensors import numpy as safetensors

  pieces = (weights / 'vocab.txt').read_text().splitlines()
  texts = {
    task: read(task, weights, data, size) for task, size in sizes.items()
  }
  used = {number for rows in texts.values() for row in rows for number in row}
  kept = [
    number
    for number, piece in enumerate(pieces)
    if number in used or (piece[0] == '[' and 'unused' not in piece)
  ]
  vocabulary = ''.join(f'{pieces[number]}\n' for number in kept)
  (folder / 'vocab.txt').write_text(vocabulary)
  arrays = safetensors.load_file(weights / 'model.safetensors')
  table = 'embeddings.word_embeddings.weight'
  arrays[table] = arrays[table][kept]
  safetensors.save_file(arrays, folder / 'model.safetensors')
  model = json.loads((weights / 'config.json').read_text())
  model['vocab_size'] = len(kept)
  (folder / 'config.json').write_text(json.dumps(model))
  settings_file = weights / 'tokenizer_config.json'
  if settings_file.exists():
    shutil.copy(settings_file, folder)
  for task, before in texts.items():
    again = read(task, folder, data, sizes[task])
    after = [[kept[i] for i in row] for row in again]
    if after != before:
      raise ValueError(f'{task}: {folder} cuts texts into other pieces')


def read(
  task: str, weights: pathlib.Path, data: str, size: int
) -> list[list[int]]:
  """Returns the pieces of a task's rows, of training and dev, uncut."""
  model = json.loads((weights / 'config.json').read_text())
  config = settings.with_overrides(
    config_of(task, weights, data, None, 'adamw', size, 1),
    {'task.max_length': model['max_position_embeddings']},
  )
  (program,) = assemble.open_programs(config, splits=SPLITS)
  found = []
  for split in program.splits.values():
    tokens, offsets = split.features.tokens, split.features.offsets
    for start, end in itertools.pairwise(offsets.tolist()):
      found.append(tokens[start:end].tolist())
  return found


def config_of(
  task: str,
  weights: pathlib.Path,
  data: str,
  num_layers: int | None,
  optimizer: str,
  size: int,
  batch: int,
) -> ml_collections.ConfigDict:
  """Returns the config of a task's runs of an optimiser, of all rates."""
  overrides = {
    'init.weights': str(weights),
    'init.layers': num_layers and f'first:{num_layers}',
    'data.source': data,
    'data.train_limit': size,
    'train.global_batch': batch,
    'optim.name': optimizer,
  }
  # With a plateau, the step takes a factor of the rate.
  return settings.with_overrides(
    settings.load_config(f'transfer:task={task},recipe=bert'),
    SHARED | RATE_AS_ARGUMENT | overrides | {'train.plateau': 1},
  ).lock()


class Programs:
  """The plans of an encoder's and optimiser's runs, one a task.

  Tasks whose models have the same shapes share compiled steps.
  """

  def __init__(
    self,
    weights: pathlib.Path,
    data: str,
    num_layers: int | None,
    optimizer: str,
    batch: int,
  ) -> None:
    self._config_of = functools.partial(
      config_of,
      weights=weights,
      data=data,
      num_layers=num_layers,
      optimizer=optimizer,
      batch=batch,
    )
    self._plans: dict[str, finetune.FineTuning] = {}
    self._steps: dict[tuple, Mapping[str, Callable]] = {}

  def run(
    self, task: str, size: int, recipe: Recipe, seed: int
  ) -> dict[str, Any]:
    """Fine-tunes; returns dev's metrics, those of one answer, and seconds."""
    job = self._plan(task, size)
    config = settings.with_overrides(job.config, {'train.seed': seed}).lock()
    job = job.of_run(config, epath.Path(), of_several=True)
    schedule = schedule_of(job.total_steps, recipe.learning_rate)
    started, cpu = time.perf_counter(), time.process_time()
    with sharding.scope(job.mesh, config.mesh.rules):
      state = job.create()
      for number in range(job.total_steps):
        batch = sharding.put_batch(job.batch(number, whole=True), job.mesh)
        rate = jnp.float32(schedule(number))
        state, report = job.steps['train'](state, batch, jnp.int32(seed), rate)
      if int(report['nonfinite_step']) >= 0:
        raise ValueError(
          f'{task}, {recipe}, seed {seed}: the loss is not finite'
        )
      found = job.score(job.steps, state.params, job.total_steps, lambda: None)
    prefix = f'eval/{task}/'
    constant = task_outputs.constant_scores(job.tasks[0])
    return {
      'metrics': {
        name.removeprefix(prefix): value for name, value in found.items()
      },
      'one_answer': {
        name.removeprefix(prefix): value for name, value in constant.items()
      },
      # As the end of a run tells it.
      'is_no_better': bool(constant)
      and all(found[name] <= value for name, value in constant.items()),
      'steps': job.total_steps,
      'seconds': time.perf_counter() - started,
      'processor_seconds': time.process_time() - cpu,
    }

  def _plan(self, task: str, size: int) -> finetune.FineTuning:
    if task not in self._plans:
      config = self._config_of(task, size=size)
      job = finetune.plan(config, training.find_devices(config), splits=SPLITS)
      (program,) = job.tasks
      for split in program.splits.values():
        split.batches.lengths = LENGTHS
      shape = program.task.kind, len(program.task.labels)
      job.steps = self._steps.setdefault(shape, job.steps)
      self._plans[task] = job
    return self._plans[task]


def schedule_of(steps: int, learning_rate: float) -> optim.Schedule:
  """Returns the schedule of a fine-tuning: BERT's, 10 % of it warm-up."""
  config = settings.load_config('transfer:task=mrpc,recipe=bert')
  config = settings.with_overrides(
    config, {'optim.learning_rate': learning_rate}
  )
  return assemble.make_schedule(
    config, Phase(steps, LENGTHS[-1], 1, 'continue')
  )


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Returns setting -> recipe -> task -> mean, deviation, runs, no_better.

  A setting is the layers of the encoder, the examples and the batch.
  """
  found: dict[str, Any] = {}
  for entry in runs:
    setting = '{layers} layers, {train_size} examples, batch {batch}'
    place = found.setdefault(setting.format(**entry), {})
    place = place.setdefault(entry['recipe'], {})
    place.setdefault(entry['task'], []).append(entry)
  for place in found.values():
    for tasks in place.values():
      for task, entries in tasks.items():
        metric = registry.find(task).metrics[0]
        values = [entry['metrics'][metric] for entry in entries]
        tasks[task] = _spread(values) | {
          'no_better': sum(entry['is_no_better'] for entry in entries)
        }
  return found


def _spread(values: Iterable[float]) -> dict[str, Any]:
  values = list(values)
  deviation = statistics.stdev(values) if len(values) > 1 else None
  return {
    'mean': statistics.fmean(values),
    'deviation': deviation,
    'runs': len(values),
  }


def learn(arguments: argparse.Namespace) -> None:
  """Makes the missing runs, and writes each."""
  weights = pathlib.Path(arguments.weights)
  made_by = {
    'weights': weights.name,
    'settings': json.loads(json.dumps(SHARED | {'lengths': LENGTHS})),
  }
  runs = []
  if arguments.output.exists():
    before = json.loads(arguments.output.read_text())
    runs = before['runs']
    for key, value in made_by.items():
      if before[key] != value:
        raise ValueError(
          f'{arguments.output}: its runs had {key} {before[key]}, expected'
          f' {value}: give another --output'
        )
  done = {_key(entry) for entry in runs}
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    cut_vocabulary(weights, arguments.data, arguments.tasks, folder)
    programs: dict[tuple, Programs] = {}
    for layers, seed, recipe, task in itertools.product(
      arguments.layers,
      range(arguments.seeds),
      arguments.recipes,
      arguments.tasks,
    ):
      size = arguments.tasks[task]
      entry = {
        'layers': layers,
        'seed': seed,
        'recipe': recipe,
        'task': task,
        'train_size': size,
        'batch': arguments.batch,
      }
      if _key(entry) in done:
        continue
      optimizer = RECIPES[recipe].optimizer
      if (layers, optimizer) not in programs:
        programs[layers, optimizer] = Programs(
          folder, arguments.data, layers, optimizer, arguments.batch
        )
      entry |= programs[layers, optimizer].run(
        task, size, RECIPES[recipe], seed
      )
      figures = ', '.join(
        f'{metric} {value:.4f}' for metric, value in entry['metrics'].items()
      )
      say(
        f'{layers} layers, seed {seed}, {recipe}, {task}: {figures},'
        f' {entry["seconds"]:.0f} s'
      )
      runs.append(entry | {'revision': device.revision()})
      text = {
        'command': f'python {shlex.join(sys.argv)}',
        **made_by,
        'device': device.describe(),
        'summary': summary(runs),
        'runs': runs,
      }
      files.write_atomically(
        arguments.output, json.dumps(text, indent=1) + '\n'
      )


def _key(entry: Mapping[str, Any]) -> tuple:
  return tuple(entry[name] for name in KEY)


def _parse_tasks(text: str) -> dict[str, int]:
  parts = [part.partition('=') for part in text.split(',')]
  return {task: int(size or SIZE) for task, _, size in parts}


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python tests/bench/recipes.py',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  add = parser.add_argument
  add('--weights', required=True, help='folder of a BERT')
  add('--data', required=True, help="a folder of GLUE's sets")
  add(
    '--layers',
    type=lambda text: [int(part) for part in text.split(',')],
    default=[3, 6],
    help='how many of the first layers each encoder has; by default 3,6',
  )
  add(
    '--recipes',
    type=lambda text: text.split(','),
    default=list(RECIPES),
    help=f'some of {", ".join(RECIPES)}; by default all',
  )
  add(
    '--tasks',
    type=_parse_tasks,
    default=_parse_tasks(','.join(TASKS)),
    metavar='TASK[=N],...',
    help=f'with examples of each; by default {", ".join(TASKS)} with {SIZE}',
  )
  add('--batch', type=command.positive, default=32, metavar='N')
  add('--seeds', type=command.positive, default=3, metavar='N')
  add('--output', required=True, type=pathlib.Path, help='JSON file')
  command.main(parser.parse_args(), learn)


if __name__ == '__main__':
  main()
