"""Vectors of texts: python -m train.embed WEIGHTS INPUT OUTPUT.

INPUT is UTF-8 text, a sentence or a document a line. OUTPUT is an HDF5 file
(.hdf5, .h5) with a data set '0', '1', ... a line, or JSONL (.jsonl); float32.
An ELMo gives [layers, words, 2 P] of a line, words set apart by white space, as
the released command writes it. A BERT, GPT or GPT-2 gives [tokens, D], [words,
D] or [D] by --unit, of the last layer unless --layers names others.
"""

import argparse

from data.vocabulary import characters
from train.host import console, device, files
from train.params import opened, trained
from train.run import command
from train.vectors import (
  elmo_vectors,
  embedder,
  layer_choice,
  text_plan,
  vector_files,
)

DTYPES = ('float32', 'bfloat16')
# Options of one kind of model alone.
ELMO_OPTIONS = ('stateful', 'batch_size')
TEXT_OPTIONS = ('unit', 'pool', 'normalize', 'window', 'stride')


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog='python -m train.embed',
    description=__doc__,
    epilog='The vectors of a line depend on nothing but the line. Only the'
    ' released programs of ELMo carry the state of the LSTMs from batch to'
    ' batch, so that theirs depend on what was read before: --stateful does'
    ' the same.',
  )
  add = parser.add_argument
  trained.add_weights(parser, trained.EMBED_HELP)
  add('input', metavar='INPUT', help='a UTF-8 file, a text a line')
  add('output', metavar='OUTPUT', help='the .hdf5, .h5 or .jsonl file to write')
  add(
    '--layers',
    help='all (the default of an ELMo), the mean of all, top (the default of'
    ' the others), or numbers, 0 for the layer of the words or embeddings:'
    ' --layers=-1,-2',
  )
  add(
    '--combine',
    choices=layer_choice.COMBINATIONS,
    default='stack',
    help='several layers: each by itself (the default), side by side, or one',
  )
  add('--mix', help=f'of --combine=mix: {layer_choice.MIX_FORM}')
  add(
    '--running',
    action='store_true',
    help='INPUT is running text: find its words, each mark by itself',
  )
  add('--dtype', choices=DTYPES, default=DTYPES[0], help='of the products')
  add(
    '--batch_tokens',
    type=int,
    help='tokens or words at a time, padding included; by default'
    f' {elmo_vectors.BATCH_TOKENS} of an ELMo, else what suits the device',
  )
  add('--overwrite', action='store_true', help='replace OUTPUT')
  add('--json', action='store_true', help='print JSON on standard output')
  group = parser.add_argument_group('BERT, GPT and GPT-2')
  add = group.add_argument
  add(
    '--unit',
    choices=text_plan.UNITS,
    help='what has a vector: a token (the default), a word, set apart by white'
    ' space, or the whole line; an ELMo knows words alone',
  )
  add(
    '--pool',
    help='which tokens make the vector of a word: first (the default of BERT),'
    ' mean or last (of GPT); or of a line: mean (the default; with [CLS] and'
    ' [SEP]), cls (BERT) or last (GPT); a BERT that reads from left to right is'
    ' as a GPT here',
  )
  add(
    '--normalize',
    action='store_true',
    help='scale the vectors of lines to length 1',
  )
  add(
    '--window',
    type=int,
    help='tokens that the model sees at once; by default all it can',
  )
  add(
    '--stride',
    type=int,
    help='of a longer line, tokens from one window to the next; by default'
    ' half a window. Each vector is from the window that shows most round it',
  )
  group = parser.add_argument_group('ELMo')
  add = group.add_argument
  add(
    '--stateful',
    action='store_true',
    help='carry the state from batch to batch, in the order of INPUT',
  )
  add(
    '--batch_size',
    type=int,
    help='sentences at a time where --stateful; by default'
    f' {elmo_vectors.BATCH_SIZE}, as released',
  )
  return parser


def main() -> None:
  """Entry point."""
  parser = _parser()
  arguments = parser.parse_args()
  if arguments.batch_size is not None and not arguments.stateful:
    parser.error('--batch_size is of --stateful; else give --batch_tokens')
  for name in ('batch_size', 'batch_tokens', 'window', 'stride'):
    value = getattr(arguments, name)
    if value is not None and value < 1:
      parser.error(f'--{name}={value}: expected 1 or more')
  if arguments.batch_tokens is not None and arguments.stateful:
    parser.error('--batch_tokens is not of --stateful; give --batch_size')
  device.enable_compilation_cache()
  command.run(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  vector_files.is_jsonl(arguments.output)
  vector_files.check(arguments.output, overwrite=arguments.overwrite)
  found = opened.open_weights(arguments.weights, arguments.tokenizer)
  found.check()
  is_elmo = found.name == 'elmo'
  if is_elmo and arguments.unit == 'word':
    arguments.unit = None  # as it does
  refused = [
    f'--{option}'
    for option in (TEXT_OPTIONS if is_elmo else ELMO_OPTIONS)
    if getattr(arguments, option) not in (None, False)
  ]
  if refused:
    raise ValueError(
      f'{found.folder} holds a {found.name}, which has no {", ".join(refused)}'
    )
  layers = arguments.layers or ('all' if is_elmo else 'top')
  choice = layer_choice.parse(layers, arguments.combine, arguments.mix)
  figures = (embedder.run_elmo if is_elmo else embedder.run_text)(
    arguments, found, choice
  )
  if arguments.json:
    print(files.as_json(figures))
  else:
    console.figures_table(figures, arguments.output)
  if figures.get('cut_words'):
    console.say(
      f'Cut after {characters.MAX_BYTES} bytes, as released:'
      f' {figures["cut_words"]:,} of the words'
    )


if __name__ == '__main__':
  main()
