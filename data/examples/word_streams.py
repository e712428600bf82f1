"""Endless text for a model that carries its state from batch to batch.

The text is a sequence of sentences without padding, and each row of a batch
continues the same row of the batch before (bilm-tf). A sentence of n words
gives n + 1 positions: forward, `<S> w1 .. wn` predicts `w1 .. wn </S>`;
backward, at the same places, `</S> wn .. w1` predicts `wn .. w1 <S>`. With N
positions in a split and B rows, row b begins an epoch at position
floor(b N / B) and reads ceil(N / B) positions; in training, each epoch permutes
the sentences anew by a key.
"""

import collections
import threading
from collections.abc import Iterator

import jax
import numpy as np

from data.examples import permutation
from data.examples.pipeline import Batch
from data.store import corpus
from data.vocabulary.characters import MAX_CHARACTERS
from data.vocabulary.words import Words

_BLOCK = 1 << 20  # sentences ordered at once
_EPOCHS_KEPT = 2  # a batch that straddles two needs both


class WordStreamExamples:
  """One split of a store of whole words: ceil(N / T) inputs of T words."""

  def __init__(
    self,
    store: corpus.Store,
    length: int,
    *,
    held_out: bool,
    language_exponent: float = 0.7,
  ) -> None:
    """Finds the sentences of a split.

    Raises ValueError without words, or for several languages, whose sentences
    no row could read on in shares.
    """
    del language_exponent
    if len(store.languages) > 1:
      raise ValueError(
        f'{store.folder} has {len(store.languages)} languages'
        f' ({", ".join(store.languages[:3])} ...), expected one: texts of whole'
        ' words are read on from batch to batch'
      )
    self._words = _words_of(store)
    # Made here, once: the threads that make batches would each make their own.
    self._characters = self._words.characters
    self._tokens = store.tokens
    self._offsets = store.sentences
    chosen = store.held_out == held_out
    documents = store.documents
    counts = np.diff(documents)[chosen]
    # The split's sentences are numbered through, over its documents: those of
    # document d begin with number `_numbers[d]`, the store's `_firsts[d]`.
    self._firsts = documents[:-1][chosen]
    self._numbers = np.concatenate([[0], np.cumsum(counts)])
    self._num_sentences = int(self._numbers[-1])
    num_words = int(np.diff(self._offsets[documents])[chosen].sum())
    if not num_words:
      raise ValueError(
        f'{store.folder} has no {"held-out" if held_out else "training"} words:'
        ' bring more text, or set another data.held_out'
      )
    self._size = num_words + self._num_sentences
    self.length = length
    self.num_windows = -(-self._size // length)
    self._starts: collections.OrderedDict[int | None, np.ndarray] = (
      collections.OrderedDict()
    )
    self._lock = threading.Lock()

  def check_text(self, batch_size: int) -> None:
    """Does nothing: any text offers something to learn."""

  def describe_languages(self) -> dict[str, tuple[int, float]]:
    """Returns nothing: there is one language."""
    return {}

  def train_batch(
    self,
    step: int,
    rows: np.ndarray | slice,
    batch_size: int,
    seed: int,
    phase: int,
  ) -> Batch:
    """Returns a batch of training; see `pipeline.Examples`.

    Returns:
      `type_ids, targets, reverse_type_ids, reverse_targets` int32 [B, T], word
      types, including types that the softmax lacks; `characters,
      reverse_characters` int16 [B, T, 50], of the type ids; `loss_weights`
      float32 [B, T], all 1; `example_ids` int32 [B], the batch's rows numbered
      through the phase, modulo 2^31; `example_mask` bool [B], all True.
    """
    row = np.arange(batch_size)[rows]
    share = -(-self._size // batch_size)
    epochs, within = np.divmod(
      step * self.length + np.arange(self.length), share
    )
    starts = row * self._size // batch_size
    places = (starts[:, None] + within) % self._size
    sentence, at = np.empty_like(places), np.empty_like(places)
    for epoch in np.unique(epochs).tolist():
      here = epochs == epoch
      key = permutation.order_key(seed, phase, epoch)
      sentence[:, here], at[:, here] = self._find(places[:, here], key)
    batch = self._gather(sentence, at)
    batch['loss_weights'] = np.ones(places.shape, np.float32)
    batch['example_ids'] = ((step * batch_size + row) % 2**31).astype(np.int32)
    batch['example_mask'] = np.ones(len(row), bool)
    return batch

  def eval_batches(
    self,
    batch_size: int,
    max_windows: int,
    draws: int,
    rows: np.ndarray | slice,
    language: int | None,
  ) -> Iterator[Batch]:
    """Yields the batches of an evaluation in order, for one carried state.

    Sentences are in the order of the text; row b reads from floor(b N / B) to
    the start of the next row. At least one batch and at most `max_windows` rows
    are made. Positions beyond a row's share have loss weight 0, rows without
    other positions `example_mask` False; `example_ids` number the rows.
    """
    del draws, language
    row = np.arange(batch_size)[rows]
    starts = row * self._size // batch_size
    stops = (row + 1) * self._size // batch_size
    longest = -(-self._size // batch_size)
    num_steps = -(-longest // self.length)
    for step in range(min(num_steps, max(1, max_windows // batch_size))):
      places = starts[:, None] + step * self.length + np.arange(self.length)
      inside = places < stops[:, None]
      batch = self._gather(*self._find(places % self._size, None))
      batch['loss_weights'] = inside.astype(np.float32)
      batch['example_ids'] = row.astype(np.int32)
      batch['example_mask'] = inside.any(axis=1)
      yield batch

  def _find(
    self, places: np.ndarray, key: int | None
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns (sentence, place in it) of positions; key None is text order."""
    starts = self._find_starts(key)
    number = np.searchsorted(starts, places, side='right') - 1
    return self._sentences(number, key), places - starts[number]

  def _find_starts(self, key: int | None) -> np.ndarray:
    """Returns int64 [S + 1], the start of each sentence, then N."""
    # Held for seconds: other threads wait for the same array.
    with self._lock:
      if key not in self._starts:
        starts = np.zeros(self._num_sentences + 1, np.int64)
        for first in range(0, self._num_sentences, _BLOCK):
          stop = min(first + _BLOCK, self._num_sentences)
          sentence = self._sentences(np.arange(first, stop), key)
          sizes = self._offsets[sentence + 1] - self._offsets[sentence] + 1
          starts[first + 1 : stop + 1] = starts[first] + np.cumsum(sizes)
        while len(self._starts) >= _EPOCHS_KEPT:
          self._starts.popitem(last=False)
        self._starts[key] = starts
      self._starts.move_to_end(key)
      return self._starts[key]

  def _sentences(self, numbers: np.ndarray, key: int | None) -> np.ndarray:
    """Returns the store's numbers of sentences by their place in an order."""
    if key is not None:
      numbers = permutation.permute(numbers, self._num_sentences, key)
    document = np.searchsorted(self._numbers, numbers, side='right') - 1
    return self._firsts[document] + numbers - self._numbers[document]

  def _gather(self, sentence: np.ndarray, at: np.ndarray) -> Batch:
    """Returns the words at places 0..n of sentences of n words."""
    first = self._offsets[sentence]
    last = self._offsets[sentence + 1] - 1
    num_words = last - first + 1
    begin, end = self._words.begin_id, self._words.end_id

    def take(places: np.ndarray, outside: np.ndarray, symbol: int):
      words = self._tokens[np.clip(places, 0, len(self._tokens) - 1)]
      return np.where(outside, symbol, words.astype(np.int32))

    batch = {
      'type_ids': take(first + at - 1, at == 0, begin),
      'targets': take(first + at, at == num_words, end),
      'reverse_type_ids': take(last - at + 1, at == 0, end),
      'reverse_targets': take(last - at, at == num_words, begin),
    }
    batch['characters'] = self._characters[batch['type_ids']]
    batch['reverse_characters'] = self._characters[batch['reverse_type_ids']]
    return batch


def token_counts(store: corpus.Store) -> np.ndarray:
  """Returns the count of each softmax word as a target, int64 [V], an epoch.

  Of the forward text: `</S>` ends each sentence, `<S>` is never predicted, and
  words outside the softmax are `<UNK>`. The store must be of whole words.
  """
  words = _words_of(store)
  counts = np.array(store.counts[: words.softmax_size])
  counts[words.unk_id] += store.counts[words.softmax_size :].sum()
  trained = ~store.held_out
  counts[words.end_id] = np.diff(store.documents)[trained].sum()
  counts[words.begin_id] = 0
  return counts


def _words_of(store: corpus.Store) -> Words:
  if not isinstance(store.tokenizer, Words):
    raise ValueError(
      f'{store.folder} is not a store of whole words (its tokenizer:'
      f' {store.tokenizer.description}): prepare the text with --tokenizer'
      " train:words:N, or train with data.tokenizer='train:words:N'"
    )
  return store.tokenizer


def batch_shapes(length: int, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns the shapes and dtypes of a host batch, made without text."""
  matrix = jax.ShapeDtypeStruct((rows, length), np.int32)
  letters = jax.ShapeDtypeStruct((rows, length, MAX_CHARACTERS), np.int16)
  return {
    'type_ids': matrix,
    'targets': matrix,
    'reverse_type_ids': matrix,
    'reverse_targets': matrix,
    'characters': letters,
    'reverse_characters': letters,
    'loss_weights': jax.ShapeDtypeStruct((rows, length), np.float32),
    'example_ids': jax.ShapeDtypeStruct((rows,), np.int32),
    'example_mask': jax.ShapeDtypeStruct((rows,), np.bool_),
  }
