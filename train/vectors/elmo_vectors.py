"""ELMo's vectors of sentences: each word's characters once, few shapes.

Shapes: B sentence, T word, N row of the table, P projection, L layer, D = 2 P.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from data.vocabulary import characters
from models import elmo
from models.layers import Params
from train.vectors import layer_choice, length_batches
from train.vectors.length_batches import TextBatch
from train.vectors.request import Choice
from train.vectors.vector_files import VectorFile

# 0.5 GB of a layer's gates in the original model (2 towers x 4 x 4096 cells,
# float32); 150 sentences of 25 words.
BATCH_TOKENS = 4096
BATCH_SIZE = 64  # of a stateful run; allennlp's default (commands/elmo.py)
# Words sorted by length together. To be written in order, their vectors wait
# in memory: 400 MB for the original model's 3 layers.
ORDERED_WORDS = 32_768
UNORDERED_WORDS = 131_072
TABLE_WORDS = 200_000  # 400 MB of the original model, P = 512
ALL_LAYERS = Choice('all')
ENCODE_WORDS = 256  # at a time; each has 50 x 2048 filters: 0.1 GB


class ElmoWordTable:
  """Vectors of distinct words on the device, `vectors_NP`, computed once."""

  def __init__(self, model: elmo.Elmo, params: Params, max_words: int):
    """Begins empty; words beyond `max_words` make it forget all others."""
    self._model, self._params = model, params
    self._reserve(max_words)

  def _reserve(self, max_words: int) -> None:
    self._rows: dict[str, int] = {}
    self._max_words = max_words
    # The last words are written together with padding.
    shape = (max_words + ENCODE_WORDS, self._model.projection_dim)
    self.vectors_NP = jnp.zeros(shape, jnp.float32)

  def add(self, sentences: Iterable[Sequence[str]]) -> None:
    """Encodes the words of sentences, `<S>` and `</S>`; may forget others."""
    words = dict.fromkeys((characters.SENTENCE_BEGIN, characters.SENTENCE_END))
    for sentence in sentences:
      words.update(dict.fromkeys(sentence))
    new = [word for word in words if word not in self._rows]
    if len(self._rows) + len(new) > self._max_words:
      new = list(words)
      self._rows = {}
      if len(new) > self._max_words:
        self._reserve(len(new))
    new.sort(key=len)  # batches of short words take less, see char_cnn
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
    """Returns the rows of `<S>`, a sentence's words and `</S>`."""
    words = (characters.SENTENCE_BEGIN, *sentence, characters.SENTENCE_END)
    return [self._rows[word] for word in words]


def embed_sentences(
  model: elmo.Elmo,
  params: Params,
  sentences: Iterable[Sequence[str]],
  **options: Choice | int,
) -> Iterator[np.ndarray]:
  """Yields the arrays of sentences in their order, see `embed_numbered`."""
  options = {'window_words': ORDERED_WORDS} | options
  numbered = embed_numbered(model, params, sentences, **options)
  for vectors in length_batches.in_order(numbered):
    yield vectors.array


def embed_numbered(
  model: elmo.Elmo,
  params: Params,
  sentences: Iterable[Sequence[str]],
  *,
  choice: Choice = ALL_LAYERS,
  stateful: bool = False,
  batch_size: int = BATCH_SIZE,
  batch_tokens: int = BATCH_TOKENS,
  window_words: int = UNORDERED_WORDS,
  table_words: int = TABLE_WORDS,
) -> Iterator[tuple[int, VectorFile]]:
  """Yields (number, vectors) of sentences as they come out of the batches.

  Vectors are [K, words, 2 P] with K chosen layers, or [words, 2 P] if these are
  combined; unless `stateful`, they depend on the sentence alone. The model
  needs a character encoder; `params` are unboxed. Sentences are lists of words,
  numbered from 0, read as needed; words of more than 48 bytes are cut.

  With `stateful`, as in the released programs, batch i holds the sentences from
  i * `batch_size` on, and each row starts from the state that the previous
  batch left; sentences without words leave it as it is. Otherwise stretches of
  `window_words` words are sorted by length, in batches of `batch_tokens` (rows
  times length). The table keeps the vectors of `table_words` words.
  """
  choice = choice.checked(model.num_layers)
  if batch_size < 1:
    raise ValueError(f'--batch_size={batch_size}: expected 1 or more')
  if batch_tokens < 1:
    raise ValueError(f'--batch_tokens={batch_tokens}: expected 1 or more')
  params = jax.device_put(params)
  table = ElmoWordTable(model, params, table_words)
  state = elmo.empty_state(model, batch_size) if stateful else None

  def compute() -> Iterator[tuple[TextBatch, jax.Array]]:
    nonlocal state
    for window in length_batches.read_ahead(
      sentences, window_words, multiple=batch_size if stateful else 1
    ):
      table.add(sentence for _, sentence in window)
      batches = (
        _batches_in_order(window, batch_size)
        if stateful
        else length_batches.batches_by_length(window, batch_tokens, added=2)
      )
      for batch in batches:
        rows = [table.rows(words) if words else [] for words in batch.texts]
        rows_BT, lengths = length_batches.pad(rows, batch.rows, batch.length)
        inputs = table.vectors_NP, rows_BT, lengths, state
        vectors, after = _embed(model, params, *inputs, choice=choice)
        state = after if stateful else None
        yield batch, vectors

  for batch, vectors in length_batches.on_host(compute()):
    for number, words, layers in zip(
      batch.numbers, batch.texts, vectors, strict=False
    ):
      # A copy, so that a kept sentence does not keep its batch.
      array = layers[..., 1 : len(words) + 1, :].copy()
      yield number, VectorFile(array, words, len(words))


def _batches_in_order(
  window: Sequence[tuple[int, Sequence[str]]], batch_size: int
) -> Iterator[TextBatch]:
  """Yields batches of `batch_size` sentences."""
  for first in range(0, len(window), batch_size):
    part = window[first : first + batch_size]
    longest = max(len(sentence) for _, sentence in part)
    length = length_batches.round_length(longest + 2)
    yield TextBatch(*zip(*part, strict=True), batch_size, length)


@functools.partial(
  jax.jit, static_argnames='model', donate_argnames='vectors_NP'
)
def _encode(
  model: elmo.Elmo,
  params: Params,
  vectors_NP: jax.Array,
  ids: jax.Array,
  start: jax.Array,
) -> jax.Array:
  """Writes words of char ids [words, 50] into the table from row `start` on."""
  new_NP = model.apply({'params': params}, ids, method='encode')
  return lax.dynamic_update_slice(
    vectors_NP, new_NP.astype(vectors_NP.dtype), (start, 0)
  )


@functools.partial(
  jax.jit, static_argnames=('model', 'choice'), donate_argnames='state'
)
def _embed(
  model: elmo.Elmo,
  params: Params,
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
