"""Batches of documents, each one row, as functions of the step."""

import math

import numpy as np

from data.examples import permutation, pipeline
from data.inputs.batches import Batches, Order, WordInputs
from data.inputs.document_rows import DocumentFeatures

# Words of a batch's documents, a program each; each is about 1.25 times the one
# before. Of OntoGUM's dev set 5 programs are compiled, with 1.11 positions a
# word; with steps of 1.5 they are 3, with 1.23.
LENGTHS = tuple(8 * math.ceil(4 * 1.25**power) for power in range(28))


class DocumentBatches(Batches):
  """Documents as batches for training and evaluation.

  Of a document of more than `max_sentences` sentences, by default 50 as Lee et
  al. (2017) have it, a step of training reads that many consecutive ones, from
  another place in every epoch until each place has come; evaluation reads all.
  `bucket` sorts as in `Order`. A batch has these arrays, T of `LENGTHS` or the
  longest document's, M of the document with the most mentions:
    tokens int32 [B, T], with `inputs` rows of the table; perhaps characters
      int16 [B, T, C], and of a language model vectors float16 [B, T, L, D], 0
      at padding;
    token_mask bool [B, T]; speakers int32 [B, T], 0 at padding;
    sentences int32 [B, T]: number of the word's sentence, -1 at padding;
    sentence_rows int32 [B, R, V]: places in T of the words of sentences, which
      follow one another in rows of V; -1 at padding. V is the longest
      sentence's of all documents, R depends on T alone;
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
    self._longest_row = int(self._row_lengths.max())
    if self._longest_row > max_length:
      raise ValueError(
        f'a sentence has {self._longest_row} words, max_length is {max_length}'
      )
    if max_sentences < 1:
      raise ValueError(f'max_sentences={max_sentences}: expected at least 1')
    self.features = features
    self.pad_id = pad_id
    self.inputs = inputs
    self.max_sentences = max_sentences
    self._sentences = np.diff(features.row_offsets)
    # Of training, a document counts with the words that a step may read.
    share = np.minimum(1, max_sentences / self._sentences)
    self.order = Order(features.lengths * share, bucket=bucket)
    self._num_mentions = self._round(
      int(np.diff(features.mention_offsets).max())
    )

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
  ) -> dict[int, int]:
    """Returns each length T of a run's batches -> the first step with it."""
    steps = [
      self.order.batch(step, batch_size, seed, total_steps)
      for step in range(total_steps)
    ]
    numbers, chosen = np.concatenate(steps, axis=1)
    firsts, counts = self._crops(numbers, chosen, seed)
    found: dict[int, int] = {}
    for step, words in enumerate(
      self._num_words(firsts, counts).reshape(-1, batch_size)
    ):
      found.setdefault(self._round(int(words.max())), step)
    return found

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
      key = permutation.order_key(seed, 2, int(document))
      firsts[here] += permutation.permute(epochs[here] % places, places, key)
    return firsts, counts

  def _num_words(self, firsts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns the words in rows, int [N], from their first and number."""
    offsets = self.features.offsets
    return offsets[firsts + counts] - offsets[firsts]

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
    lengths = self._num_words(firsts, counts)
    # The length of the global batch, on which all hosts agree.
    length = self._round(int(lengths.max()))
    chosen, example_mask = chosen[rows], example_mask[rows]
    firsts, counts, lengths = firsts[rows], counts[rows], lengths[rows]
    positions = np.arange(length)
    mask = positions < lengths[:, None]
    places = np.where(mask, features.offsets[firsts][:, None] + positions, 0)
    tokens = np.where(mask, features.tokens[places], np.int32(self.pad_id))
    num_rows, width = _num_rows(length, self._longest_row)
    sentences = np.full(mask.shape, -1, np.int32)
    sentence_rows = np.full((len(chosen), num_rows, width), -1, np.int32)
    for i, (first, count) in enumerate(zip(firsts, counts, strict=True)):
      row_lengths = self._row_lengths[first : first + count]
      sentences[i, : lengths[i]] = np.repeat(np.arange(count), row_lengths)
      _pack(row_lengths.tolist(), sentence_rows[i])
    batch = {
      'tokens': tokens,
      'token_mask': mask,
      'sentences': sentences,
      'sentence_rows': sentence_rows,
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
        batch['vectors'] = self._vectors(firsts, lengths, length)
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

  def _round(self, length: int) -> int:
    return next((longer for longer in LENGTHS if longer >= length), length)


def _num_rows(length: int, longest: int) -> tuple[int, int]:
  """Returns R and V, the rows for sentences of `length` words in all.

  Two consecutive rows of `_pack` hold more than V words, so these are enough.
  """
  if length <= longest:
    return 1, length
  return 2 * (length // (longest + 1)) + 1, longest


def _pack(row_lengths: list[int], places: np.ndarray) -> None:
  """Fills [R, V] with the places of sentences, one after the other.

  A sentence that a row does not hold begins the next.
  """
  row = filled = begin = 0
  for length in row_lengths:
    if filled + length > places.shape[1]:
      row, filled = row + 1, 0
    places[row, filled : filled + length] = np.arange(begin, begin + length)
    filled, begin = filled + length, begin + length
