"""Vectors of texts: python -m train.embed WEIGHTS INPUT OUTPUT.

INPUT is UTF-8 text with a sentence or a document on each line. OUTPUT is an
HDF5 file (.hdf5, .h5), in which the lines have the data sets '0', '1', ..., or
a JSONL file (.jsonl). All vectors are float32. An ELMo gives [layers, words,
2 P] for a line, as the released command writes it: P is the width of one
direction, and words are separated by white space. A BERT, GPT or GPT-2 gives
[tokens, D], [words, D] or [D] for a line, by --unit, from the last layer unless
--layers names others.
"""

import argparse

from data.vocabulary import characters
from train.host import console, files
from train.run import command
from train.vectors import request, vector_files

EPILOG = """
The vectors of a line depend only on this line. ELMo's released programs carry
the state of the LSTMs from batch to batch, so that their vectors depend on
earlier lines, too; --stateful does the same."""


def _parser() -> argparse.ArgumentParser:
  parser = command.parser('embed', __doc__, command.ALL_MODELS, epilog=EPILOG)
  add, switch, number = command.adders(parser)
  add('input', metavar='INPUT', help='a UTF-8 file with a text on each line')
  add('output', metavar='OUTPUT', help='the .hdf5, .h5 or .jsonl file to write')
  add(
    '--layers',
    help='all (the default for an ELMo), mean (of all layers), top (the last'
    ' layer, the default for other models), or numbers, as in --layers=-1,-2; 0'
    ' is the embeddings, -1 the last layer',
  )
  add(
    '--combine',
    choices=request.COMBINATIONS,
    default='stack',
    help='how several layers are combined: kept apart (stack, the default), put'
    ' side by side (concat), added (sum), averaged (mean), or weighted by --mix'
    ' (mix)',
  )
  add(
    '--mix',
    help='for --combine=mix: a weight for each layer, a colon and a scale, as'
    ' in --mix=0.2,-1,0.5:1.3; or a JSON file of {"mix_weights": [...],'
    ' "mix_scale": ...}',
  )
  switch(
    '--running',
    help='INPUT is running text: split punctuation off words (for an ELMo, or'
    ' with --unit word)',
  )
  add(
    '--dtype',
    choices=request.DTYPES,
    default='float32',
    help='precision of matrix products; bfloat16 needs an accelerator',
  )
  number(
    '--batch_tokens',
    help='tokens (for an ELMo: words) in a batch; by default 4096 for an ELMo,'
    ' else as many as suit the device',
  )
  switch('--overwrite', help='replace OUTPUT if it exists')
  command.add_json(parser)
  group = parser.add_argument_group('BERT, GPT and GPT-2')
  add, switch, number = command.adders(group)
  add(
    '--unit',
    choices=request.UNITS,
    help='give a vector to each token (the default), to each word, separated by'
    ' white space, or to the whole line (sentence); an ELMo has only vectors of'
    ' words',
  )
  add(
    '--pool',
    help='tokens that make the vector of a word: first (the default for BERT),'
    ' mean, or last (the default for GPT); or of a line: mean (the default;'
    ' with [CLS] and [SEP]), cls (only BERT) or last (only GPT). A'
    ' left-to-right BERT pools as a GPT. A folder of sentence-transformers has'
    ' a default of its own, and scales the vectors of lines to length 1 if it'
    ' says so',
  )
  switch('--normalize', help='scale the vectors of lines to length 1')
  number(
    '--window',
    help='tokens that the model sees at once; by default all its positions',
  )
  number(
    '--stride',
    help='tokens from the start of a window to the start of the next, in a line'
    ' longer than a window; by default half a window. The vector of a token'
    ' comes from the window that shows most of its neighbours',
  )
  _, switch, number = command.adders(parser.add_argument_group('ELMo'))
  switch(
    '--stateful',
    help='carry the state from batch to batch, in the order of the lines',
  )
  number(
    '--batch_size', help='sentences in a batch of --stateful; by default 64'
  )
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
