"""Texts to embed, read and counted before any work is done."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from etils import epath

from data.text import text_files
from data.vocabulary import characters

# Of a line; their gates take 2 GB a layer in the original model.
MOST_WORDS = 16_384


class Counts(NamedTuple):
  """Sizes of a text; `cut_words` have more than 48 bytes and are cut."""

  sentences: int
  words: int
  cut_words: int
  distinct_words: int


def splitter(running: bool) -> Callable[[str], list[str]]:
  """Returns str.split, or a splitter of `running` text at punctuation, too."""
  if not running:
    return str.split
  from data.vocabulary.words import split_words

  return lambda line: split_words(line, 'marks')


def count(path: epath.PathLike, split: Callable[[str], list[str]]) -> Counts:
  """Counts a text and checks that an ELMo can embed every line."""
  sentences = num_words = cut_words = 0
  distinct = set()
  for sentences, line in enumerate(lines(path), start=1):  # noqa: B007
    words = split(line)
    if len(words) > MOST_WORDS:
      raise ValueError(
        f'{path}, line {sentences:,}: {len(words):,} words, expected a sentence'
        f' a line, of {MOST_WORDS:,} words at most'
      )
    num_words += len(words)
    cut_words += sum(
      len(word.encode()) > characters.MAX_BYTES
      for word in words
      if 4 * len(word) > characters.MAX_BYTES  # a character has 4 bytes at most
    )
    distinct.update(words)
  _check_filled(path, sentences)
  return Counts(sentences, num_words, cut_words, len(distinct))


def count_lines(path: epath.PathLike) -> int:
  """Counts the lines of a text, all UTF-8; ValueError if there is none."""
  return _check_filled(path, sum(1 for _ in lines(path)))


def _check_filled(path: epath.PathLike, num_lines: int) -> int:
  if not num_lines:
    raise ValueError(f'{path}: is empty, expected a sentence a line')
  return num_lines


def lines(path: epath.PathLike) -> Iterator[str]:
  """Yields the lines of a text, plain or compressed, without line ends."""
  return text_files.lines_of(epath.Path(path).expanduser())


def read_pairs(path: epath.PathLike) -> Iterator[list[str]]:
  """Yields the two tab-separated texts of each line of a file."""
  for number, line in enumerate(lines(path), start=1):
    pair = line.split('\t')
    if len(pair) != 2:
      raise ValueError(
        f'{path}, line {number:,}: {len(pair)} texts, expected 2 with a tab'
        f' between them, or --query: {line[:60]!r}'
      )
    yield pair
