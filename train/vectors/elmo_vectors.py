"""ELMo's vectors of sentences: every word's characters once, few shapes.

Shapes: B sentence of a batch, T word of it, N row of the table of words, P
projection, L layers with that of the words, D = 2 P.
"""

import collections
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from data.vocabulary import characters
from models import elmo
from train.vectors import layer_choice, length_batches
from train.vectors.layer_choice import Choice
from train.vectors.length_batches import Batch

# With a layer's gates, 2 towers x 4 x 4096 cells in float32, these take 0.5 GB
# in the original model; of sentences of 25 words they are 150 rows.
BATCH_TOKENS = 4096
BATCH_SIZE = 64  # of a stateful run; allennlp's default (commands/elmo.py)
# Sorted by length together. As it is kept in the order of the file, what is
# computed of them waits in memory: 400 MB of the original model's 3 layers.
ORDERED_WORDS = 32_768
UNORDERED_WORDS = 131_072
TABLE_WORDS = 200_000  # 400 MB of the original model, P = 512
ENCODE_WORDS = 256  # at a time; each has 50 x 2048 filters: 0.1 GB


class WordTable:
  """Vectors of distinct words on the device, each computed once.

  Attributes:
    vectors_NP: float32; rows that no word has are without meaning.
  """

  def __init__(self, model: elmo.Elmo, params: Any, max_words: int):
    """Begins empty.

    Args:
      model: the model.
      params: its parameters.
      max_words: where there would be more, all are forgotten first.
    """
    self._model, self._params = model, params
    self._rows: dict[str, int] = {}
    self._reserve(max_words)

  def _reserve(self, max_words: int) -> None:
    self._max_words = max_words
    # The last words are written together with padding.
    shape = (max_words + ENCODE_WORDS, self._model.projection_dim)
    self.vectors_NP = jnp.zeros(shape, jnp.float32)

  def add(self, sentences: Iterable[Sequence[str]]) -> None:
    """Computes the words of sentences, and what begins and ends them.

    Words of other calls may be forgotten.
    """
    words = dict.fromkeys((characters.SENTENCE_BEGIN, characters.SENTENCE_END))
    for sentence in sentences:
      words.update(dict.fromkeys(sentence))
    new = [word for word in words if word not in self._rows]
    if len(self._rows) + len(new) > self._max_words:
      new = list(words)
      self._rows = {}
      if len(new) > self._max_words:
        self._reserve(len(new))
    new.sort(key=len)  # short words among themselves take less, see char_cnn
    for first in range(0, len(new), ENCODE_WORDS):
      part = new[first : first + ENCODE_WORDS]
      ids, _ = characters.encode_words(part)
      padding = length_batches.round_rows(len(part), ENCODE_WORDS) - len(part)
      ids = np.pad(ids, ((0, padding), (0, 0)))
      start = len(self._rows)
      self.vectors_NP = _encode(
        self._model, self._params, self.vectors_NP, ids, start
      )
      self._rows.update(zip(part, itertools.count(start)))

  def rows(self, sentence: Sequence[str]) -> list[int]:
    """Returns the rows of a sentence's words, `<S>` and `</S>` round them."""
    words = (characters.SENTENCE_BEGIN, *sentence, characters.SENTENCE_END)
    return [self._rows[word] for word in words]


def embed_sentences(
  model: elmo.Elmo,
  params: Any,
  sentences: Iterable[Sequence[str]],
  *,
  window_words: int = ORDERED_WORDS,
  **options: Any,
) -> Iterator[np.ndarray]:
  """Yields the vectors of sentences, in their order.

  Args:
    model: with a character encoder; its softmax is not looked at.
    params: its parameters, unboxed.
    sentences: the words of each; cut where they have more than 48 bytes.
    window_words: see `embed_numbered`.
    **options: likewise.

  Yields:
    float32 [L, words, 2 P] of a sentence, L as many as were named; without the
    L where they are combined. Not of `<S>` and `</S>`, which the model reads at
    its ends. A sentence of no words has no vectors.

  Raises:
    ValueError: if an option makes no sense.
  """
  yield from length_batches.in_order(
    embed_numbered(
      model, params, sentences, window_words=window_words, **options
    )
  )


def embed_numbered(
  model: elmo.Elmo,
  params: Any,
  sentences: Iterable[Sequence[str]],
  *,
  layers: str | Sequence[int] = 'all',
  combine: str = 'stack',
  mix: Sequence[float] = (),
  stateful: bool = False,
  batch_size: int = BATCH_SIZE,
  batch_tokens: int = BATCH_TOKENS,
  window_words: int = UNORDERED_WORDS,
  table_words: int = TABLE_WORDS,
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields (number, vectors) of sentences as they come out of the batches.

  Vectors of a sentence do not depend on the others, unless `stateful`.

  Args:
    model: as in `embed_sentences`, and so the next.
    params: as there.
    sentences: as there; numbered from 0. They are read as they are needed.
    layers: see `layer_choice.Choice`, and so the next.
    combine: as there.
    mix: as there.
    stateful: as the released programs do it: batch i holds the sentences
      i * batch_size and on, and each of its rows goes on from the state in
      which the batch before left the row. Where a sentence has no words, the
      state stays.
    batch_size: rows of a stateful batch.
    batch_tokens: rows times length of other batches.
    window_words: of sentences that are sorted by length together.
    table_words: distinct words whose vectors are kept.

  Raises:
    ValueError: if an option makes no sense.
  """
  choice = layer_choice.check(
    Choice(layers, combine, tuple(mix)), model.num_layers
  )
  for name, value in (
    ('batch_size', batch_size),
    ('batch_tokens', batch_tokens),
  ):
    if value < 1:
      raise ValueError(f'--{name}={value}: expected 1 or more')
  params = jax.device_put(params)
  table = WordTable(model, params, table_words)
  state = elmo.empty_state(model, batch_size) if stateful else None
  empty = layer_choice.empty(choice, model.num_layers, 2 * model.projection_dim)
  computing: collections.deque[tuple[Batch, jax.Array]] = collections.deque()
  multiple = batch_size if stateful else 1
  for window in length_batches.read_ahead(
    sentences, window_words, multiple=multiple
  ):
    yield from (
      (number, np.zeros(empty, np.float32))
      for number, sentence in window
      if not sentence
    )
    table.add(sentence for _, sentence in window)
    filled = [item for item in window if item[1]]
    for batch in (
      _batches_in_order(window, batch_size)
      if stateful
      else length_batches.batches_by_length(filled, batch_tokens, added=2)
    ):
      rows_BT, lengths = _arrays(batch, table)
      vectors, after = _embed(
        model, params, table.vectors_NP, rows_BT, lengths, state, choice=choice
      )
      state = after if stateful else None
      computing.append((batch, vectors))
      # One is computed while the other is fetched, and used by the caller.
      if len(computing) > 1:
        yield from _sentences_of(*computing.popleft())
  while computing:
    yield from _sentences_of(*computing.popleft())


def _batches_in_order(
  window: Sequence[tuple[int, Sequence[str]]], batch_size: int
) -> Iterator[Batch]:
  """Yields batches of as many sentences, but those without any word."""
  for first in range(0, len(window), batch_size):
    part = window[first : first + batch_size]
    longest = max(len(sentence) for _, sentence in part)
    if longest:
      length = length_batches.round_length(longest + 2)
      yield Batch(*zip(*part, strict=True), batch_size, length)


def _arrays(batch: Batch, table: WordTable) -> tuple[np.ndarray, np.ndarray]:
  """Returns the table's rows [B, T] of a batch's words, and lengths [B]."""
  rows_BT = np.zeros((batch.rows, batch.length), np.int32)
  lengths = np.zeros(batch.rows, np.int32)
  for i, sentence in enumerate(batch.texts):
    if sentence:
      rows = table.rows(sentence)
      rows_BT[i, : len(rows)] = rows
      lengths[i] = len(rows)
  return rows_BT, lengths


def _sentences_of(
  batch: Batch, vectors: jax.Array
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields (number, vectors) of a batch's sentences that have words."""
  host = np.asarray(vectors)
  for number, sentence, found in zip(
    batch.numbers, batch.texts, host, strict=False
  ):
    if sentence:
      # A copy, so that one who keeps it does not keep the batch.
      yield number, found[..., 1 : len(sentence) + 1, :].copy()


@functools.partial(
  jax.jit, static_argnames='model', donate_argnames='vectors_NP'
)
def _encode(
  model: elmo.Elmo,
  params: Any,
  vectors_NP: jax.Array,
  ids: jax.Array,
  start: jax.Array,
) -> jax.Array:
  """Writes words of char ids [words, 50] into the table from a row on."""
  new_NP = model.apply({'params': params}, ids, method='encode')
  return lax.dynamic_update_slice(
    vectors_NP, new_NP.astype(vectors_NP.dtype), (start, 0)
  )


@functools.partial(
  jax.jit, static_argnames=('model', 'choice'), donate_argnames='state'
)
def _embed(
  model: elmo.Elmo,
  params: Any,
  vectors_NP: jax.Array,
  rows_BT: jax.Array,
  lengths: jax.Array,
  state: elmo.State | None,
  *,
  choice: Choice,
) -> tuple[jax.Array, elmo.State]:
  """Returns the chosen layers of sentences, and the state after them."""
  layers_LBTD, state = model.apply(
    {'params': params}, vectors_NP[rows_BT], lengths, state, method='embed'
  )
  return layer_choice.choose(layers_LBTD, choice), state
