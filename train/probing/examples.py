"""Sentences of a task as numbers: spans of an encoder's pieces, and classes.

Shapes: N piece of all sentences, L layer with the embeddings, D width, P target
of a sentence, K class.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from data.tasks.probes.targets import Sentence
from train.host import console
from train.vectors.vector_cache import VectorCache


class Features(NamedTuple):
  """The vectors of a corpus.

  Attributes:
    layers: float16 [N, L, D], in a file.
    words: a sentence -> (its first row, int [words + 1], the first piece of
      each word and the number of all).
  """

  layers: np.ndarray
  words: dict[tuple[str, ...], tuple[int, np.ndarray]]


def features_of(
  cache: VectorCache, sentences: Iterable[Sentence], folder: str | None = None
) -> Features:
  """Returns the vectors of sentences, computed unless they lie in `folder`.

  For the folder, and errors, see `VectorCache.vectors`.
  """
  distinct = list(dict.fromkeys(sentence.words for sentence in sentences))
  layers, starts = cache.vectors(distinct, folder)
  counts = cache.model.count_pieces(distinct)
  return Features(
    layers,
    {
      words: (int(start), np.cumsum([0, *count]))
      for words, start, count in zip(distinct, starts, counts, strict=True)
    },
  )


class Example(NamedTuple):
  """A sentence with targets.

  Attributes:
    pieces: of each side, int64: rows of `Features.layers` that lie in a span.
    spans: of each side, int32 [P, 2], in `pieces`.
    labels: uint8 [P, K], 0 or 1.
  """

  pieces: tuple[np.ndarray, ...]
  spans: tuple[np.ndarray, ...]
  labels: np.ndarray

  @property
  def sizes(self) -> tuple[int, ...]:
    """The number of pieces of each side, and P."""
    return (*map(len, self.pieces), len(self.labels))


class ProbeSplit(NamedTuple):
  """The examples of a split.

  Attributes:
    examples: sentences with targets.
    gold: int [K], how often each class is right in the examples.
    missed: labels, of scored classes, that no probe can find: unseen in
      training, or of spans without pieces.
    unseen: labels -> how often; not known from training.
    without_pieces: targets with a span that has none.
  """

  examples: list[Example]
  gold: np.ndarray
  missed: int
  unseen: dict[str, int]
  without_pieces: int


def project(
  sentences: Sequence[Sentence],
  features: Features,
  classes: Sequence[str],
  is_scored: Callable[[str], bool],
) -> ProbeSplit:
  """Returns sentences as numbers, those without targets dropped.

  A span of words becomes the span of their pieces. A target with an empty one
  is no example; its labels are missed.
  """
  numbers = {label: number for number, label in enumerate(classes)}
  found, unseen = [], {}
  missed = without_pieces = 0
  for words, targets in sentences:
    start, offsets = features.words[words]
    kept = []
    for target in targets:
      spans = [(offsets[first], offsets[end]) for first, end in target.spans]
      has_pieces = all(first < end for first, end in spans)
      without_pieces += not has_pieces
      labels = np.zeros(len(classes), np.uint8)
      for label in target.labels:
        if label in numbers:
          labels[numbers[label]] = 1
        else:
          unseen[label] = unseen.get(label, 0) + 1
        if not (label in numbers and has_pieces) and is_scored(label):
          missed += 1
      if has_pieces:
        kept.append((spans, labels))
    if kept:
      spans_PS2 = np.array([spans for spans, _ in kept])
      sides = [
        _compressed(spans_PS2[:, side], offsets[-1])
        for side in range(spans_PS2.shape[1])
      ]
      found.append(
        Example(
          tuple(start + places for places, _ in sides),
          tuple(spans for _, spans in sides),
          np.stack([labels for _, labels in kept]),
        )
      )
  gold = np.zeros(len(classes), np.int64)
  for example in found:
    gold += example.labels.sum(0, dtype=np.int64)
  return ProbeSplit(found, gold, missed, unseen, without_pieces)


def _compressed(
  spans_P2: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the places, of `count`, in any span, and the spans in them."""
  edges = np.zeros(count + 1, np.int64)
  np.add.at(edges, spans_P2[:, 0], 1)
  np.add.at(edges, spans_P2[:, 1], -1)
  covered = np.cumsum(edges[:-1]) > 0
  before = np.concatenate([[0], np.cumsum(covered)])
  return np.flatnonzero(covered), before[spans_P2].astype(np.int32)


def tell(task: str, split: str, found: ProbeSplit) -> None:
  """Prints labels and targets that the probes of a task cannot find.

  The F1 counts such targets as missed, unless it leaves out their labels.
  """
  if found.unseen:
    labels = ', '.join(
      f'{label} ({count:,} times)' for label, count in found.unseen.items()
    )
    console.say(
      f'{task}, {split}: not in the training split, so never found: {labels}'
    )
  if found.without_pieces:
    console.say(
      f'{task}, {split}: {found.without_pieces:,} targets of words without'
      ' pieces, so never found'
    )
