"""Vectors of texts: python -m train.embed WEIGHTS INPUT OUTPUT.

INPUT is UTF-8 text, a sentence or a document a line. OUTPUT is an HDF5 file
(.hdf5, .h5) with a data set '0', '1', ... a line, or JSONL (.jsonl); float32.
An ELMo gives [layers, words, 2 P] for a line, words set apart by white space,
as the released command writes it. A BERT, GPT or GPT-2 gives [tokens, D],
[words, D] or [D] by --unit, of the last layer unless --layers names others.
"""

import argparse

from data.vocabulary import characters
from train.host import console, files
from train.run import command
from train.vectors import request, vector_files

EPILOG = """
The vectors of a line depend on nothing but the line. Only ELMo's released
programs carry the state of the LSTMs from batch to batch, so that their vectors
depend on earlier lines: --stateful does the same."""


def _parser() -> argparse.ArgumentParser:
  parser = command.parser('embed', __doc__, command.ALL_MODELS, epilog=EPILOG)
  add, switch, number = command.adders(parser)
  add('input', metavar='INPUT', help='a UTF-8 file, a text a line')
  add('output', metavar='OUTPUT', help='the .hdf5, .h5 or .jsonl file to write')
  add(
    '--layers',
    help='all (the default of an ELMo), the mean of all, top (the default of'
    ' the others), or numbers, 0 for the embeddings: --layers=-1,-2',
  )
  add(
    '--combine',
    choices=request.COMBINATIONS,
    default='stack',
    help='several layers: each by itself (the default), side by side, or one',
  )
  add('--mix', help=f'of --combine=mix: {request.MIX_FORM}')
  switch('--running', help='INPUT is running text: split punctuation off words')
  add(
    '--dtype',
    choices=request.DTYPES,
    default='float32',
    help='of products, on accelerators',
  )
  number(
    '--batch_tokens',
    help='tokens or words at a time; by default 4096 of an ELMo, else as many'
    ' as suit the device',
  )
  switch('--overwrite', help='replace OUTPUT')
  command.add_json(parser)
  group = parser.add_argument_group('BERT, GPT and GPT-2')
  add, switch, number = command.adders(group)
  add(
    '--unit',
    choices=request.UNITS,
    help='each has a vector: a token (the default), a word, set apart by white'
    ' space, or the whole line; an ELMo has vectors of words alone',
  )
  add(
    '--pool',
    help='tokens that make the vector of a word: first (the default of BERT),'
    ' mean or last (of GPT); or of a line: mean (the default; with [CLS] and'
    ' [SEP]), cls (BERT) or last (GPT); a left-to-right BERT pools as a GPT. A'
    ' folder of sentence-transformers has its own default, and its vectors of'
    ' lines are scaled to length 1 if it says so',
  )
  switch('--normalize', help='scale the vectors of lines to length 1')
  number('--window', help='tokens seen at once; by default as many as possible')
  number(
    '--stride',
    help='tokens between the windows of a longer line; by default half a'
    ' window. Each vector is of the window that shows most context',
  )
  _, switch, number = command.adders(parser.add_argument_group('ELMo'))
  switch('--stateful', help='carry the state from batch to batch, in order')
  number('--batch_size', help='sentences with --stateful; by default 64')
  return parser


def main() -> None:
  """Entry point."""
  parser = _parser()
  arguments = parser.parse_args()
  if arguments.batch_size and not arguments.stateful:
    parser.error('--batch_size is of --stateful; else give --batch_tokens')
  if arguments.batch_tokens and arguments.stateful:
    parser.error('--batch_tokens is not of --stateful; give --batch_size')
  command.main(arguments, _run)


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  vector_files.check_new(arguments.output, overwrite=arguments.overwrite)
  files.check_readable(arguments.input)
  if arguments.layers is not None:
    request.parse_choice(arguments.layers, arguments.combine, arguments.mix)
  from train.vectors import embedder

  figures = embedder.run(arguments)
  console.print_figures(figures, arguments.output, as_json=arguments.json)
  if figures.get('cut_words'):
    console.say(
      f'Cut after {characters.MAX_BYTES} bytes, as released:'
      f' {figures["cut_words"]:,} of the words'
    )


if __name__ == '__main__':
  main()
