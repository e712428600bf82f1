"""ELMo's vectors of sentences: python -m train.embed WEIGHTS INPUT OUTPUT.

INPUT is UTF-8 text, a sentence a line, its words set apart by white space.
OUTPUT is an HDF5 file with a data set '0', '1', ... a line, [L, words, 2 P]
float32, as the released command writes it.
"""

import argparse
import contextlib
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import h5py
import jax.numpy as jnp
from etils import epath

from data import characters, text_files
from data.words import split_words
from models import elmo
from train import command, device, embedding, metrics, reporting, trained

INDEX = 'sentence_to_index'
# A layer's gates of so many words take 2 GB in the original model.
MOST_WORDS = 16_384
BAR_SECONDS = 0.1  # between changes of the bar, which are not free
DTYPES = ('float32', 'bfloat16')
Split = Callable[[str], list[str]]


class Counts(NamedTuple):
  """What a text holds.

  Attributes:
    sentences: lines.
    words: of all lines.
    cut_words: those of more than 48 bytes, which are cut.
    distinct_words: how many different words.
  """

  sentences: int
  words: int
  cut_words: int
  distinct_words: int


def splitter(running: bool) -> Split:
  """Returns what finds the words of a line.

  Args:
    running: in running text, where marks stand at the words; else white space
      sets all words apart.
  """
  if not running:
    return str.split
  return lambda line: split_words(line, 'marks')


def count(path: epath.PathLike, split: Split) -> Counts:
  """Reads a text once, to know that all of it can be embedded.

  Args:
    path: a file, plain or compressed.
    split: finds the words of a line.

  Raises:
    ValueError: naming the file and line that are no text in UTF-8, or no
      sentence; or if the file is empty.
    OSError: if it cannot be read.
  """
  sentences = num_words = cut_words = 0
  distinct = set()
  for sentences, line in enumerate(_lines(path), start=1):
    words = split(line)
    if len(words) > MOST_WORDS:
      raise ValueError(
        f'{path}, line {sentences:,}: {len(words):,} words, expected a sentence'
        f' a line, of {MOST_WORDS:,} words at most'
      )
    num_words += len(words)
    cut_words += sum(map(_is_cut, words))
    distinct.update(words)
  if not sentences:
    raise ValueError(f'{path}: is empty, expected a sentence a line')
  return Counts(sentences, num_words, cut_words, len(distinct))


def _lines(path: epath.PathLike) -> Iterator[str]:
  return text_files.lines(text_files.chunks(epath.Path(path).expanduser()))


def _is_cut(word: str) -> bool:
  # No character has more than 4 bytes.
  return (
    4 * len(word) > characters.MAX_BYTES
    and len(word.encode()) > characters.MAX_BYTES
  )


def check_output(path: str | os.PathLike, *, overwrite: bool) -> None:
  """Refuses, before work is done, a file that could or should not be written.

  Raises:
    FileExistsError: if it is there, unless to `overwrite`; or a folder.
    FileNotFoundError: if its folder is not there.
    ValueError: if it is remote.
  """
  if '://' in str(path):
    raise ValueError(
      f'{path}: HDF5 files are written here and there, so OUTPUT must be local;'
      ' copy it later'
    )
  metrics.check_writable(path)
  if pathlib.Path(path).is_dir():
    raise FileExistsError(f'{path} is a folder, expected a file to write')
  if pathlib.Path(path).exists() and not overwrite:
    raise FileExistsError(
      f'{path} is already there; --overwrite replaces it at the end'
    )


def embed_file(
  model: elmo.Elmo,
  params: Any,
  source: epath.PathLike,
  output: str | os.PathLike,
  *,
  split: Split = str.split,
  overwrite: bool = False,
  counts: Counts | None = None,
  **options: Any,
) -> dict[str, int | float]:
  """Writes the vectors of a text's sentences; or nothing, on any error.

  Of the sentences only the text is held in memory, for `sentence_to_index`.

  Args:
    model: with a character encoder.
    params: its parameters.
    source: UTF-8, a sentence a line.
    output: the HDF5 file. Its data set of a line is what
      `embedding.embed_sentences` yields. A last one, `sentence_to_index`, holds
      a string of JSON: {line: name of its data set}, the first one where lines
      are the same.
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
  check_output(output, overwrite=overwrite)
  counts = count(source, split) if counts is None else counts
  began = time.monotonic()
  first_of: dict[str, str] = {}

  def read() -> Iterator[list[str]]:
    for number, line in enumerate(_lines(source)):
      first_of.setdefault(line.strip(), str(number))
      yield split(line)

  done = num_words = 0
  shown = began
  with (
    _new_file(output) as file,
    reporting.ProgressBar(0, counts.words) as bar,
  ):
    for number, vectors in embedding.embed_numbered(
      model, params, read(), **options
    ):
      file.create_dataset(str(number), data=vectors)
      done += 1
      num_words += vectors.shape[-2]
      now = time.monotonic()
      if now - shown > BAR_SECONDS or done == counts.sentences:
        shown = now
        bar.update(num_words, f'{num_words / (now - began):,.0f} words/s')
    if (done, num_words) != (counts.sentences, counts.words):
      raise ValueError(
        f'{source}: {done:,} lines of {num_words:,} words were read, and'
        f' {counts.sentences:,} of {counts.words:,} before; expected a file'
        ' that stays the same, and no pipe'
      )
    index = file.create_dataset(INDEX, (1,), dtype=h5py.string_dtype())
    index[0] = json.dumps(first_of)
  seconds = time.monotonic() - began
  return counts._asdict() | {
    'seconds': seconds,
    'words_per_second': counts.words / seconds,
  }


@contextlib.contextmanager
def _new_file(path: str | os.PathLike) -> Iterator[h5py.File]:
  """Opens a file to write that gets its name once it is whole."""
  path = pathlib.Path(path)
  new = path.with_name(f'.{path.name}.{os.getpid()}.new')
  try:
    with h5py.File(new, 'w') as file:
      yield file
    new.replace(path)
  except BaseException:
    new.unlink(missing_ok=True)
    raise


def parse_layers(text: str) -> str | tuple[int, ...]:
  """Returns what --layers names.

  Raises:
    ValueError: if it is neither a name nor numbers.
  """
  if text in embedding.LAYERS:
    return text
  try:
    return tuple(int(number) for number in text.split(','))
  except ValueError:
    raise ValueError(
      f'--layers={text}: expected {", ".join(embedding.LAYERS)}, or numbers as'
      ' in --layers=-1,-2'
    ) from None


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python -m train.embed',
    description=__doc__,
    epilog='By default the vectors of a sentence depend on nothing but itself.'
    ' The released programs carry the state of the LSTMs from batch to batch,'
    ' so that theirs depend on what was read before: --stateful does the same.',
  )
  add = parser.add_argument
  add('weights', metavar='WEIGHTS', help=trained.ELMO_HELP)
  add('input', metavar='INPUT', help='a UTF-8 file, a sentence a line')
  add('output', metavar='OUTPUT', help='the HDF5 file to write')
  add(
    '--layers',
    default='all',
    help='all (the default), the mean of all, top, or numbers, 0 for the layer'
    ' of the words: --layers=-1,-2',
  )
  add(
    '--running',
    action='store_true',
    help='INPUT is running text: find its words, each mark by itself',
  )
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
  add(
    '--batch_tokens',
    type=int,
    help='words at a time where not, padding included; by default'
    f' {embedding.BATCH_TOKENS}',
  )
  add('--dtype', choices=DTYPES, default=DTYPES[0], help='of the products')
  add('--overwrite', action='store_true', help='replace OUTPUT')
  add('--json', action='store_true', help='print JSON on standard output')
  arguments = parser.parse_args()
  if arguments.batch_size is not None and not arguments.stateful:
    parser.error('--batch_size is of --stateful; else give --batch_tokens')
  for name in ('batch_size', 'batch_tokens'):
    value = getattr(arguments, name)
    if value is not None and value < 1:
      parser.error(f'--{name}={value}: expected 1 or more')
  if arguments.batch_tokens is not None and arguments.stateful:
    parser.error('--batch_tokens is not of --stateful; give --batch_size')
  device.enable_compilation_cache()
  command.run(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  layers = parse_layers(arguments.layers)
  check_output(arguments.output, overwrite=arguments.overwrite)
  split = splitter(arguments.running)
  counts = count(arguments.input, split)
  model, params, trained_on = trained.load_elmo(arguments.weights)
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
  figures = embed_file(
    model.clone(dtype=jnp.dtype(arguments.dtype)),
    params,
    arguments.input,
    arguments.output,
    split=split,
    overwrite=arguments.overwrite,
    counts=counts,
    layers=layers,
    stateful=arguments.stateful,
    **options,
  )
  if arguments.json:
    print(metrics.as_json(figures))
  else:
    reporting.figures_table(figures, arguments.output)
  if counts.cut_words:
    reporting.say(
      f'Cut after {characters.MAX_BYTES} bytes, as released:'
      f' {counts.cut_words:,} of the words'
    )


if __name__ == '__main__':
  main()
