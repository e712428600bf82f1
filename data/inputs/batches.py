"""Batches of features of similar lengths, as functions of the step."""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from data.examples import permutation, pipeline
from data.inputs.features import Features

# A program is compiled for each length that occurs; each is at most 1.5 times
# the one before, so at worst a third of a batch of equal rows is padding. With
# 16 as the least, CoLA would have 17.3 tokens a row on average, not 13.6.
LENGTHS = tuple(
  length
  for power in range(3, 12)
  for length in (2**power, 3 * 2 ** (power - 1))
)
# Of rows of words: the time of an LSTM is that of positions, its programs are
# small. On SST-5 at a batch of 32, 1.12 positions a word, not 1.22.
WORD_LENGTHS = (*range(4, 32, 4), *range(32, 64, 8), *LENGTHS[6:])
# Batches sorted together: more would make the order of training less random.
BLOCK = 50


class WordInputs(NamedTuple):
  """The inputs of a task model beside the numbers of the words.

  Attributes:
    table_rows: int32 [W], each word's row of the model's table.
    vectors: float16 [words, L, D], a language model's layers, perhaps in a
      file; None without.
    starts: int64 [R], the first of each row's words in `vectors`.
  """

  table_rows: np.ndarray
  vectors: np.ndarray | None = None
  starts: np.ndarray | None = None


class Order:
  """The features of each batch of a run, as a function of seed and step.

  Example i of a run is in epoch i // N, at the place i % N of a keyed
  permutation. With `bucket`, every 50 batches of an epoch exchange their
  examples: sorted by length, cut into batches, the batches permuted.
  """

  def __init__(self, lengths: np.ndarray, *, bucket: bool = True) -> None:
    """Creates the order of N features from their lengths, int [N]."""
    self._lengths = lengths
    self._bucket = bucket
    # Steps come in order, some at a time in threads.
    self._block = functools.lru_cache(4)(self._make_block)

  def batch(
    self, step: int, batch_size: int, seed: int, total_steps: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns a step's example numbers in the run and features, int [B].

    The last block of batches ends at `total_steps`, the end of the run.
    """
    if not 0 <= step < total_steps:
      raise ValueError(f'step {step}: the run has steps 0..{total_steps - 1}')
    # Sorted within an epoch: else copies of an example would share a batch.
    size = len(self._lengths)
    epoch = step * batch_size // size
    begin, end = (
      -(-epoch * size // batch_size),
      (epoch + 1) * size // batch_size,
    )
    first, count = step, 1
    if step < end:
      first = begin + (step - begin) // BLOCK * BLOCK
      count = min(BLOCK, min(end, total_steps) - first)
    numbers, chosen = self._block(first, count, batch_size, seed)
    return numbers[step - first], chosen[step - first]

  def _make_block(
    self, first: int, count: int, batch_size: int, seed: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the result of `batch` for consecutive steps, [count, B]."""
    size = len(self._lengths)
    numbers = first * batch_size + np.arange(count * batch_size)
    chosen = np.empty_like(numbers)
    for epoch in np.unique(numbers // size):
      here = numbers // size == epoch
      key = permutation.order_key(seed, 0, int(epoch))
      chosen[here] = permutation.permute(numbers[here] % size, size, key)
    if self._bucket:
      order = np.argsort(self._lengths[chosen], kind='stable')
      numbers, chosen = numbers[order], chosen[order]
    numbers = numbers.reshape(count, batch_size)
    chosen = chosen.reshape(count, batch_size)
    if self._bucket:
      key = permutation.order_key(seed, 1, first)
      order = permutation.permute(np.arange(count), count, key)
      numbers, chosen = numbers[order], chosen[order]
    return numbers, chosen


class Batches:
  """Features as batches for training and evaluation.

  `pad_id` follows the end of a row. T is the smallest of `lengths` that holds
  the batch, without `bucket` always `max_length`. A batch has these arrays,
  with an axis K after B if K is more than 1:
    tokens int32 [B, T]; for whole words also characters int16 [B, T, C]; with
      `inputs`, tokens are rows of the table, and of a language model there are
      vectors float16 [B, T, L, D], 0 at padding;
    token_mask bool [B, T], token_types int32 [B, T], positions int32 [B, T];
    last int32 [B]: place of the row's last token;
    labels: int32 [B] (classes, choices), float32 [B] (scores), int32 [B, T]
      (tags, -1 at unlabelled tokens), int32 [B, 2] (spans);
    tag_mask: bool [B, T], of tags only: True where a word's tag is;
    example_ids int32 [B]: numbers in the run modulo 2^31, or of features in
      evaluation; example_mask bool [B]; label_mask bool [B].
  """

  def __init__(
    self,
    features: Features,
    *,
    pad_id: int,
    max_length: int,
    bucket: bool = True,
    inputs: WordInputs | None = None,
    lengths: Sequence[int] = LENGTHS,
  ) -> None:
    if not len(features):
      raise ValueError('there are no examples to make batches of')
    longest = int(features.lengths.max())
    if longest > max_length:
      raise ValueError(
        f'a row has {longest} tokens, max_length is {max_length}'
      )
    self.features = features
    self.pad_id = pad_id
    self.max_length = max_length
    self.bucket = bucket
    self.inputs = inputs
    self.lengths = lengths
    self.order = Order(features.lengths, bucket=bucket)

  def train_batch(
    self,
    step: int,
    rows: np.ndarray | slice,
    batch_size: int,
    seed: int,
    total_steps: int,
  ) -> pipeline.Batch:
    """Returns rows of the global batch of a step; see `Order.batch`."""
    numbers, chosen = self.order.batch(step, batch_size, seed, total_steps)
    return self._gather(
      chosen,
      (numbers % 2**31).astype(np.int32),
      np.ones(batch_size, bool),
      rows,
    )

  def train_lengths(
    self, batch_size: int, seed: int, total_steps: int
  ) -> dict[int, int]:
    """Returns each length T of a run's batches -> the first step with it."""
    found: dict[int, int] = {}
    for step in range(total_steps):
      _, chosen = self.order.batch(step, batch_size, seed, total_steps)
      length = self._round(int(self.features.lengths[chosen].max()))
      found.setdefault(length, step)
    return found

  def eval_lengths(self, batch_size: int) -> set[int]:
    """Returns each length T of the batches of `eval_batches`."""
    longest = np.sort(self.features.lengths)[::-1][::batch_size]
    return {self._round(int(length)) for length in longest}

  def eval_batches(
    self, batch_size: int, rows: np.ndarray | slice = pipeline.ALL_ROWS
  ) -> Iterator[pipeline.Batch]:
    """Yields rows of global batches of all features, the longest first.

    The last batch repeats rows, with `example_mask` and `label_mask` False.
    """
    order = np.argsort(-self.features.lengths, kind='stable')
    for first in range(0, len(order), batch_size):
      places = first + np.arange(batch_size)
      chosen = order[np.minimum(places, len(order) - 1)]
      yield self._gather(
        chosen, chosen.astype(np.int32), places < len(order), rows
      )

  def longest_batch(self, batch_size: int) -> pipeline.Batch:
    """Returns a batch with the shapes of the first batch of evaluation."""
    longest = int(self.features.lengths.argmax())
    chosen = np.full(batch_size, longest, np.int32)
    real = np.arange(batch_size) < 1
    return self._gather(chosen, chosen, real, pipeline.ALL_ROWS)

  def _gather(
    self,
    chosen: np.ndarray,
    example_ids: np.ndarray,
    example_mask: np.ndarray,
    rows: np.ndarray | slice,
  ) -> pipeline.Batch:
    """Returns rows of the global batch of the chosen features."""
    features = self.features
    # The length of the global batch, on which all hosts agree.
    length = self._round(int(features.lengths[chosen].max()))
    chosen, example_mask = chosen[rows], example_mask[rows]
    shape = (len(chosen),)
    if features.num_rows > 1:
      shape += (features.num_rows,)
    numbers = chosen[:, None] * features.num_rows + np.arange(features.num_rows)
    numbers = numbers.reshape(shape)
    starts = features.offsets[numbers]
    lengths = features.offsets[numbers + 1] - starts
    positions = np.broadcast_to(
      np.arange(length, dtype=np.int32), (*shape, length)
    )
    mask = positions < lengths[..., None]
    places = np.where(mask, starts[..., None] + positions, 0)
    if features.token_types is None:
      types = positions >= features.second_starts[numbers][..., None]
    else:
      types = features.token_types[places]
    if features.word_index is not None:  # a label for each token
      labels = np.where(mask, features.labels[places], -1)
    else:
      labels = features.labels[chosen]
    tokens = np.where(mask, features.tokens[places], np.int32(self.pad_id))
    batch = {
      'tokens': tokens,
      'token_mask': mask,
      'token_types': np.where(mask, types, 0).astype(np.int32),
      'positions': positions.copy(),
      'last': (lengths - 1).astype(np.int32),
      'labels': labels,
      'label_mask': features.label_mask[chosen] & example_mask,
      'example_ids': example_ids[rows],
      'example_mask': example_mask,
    }
    if features.word_index is not None:
      batch['tag_mask'] = mask & (features.word_index[places] >= 0)
    if features.characters is not None:
      batch['characters'] = features.characters[tokens]
    if self.inputs is not None:
      batch['tokens'] = np.where(mask, self.inputs.table_rows[tokens], 0)
      if self.inputs.vectors is not None:
        batch['vectors'] = self._vectors(numbers, lengths, length)
    return batch

  def _vectors(
    self, numbers: np.ndarray, lengths: np.ndarray, length: int
  ) -> np.ndarray:
    """Returns the language model's layers of rows, float16 [..., T, L, D]."""
    stored = self.inputs.vectors
    found = np.zeros((numbers.size, length, *stored.shape[1:]), stored.dtype)
    for i, (row, count) in enumerate(
      zip(numbers.reshape(-1), lengths.reshape(-1), strict=True)
    ):
      start = self.inputs.starts[row]
      found[i, :count] = stored[start : start + count]
    return found.reshape(*numbers.shape, *found.shape[1:])

  def _round(self, length: int) -> int:
    if not self.bucket:
      return self.max_length
    fitting = (longer for longer in self.lengths if longer >= length)
    return min(next(fitting, self.max_length), self.max_length)
