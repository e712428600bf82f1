"""How alike texts are: the cosine of their vectors.

python -m train.similarity WEIGHTS FILE [--json]: FILE holds two texts a line,
set apart by a tab; each line's is printed. With --query TEXT, FILE holds a text
a line, and the lines nearest to TEXT are printed.
"""

import argparse
import json
from typing import Any

import jax.numpy as jnp

from train.host import device
from train.params import opened, trained
from train.run import command
from train.vectors import neighbours, text_counts, text_plan
from train.vectors.text_plan import Request

DTYPES = ('float32', 'bfloat16')


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python -m train.similarity', description=__doc__
  )
  add = parser.add_argument
  trained.add_weights(parser, trained.EMBED_HELP)
  add('file', metavar='FILE', help='UTF-8: pairs, or with --query texts')
  add('--query', metavar='TEXT', help='print the lines nearest to it')
  add('--top_k', type=int, help='lines for --query; by default 10')
  add(
    '--pool',
    help='which tokens make the vector of a text: mean (the default), cls'
    ' (BERT) or last (GPT, a BERT that reads from left to right)',
  )
  add('--dtype', choices=DTYPES, default=DTYPES[0], help='of the products')
  add('--json', action='store_true', help='print JSONL on standard output')
  arguments = parser.parse_args()
  if arguments.top_k is not None and arguments.query is None:
    parser.error('--top_k is of --query')
  if arguments.top_k is not None and arguments.top_k < 1:
    parser.error(f'--top_k={arguments.top_k}: expected 1 or more')
  device.enable_compilation_cache()
  command.run(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  request = Request(pool=arguments.pool, normalize=True)
  opened_weights = opened.open_weights(arguments.weights, arguments.tokenizer)
  if opened_weights.name in trained.TRANSFORMERS:
    opened_weights.check()
    text_plan.Plan(opened_weights, request)
  text_counts.count_lines(arguments.file)
  if arguments.query is None:
    for _ in neighbours.read_pairs(arguments.file):
      pass
  found = trained.load(opened_weights, expected=trained.TRANSFORMERS)
  model = found.model.clone(dtype=jnp.dtype(arguments.dtype))
  found = found._replace(model=model)
  if arguments.query is not None:
    for near in neighbours.nearest(
      found,
      arguments.query,
      text_counts.lines(arguments.file),
      request,
      top_k=arguments.top_k or 10,
    ):
      _print(arguments.json, near._asdict(), near.text)
    return
  similarities = neighbours.compare(
    found, neighbours.read_pairs(arguments.file), request
  )
  for number, (pair, similarity) in enumerate(
    zip(neighbours.read_pairs(arguments.file), similarities, strict=True),
    start=1,
  ):
    record = {'similarity': similarity, 'line': number, 'texts': pair}
    _print(arguments.json, record, '\t'.join(pair))


def _print(as_json: bool, record: dict[str, Any], text: str) -> None:
  if as_json:
    print(json.dumps(record, ensure_ascii=False))
  else:
    print(f'{record["similarity"]:7.4f}  {text}')


if __name__ == '__main__':
  main()
