"""Batches of documents, a row a sentence, as functions of the step."""

from collections.abc import Iterator

import numpy as np

from data.examples import pipeline
from data.inputs.batches import (
  LENGTHS,
  Batches,
  Order,
  WordInputs,
)
from data.inputs.document_rows import DocumentFeatures

# Sentences of a batch's documents, each 1.5 times the one before but for the
# least; 50 is e2e-coref's in training. Of OntoGUM's dev set 13 programs are
# compiled, with 4.3 positions a word; with steps of 1.25, 20 and 3.8.
ROWS = (1, 2, 3, 4, 6, 9, 15, 22, 33, 50, 75, 112, 168, 252, 378, 567, 850)
# R x T, R and T of a batch: a program each, the maximum is the largest.
Shape = tuple[int, int, int]


class DocumentBatches(Batches):
  """Documents as batches for training and evaluation.

  Of a document of more than `max_sentences` sentences, a step of training reads
  that many consecutive ones, from another place in every epoch until each place
  has come; evaluation reads all. `bucket` sorts as in `Order`. A batch has
  these arrays, R and T rounded up, M of the document with the most mentions:
    tokens int32 [B, R, T], with `inputs` rows of the table; perhaps characters
      int16 [B, R, T, C], and of a language model vectors float16
      [B, R, T, L, D], 0 at padding;
    token_mask bool [B, R, T]; speakers int32 [B, R, T], 0 at padding;
    genres int32 [B];
    labels int32 [B, M, 3], see `DocumentFeatures`, of the words that are read,
      -1 behind the last; in training no mention alone in its cluster;
    example_ids, example_mask, label_mask: as in `Batches`.
  """

  def __init__(
    self,
    features: DocumentFeatures,
    *,
    pad_id: int,
    max_length: int,
    bucket: bool = True,
    inputs: WordInputs | None = None,
    max_sentences: int = 50,
  ) -> None:
    if not len(features):
      raise ValueError('there are no documents to make batches of')
    self._row_lengths = np.diff(features.offsets)
    longest = int(self._row_lengths.max())
    if longest > max_length:
      raise ValueError(
        f'a sentence has {longest} words, max_length is {max_length}'
      )
    if max_sentences < 1:
      raise ValueError(f'max_sentences={max_sentences}: expected at least 1')
    self.features = features
    self.pad_id = pad_id
    self.max_length = max_length
    self.bucket = bucket
    self.inputs = inputs
    self.lengths = LENGTHS
    self.max_sentences = max_sentences
    self._sentences = np.diff(features.row_offsets)
    # Of training, a document counts with the words that a step may read.
    share = np.minimum(1, max_sentences / self._sentences)
    self.order = Order(features.lengths * share, bucket=bucket)
    mentions = np.diff(features.mention_offsets).max(keepdims=True)
    self._num_mentions = int(_round(mentions, LENGTHS)[0])
    self._longest = _longest(self._row_lengths, int(self._sentences.max()))

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
    return self._gather_parts(
      chosen,
      *self._crops(numbers, chosen, seed),
      (numbers % 2**31).astype(np.int32),
      np.ones(batch_size, bool),
      rows,
    )

  def train_lengths(
    self, batch_size: int, seed: int, total_steps: int
  ) -> dict[Shape, int]:
    """Returns the shapes of a run's batches -> the first step with them."""
    steps = [
      self.order.batch(step, batch_size, seed, total_steps)
      for step in range(total_steps)
    ]
    numbers, chosen = np.concatenate(steps, axis=1)
    firsts, counts = self._crops(numbers, chosen, seed)
    shapes = self._shapes(firsts, counts, batch_size)
    found: dict[Shape, int] = {}
    for step, shape in enumerate(shapes):
      found.setdefault(shape, step)
    return found

  def eval_lengths(self, batch_size: int) -> set[Shape]:
    """Returns the shapes of the batches of `eval_batches`."""
    return set(self._eval_shapes(batch_size))

  def eval_batches(
    self, batch_size: int, rows: np.ndarray | slice = pipeline.ALL_ROWS
  ) -> Iterator[pipeline.Batch]:
    """Yields rows of global batches of all documents, the longest first.

    The last batch repeats rows, with `example_mask` and `label_mask` False.
    """
    order = self._eval_order(batch_size)
    for first in range(0, len(order), batch_size):
      places = first + np.arange(batch_size)
      chosen = order[first : first + batch_size]
      yield self._gather(
        chosen,
        chosen.astype(np.int32),
        places < len(self.features),
        rows,
      )

  def longest_batch(self, batch_size: int) -> pipeline.Batch:
    """Returns the batch of evaluation with the largest program."""
    shapes = self._eval_shapes(batch_size)
    first = shapes.index(max(shapes)) * batch_size
    chosen = self._eval_order(batch_size)[first : first + batch_size]
    real = first + np.arange(batch_size) < len(self.features)
    return self._gather(
      chosen, chosen.astype(np.int32), real, pipeline.ALL_ROWS
    )

  def _eval_order(self, batch_size: int) -> np.ndarray:
    """Returns the documents of all batches, the last repeated."""
    order = np.argsort(-self.features.lengths, kind='stable')
    missing = -len(order) % batch_size
    return np.concatenate([order, np.repeat(order[-1:], missing)])

  def _eval_shapes(self, batch_size: int) -> list[Shape]:
    order = self._eval_order(batch_size)
    firsts = self.features.row_offsets[order]
    return self._shapes(firsts, self._sentences[order], batch_size)

  def _crops(
    self, numbers: np.ndarray, chosen: np.ndarray, seed: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first row and the number of rows of each example.

    A document's places in a run's epochs are a keyed permutation of all.
    """
    counts = np.minimum(self._sentences[chosen], self.max_sentences)
    firsts = self.features.row_offsets[chosen]
    epochs = numbers // len(self.features)
    for document in np.unique(chosen[counts < self._sentences[chosen]]):
      here = chosen == document
      places = int(self._sentences[document]) - self.max_sentences + 1
      key = pipeline.order_key(seed, 2, int(document))
      firsts[here] += pipeline.permute(epochs[here] % places, places, key)
    return firsts, counts

  def _shapes(
    self, firsts: np.ndarray, counts: np.ndarray, batch_size: int
  ) -> list[Shape]:
    """Returns the shapes of batches, from the rows of their examples [N]."""
    ends = firsts + counts
    # The longest row is in the first or the last 2^k rows.
    powers = np.frexp(counts)[1] - 1
    longest = np.maximum(
      self._longest[powers, firsts], self._longest[powers, ends - 2**powers]
    )
    rows, words = (
      _round(sizes.reshape(-1, batch_size).max(axis=1), known)
      for sizes, known in ((counts, ROWS), (longest, self.lengths))
    )
    words = np.minimum(words, self.max_length)
    found = np.stack([rows * words, rows, words], axis=1)
    return list(map(tuple, found.tolist()))

  def _gather(
    self,
    chosen: np.ndarray,
    example_ids: np.ndarray,
    example_mask: np.ndarray,
    rows: np.ndarray | slice,
  ) -> pipeline.Batch:
    """Returns rows of the global batch of the chosen documents, whole."""
    return self._gather_parts(
      chosen,
      self.features.row_offsets[chosen],
      self._sentences[chosen],
      example_ids,
      example_mask,
      rows,
    )

  def _gather_parts(
    self,
    chosen: np.ndarray,
    firsts: np.ndarray,
    counts: np.ndarray,
    example_ids: np.ndarray,
    example_mask: np.ndarray,
    rows: np.ndarray | slice,
  ) -> pipeline.Batch:
    """Returns rows of the global batch of consecutive sentences.

    `firsts` are the first rows of the examples, `counts` their numbers.
    """
    features = self.features
    # The shape of the global batch, on which all hosts agree.
    ((_, num_rows, length),) = self._shapes(firsts, counts, len(chosen))
    chosen, example_mask = chosen[rows], example_mask[rows]
    firsts, counts = firsts[rows], counts[rows]
    is_row = np.arange(num_rows) < counts[:, None]
    numbers = np.where(is_row, firsts[:, None] + np.arange(num_rows), 0)
    starts = features.offsets[numbers]
    lengths = np.where(is_row, self._row_lengths[numbers], 0)
    positions = np.arange(length)
    mask = positions < lengths[..., None]
    places = np.where(mask, starts[..., None] + positions, 0)
    tokens = np.where(mask, features.tokens[places], np.int32(self.pad_id))
    batch = {
      'tokens': tokens,
      'token_mask': mask,
      'speakers': np.where(mask, features.speakers[places], 0).astype(np.int32),
      'genres': features.genres[chosen],
      'labels': self._labels(chosen, firsts, counts),
      'label_mask': features.label_mask[chosen] & example_mask,
      'example_ids': example_ids[rows],
      'example_mask': example_mask,
    }
    if features.characters is not None:
      batch['characters'] = features.characters[tokens]
    if self.inputs is not None:
      batch['tokens'] = np.where(mask, self.inputs.table_rows[tokens], 0)
      if self.inputs.vectors is not None:
        batch['vectors'] = self._vectors(numbers, lengths, length)
    return batch

  def _labels(
    self,
    chosen: np.ndarray,
    firsts: np.ndarray,
    counts: np.ndarray,
  ) -> np.ndarray:
    """Returns the mentions inside the rows that are read, [B, M, 3]."""
    features = self.features
    labels = np.full((len(chosen), self._num_mentions, 3), -1, np.int32)
    for i, document in enumerate(chosen):
      begin, end = features.mention_offsets[document : document + 2]
      mentions = features.labels[begin:end]
      first_word = features.offsets[features.row_offsets[document]]
      low, high = features.offsets[firsts[i] + [0, counts[i]]] - first_word
      # No mention leaves its sentence.
      kept = mentions[(mentions[:, 0] >= low) & (mentions[:, 0] < high)]
      if len(kept) < len(mentions):
        kept = kept[np.bincount(kept[:, 2])[kept[:, 2]] > 1]
      labels[i, : len(kept)] = kept - [low, low, 0]
    return labels


def _longest(lengths: np.ndarray, most: int) -> np.ndarray:
  """Returns the longest of the 2^k rows from each row on, [k, R].

  k goes as far as 2^k <= `most`; behind the last row nothing is longer.
  """
  levels, width = [lengths], 1
  while 2 * width <= most:
    before = levels[-1]
    after = np.append(before[width:], np.zeros(width, before.dtype))
    levels.append(np.maximum(before, after[: len(before)]))
    width *= 2
  return np.stack(levels)


def _round(found: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
  """Returns the least of `sizes` for each number, or the number if larger."""
  places = np.searchsorted(sizes, found)
  return np.where(found > sizes[-1], found, np.append(sizes, 0)[places])
