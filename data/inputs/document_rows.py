"""Documents as rows of words, a row a sentence.

Letters of shapes: N documents, R rows (sentences) of all documents, S words of
all rows, M mentions of all documents.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np

from data.inputs.features import Features, Framing, flatten
from data.tasks.examples import DocumentExample, Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentFeatures(Features):
  """Documents, each of as many rows as it has sentences.

  Attributes:
    num_rows: 1, without a meaning.
    labels: int32 [M, 3]: first and last word of a mention, numbered within the
      document, and number of its cluster; sorted within each document.
    mention_offsets: int64 [N + 1]: begin of each document in `labels`.
    row_offsets: int64 [N + 1]: first row of each document.
    speakers: int16 [S]: number of the word's speaker within the document, 0
      unknown.
    genres: int32 [N]: number of the genre among the task's labels, from 1; 0
      any other.
  """

  mention_offsets: np.ndarray
  row_offsets: np.ndarray
  speakers: np.ndarray
  genres: np.ndarray

  @functools.cached_property
  def lengths(self) -> np.ndarray:
    """int64 [N]: words of each document."""
    return np.diff(self.offsets[self.row_offsets])

  def place(self, i: int, row: int = 0) -> slice:
    """Returns the place of a document's row in the arrays of S."""
    row += int(self.row_offsets[i])
    return slice(int(self.offsets[row]), int(self.offsets[row + 1]))


def encode(
  task: Task, examples: Sequence[DocumentExample], framing: Framing
) -> DocumentFeatures:
  """Returns the rows of documents; see `framing.encode`.

  Raises:
    ValueError: if the form is not 'words', or a sentence is too long.
  """
  if not framing.form.apart:
    raise ValueError(
      f'{task.name} is read in whole words, found the inputs of '
      f'{framing.form.name}: choose the model e2e_coref'
    )
  numbers = {genre: number for number, genre in enumerate(task.labels, start=1)}
  rows, speakers, mentions = [], [], []
  for example in examples:
    for number, words in enumerate(example.sentences, start=1):
      if len(words) > framing.max_length:
        raise ValueError(
          f'document {example.id}: sentence {number} has {len(words)} words, '
          f'task.max_length is {framing.max_length}. No sentence is cut: set '
          f'task.max_length={len(words)} or more'
        )
    encoded = framing.tokenizer.encode_words(example.sentences)
    rows += [
      [np.array([i for word in words for i in word], np.int32)]
      for words in encoded
    ]
    known = {'': 0}
    speakers += [
      known.setdefault(name, len(known))
      for name in itertools.chain(*example.speakers)
    ]
    mentions.append(
      sorted(
        (*mention, number)
        for number, cluster in enumerate(example.clusters or ())
        for mention in cluster
      )
    )
  tokens, offsets = flatten(rows)
  return DocumentFeatures(
    num_rows=1,
    tokens=tokens,
    offsets=offsets,
    second_starts=np.diff(offsets).astype(np.int32),
    labels=np.array(list(itertools.chain(*mentions)), np.int32).reshape(-1, 3),
    label_mask=np.array([e.is_labelled for e in examples], bool),
    examples=np.arange(len(examples), dtype=np.int32),
    mention_offsets=_offsets(mentions),
    row_offsets=_offsets([example.sentences for example in examples]),
    speakers=np.array(speakers, np.int16),
    genres=np.array([numbers.get(e.genre, 0) for e in examples], np.int32),
  )


def _offsets(parts: Sequence[Sequence]) -> np.ndarray:
  return np.cumsum([0, *map(len, parts)], dtype=np.int64)
