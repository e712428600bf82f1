"""Cosine similarity of texts: python -m train.similarity WEIGHTS FILE.

FILE holds two texts on each line, separated by a tab; the command prints their
similarity. With --query TEXT or --queries FILE, FILE holds one text on each
line, and the command prints the lines nearest to each query; --index FOLDER
keeps the vectors of FILE for the next time. With --shift 0,1,2,4, FILE holds
one text on each line, too. Each of the numbers is added to the position ids of
a whole text, and the command prints how far the vectors of its tokens move.

python -m train.similarity WEIGHTS --compare GLUE [--beside WEIGHTS ...]

Compares vectors of sentences without fine-tuning: [CLS], mean, maximum and last
token, of every layer. Prints the correlation of their cosines with people's
scores on STS-B, and the accuracy of a threshold of the cosine on MRPC, which is
fitted to MRPC's training set.

python -m train.similarity WEIGHTS --parallel FILE FILE [--by_layer]

Line i of one file is the translation of line i of the other. Prints the share
of lines whose translation is the nearest line of the other file, by mean
vectors, of the last layer or of every layer. This takes an ELMo, too.
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
  add(
    'file',
    metavar='FILE',
    nargs='?',
    help='UTF-8 file of texts, two or one on each line',
  )
  of_mode = parser.add_mutually_exclusive_group().add_argument
  of_mode(
    '--query',
    type=command.text,
    metavar='TEXT',
    action='append',
    help='print the lines nearest to this text; may be repeated',
  )
  of_mode(
    '--queries',
    metavar='FILE',
    help='print the lines nearest to each line of this file',
  )
  of_mode(
    '--shift',
    metavar='K,...',
    help='numbers, 0 or more, to add to the position ids',
  )
  of_mode('--compare', metavar='GLUE', help='folder of the sets STS-B and MRPC')
  of_mode(
    '--parallel',
    metavar='FILE',
    nargs=2,
    help='a text with a sentence on each line, and its translation',
  )
  number(
    '--top_k',
    help='for queries: how many lines to print for each; by default 10',
  )
  add(
    '--index',
    metavar='FOLDER',
    help='for queries: folder that keeps the vectors of FILE; it is made if it'
    ' does not exist',
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
    help='for --compare: another model for the same table; may be repeated',
  )
  switch(
    '--by_layer', help='for --parallel: print every layer, not only the last'
  )
  add('--out', metavar='FILE.png', help='for --parallel: picture to write')
  switch('--overwrite', help='replace the file of --out if it exists')
  add(
    '--dtype',
    choices=request.DTYPES,
    default='float32',
    help='precision of matrix products; bfloat16 needs an accelerator',
  )
  command.add_json(parser, 'JSON (JSONL for pairs and for queries)')
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
