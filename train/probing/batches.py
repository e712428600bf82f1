"""Batches of probing examples: sentences side by side in few rows.

Shapes: B row, T piece of a row, P target of a row, K class, L layer with the
embeddings, D width.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from train.probing.examples import Example

# Sentences of a batch share rows of about equal length: 17 % padding in
# English, where a row a sentence has 60 %. More rows pad more; fewer have
# longer spans to pool from.
ROWS = 4
# Batches have sizes GROWTH ** c times the mean: 5 or 6 programs a task.
GROWTH = 1.2
MULTIPLE = 8
ORDER_SEED = 0  # of the training sentences, the same for all probes


class Batch(NamedTuple):
  """A batch of sentences.

  Attributes:
    layers: of each side, float16 [B, T, L, D].
    spans: of each side, int32 [B, P, 2].
    labels: uint8 [B, P, K].
    mask: bool [B, P], False at padding.
  """

  layers: tuple[np.ndarray, ...]
  spans: tuple[np.ndarray, ...]
  labels: np.ndarray
  mask: np.ndarray


class Packer:
  """Makes batches of a task's examples, in few shapes."""

  def __init__(
    self, layers: np.ndarray, examples: Sequence[Example], batch_size: int
  ):
    """Chooses the shapes for random batches of `examples`.

    `layers` are float16 [pieces, L, D], see `examples.Features`.
    """
    self._layers = layers
    self.batch_size = batch_size
    sizes = np.array([example.sizes for example in examples], np.float64)
    self._mean = sizes.mean(0) * batch_size / ROWS

  def pack(self, examples: Sequence[Example]) -> Batch:
    """Returns a batch of examples, its vectors read from the file."""
    rows = _share_out(examples)
    sizes = np.array([_sizes(row) for row in rows])
    *lengths, num_targets = self._shape(sizes.max(0))
    num_classes = examples[0].labels.shape[1]
    labels = np.zeros((ROWS, num_targets, num_classes), np.uint8)
    mask = np.zeros((ROWS, num_targets), bool)
    spans = [np.zeros((ROWS, num_targets, 2), np.int32) for _ in lengths]
    layers = [
      np.zeros((ROWS, length, *self._layers.shape[1:]), np.float16)
      for length in lengths
    ]
    for number, row in enumerate(rows):
      ends = [0] * len(lengths)
      end = 0
      for example in row:
        begin, end = end, end + len(example.labels)
        labels[number, begin:end] = example.labels
        mask[number, begin:end] = True
        for side, pieces in enumerate(example.pieces):
          first = ends[side]
          spans[side][number, begin:end] = example.spans[side] + first
          ends[side] = first + len(pieces)
          layers[side][number, first : ends[side]] = self._layers[pieces]
    return Batch(tuple(layers), tuple(spans), labels, mask)

  def _shape(self, needed: np.ndarray) -> tuple[int, ...]:
    """Returns lengths of at least the `needed` ones, of few combinations."""
    power = math.ceil(math.log((needed / self._mean).max(), GROWTH) - 1e-9)
    shape = np.ceil(self._mean * GROWTH**power / MULTIPLE) * MULTIPLE
    return tuple(int(length) for length in shape)

  def training(
    self, examples: Sequence[Example], steps: int
  ) -> Iterator[Batch]:
    """Yields batches of all examples in an order of their own each epoch."""
    size = min(self.batch_size, len(examples))
    random = np.random.default_rng(ORDER_SEED)
    waiting: list[int] = []
    for _ in range(steps):
      while len(waiting) < size:
        waiting += random.permutation(len(examples)).tolist()
      chosen, waiting = waiting[:size], waiting[size:]
      yield self.pack([examples[number] for number in chosen])

  def scoring(self, examples: Sequence[Example]) -> Iterator[Batch]:
    """Yields batches of all examples once, mixed so that few shapes occur."""
    order = np.random.default_rng(ORDER_SEED).permutation(len(examples))
    for first in range(0, len(order), self.batch_size):
      chosen = order[first : first + self.batch_size]
      yield self.pack([examples[number] for number in chosen])


def _sizes(row: Sequence[Example]) -> tuple[int, ...]:
  return tuple(map(sum, zip(*(example.sizes for example in row), strict=True)))


def _share_out(examples: Sequence[Example]) -> list[list[Example]]:
  """Returns examples in rows of about equal size, the longest first."""
  rows: list[list[Example]] = [[] for _ in range(ROWS)]
  loads = [0] * ROWS
  for example in sorted(examples, key=lambda each: -sum(each.sizes)):
    least = loads.index(min(loads))
    rows[least].append(example)
    loads[least] += sum(example.sizes)
  return [row for row in rows if row]
