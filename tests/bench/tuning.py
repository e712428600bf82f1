r"""Fine-tunes by Hugging Face's Trainer, to compare ours with its scores.

Both programs start from the same weights and read the same examples in the same
batches, by the same recipe; the same scorers measure how well they learn. Runs
that stand in the output already are not repeated.

  python tests/bench/tuning.py --weights W --data DIR --tasks mrpc,rte \
    --seeds 5 --output results/transfer_reference.json
"""

import argparse
import dataclasses
import json
import os
import pathlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tuning_rows
from tuning_rows import Example

from data.inputs import batches
from data.scoring import scores
from data.tasks import registry
from data.tasks.examples import Task
from train.benches.timing import Program
from train.host import files
from train.host.console import say
from train.run import command


@dataclasses.dataclass(frozen=True)
class Recipe:
  """How a task is learned, as configs/tables/sesame_transfer.py has it of ours.

  AdamW with weight decay 0.01, but of norms and biases, and epsilon 1e-6; the
  gradient clipped to norm 1; BERT's schedule with a warm-up of 10 %. The last
  model is scored.

  Attributes:
    learning_rate: its peak.
    num_epochs: over the examples.
    max_length: tokens of a row.
    train_limit: evenly spaced examples to train on; None: all.
    batch_size: examples of a step.
  """

  learning_rate: float = 1e-4
  num_epochs: int = 3
  max_length: int = 128
  train_limit: int | None = None
  batch_size: int = 32


RECIPES = {
  'cola': Recipe(num_epochs=2),
  'mrpc': Recipe(),
  'rte': Recipe(),
  'stsb': Recipe(num_epochs=2),
  'sst2': Recipe(num_epochs=1, train_limit=10_000),
  'panx_en': Recipe(num_epochs=1),
  'squad1': Recipe(2e-4, num_epochs=1, max_length=384, train_limit=8_000),
}
OURS = 'ours'
IN_ORDER = 'sequential'  # Trainer's name for the order of the rows
# Kinds of tasks for which Hugging Face's library has a head.
MODEL_OF_KIND = {
  'classification': 'AutoModelForSequenceClassification',
  'regression': 'AutoModelForSequenceClassification',
  'tagging': 'AutoModelForTokenClassification',
  'span': 'AutoModelForQuestionAnswering',
}


def run(
  task: Task, data: str, weights: str, seed: int, recipe: Recipe
) -> dict[str, Any]:
  """Fine-tunes, and scores every labelled split other than the training set.

  Args:
    task: of a kind in `MODEL_OF_KIND`.
    data: folder of the sets.
    weights: a folder, or a name on the hub.
    seed: of the examples' order, the same as ours, of the head and the dropout.
    recipe: see `Recipe`.

  Returns:
    `task`, `seed`, `metrics` ('split/metric' -> fraction), `seconds` of
    training, `train_size`, and the result of `_identity`.

  Raises:
    FileNotFoundError: if the data are not there.
    ValueError: if they are damaged, or the task is of another kind.
  """
  train = registry.load(task, data, 'train', limit=recipe.train_limit)
  splits = {
    name: registry.load(task, data, name)
    for name in task.files
    if name != 'train' and registry.has_split(task, data, name)
  }
  trainer = make_trainer(task, train, weights, seed, recipe)
  started = time.perf_counter()
  trainer.train()
  seconds = time.perf_counter() - started
  figures = {}
  for name, examples in splits.items():
    if not all(map(tuning_rows.is_labelled, examples)):
      continue
    predictions = tuning_rows.predict(
      trainer, task, examples, recipe.max_length
    )
    found = scores.score(task, examples, predictions)
    figures |= {f'{name}/{metric}': found[metric] for metric in found}
  return {
    'task': task.name,
    'seed': seed,
    'metrics': figures,
    'seconds': seconds,
    'train_size': len(train),
    **_identity(weights, recipe),
  }


def _identity(weights: str, recipe: Recipe) -> dict[str, Any]:
  """Returns the weights, recipe and libraries, which a task's runs share."""
  import torch
  import transformers

  return {
    'weights': pathlib.Path(weights).name,
    'recipe': dataclasses.asdict(recipe),
    'transformers': transformers.__version__,
    'torch': torch.__version__,
  }


def make_trainer(
  task: Task,
  examples: Sequence[Example],
  weights: str,
  seed: int,
  recipe: Recipe,
  *,
  sampling: str = OURS,
  pad_to: int | None = None,
) -> Any:
  """Returns a Trainer of examples, to be trained once.

  Args:
    task: see `run`.
    examples: to train on.
    weights: see `run`.
    seed: see `run`.
    recipe: see `run`.
    sampling: Trainer's `train_sampling_strategy`; or `OURS`, our batches.
    pad_to: tokens of every row; None: as many as the longest of its batch has.

  Raises:
    ValueError: if Hugging Face's library has no head for the task's kind.
  """
  import torch
  import transformers

  if task.kind not in MODEL_OF_KIND:
    raise ValueError(
      f'task {task.name}: found the kind {task.kind!r}, expected one of'
      f' {", ".join(MODEL_OF_KIND)}'
    )
  torch.set_num_threads(os.cpu_count())
  transformers.logging.set_verbosity_error()
  transformers.logging.disable_progress_bar()
  tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
  transformers.set_seed(seed)
  outputs = {} if task.kind == 'span' else {'num_labels': len(task.labels) or 1}
  model = getattr(transformers, MODEL_OF_KIND[task.kind]).from_pretrained(
    weights, **outputs
  )
  encoded = tuning_rows.encode(task, examples, tokenizer, recipe.max_length)
  rows = [row for row, _ in encoded]
  collator = transformers.DataCollatorWithPadding
  if task.kind == 'tagging':
    collator = transformers.DataCollatorForTokenClassification
  num_epochs, steps = recipe.num_epochs, _count_steps(recipe, len(rows))
  if sampling == OURS:
    rows, num_epochs, sampling = _in_our_order(rows, recipe, seed), 1, IN_ORDER
  return transformers.Trainer(
    model=model,
    args=transformers.TrainingArguments(
      output_dir=tempfile.gettempdir(),  # nothing is written
      save_strategy='no',
      logging_strategy='no',
      report_to=[],
      disable_tqdm=True,
      use_cpu=True,
      seed=seed,
      data_seed=seed,
      num_train_epochs=num_epochs,
      per_device_train_batch_size=recipe.batch_size,
      per_device_eval_batch_size=tuning_rows.EVAL_BATCH,
      max_grad_norm=1.0,
      train_sampling_strategy=sampling,
    ),
    train_dataset=rows,
    data_collator=collator(
      tokenizer,
      padding=True if pad_to is None else 'max_length',
      max_length=pad_to,
    ),
    processing_class=tokenizer,
    optimizers=_make_optimizer(model, recipe.learning_rate, steps),
  )


def _count_steps(recipe: Recipe, num_rows: int) -> int:
  return -(-num_rows * recipe.num_epochs // recipe.batch_size)


def _in_our_order(
  rows: Sequence[tuning_rows.Row], recipe: Recipe, seed: int
) -> list[tuning_rows.Row]:
  """Returns the rows of all batches of all epochs, one after the other.

  Trainer's own order by length goes from long to short, 50 batches at a time,
  and learns less by it.
  """
  lengths = np.array([len(row['input_ids']) for row in rows])
  order = batches.Order(lengths)
  steps = _count_steps(recipe, len(rows))
  return [
    rows[number]
    for step in range(steps)
    for number in order.batch(step, recipe.batch_size, seed, steps)[1]
  ]


def _make_optimizer(model: Any, learning_rate: float, steps: int) -> tuple:
  """Returns AdamW and BERT's schedule, in which decay begins at step 0."""
  import torch

  groups = {True: [], False: []}
  for name, parameter in model.named_parameters():
    groups['LayerNorm' in name or name.endswith('bias')].append(parameter)
  optimizer = torch.optim.AdamW(
    [
      {'params': groups[False], 'weight_decay': 0.01},
      {'params': groups[True], 'weight_decay': 0.0},
    ],
    lr=learning_rate,
    eps=1e-6,
  )
  warmup = int(0.1 * steps)

  def factor(step: int) -> float:
    return step / warmup if step < warmup else 1 - step / steps

  return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def epoch(
  *,
  task: str,
  data: str,
  weights: str,
  num_examples: int,
  max_length: int,
  sampling: str,
  padded: bool,
) -> Program:
  """Makes an epoch by Trainer, as `programs.epoch` does.

  Args:
    task: a name in `RECIPES`.
    data: see `run`.
    weights: see `run`.
    num_examples: of the epoch, evenly spaced.
    max_length: tokens of a row.
    sampling: see `make_trainer`.
    padded: all rows to `max_length`, else to the longest of a batch.
  """
  import torch

  recipe = dataclasses.replace(
    RECIPES[task], num_epochs=1, max_length=max_length
  )
  declared = registry.find(task)
  examples = registry.load(declared, data, 'train', limit=num_examples)
  pad_to = max_length if padded else None
  trainer = make_trainer(
    declared, examples, weights, 0, recipe, sampling=sampling, pad_to=pad_to
  )
  optimizer = trainer.optimizer

  def run_epoch() -> None:
    # Trainer wraps its optimizer; and a schedule is over after an epoch.
    trainer.optimizer = optimizer
    trainer.lr_scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    trainer.train()

  return run_epoch, 0.0


def run_all(
  tasks: Sequence[str],
  data: str,
  weights: str,
  num_seeds: int,
  output: pathlib.Path,
) -> None:
  """Adds the missing runs to a file, each as soon as it has ended.

  Args:
    tasks: names in `RECIPES`.
    data: see `run`.
    weights: see `run`.
    num_seeds: seeds 0, 1, ... of each task.
    output: JSON file with `runs`.

  Raises:
    FileNotFoundError: if the output's folder is not there.
    ValueError: if there is no recipe of a task, or the file holds runs of other
      weights, recipes or libraries.
  """
  if not output.parent.is_dir():
    raise FileNotFoundError(f'--output {output}: there is no such folder')
  for name in tasks:
    if name not in RECIPES:
      raise ValueError(
        f'task {name}: found no recipe, expected one of {", ".join(RECIPES)}'
      )
  results: Mapping[str, Any] = {'runs': []}
  if output.exists():
    results = json.loads(output.read_text())
  runs = list(results['runs'])
  done = {(entry['task'], entry['seed']) for entry in runs}
  for entry in runs:
    if entry['task'] not in tasks:
      continue
    for key, value in _identity(weights, RECIPES[entry['task']]).items():
      if entry.get(key) != value:
        raise ValueError(
          f'{output}: {entry["task"]}, seed {entry["seed"]} was run with {key}'
          f' {entry.get(key)!r}, expected {value!r}: give another --output'
        )
  for name in tasks:
    for seed in range(num_seeds):
      if (name, seed) in done:
        continue
      entry = run(registry.find(name), data, weights, seed, RECIPES[name])
      figures = ', '.join(
        f'{metric} {value:.4f}' for metric, value in entry['metrics'].items()
      )
      say(f'{name}, seed {seed}: {figures}, {entry["seconds"]:.0f} s')
      runs.append(entry)
      text = json.dumps({'runs': runs}, indent=2) + '\n'
      files.write_atomically(output, text)


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python tests/bench/tuning.py',
    description=__doc__.partition('\n')[0],
  )
  add = parser.add_argument
  add('--weights', required=True, help='folder of a BERT, or its name')
  add('--data', required=True, help='folder of the labelled sets')
  add('--tasks', default=','.join(RECIPES), help='by default %(default)s')
  add('--seeds', type=int, default=5, metavar='N', help='runs of each task')
  add('--output', required=True, type=pathlib.Path, help='JSON file')
  arguments = parser.parse_args()
  command.run(
    lambda: run_all(
      arguments.tasks.split(','),
      arguments.data,
      arguments.weights,
      arguments.seeds,
      arguments.output,
    )
  )


if __name__ == '__main__':
  main()
