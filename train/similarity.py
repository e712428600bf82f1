"""Cosine similarity of texts: python -m train.similarity WEIGHTS FILE.

FILE holds two texts a line, set apart by a tab; prints their similarity.
With --query TEXT, FILE holds a text a line, and the lines nearest to TEXT are
printed. With --shift 0,1,2,4, too: how far the vectors of its tokens move when
so many are added to the position ids of a whole text.

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
from typing import TYPE_CHECKING

from train.host import console, files
from train.run import command
from train.vectors import request, text_counts

if TYPE_CHECKING:
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
    help='print the lines nearest to it',
  )
  of_mode('--shift', metavar='K,...', help='numbers of positions, from 0 on')
  of_mode('--compare', metavar='GLUE', help='folder of STS-B and MRPC')
  of_mode('--parallel', metavar='FILE', nargs=2, help='text, its translation')
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
  mode_of = {'top_k': 'query', 'beside': 'compare', 'by_layer': 'parallel'}
  mode_of |= dict.fromkeys(('out', 'overwrite'), 'parallel')
  for name, mode in mode_of.items():
    if getattr(arguments, name) and getattr(arguments, mode) is None:
      parser.error(f'--{name} is of --{mode}')
  if arguments.pool is not None and (arguments.shift or any(others)):
    parser.error('--pool is of pairs and of --query')
  command.main(arguments, _run)


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  from train.meanings import inputs

  out, overwrite = arguments.out, arguments.overwrite
  if out is not None:
    files.check_new(out, overwrite=overwrite, endings=['.png'])
  if arguments.compare is not None:
    sets = inputs.read_sets(arguments.compare)
  elif arguments.parallel is not None:
    texts = inputs.read_translations(*arguments.parallel)
  else:
    text_counts.count_lines(arguments.file)
  if arguments.shift is not None:
    shifts = inputs.parse_shifts(arguments.shift)
  elif arguments.file is not None and arguments.query is None:
    for _ in text_counts.read_pairs(arguments.file):
      pass
  from train.meanings import sentence_scores, shifting, translations
  from train.vectors import neighbours, trained_model

  names = [arguments.weights, *arguments.beside]
  wanted = request.Request(pool=arguments.pool, normalize=True)
  found = trained_model.in_turn(_open(arguments, wanted))
  if arguments.compare is not None:
    figures = sentence_scores.compare(zip(names, found, strict=True), sets)
    text = sentence_scores.as_text(figures)
  elif arguments.shift is not None:
    figures = shifting.measure(next(found), arguments.file, shifts)
    text = shifting.as_text(figures)
  elif arguments.parallel is not None:
    figures = {'weights': names[0], 'files': arguments.parallel}
    figures |= translations.measure(next(found), texts, arguments.by_layer)
    if out is not None:
      translations.write_picture(figures, out)
    text = translations.as_text(figures)
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
