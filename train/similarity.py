"""Cosine similarity of texts: python -m train.similarity WEIGHTS FILE.

FILE holds two texts a line, set apart by a tab; prints their similarity.
With --query TEXT, FILE holds a text a line, and the lines nearest to TEXT are
printed.
"""

import argparse
import json

from train.run import command
from train.vectors import request, text_counts


def main() -> None:
  """Entry point."""
  parser = command.parser('similarity', __doc__, command.ALL_MODELS)
  add, _, number = command.adders(parser)
  add('file', metavar='FILE', help='UTF-8: pairs, or with --query texts')
  add('--query', metavar='TEXT', help='print the lines nearest to this text')
  number('--top_k', help='lines for --query; by default 10')
  add(
    '--pool',
    help='tokens that make the vector of a text: mean (the default), cls (BERT)'
    ' or last (GPT, left-to-right BERT)',
  )
  add('--dtype', choices=request.DTYPES, default='float32', help='of products')
  command.add_json(parser, 'JSONL')
  arguments = parser.parse_args()
  if arguments.top_k is not None and arguments.query is None:
    parser.error('--top_k is of --query')
  command.main(arguments, _run)


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  text_counts.count_lines(arguments.file)
  if arguments.query is None:
    for _ in text_counts.read_pairs(arguments.file):
      pass
  import jax.numpy as jnp

  from train.params import opened, trained
  from train.vectors import neighbours, text_plan

  wanted = request.Request(pool=arguments.pool, normalize=True)
  weights = opened.open_weights(arguments.weights, arguments.tokenizer)
  if weights.name in trained.TRANSFORMERS:  # others are refused by name
    weights.check()
    text_plan.Plan(weights, wanted)
  found = trained.load(weights, expected=trained.TRANSFORMERS)
  model = found.model.clone(dtype=jnp.dtype(arguments.dtype))
  found = found._replace(model=model)
  if arguments.query is not None:
    lines, top_k = text_counts.lines(arguments.file), arguments.top_k or 10
    near = neighbours.nearest(
      found, arguments.query, lines, wanted, top_k=top_k
    )
    records = [each._asdict() for each in near]
  else:
    pairs, shown = (text_counts.read_pairs(arguments.file) for _ in range(2))
    similarities = neighbours.compare(found, pairs, wanted)
    records = (
      {'similarity': similarity, 'line': line, 'texts': pair}
      for (line, pair), similarity in zip(
        enumerate(shown, start=1), similarities, strict=True
      )
    )
  for record in records:
    text = '\t'.join(record['texts']) if 'texts' in record else record['text']
    if arguments.json:
      print(json.dumps(record, ensure_ascii=False))
    else:
      print(f'{record["similarity"]:7.4f}  {text}')


if __name__ == '__main__':
  main()
