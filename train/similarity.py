"""Cosine similarity of texts: python -m train.similarity WEIGHTS FILE.

FILE holds two texts a line, set apart by a tab; prints their similarity.
With --query TEXT, FILE holds a text a line, and the lines nearest to TEXT are
printed. With --shift 0,1,2,4, too: how far the vectors of its tokens move when
so many are added to the position ids of a whole text.

python -m train.similarity WEIGHTS --compare GLUE [--beside WEIGHTS ...]

The vectors of sentences by [CLS], mean, maximum and last token, of every layer,
without fine-tuning: correlation with people's scores on STS-B, accuracy on MRPC
by a threshold from its training set.
"""

import argparse
import json

from train.host import files
from train.run import command
from train.vectors import request, text_counts


def main() -> None:
  """Entry point."""
  parser = command.parser('similarity', __doc__, command.ALL_MODELS)
  add, _, number = command.adders(parser)
  add('file', metavar='FILE', nargs='?', help='UTF-8: pairs, or texts')
  of_mode = parser.add_mutually_exclusive_group().add_argument
  of_mode('--query', metavar='TEXT', help='print the lines nearest to it')
  of_mode('--shift', metavar='K,...', help='numbers of positions, from 0 on')
  of_mode('--compare', metavar='GLUE', help='folder of STS-B and MRPC')
  number('--top_k', help='lines for --query; by default 10')
  add(
    '--pool',
    help='tokens that make the vector of a text: mean (the default), cls (BERT)'
    ' or last (GPT, left-to-right BERT)',
  )
  add(
    '--beside',
    metavar='WEIGHTS',
    action='append',
    default=[],
    help='of --compare: another model in the same table; may be repeated',
  )
  add('--dtype', choices=request.DTYPES, default='float32', help='of products')
  command.add_json(parser, 'JSONL, of --shift and --compare JSON,')
  arguments = parser.parse_args()
  if (arguments.file is None) == (arguments.compare is None):
    parser.error('give either FILE or --compare GLUE')
  if arguments.top_k is not None and arguments.query is None:
    parser.error('--top_k is of --query')
  if arguments.beside and arguments.compare is None:
    parser.error('--beside is of --compare')
  if arguments.pool is not None and (arguments.shift or arguments.compare):
    parser.error('--pool is of pairs and of --query')
  command.main(arguments, _run)


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  from train.meanings import inputs

  if arguments.compare is not None:
    sets = inputs.read_sets(arguments.compare)
  else:
    text_counts.count_lines(arguments.file)
  if arguments.shift is not None:
    shifts = inputs.parse_shifts(arguments.shift)
  elif arguments.compare is None and arguments.query is None:
    for _ in text_counts.read_pairs(arguments.file):
      pass
  from train.meanings import loading, sentence_scores, shifting
  from train.vectors import neighbours

  names = [arguments.weights, *arguments.beside]
  wanted = request.Request(pool=arguments.pool, normalize=True)
  found = loading.load_each(names, arguments.tokenizer, wanted, arguments.dtype)
  if arguments.compare is not None:
    figures = sentence_scores.compare(zip(names, found, strict=True), sets)
    text = sentence_scores.as_text(figures)
  elif arguments.shift is not None:
    figures = shifting.measure(next(found), arguments.file, shifts)
    text = shifting.as_text(figures)
  else:
    for record in neighbours.records(
      next(found), arguments.file, wanted, arguments.query, arguments.top_k
    ):
      text = '\t'.join(record['texts']) if 'texts' in record else record['text']
      line = f'{record["similarity"]:7.4f}  {text}'
      as_json = json.dumps(record, ensure_ascii=False)
      print(as_json if arguments.json else line)
    return
  print((files.as_json(figures) if arguments.json else text).rstrip())


if __name__ == '__main__':
  main()
