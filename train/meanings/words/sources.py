"""Vectors of words from files and from the workdir of a word2vec or GloVe.

Shapes: W word, L layer, D the vectors' width.
"""

import collections
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from data import storage
from data.tasks import files
from data.vocabulary import word_vectors
from train.vectors import text_counts

BINARY_FILE = 'vectors.bin'  # of the workdir of a word2vec or GloVe


class Vectors(NamedTuple):
  """Vectors of words.

  Attributes:
    words: the words by falling frequency; those asked for beside come last.
    layers: float32 [L, W, D].
    num_first: how many words, the first ones, can be the answer to a question.
    names: the names of the layers; '' of a file of vectors.
  """

  words: tuple[str, ...]
  layers: np.ndarray
  num_first: int
  names: tuple[str, ...] = ('',)

  def where(self, known: np.ndarray) -> 'Vectors':
    """Returns the vectors of the words that `known`, bool [W], names."""
    words = tuple(np.array(self.words, object)[known])
    num_first = int(known[: self.num_first].sum())
    return self._replace(
      words=words, layers=self.layers[:, known], num_first=num_first
    )


def find_file(name: str) -> epath.Path | None:
  """Returns the file, or the folder of a matrix, that holds words' vectors.

  Of the workdir of a word2vec or GloVe it is vectors.bin. None means weights of
  a model.
  """
  path = epath.Path(name).expanduser()
  if path.is_file():
    return path
  if (path / BINARY_FILE).exists():
    return path / BINARY_FILE
  if path.is_dir() and storage.find_files(path, '*_index.parquet'):
    return path
  return None


def read_file(
  path: epath.PathLike, first: int, words: Sequence[str]
) -> Vectors:
  """Returns a file's `first` vectors, and those of `words` in any case.

  For the errors see `word_vectors.read`.
  """
  found = word_vectors.read_first(path, first, words)
  num_first = min(first, len(found.words))
  return Vectors(found.words, found.vectors[None], num_first)


def read_words(path: epath.PathLike, first: int) -> list[str]:
  """Returns the first words of a file of a word a line.

  Raises ValueError, with the line, for a line of several words or with a word
  that was there, and for an empty file.
  """
  places: dict[str, int] = {}
  for number, line in files.read_lines(epath.Path(path).expanduser()):
    words = line.split()
    if not words:
      continue
    if len(words) > 1 or words[0] in places:
      fault = f'{len(words)} words: {line[:60]!r}'
      if len(words) == 1:
        fault = f'{words[0]!r} again, after line {places[words[0]]:,}'
      raise ValueError(
        f'{path}, line {number:,}: found {fault}; expected a word a line, each'
        ' once, the most frequent first'
      )
    places[words[0]] = number
  if not places:
    raise ValueError(f'{path}: is empty, expected a word a line')
  return list(places)[:first]


def count_words(path: epath.PathLike, first: int) -> list[str]:
  """Returns the most frequent words of running text, in lower case."""
  split = text_counts.splitter(running=True)
  counts = collections.Counter()
  for line in text_counts.lines(path):
    counts.update(split(line.lower()))
  return [word for word, _ in counts.most_common(first)]
