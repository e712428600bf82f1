"""What a text to embed holds, counted before any work is done."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from etils import epath

from data.text import text_files
from data.vocabulary import characters
from data.vocabulary.words import split_words

# A layer's gates of so many words take 2 GB in the original model.
MOST_WORDS = 16_384
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
  """Reads a text once, to know that an ELMo can embed all of it.

  Args:
    path: a file, plain or compressed.
    split: finds the words of a line.

  Raises:
    ValueError: naming the file and line that are no text in UTF-8, or no
      sentence; or if the file is empty.
    OSError: if it cannot be read.
  """
  num_words = cut_words = 0
  distinct = set()

  def look() -> Iterator[str]:
    nonlocal num_words, cut_words
    for number, line in enumerate(lines(path), start=1):
      words = split(line)
      if len(words) > MOST_WORDS:
        raise ValueError(
          f'{path}, line {number:,}: {len(words):,} words, expected a sentence'
          f' a line, of {MOST_WORDS:,} words at most'
        )
      num_words += len(words)
      cut_words += sum(map(_is_cut, words))
      distinct.update(words)
      yield line

  sentences = _count(path, look())
  return Counts(sentences, num_words, cut_words, len(distinct))


def count_lines(path: epath.PathLike) -> int:
  """Reads a text once, to know that all of it is text.

  Raises:
    ValueError: naming the file and line that are no text in UTF-8; or if the
      file is empty.
    OSError: if it cannot be read.
  """
  return _count(path, lines(path))


def _count(path: epath.PathLike, found_lines: Iterator[str]) -> int:
  found = sum(1 for _ in found_lines)
  if not found:
    raise ValueError(f'{path}: is empty, expected a sentence a line')
  return found


def lines(path: epath.PathLike) -> Iterator[str]:
  """Yields the lines of a text, plain or compressed, without their ends."""
  return text_files.lines(text_files.chunks(epath.Path(path).expanduser()))


def _is_cut(word: str) -> bool:
  # No character has more than 4 bytes.
  return (
    4 * len(word) > characters.MAX_BYTES
    and len(word.encode()) > characters.MAX_BYTES
  )
