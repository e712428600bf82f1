"""Cosine similarity of texts: python -m train.similarity WEIGHTS FILE.

FILE holds two texts a line, set apart by a tab; prints their similarity.
With --query TEXT, which may be repeated, or --queries FILE, FILE holds a text a
line, and the lines nearest to each query are printed; --index FOLDER keeps the
vectors of FILE for the next time. With --shift 0,1,2,4, too: how far the
vectors of its tokens move when so many are added to the position ids of a whole
text.

python -m train.similarity WEIGHTS --compare GLUE [--beside WEIGHTS ...]

The vectors of sentences by [CLS], mean, maximum and last token, of every layer,
without fine-tuning: correlation with people's scores on STS-B, accuracy on MRPC
by a threshold from its training set.

python -m train.similarity WEIGHTS --parallel FILE FILE [--by_layer]

Line i of one file translates line i of the other: the share of lines that find
their translation by mean vectors, of the last layer or of each; ELMo's, too.
"""

import argparse
import json
from typing import TYPE_CHECKING, Any

from train.host import console, files
from train.run import command
from train.vectors import request, text_counts

if TYPE_CHECKING:
  from collections.abc import Iterable

  from train.vectors import neighbours
  from train.vectors.trained_model import TrainedModel


def main() -> None:
  """Entry point."""
  parser = command.parser('similarity', __doc__, command.ALL_MODELS)
  add, switch, number = command.adders(parser)
  add('file', metavar='FILE', nargs='?', help='UTF-8: pairs, or texts')
  of_mode = parser.add_mutually_exclusive_group().add_argument
  of_mode(
    '--query',
    type=command.text,
    metavar='TEXT',
    action='append',
    help='print the lines nearest to it; may be repeated',
  )
  of_mode('--queries', metavar='FILE', help='the same, of each line of a file')
  of_mode('--shift', metavar='K,...', help='numbers of positions, from 0 on')
  of_mode('--compare', metavar='GLUE', help='folder of STS-B and MRPC')
  of_mode('--parallel', metavar='FILE', nargs=2, help='text, its translation')
  number('--top_k', help='lines for each query; by default 10')
  add(
    '--index',
    metavar='FOLDER',
    help='of queries: where the vectors of FILE are kept; it is made if it is'
    ' not there',
  )
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
  switch('--by_layer', help='of --parallel: every layer, not the last alone')
  add('--out', metavar='FILE.png', help='of --parallel: a picture to write')
  switch('--overwrite', help='replace --out')
  add(
    '--dtype',
    choices=request.DTYPES,
    default='float32',
    help='of products, on accelerators',
  )
  command.add_json(parser, 'JSONL, of all but pairs and --query JSON,')
  arguments = parser.parse_args()
  others = arguments.compare, arguments.parallel
  if (arguments.file is None) == (others == (None, None)):
    parser.error('give either FILE or --compare GLUE or --parallel FILE FILE')
  mode_of = {'beside': 'compare', 'by_layer': 'parallel'}
  mode_of |= dict.fromkeys(('out', 'overwrite'), 'parallel')
  for name, mode in mode_of.items():
    if getattr(arguments, name) and getattr(arguments, mode) is None:
      parser.error(f'--{name} is of --{mode}')
  if arguments.query is None and arguments.queries is None:
    for name in ('top_k', 'index'):
      if getattr(arguments, name):
        parser.error(f'--{name} is of --query and --queries')
  if arguments.pool is not None and (arguments.shift or any(others)):
    parser.error('--pool is of pairs and of --query')
  command.main(arguments, _run)


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  out = arguments.out
  if out is not None:
    files.check_new(out, overwrite=arguments.overwrite, endings=['.png'])
  given = _read(arguments)
  from train.meanings import sentence_scores, shifting, translations
  from train.vectors import neighbours, trained_model

  names = [arguments.weights, *arguments.beside]
  wanted = request.Request(pool=arguments.pool, normalize=True)
  found = trained_model.in_turn(_open(arguments, wanted))
  if arguments.compare is not None:
    figures = sentence_scores.compare(zip(names, found, strict=True), given)
    text = sentence_scores.as_text(figures)
  elif arguments.shift is not None:
    figures = shifting.measure(next(found), arguments.file, given)
    text = shifting.as_text(figures)
  elif arguments.parallel is not None:
    figures = {'weights': names[0], 'files': arguments.parallel}
    figures |= translations.measure(next(found), given, arguments.by_layer)
    if out is not None:
      translations.write_picture(figures, out)
    text = translations.as_text(figures)
  else:
    model = next(found)
    if given:
      records = neighbours.nearest(
        model,
        given,
        arguments.file,
        wanted,
        top_k=arguments.top_k or neighbours.TOP_K,
        index=arguments.index,
      )
    else:
      records = neighbours.pairs(model, arguments.file, wanted)
    _print_records(records, arguments.json, len(given) > 1)
    return
  print((files.as_json(figures) if arguments.json else text).rstrip())


def _read(arguments: argparse.Namespace) -> Any:
  """Reads what the chosen mode needs, and returns what it takes beside FILE.

  The sets of --compare, the texts of --parallel, the numbers of --shift, the
  queries; of pairs nothing.
  """
  from train.meanings import inputs

  if arguments.compare is not None:
    return inputs.read_sets(arguments.compare)
  if arguments.parallel is not None:
    return inputs.read_translations(*arguments.parallel)
  text_counts.count_lines(arguments.file)
  if arguments.shift is not None:
    return inputs.parse_shifts(arguments.shift)
  if arguments.queries is not None:
    text_counts.count_lines(arguments.queries)
    return list(text_counts.lines(arguments.queries))
  if arguments.query is None:
    for _ in text_counts.read_pairs(arguments.file):
      pass
  return arguments.query or []


def _print_records(
  records: 'Iterable[neighbours.Record]', as_json: bool, headed: bool
) -> None:
  """Prints similarities, `headed` by their query where it changes."""
  query = None
  for record in records:
    if as_json:
      print(json.dumps(record, ensure_ascii=False))
      continue
    if headed and record['query'] != query:
      query = record['query']
      print(query)
    text = '\t'.join(record['texts']) if 'texts' in record else record['text']
    print(f'{record["similarity"]:7.4f}  {text}')


def _open(
  arguments: argparse.Namespace, wanted: request.Request
) -> list['TrainedModel']:
  """Returns the models, all checked before the parameters of one are read."""
  from train.architectures import families
  from train.vectors.trained_model import TrainedModel, check_dtype

  check_dtype(arguments.dtype)
  models = []
  for number, name in enumerate([arguments.weights, *arguments.beside]):
    tokenizer = None if number else arguments.tokenizer
    model = TrainedModel(name, tokenizer, dtype=arguments.dtype)
    if not model.reads_words:
      told = model.plan(wanted).told
      if told and arguments.file is not None and arguments.shift is None:
        console.say(told)
    elif arguments.parallel is None:
      raise ValueError(
        f'{model.folder} holds an {model.name}, which has vectors of words'
        ' alone, and no positions; expected'
        f' {" or ".join(families.names_for("embed"))}'
      )
    models.append(model)
  return models


if __name__ == '__main__':
  main()
