r"""What share of the places that a model computes hold tokens.

Of fine-tuning's batches of similar lengths, of embedding's on a CPU and on an
accelerator, and of rows of 128 packed with whole examples, which would be the
most that packing could save. Nothing is trained.

  python tests/bench/padding.py --weights all-MiniLM-L6-v2 --data glue \
    --tasks sst2,mrpc --output results/padding.json
"""

import argparse
import json

import numpy as np

from configs import transfer
from data.examples import packing
from data.inputs.batches import Batches
from train.host import device, files
from train.run import command, settings
from train.transfer import assemble
from train.vectors import length_batches

PACKED = 128  # places of a packed row


def embedded(lengths: np.ndarray, backend: str) -> float:
  """Returns the share in batches of `train.embed`."""
  tokens = length_batches.default_tokens(backend)
  batches = length_batches.batches_by_length(
    [(i, range(n - 2)) for i, n in enumerate(lengths.tolist())],
    tokens,
    added=2,
    most_padding=tokens // 4,
  )
  return lengths.sum() / sum(each.rows * each.length for each in batches)


def tuned(lengths: np.ndarray, batches: Batches, rows: int) -> float:
  """Returns the share in the batches of an epoch of fine-tuning."""
  steps, places = len(lengths) // rows, 0
  for step in range(steps):
    batch = batches.train_batch(step, slice(None), rows, 0, steps)
    places += batch['tokens'].size
  return steps * rows * lengths.mean() / places


def shares(weights: str, data: str, task: str) -> dict[str, float]:
  """Returns name -> share of places with tokens, of a task's training part."""
  config = settings.with_overrides(
    transfer.get_config(f'task={task}'),
    {'init.weights': weights, 'data.source': data, 'train.platform': 'cpu'},
  )
  (program,) = assemble.open_programs(config, splits=('train',))
  split = program.splits['train']
  lengths = split.features.lengths
  sizes = np.minimum(lengths, PACKED)
  packed = packing.pack(sizes, PACKED)
  return {
    'tokens a row': float(lengths.mean()),
    'fine-tuning': tuned(lengths, split.batches, config.train.global_batch),
    'embedding on a CPU': embedded(lengths, 'cpu'),
    'embedding on an accelerator': embedded(lengths, 'tpu'),
    'packed': float(sizes.sum() / ((packed.max() + 1) * PACKED)),
  }


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--weights', required=True)
  parser.add_argument('--data', required=True, help="GLUE's folder")
  parser.add_argument('--tasks', default='sst2,mrpc')
  parser.add_argument('--output', required=True)
  arguments = parser.parse_args()
  found = {
    task: shares(arguments.weights, arguments.data, task)
    for task in arguments.tasks.split(',')
  }
  report = {'revision': device.revision(), 'tasks': found}
  files.write_atomically(arguments.output, json.dumps(report, indent=1) + '\n')
  print(json.dumps(found, indent=1))


if __name__ == '__main__':
  command.run(main)
