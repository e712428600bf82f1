"""ELMo's vectors of sentences: every word's characters once, few shapes.

Shapes: B sentence of a batch, T word of it, N row of the table of words, P
projection, L layers with that of the words, D = 2 P.
"""

import collections
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from data import characters
from models import elmo

LAYERS = ('all', 'mean', 'top')
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


class _Batch(NamedTuple):
  """Sentences that are computed together.

  Attributes:
    numbers: of the sentences.
    sentences: their words.
    rows: B, at least as many.
    length: T, at least their words and the two at the ends.
  """

  numbers: tuple[int, ...]
  sentences: tuple[Sequence[str], ...]
  rows: int
  length: int


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
      padding = _round_rows(len(part), ENCODE_WORDS) - len(part)
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
  layers: str | Sequence[int] = 'all',
  window_words: int = ORDERED_WORDS,
  **options: Any,
) -> Iterator[np.ndarray]:
  """Yields the vectors of sentences, in their order.

  Args:
    model: with a character encoder; its softmax is not looked at.
    params: its parameters, unboxed.
    sentences: the words of each; cut where they have more than 48 bytes.
    layers: 'all'; 'mean' of all; 'top'; or their numbers, 0 for that of the
      words, -1 for the top.
    window_words: see `embed_numbered`.
    **options: likewise.

  Yields:
    float32 [L, words, 2 P] of a sentence, L as many as were named; without the
    L of 'mean' and 'top'. Not of `<S>` and `</S>`, which the model reads at its
    ends. A sentence of no words has no vectors.

  Raises:
    ValueError: if an option makes no sense.
  """
  held: dict[int, np.ndarray] = {}
  following = 0
  for number, vectors in embed_numbered(
    model,
    params,
    sentences,
    layers=layers,
    window_words=window_words,
    **options,
  ):
    held[number] = vectors
    while following in held:
      yield held.pop(following)
      following += 1


def embed_numbered(
  model: elmo.Elmo,
  params: Any,
  sentences: Iterable[Sequence[str]],
  *,
  layers: str | Sequence[int] = 'all',
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
    layers: as there.
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
  layers = check_layers(layers, model.num_layers)
  for name, value in (
    ('batch_size', batch_size),
    ('batch_tokens', batch_tokens),
  ):
    if value < 1:
      raise ValueError(f'--{name}={value}: expected 1 or more')
  params = jax.device_put(params)
  table = WordTable(model, params, table_words)
  state = elmo.empty_state(model, batch_size) if stateful else None
  empty = jax.eval_shape(
    functools.partial(_choose, layers=layers),
    jax.ShapeDtypeStruct(
      (model.num_layers + 1, 1, 0, 2 * model.projection_dim), jnp.float32
    ),
  ).shape[1:]
  computing: collections.deque[tuple[_Batch, jax.Array]] = collections.deque()
  multiple = batch_size if stateful else 1
  for window in _windows(sentences, window_words, multiple):
    yield from (
      (number, np.zeros(empty, np.float32))
      for number, sentence in window
      if not sentence
    )
    table.add(sentence for _, sentence in window)
    for batch in (
      _batches_in_order(window, batch_size)
      if stateful
      else _batches_by_length(window, batch_tokens)
    ):
      rows_BT, lengths = _arrays(batch, table)
      vectors, after = _embed(
        model, params, table.vectors_NP, rows_BT, lengths, state, layers=layers
      )
      state = after if stateful else None
      computing.append((batch, vectors))
      # One is computed while the other is fetched, and used by the caller.
      if len(computing) > 1:
        yield from _sentences_of(*computing.popleft())
  while computing:
    yield from _sentences_of(*computing.popleft())


def check_layers(
  layers: str | Sequence[int], num_layers: int
) -> str | tuple[int, ...]:
  """Returns the layers to give, if the model has them.

  Args:
    layers: one of LAYERS, or numbers.
    num_layers: of the model, without that of the words.

  Raises:
    ValueError: if it has not.
  """
  if layers in LAYERS:
    return layers
  if isinstance(layers, str) or not all(
    -num_layers - 1 <= number <= num_layers for number in layers
  ):
    asked = layers if isinstance(layers, str) else ','.join(map(str, layers))
    raise ValueError(
      f'--layers={asked}: expected {", ".join(LAYERS)} or numbers from'
      f' {-num_layers - 1} to {num_layers}; 0 is the layer of the words'
    )
  return tuple(layers)


def _windows(
  sentences: Iterable[Sequence[str]], num_words: int, multiple: int
) -> Iterator[list[tuple[int, Sequence[str]]]]:
  """Yields stretches of (number, sentence), of about so many words.

  All but the last have a multiple of so many sentences.
  """
  window, size = [], 0
  for item in enumerate(sentences):
    window.append(item)
    size += len(item[1]) + 2
    if size >= num_words and len(window) % multiple == 0:
      yield window
      window, size = [], 0
  if window:
    yield window


def _batches_by_length(
  window: Sequence[tuple[int, Sequence[str]]], batch_tokens: int
) -> Iterator[_Batch]:
  """Yields batches of sentences of like length, the longest first."""
  items = [item for item in window if item[1]]
  items.sort(key=lambda item: -len(item[1]))
  first = 0
  while first < len(items):
    length = round_length(len(items[first][1]) + 2)
    rows = max(1, batch_tokens // length)
    part = items[first : first + rows]
    yield _Batch(*zip(*part, strict=True), _round_rows(len(part), rows), length)
    first += rows


def _batches_in_order(
  window: Sequence[tuple[int, Sequence[str]]], batch_size: int
) -> Iterator[_Batch]:
  """Yields batches of as many sentences, but those without any word."""
  for first in range(0, len(window), batch_size):
    part = window[first : first + batch_size]
    longest = max(len(sentence) for _, sentence in part)
    if longest:
      length = round_length(longest + 2)
      yield _Batch(*zip(*part, strict=True), batch_size, length)


def round_length(length: int) -> int:
  """Returns a length's next one of those that programs are compiled for.

  Eight from each power of two to the next: with sentences of unlike lengths in
  a batch, 7 % of positions are padding where lengths spread as in English.
  """
  step = 1 << max((length - 1).bit_length() - 4, 0)
  return -(-length // step) * step


def _round_rows(count: int, most: int) -> int:
  """Returns the next power of two; `most` if it is beyond."""
  return min(1 << (count - 1).bit_length(), most)


def _arrays(batch: _Batch, table: WordTable) -> tuple[np.ndarray, np.ndarray]:
  """Returns the table's rows [B, T] of a batch's words, and lengths [B]."""
  rows_BT = np.zeros((batch.rows, batch.length), np.int32)
  lengths = np.zeros(batch.rows, np.int32)
  for i, sentence in enumerate(batch.sentences):
    if sentence:
      rows = table.rows(sentence)
      rows_BT[i, : len(rows)] = rows
      lengths[i] = len(rows)
  return rows_BT, lengths


def _sentences_of(
  batch: _Batch, vectors: jax.Array
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields (number, vectors) of a batch's sentences that have words."""
  host = np.asarray(vectors)
  for number, sentence, found in zip(
    batch.numbers, batch.sentences, host, strict=False
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
  jax.jit, static_argnames=('model', 'layers'), donate_argnames='state'
)
def _embed(
  model: elmo.Elmo,
  params: Any,
  vectors_NP: jax.Array,
  rows_BT: jax.Array,
  lengths: jax.Array,
  state: elmo.State | None,
  *,
  layers: str | tuple[int, ...],
) -> tuple[jax.Array, elmo.State]:
  """Returns `_choose`'s layers of sentences, and the state after them."""
  layers_LBTD, state = model.apply(
    {'params': params}, vectors_NP[rows_BT], lengths, state, method='embed'
  )
  return _choose(layers_LBTD, layers), state


def _choose(layers_LBTD: jax.Array, layers: str | tuple[int, ...]) -> jax.Array:
  """Returns layers as [B, L, T, D], or one [B, T, D], in float32."""
  layers_LBTD = layers_LBTD.astype(jnp.float32)
  if layers == 'mean':
    return layers_LBTD.mean(axis=0)
  if layers == 'top':
    return layers_LBTD[-1]
  if layers != 'all':
    layers_LBTD = layers_LBTD[jnp.array(layers)]
  return layers_LBTD.swapaxes(0, 1)
