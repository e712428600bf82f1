"""Rows of running words for word2vec: rare words kept, frequent ones sampled.

A word of frequency f is kept with probability (sqrt(f / s) + 1) s / f, the
formula of word2vec.c (its paper has another). Words outside of the vocabulary
are left out. Both steps come before neighbours are paired. Row i reads the text
from word i R on. R is chosen by the share of the words that is kept, so that
few rows are much shorter than T; if a row has no place for its last words,
these few are left out of this epoch.
"""

import jax
import numpy as np

from data.examples import permutation, pipeline
from data.examples.pipeline import Batch
from data.store import corpus
from data.vocabulary.words import SPECIALS, Words

_BITS = 24  # of the numbers drawn for words
# A row leaves two deviations of its number of words free, were draws
# independent; words of a topic come together, so there is a share beside.
_DEVIATIONS, _TOPICS = 2.0, 0.02


class SampledWordExamples(pipeline.Permuted):
  """One split of a store of whole words, as rows of T kept words."""

  def __init__(
    self,
    store: corpus.Store,
    length: int,
    *,
    held_out: bool,
    sample: float,
    min_count: int,
  ) -> None:
    """Counts the words and finds their places.

    `sample` is s, 0 to keep all words; words of fewer than `min_count`
    occurrences in the training text are left out. Raises ValueError if no word
    remains, or the store is not of whole words.
    """
    counts = word_counts(store, min_count)
    self._thresholds = np.zeros(len(store.counts), np.uint32)
    shares = keep_shares(counts, sample)
    self._thresholds[: len(counts)] = np.rint(shares * 2**_BITS)
    self._tokens = store.tokens
    chosen = store.held_out == held_out
    bounds = store.sentences[store.documents]
    sizes = np.diff(bounds)[chosen]
    total = int(sizes.sum())
    if not total:
      raise ValueError(
        f'{store.folder} has no {"held-out" if held_out else "training"} words:'
        ' bring more text, or set another data.held_out'
      )
    # Document d of the split begins at `_begins[d]` of the split, and lies
    # `_shifts[d]` words later in the store.
    self._begins = np.cumsum(sizes) - sizes
    self._shifts = bounds[:-1][chosen] - self._begins
    self._ends = self._begins
    if store.tokenizer.sentence_per_line:
      starts = store.sentences[:-1]
      document = np.searchsorted(bounds, starts, side='right') - 1
      document = np.minimum(document, len(chosen) - 1)
      numbers = np.cumsum(chosen) - 1
      inside = chosen[document]
      self._ends = starts[inside] - self._shifts[numbers[document[inside]]]
    self._size = total
    share = float(shares @ counts) / store.counts.sum()
    room = length * (1 - _TOPICS) - _DEVIATIONS * length**0.5
    self.num_read = max(1, int(room / share))  # R
    super().__init__(length, {'': -(-total // self.num_read)}, 1.0)

  def batch(self, numbers: np.ndarray, draws: np.ndarray) -> Batch:
    """Returns `tokens` and `segments`, int32 [B, T].

    Words of a segment are of one document, or of one sentence where a line of
    the text is one. Padding has token 0 and segment -1.
    """
    starts = numbers * self.num_read
    column = np.arange(self.num_read)
    places = starts[:, None] + column
    document = _count(self._begins, starts, self.num_read)
    inside = places < self._size
    found = np.where(inside, places + self._shifts[document], 0)
    words = self._tokens[found]
    drawn = permutation.mix_bits(places, draws[:, None])
    kept = (drawn >> np.uint64(64 - _BITS)) < self._thresholds[words]
    kept &= inside
    segments = document
    if self._ends is not self._begins:
      segments = _count(self._ends, starts, self.num_read)
    row, place = np.nonzero(kept)
    counts = kept.sum(axis=1)
    to = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    fits = to < self.length
    row, place, to = row[fits], place[fits], to[fits]
    tokens = np.zeros((len(numbers), self.length), np.int32)
    numbered = np.full(tokens.shape, -1, np.int32)
    tokens[row, to] = words[row, place]
    numbered[row, to] = (segments - segments[:, :1])[row, place]
    return {'tokens': tokens, 'segments': numbered}


def _count(bounds: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
  """Returns, of each place of rows [B, length], the last bound's number.

  Rows begin at `starts`; `bounds` ascend, the first is 0.
  """
  first = np.searchsorted(bounds, starts, side='right') - 1
  last = np.searchsorted(bounds, starts + length, side='left')
  sizes = last - first - 1
  row = np.repeat(np.arange(len(starts)), sizes)
  number = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
  steps = np.zeros((len(starts), length), np.int64)
  place = bounds[first[row] + 1 + number] - starts[row]
  np.add.at(steps, (row, place), 1)  # empty sentences share a place
  return first[:, None] + np.cumsum(steps, axis=1)


def word_counts(store: corpus.Store, min_count: int) -> np.ndarray:
  """Returns how often each softmax word is in the training text, int64 [V].

  Special symbols and words of fewer than `min_count` occurrences have 0.
  """
  if not isinstance(store.tokenizer, Words):
    raise ValueError(
      f'{store.folder} is not a store of whole words (its tokenizer:'
      f' {store.tokenizer.description}): prepare the text with --tokenizer'
      " train:words:N, or train with data.tokenizer='train:words:N'"
    )
  counts = np.array(store.counts[: store.tokenizer.softmax_size])
  most = counts[len(SPECIALS) :].max(initial=0)
  counts[: len(SPECIALS)] = 0
  counts[counts < min_count] = 0
  if np.count_nonzero(counts) < 2:
    raise ValueError(
      f'{store.folder}: objective.min_count={min_count} leaves'
      f' {np.count_nonzero(counts)} words, expected 2 or more; the most'
      f' frequent word occurs {most:,} times in the training text'
    )
  return counts


def keep_shares(counts: np.ndarray, sample: float) -> np.ndarray:
  """Returns the probability that a word is kept, float64 [V]; 0 if it has none.

  As word2vec.c computes it.
  """
  if not sample:
    return (counts > 0).astype(np.float64)
  allowed = sample * counts.sum()
  some = np.maximum(counts, 1)
  shares = (np.sqrt(some / allowed) + 1) * allowed / some
  return np.minimum(shares, 1) * (counts > 0)


def batch_shapes(length: int, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns the shapes and dtypes of a host batch, made without text."""
  matrix = jax.ShapeDtypeStruct((rows, length), np.int32)
  return {
    'tokens': matrix,
    'segments': matrix,
    'example_ids': jax.ShapeDtypeStruct((rows,), np.int32),
    'example_mask': jax.ShapeDtypeStruct((rows,), np.bool_),
  }
