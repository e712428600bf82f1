"""Measures speed: python -m train.bench [NAME ...] prints a table and JSON.

NAMES: store, batches, step, gpt2_step, decoding, embedding, elmo_step,
elmo_embedding, finetune, squad_features, first_step, save, load, accelerator;
without one, all that the machine can run but save, load, embedding, the two of
ELMo and the two of labelled sets. `store` reads --text, a folder or glob of
running text, the two embeddings --trees, a folder of Stanford sentiment trees,
`finetune` and `squad_features` --data, a folder of MRPC's and SQuAD's, and
`embedding` and these two --weights, a BERT.
"""

# ruff: noqa: E402
from train.benches import host, models
from train.host import console, device, huge_pages
from train.run import command

if __name__ == '__main__':
  huge_pages.restart_with()  # as train.main does

import argparse
import json
import os
import pathlib
from typing import Any

BENCHES = {
  'store': host.bench_store,
  'batches': host.bench_batches,
  'step': models.bench_step,
  'gpt2_step': models.bench_gpt2_step,
  'decoding': models.bench_decoding,
  'embedding': models.bench_embedding,
  'elmo_step': models.bench_elmo_step,
  'elmo_embedding': models.bench_elmo_embedding,
  'finetune': models.bench_finetune,
  'squad_features': host.bench_squad_features,
  'first_step': host.bench_first_step,
  'save': host.bench_save,
  'load': host.bench_load,
  'accelerator': models.bench_accelerator,
}


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python -m train.bench', description=__doc__.partition('\n')[0]
  )
  parser.add_argument(
    'names', nargs='*', metavar='NAME', help=', '.join(BENCHES)
  )
  parser.add_argument('--text', help='folder or glob of running text for store')
  parser.add_argument(
    '--trees', help='folder of Stanford sentiment trees for the embeddings'
  )
  parser.add_argument(
    '--weights',
    metavar='FOLDER',
    help="of a BERT, as Hugging Face's library reads it, for embedding,"
    ' finetune and squad_features',
  )
  parser.add_argument(
    '--data', help='folder of labelled sets for finetune and squad_features'
  )
  parser.add_argument(
    '--sentences',
    type=int,
    metavar='N',
    help='embed so many, evenly spread (default: all)',
  )
  parser.add_argument('--output', help='JSON file for the figures')
  arguments = parser.parse_args()
  for name in arguments.names:
    if name not in BENCHES:
      parser.error(f'{name}: expected one of {", ".join(BENCHES)}')
  for name, option in (
    ('store', 'text'),
    ('elmo_embedding', 'trees'),
    ('embedding', 'trees'),
    ('embedding', 'weights'),
    ('finetune', 'data'),
    ('finetune', 'weights'),
    ('squad_features', 'data'),
    ('squad_features', 'weights'),
  ):
    if name in arguments.names and getattr(arguments, option) is None:
      parser.error(f'{name} needs --{option}')
  command.run(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
  names = arguments.names
  # PyTorch needs room on the same card.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  if not names:
    import jax

    on_cpu = jax.default_backend() == 'cpu'
    names = ['batches', 'step' if on_cpu else 'accelerator', 'gpt2_step']
    names += ['decoding', 'first_step']
    names += ['store'] if arguments.text else []

  trees = {'trees': arguments.trees, 'count': arguments.sentences}
  labelled = {'data': arguments.data, 'weights': arguments.weights}
  inputs = {
    'store': {'text': arguments.text},
    'elmo_embedding': trees,
    'embedding': trees | {'weights': arguments.weights},
    'finetune': labelled,
    'squad_features': labelled,
  }
  results: dict[str, Any] = {}
  for name in names:
    results[name] = BENCHES[name](**inputs.get(name, {}))
    rows = [(key, f'{value:,.4g}') for key, value in results[name].items()]
    console.table(rows, name)
  results['device'] = device.describe()
  results['revision'] = device.revision()
  options = [
    f'--{option} {value!r}'
    for option in ('text', 'trees', 'weights', 'data', 'sentences')
    if (value := getattr(arguments, option)) is not None
  ]
  results['command'] = ' '.join(['python -m train.bench', *names, *options])
  text = json.dumps(results, indent=2) + '\n'
  if arguments.output:
    pathlib.Path(arguments.output).write_text(text)
  print(text, end='')


if __name__ == '__main__':
  main()
