"""The table of words of a task model: its rows, and their first vectors.

Shapes: V rows, D features.
"""

import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from data.vocabulary import word_vectors
from train.host import console

UNKNOWN = ('normal', 'zero')
# Told apart from a run's other streams of random numbers.
_STREAM = 7


@dataclasses.dataclass(frozen=True)
class WordTable:
  """The words with a vector of their own: row 0 is of all other words.

  Attributes:
    words: of the rows 1 to V - 1, those with vectors of a file first.
    dim: D; 0: there is no table.
    lower: words are read in lower case.
    vectors: float32 [words of the file, D]; None if a workdir has the table.
    unknown: vectors of the file's missing words: 'zero', or 'normal' with the
      mean and the deviation of the others (AllenNLP's Embedding).
  """

  words: tuple[str, ...]
  dim: int
  lower: bool
  vectors: np.ndarray | None = None
  unknown: str = 'normal'

  @property
  def num_rows(self) -> int:
    """V; 0 without a table."""
    return len(self.words) + 1 if self.dim else 0

  def rows(self, words: Sequence[str]) -> np.ndarray:
    """Returns the row of each word, int32 [words]."""
    numbers = {word: row for row, word in enumerate(self.words, 1)}
    return np.array(
      [numbers.get(self.key(word), 0) for word in words], np.int32
    )

  def key(self, word: str) -> str:
    """Returns the word as it is in the table."""
    return word.lower() if self.lower else word

  def initial(self, seed: int) -> np.ndarray:
    """Returns the first vectors of a run, float32 [V, D].

    Without a file they are Glorot uniform, as AllenNLP's embeddings.
    """
    rng = np.random.default_rng((seed, _STREAM))
    shape = (self.num_rows, self.dim)
    if self.vectors is None or not len(self.vectors):
      limit = math.sqrt(6 / sum(shape))
      return rng.uniform(-limit, limit, shape).astype(np.float32)
    if self.unknown == 'zero':
      table = np.zeros(shape, np.float32)
    else:
      mean, deviation = self.vectors.mean(), self.vectors.std()
      table = rng.normal(mean, deviation, shape).astype(np.float32)
    table[1 : len(self.vectors) + 1] = self.vectors
    return table


def build(
  splits: Mapping[str, Iterable[str]],
  path: str | None,
  *,
  dim: int,
  lower: bool,
  unknown: str,
  unit: bool = False,
) -> WordTable:
  """Returns the table of a run's words, and prints the coverage of a file.

  Args:
    splits: split -> its words, one after the other; 'train' among them.
    path: file of vectors, see `word_vectors.read`; None: none.
    dim: D without a file.
    lower: as in `WordTable`.
    unknown: as in `WordTable`. Words of the other splits that the file lacks
      share row 0, as they cannot be trained.
    unit: scale the file's vectors to length 1.
  """
  counts = {
    name: collections.Counter(word.lower() if lower else word for word in words)
    for name, words in splits.items()
  }
  trained = sorted(counts['train'])
  if path is None:
    return WordTable(tuple(trained) if dim else (), dim, lower)
  every = set().union(*counts.values())
  found = word_vectors.read(path, every)
  vectors = found.vectors
  if unit:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.where(lengths > 0, lengths, 1)
  have = set(found.words)
  missing = [word for word in trained if word not in have]
  tokens = counts['train'].total()
  known = sum(count for word, count in counts['train'].items() if word in have)
  console.say(
    f'{path}: {found.num_in_file:,} vectors of {found.vectors.shape[1]}; of'
    f' {len(every):,} distinct words {len(have):,} have one'
    f' ({len(have) / len(every):.1%}), of the training words'
    f' {known / tokens:.1%}; the others are'
    f' {"zero" if unknown == "zero" else "drawn"}'
  )
  return WordTable(
    (*found.words, *(missing if unknown == 'normal' else ())),
    vectors.shape[1],
    lower,
    vectors,
    unknown,
  )
