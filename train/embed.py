"""Vectors of texts: python -m train.embed WEIGHTS INPUT OUTPUT.

INPUT is UTF-8 text, a sentence or a document a line. OUTPUT is an HDF5 file
(.hdf5, .h5) with a data set '0', '1', ... a line, or JSONL (.jsonl); float32.
An ELMo gives [layers, words, 2 P] of a line, words set apart by white space, as
the released command writes it. A BERT, GPT or GPT-2 gives [tokens, D], [words,
D] or [D] by --unit, of the last layer unless --layers names others.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax.numpy as jnp
from etils import epath

from data import characters
from models import elmo
from train import (
  command,
  device,
  embedding,
  layer_choice,
  length_batches,
  metrics,
  opened,
  reporting,
  text_counts,
  text_embedding,
  text_plan,
  trained,
  vector_files,
)
from train.text_plan import Request
from train.vector_files import Vectors

BAR_SECONDS = 0.1  # between changes of the bar, which are not free
DTYPES = ('float32', 'bfloat16')
# Options of one kind of model alone.
ELMO_OPTIONS = ('stateful', 'batch_size')
TEXT_OPTIONS = ('unit', 'pool', 'normalize', 'window', 'stride')


def embed_file(
  model: elmo.Elmo,
  params: Any,
  source: epath.PathLike,
  output: str | os.PathLike,
  *,
  split: text_counts.Split = str.split,
  overwrite: bool = False,
  counts: text_counts.Counts | None = None,
  **options: Any,
) -> dict[str, int | float]:
  """Writes an ELMo's vectors of a text's sentences; or nothing, on any error.

  Args:
    model: with a character encoder.
    params: its parameters.
    source: UTF-8, a sentence a line.
    output: the file, see `vector_files`; of a line it holds what
      `embedding.embed_sentences` yields.
    split: finds the words of a line.
    overwrite: replace the file, once the new one is whole.
    counts: of the source, where they are known; else it is read twice.
    **options: of `embedding.embed_numbered`.

  Returns:
    The counts, seconds and words_per_second.

  Raises:
    OSError: if a file cannot be read or written.
    ValueError: if the source or an option makes no sense.
  """
  vector_files.check(output, overwrite=overwrite)
  counts = text_counts.count(source, split) if counts is None else counts
  ordered = vector_files.is_jsonl(output)
  if ordered:
    options = {'window_words': embedding.ORDERED_WORDS} | options

  def compute(lines: Iterable[str]) -> Iterator[tuple[int, Vectors]]:
    reading: dict[int, list[str]] = {}

    def read() -> Iterator[list[str]]:
      for number, line in enumerate(lines):
        reading[number] = split(line)
        yield reading[number]

    for number, array in embedding.embed_numbered(
      model, params, read(), **options
    ):
      words = reading.pop(number)
      yield number, Vectors(array, words, len(words))

  return counts._asdict() | _write(
    compute,
    source,
    output,
    num_lines=counts.sentences,
    num_words=counts.words,
    labels='words' if ordered else None,  # as released
  )


def embed_text_file(
  found: trained.Trained,
  source: epath.PathLike,
  output: str | os.PathLike,
  request: Request,
  *,
  overwrite: bool = False,
  num_lines: int | None = None,
  batch_tokens: int | None = None,
) -> dict[str, int | float]:
  """Writes a transformer's vectors of a text's lines; or nothing, on any error.

  Args:
    found: a BERT, GPT or GPT-2.
    source: UTF-8, a sentence or a document a line.
    output: the file, see `vector_files`.
    request: what is wanted of each line.
    overwrite: replace the file, once the new one is whole.
    num_lines: of the source, where known; else it is read twice.
    batch_tokens: see `text_embedding.embed_numbered`.

  Returns:
    lines, those without a token, tokens, seconds and tokens_per_second.

  Raises:
    OSError: if a file cannot be read or written.
    ValueError: if the source or an option makes no sense.
  """
  vector_files.check(output, overwrite=overwrite)
  vector_files.is_jsonl(output)
  num_lines = (
    text_counts.count_lines(source) if num_lines is None else num_lines
  )
  return _write(
    lambda lines: text_embedding.embed_numbered(
      found, lines, request, batch_tokens=batch_tokens
    ),
    source,
    output,
    num_lines=num_lines,
    num_words=None,
    labels=None if request.unit == 'sentence' else f'{request.unit}s',
  )


def _write(
  compute: Callable[[Iterable[str]], Iterator[tuple[int, Vectors]]],
  source: epath.PathLike,
  output: str | os.PathLike,
  *,
  num_lines: int,
  num_words: int | None,
  labels: str | None,
) -> dict[str, int | float]:
  """Writes what is computed of a text's lines, and returns figures.

  Args:
    compute: lines -> (number, vectors), in any order.
    source: the text.
    output: the file.
    num_lines: of the text.
    num_words: of the text; None: they are tokens and not counted yet.
    labels: see `vector_files.create`.
  """
  began = shown = time.monotonic()
  done = num_tokens = empty_lines = 0
  ordered = vector_files.is_jsonl(output)
  with (
    vector_files.create(output, num_lines=num_lines, labels=labels) as file,
    reporting.ProgressBar(0, num_words or num_lines) as bar,
  ):

    def read() -> Iterator[str]:
      for number, line in enumerate(text_counts.lines(source)):
        if number == num_lines:
          raise _changed(source, f'more lines are read than the {num_lines:,}')
        file.add_line(number, line)
        yield line

    numbered = compute(read())
    if ordered:
      numbered = enumerate(length_batches.in_order(numbered))
    for number, vectors in numbered:
      file.write(number, vectors)
      done += 1
      num_tokens += vectors.num_tokens
      empty_lines += not vectors.num_tokens
      now = time.monotonic()
      if now - shown > BAR_SECONDS or done == num_lines:
        shown = now
        bar.update(
          done if num_words is None else num_tokens,
          f'{num_tokens / (now - began):,.0f}'
          f' {"tokens" if num_words is None else "words"}/s',
        )
    if num_words is None and done != num_lines:
      raise _changed(source, f'{done:,} lines were read, and {num_lines:,}')
    if num_words is not None and (done, num_tokens) != (num_lines, num_words):
      raise _changed(
        source,
        f'{done:,} lines of {num_tokens:,} words were read, and {num_lines:,}'
        f' of {num_words:,}',
      )
  seconds = time.monotonic() - began
  if num_words is not None:
    return {'seconds': seconds, 'words_per_second': num_words / seconds}
  return {
    'lines': num_lines,
    'lines_without_tokens': empty_lines,
    'tokens': num_tokens,
    'seconds': seconds,
    'tokens_per_second': num_tokens / seconds,
  }


def _changed(source: epath.PathLike, what: str) -> ValueError:
  return ValueError(
    f'{source}: {what} before; expected a file that stays the same, and no pipe'
  )


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
    f' {embedding.BATCH_TOKENS} of an ELMo, else what suits the device',
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
    f' {embedding.BATCH_SIZE}, as released',
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
  figures = (_run_elmo if is_elmo else _run_text)(arguments, found, choice)
  if arguments.json:
    print(metrics.as_json(figures))
  else:
    reporting.figures_table(figures, arguments.output)
  if figures.get('cut_words'):
    reporting.say(
      f'Cut after {characters.MAX_BYTES} bytes, as released:'
      f' {figures["cut_words"]:,} of the words'
    )


def _run_elmo(
  arguments: argparse.Namespace,
  opened_weights: opened.Opened,
  choice: layer_choice.Choice,
) -> dict[str, int | float]:
  layer_choice.check(choice, opened_weights.model.num_layers)
  split = text_counts.splitter(arguments.running)
  counts = text_counts.count(arguments.input, split)
  model, params, trained_on = trained.load_elmo(opened_weights)
  if trained_on == 'marks' and not arguments.running:
    reporting.say(
      'This model was trained on words with the marks by themselves, and those'
      ' of INPUT are taken as white space sets them apart; if it is running'
      ' text, give --running.'
    )
  options = {
    name: value
    for name in ('batch_size', 'batch_tokens')
    if (value := getattr(arguments, name)) is not None
  }
  return embed_file(
    model.clone(dtype=jnp.dtype(arguments.dtype)),
    params,
    arguments.input,
    arguments.output,
    split=split,
    overwrite=arguments.overwrite,
    counts=counts,
    stateful=arguments.stateful,
    **choice._asdict(),
    **options,
  )


def _run_text(
  arguments: argparse.Namespace,
  opened_weights: opened.Opened,
  choice: layer_choice.Choice,
) -> dict[str, int | float]:
  request = Request(
    unit=arguments.unit or 'token',
    pool=arguments.pool,
    choice=choice,
    normalize=arguments.normalize,
    window=arguments.window,
    stride=arguments.stride,
    split=text_counts.splitter(arguments.running),
  )
  text_plan.Plan(opened_weights, request)  # checks it
  if arguments.running and request.unit != 'word':
    raise ValueError(
      f'--running finds words, found --unit={request.unit}; expected'
      ' --unit=word'
    )
  num_lines = text_counts.count_lines(arguments.input)
  found = trained.load(opened_weights, expected=trained.TRANSFORMERS)
  model = found.model.clone(dtype=jnp.dtype(arguments.dtype))
  return embed_text_file(
    found._replace(model=model),
    arguments.input,
    arguments.output,
    request,
    overwrite=arguments.overwrite,
    num_lines=num_lines,
    batch_tokens=arguments.batch_tokens,
  )


if __name__ == '__main__':
  main()
