r"""AllenNLP 0.9.0's task models beside ours: how well they learn, how fast.

`learn` trains them by a plain loop on PyTorch, from the same first vectors of
words, on the same batches, and adds the scores by the same scorers to a file;
runs that stand there already are not repeated. Settings without an option are
as published. Tags of roles are the best paths, and answers the best spans, that
ours reads off AllenNLP's logits. `speed` times training steps in turns with
ours; of e2e_coref a step reads a document.

  python tests/bench/task_models.py learn --task sst5 --model bcn --data DIR \
    --vectors none --seeds 3 --record FILE
  python tests/bench/task_models.py speed --model bcn --data DIR
"""

# ruff: noqa: E402
import argparse
import copy
import dataclasses
import json
import os
import pathlib
import statistics
import sys
import time
from typing import Any

# As pytest finds the helpers of tests.
sys.path.append(str(pathlib.Path(__file__).parents[1] / 'helpers' / 'models'))

import numpy as np
import task_model_rows as rows
import task_model_speed
from task_model_rows import RECIPES, Inputs, Recipe, Split

from data.examples import pipeline
from train.benches import timing
from train.host import files
from train.host.console import say
from train.run import command
from train.run.job import Keep


def run(inputs: Inputs, recipe: Recipe, seed: int) -> dict[str, Any]:
  """Trains; the best model on dev is scored on every labelled split.

  Args:
    inputs: of `rows.read`.
    recipe: see `Recipe`.
    seed: of the batches and the table, the same as ours, of dropout and other
      first values.

  Returns:
    `seed`, `metrics` ('split/metric' -> fraction), `epochs` until the end,
    `seconds` of all and of a median `epoch_seconds` of training alone.
  """
  import task_model_torch
  import torch

  torch.manual_seed(seed)
  model = task_model_torch.Model(inputs, recipe, seed)
  step = task_model_torch.make_step(model, recipe)
  halve = torch.optim.lr_scheduler.ReduceLROnPlateau(
    step.optimizer, mode='max', factor=0.5, patience=recipe.plateau or 0
  )
  training, metric = inputs.splits['train'].batches, inputs.task.metrics[0]
  keep = Keep(metric, best=True, patience=recipe.patience)
  # As `train.count=rows` has it.
  size = len(training.features)
  epoch = -(-size // recipe.batch)
  total = -(-size * recipe.epochs // recipe.batch)
  scores, times, best = [], [], None
  began = started = time.perf_counter()
  for number in range(total):
    step(
      training.train_batch(number, pipeline.ALL_ROWS, recipe.batch, seed, total)
    )
    if (number + 1) % epoch and number + 1 < total:
      continue
    times.append(time.perf_counter() - started)
    found = evaluate(model, inputs, inputs.splits['dev'])
    scores.append(found[metric])
    say(f'  epoch {len(scores)}: dev {metric} {scores[-1]:.4f}')
    if keep.is_best(scores):
      best = copy.deepcopy(model.state_dict())
    if recipe.plateau is not None:
      halve.step(scores[-1])
    if keep.is_over(scores):
      break
    started = time.perf_counter()
  model.load_state_dict(best)
  metrics = {}
  for name, split in inputs.splits.items():
    if name != 'train':
      found = evaluate(model, inputs, split)
      metrics |= {f'{name}/{key}': value for key, value in found.items()}
  return {
    'seed': seed,
    'metrics': metrics,
    'epochs': len(scores),
    'seconds': time.perf_counter() - began,
    'epoch_seconds': statistics.median(times),
  }


def evaluate(model: Any, inputs: Inputs, split: Split) -> dict[str, float]:
  """Returns a split's scores by our scorers; tags by the best allowed path.

  A batch's outputs are `answers`, `tags`, or logits of classes.
  """
  import torch

  model.eval()
  logits: list[Any] = [None] * len(split.features)
  one_hot = np.eye(len(inputs.labels), dtype=np.float32)
  with torch.inference_mode():
    for batch in split.batches.eval_batches(model.recipe.batch):
      outputs = model(*rows.to_torch(batch, model.recipe))
      if 'answers' in outputs:
        found = outputs['answers']
      elif 'tags' in outputs:
        found = [one_hot[path] for path in outputs['tags']]
      else:
        found = outputs.get('label_logits', outputs.get('logits')).numpy()
      for number, is_real, row in zip(
        batch['example_ids'], batch['example_mask'], found, strict=True
      ):
        if is_real:
          logits[number] = row
  return rows.score(inputs.task, split, logits)


def learn(
  task: str,
  data: str,
  recipe: Recipe,
  num_seeds: int,
  record: pathlib.Path,
  cache: str | None = None,
) -> None:
  """Adds the missing runs to a file, each as soon as it has ended.

  Args:
    task: name of a task that the model reads.
    data: folder of the sets.
    recipe: see `Recipe`.
    num_seeds: seeds 0, 1, ...
    record: JSON file with `runs`, as a table's reference has them; and their
      `means` for each task and inputs. A table reads a file of one kind of
      inputs.
    cache: see `rows.read`.

  Raises:
    FileNotFoundError: if the data or the record's folder are not there.
    ValueError: if the model cannot read the task, or the file holds runs of the
      same task and inputs by another recipe or PyTorch.
  """
  import torch

  if not record.parent.is_dir():
    raise FileNotFoundError(f'--record {record}: there is no such folder')
  runs = json.loads(record.read_text())['runs'] if record.exists() else []
  own = {'task': task, 'inputs': recipe.inputs}
  identity = {
    'model': recipe.model,
    # As JSON has it.
    'recipe': json.loads(json.dumps(dataclasses.asdict(recipe))),
    'torch': torch.__version__,
  }
  done = [entry for entry in runs if own.items() <= entry.items()]
  for entry in done:
    found = entry | entry['recipe']
    for key, value in (identity | identity['recipe']).items():
      if key != 'recipe' and found.get(key) != value:
        raise ValueError(
          f'{record}: {task}, {recipe.inputs}, seed {entry["seed"]} was run'
          f' with {key} {found.get(key)!r}, expected {value!r}: give another'
          ' --record'
        )
  if recipe.fixed and not recipe.vectors and recipe.word_dim:
    raise ValueError(
      '--fixed: drawn vectors of words are learned, expected --no-fixed, or the'
      ' file of --vectors'
    )
  seeds = {*range(num_seeds)} - {entry['seed'] for entry in done}
  inputs = rows.read(task, data, recipe, cache) if seeds else None
  for seed in sorted(seeds):
    say(f'{task}, {recipe.inputs}, seed {seed}')
    found = run(inputs, recipe, seed)
    size = len(inputs.splits['train'].examples)
    runs.append(own | found | {'train_size': size} | identity)
    results = {'runs': runs, 'means': means(runs)}
    files.write_atomically(record, json.dumps(results, indent=2) + '\n')
    figures = ', '.join(f'{k} {v:.4f}' for k, v in found['metrics'].items())
    say(f'{figures}; {found["seconds"]:.0f} s')


def means(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
  """Returns the means of the metrics over the seeds of a task and inputs."""
  groups: dict[tuple[str, str], list[dict[str, float]]] = {}
  for entry in runs:
    key = entry['task'], entry['inputs']
    groups.setdefault(key, []).append(entry['metrics'])
  return [
    {
      'task': task,
      'inputs': name,
      'seeds': len(group),
      'metrics': {
        key: statistics.fmean(metrics[key] for metrics in group)
        for key in group[0]
      },
    }
    for (task, name), group in groups.items()
  ]


def _option(name: str, default: Any) -> dict[str, Any]:
  """Returns the arguments of argparse of a field of `Recipe`."""
  if isinstance(default, bool):
    return {'action': argparse.BooleanOptionalAction}
  if name == 'maxout':
    return {'type': lambda text: tuple(map(int, text.split(',')))}
  if name in ('vectors', 'language_model', 'unknown', 'mix_at'):
    kind = str
  else:
    kind = type(default) if isinstance(default, float) else int
  return {'type': lambda text: None if text == 'none' else kind(text)}


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python tests/bench/task_models.py',
    description=__doc__.partition('\n')[0],
  )
  commands = parser.add_subparsers(dest='command', required=True)
  for name in ('learn', 'speed'):
    add = commands.add_parser(name).add_argument
    add('--data', required=True, help='folder of the labelled sets')
    add('--model', choices=RECIPES, required=name == 'learn')
    add(
      '--threads',
      type=int,
      default=1 if name == 'learn' else os.cpu_count(),
      help='(default: %(default)s) several of PyTorch are slow where others'
      ' compute',
    )
    if name == 'learn':
      add('--task', required=True)
      add('--seeds', type=int, default=3, metavar='N', help='runs')
      add('--record', required=True, type=pathlib.Path, help='JSON file')
      add('--cache', help="folder of the language model's vectors")
    else:
      add('--repeats', type=int, default=timing.REPEATS, metavar='N')
      add('--output', type=pathlib.Path, help='JSON file for the figures')
    for field in dataclasses.fields(Recipe):
      if field.name != 'model':
        options = _option(field.name, field.default)
        # Those not given stay as published.
        add(f'--{field.name}', default=argparse.SUPPRESS, **options)
  given = vars(parser.parse_args())
  names = {field.name for field in dataclasses.fields(Recipe)} - {'model'}
  changes = {name: given[name] for name in names & given.keys()}
  if given['command'] == 'learn':
    recipe = dataclasses.replace(RECIPES[given['model']], **changes)

    def run_command() -> None:
      import torch

      torch.set_num_threads(given['threads'])
      learn(
        given['task'],
        given['data'],
        recipe,
        given['seeds'],
        given['record'],
        given['cache'],
      )

  else:
    models = [given['model']] if given['model'] else [*task_model_speed.TIMED]

    def run_command() -> None:
      found = task_model_speed.measure(
        given['data'], models, changes, given['repeats'], given['threads']
      )
      text = json.dumps(found, indent=2) + '\n'
      if given['output']:
        given['output'].write_text(text)
      print(text, end='')

  command.run(run_command)


if __name__ == '__main__':
  main()
