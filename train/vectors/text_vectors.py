"""Vectors of tokens, words and sentences by BERT, GPT and GPT-2.

Shapes: B row of a batch, T position, L layers with that of the embeddings, K of
them chosen, D width.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from models import bert, features
from train.params import trained
from train.vectors import layer_choice, length_batches
from train.vectors.layer_choice import Choice
from train.vectors.text_plan import Plan, Request
from train.vectors.vector_files import Vectors

# What a layer makes of so many tokens stays in a CPU's cache: of MiniLM, 1024
# take a tenth to a fifth less time a token than 2048 and 4096, in PyTorch too.
# An accelerator has more to do at once.
CPU_BATCH_TOKENS = 1024
ACCELERATOR_BATCH_TOKENS = 32_768
# Vectors of a stretch of texts, which is sorted by length together, and tokens
# of one.
HELD_BYTES = 256_000_000
FEWEST_TOKENS, MOST_TOKENS = 4096, 131_072
ENCODED_TEXTS, ENCODED_CHARACTERS = 1024, 1_000_000  # at a time


@dataclasses.dataclass(frozen=True)
class _Text:
  ids: list[int]
  words: list[str] | None
  word_lengths: list[int] | None

  def __len__(self) -> int:
    return len(self.ids)


def default_batch_tokens(backend: str) -> int:
  """Returns the rows times length of a batch that suit a JAX backend."""
  return CPU_BATCH_TOKENS if backend == 'cpu' else ACCELERATOR_BATCH_TOKENS


def embed_texts(
  found: trained.Trained,
  texts: Iterable[str],
  request: Request,
  *,
  batch_tokens: int | None = None,
) -> Iterator[Vectors]:
  """Yields the vectors of texts, in their order.

  Args:
    found: a BERT, GPT or GPT-2.
    texts: of any length.
    request: what is wanted.
    batch_tokens: see `embed_numbered`.

  Raises:
    ValueError: if an option makes no sense.
  """
  yield from length_batches.in_order(
    embed_numbered(found, texts, request, batch_tokens=batch_tokens)
  )


def embed_numbered(
  found: trained.Trained,
  texts: Iterable[str],
  request: Request,
  *,
  batch_tokens: int | None = None,
) -> Iterator[tuple[int, Vectors]]:
  """Yields (number, vectors) of texts as they come out of the batches.

  A text's vectors depend on nothing but the text. Longer texts than the model
  has positions are read in windows, see `token_windows`. Of a text without a
  token there are no vectors; its sentence is what BERT makes of its own two
  symbols, or zeros by a GPT. A word without a token has a vector of zeros.

  Args:
    found: a BERT, GPT or GPT-2.
    texts: numbered from 0; read as they are needed.
    request: what is wanted.
    batch_tokens: rows times length of a batch; None: what suits the device.

  Raises:
    ValueError: if an option makes no sense.
  """
  plan = Plan(found, request)
  if batch_tokens is None:
    batch_tokens = default_batch_tokens(jax.default_backend())
  if batch_tokens < 1:
    raise ValueError(f'--batch_tokens={batch_tokens}: expected 1 or more')
  model, choice = found.model, plan.choice
  if plan.is_bert:
    model = model.clone(heads=())
  params = features.cast_weights(jax.device_put(found.params), model.dtype)
  sentence = plan.is_sentence
  *layers, _, width = layer_choice.empty(
    choice, model.num_layers, model.embed_dim
  )
  token_bytes = 0 if sentence else 4 * math.prod(layers) * width
  stretch_tokens = min(
    max(HELD_BYTES // max(token_bytes, 1), FEWEST_TOKENS), MOST_TOKENS
  )
  waiting: dict[int, tuple[_Text, np.ndarray, int]] = {}

  def finish(number: int, text: _Text, array: np.ndarray) -> tuple:
    return number, _finished(found, request, plan, text, array)

  def collect(
    batch: length_batches.Batch, vectors: jax.Array
  ) -> Iterator[tuple[int, Vectors]]:
    host = np.asarray(vectors)
    for (number, window), row in zip(batch.numbers, host, strict=False):
      text, array, missing = waiting.pop(number)
      if sentence:
        array += row
      else:
        part = array[..., window.first : window.last, :]
        part[...] = row[..., plan.place(window), :]
      if missing > 1:
        waiting[number] = text, array, missing - 1
      else:
        yield finish(number, text, array)

  computing: collections.deque = collections.deque()
  encoded = _encode(found, texts, request)
  for stretch in length_batches.read_ahead(encoded, stretch_tokens):
    items = []
    for number, text in stretch:
      tokens = [] if sentence else [len(text)]
      array = np.zeros((*layers, *tokens, width), np.float32)
      if not text.ids and not (sentence and plan.is_bert):
        yield finish(number, text, array)
        continue
      windows = plan.windows(len(text))
      waiting[number] = text, array, len(windows)
      items += [
        ((number, window), text.ids[window.start : window.end])
        for window in windows
      ]
    for batch in length_batches.batches_by_length(
      items, batch_tokens, added=plan.added, longest=plan.window
    ):
      tokens_BT, lengths_B = _arrays(batch, plan)
      if sentence:
        counts = [len(waiting[number][0]) for number, _ in batch.numbers]
        vectors = _pooled(
          model,
          params,
          tokens_BT,
          lengths_B,
          _weights(batch, counts, plan),
          choice=choice,
        )
      else:
        vectors = _states(model, params, tokens_BT, lengths_B, choice=choice)
      computing.append((batch, vectors))
      # One is computed while the other is fetched, and used by the caller.
      if len(computing) > 1:
        yield from collect(*computing.popleft())
    while computing:
      yield from collect(*computing.popleft())


def _encode(
  found: trained.Trained, texts: Iterable[str], request: Request
) -> Iterator[_Text]:
  """Yields texts as the tokenizer cuts them."""
  for part in _parts(texts):
    if request.unit != 'word':
      for ids in found.encode(part):
        yield _Text(ids, None, None)
      continue
    split = [request.split(text) for text in part]
    for words, ids in zip(
      split, found.tokenizer.encode_words(split), strict=True
    ):
      yield _Text(sum(ids, []), words, [len(word) for word in ids])


def _parts(texts: Iterable[str]) -> Iterator[list[str]]:
  """Yields as many texts as are worth encoding together."""
  part, size = [], 0
  for text in texts:
    part.append(text)
    size += len(text)
    if len(part) == ENCODED_TEXTS or size > ENCODED_CHARACTERS:
      yield part
      part, size = [], 0
  if part:
    yield part


def _arrays(
  batch: length_batches.Batch, plan: Plan
) -> tuple[np.ndarray, np.ndarray]:
  """Returns ids [B, T] of a batch's framed windows, and lengths [B]."""
  tokens_BT = np.zeros((batch.rows, batch.length), np.int32)
  lengths_B = np.zeros(batch.rows, np.int32)
  for i, ids in enumerate(batch.texts):
    framed = plan.begin + ids + plan.end
    tokens_BT[i, : len(framed)] = framed
    lengths_B[i] = len(framed)
  return tokens_BT, lengths_B


def _weights(
  batch: length_batches.Batch, counts: Sequence[int], plan: Plan
) -> np.ndarray:
  """Returns what each position [B, T] adds to its sentence's vector."""
  weights_BT = np.zeros((batch.rows, batch.length), np.float32)
  for row, (_, window), count in zip(
    weights_BT, batch.numbers, counts, strict=False
  ):
    place, weight = plan.weights(window, count)
    row[place] = weight
  return weights_BT


def _finished(
  found: trained.Trained,
  request: Request,
  plan: Plan,
  text: _Text,
  array: np.ndarray,
) -> Vectors:
  """Returns a text's vectors, pooled and scaled as they were wanted."""
  if request.unit == 'word':
    array = pool_words(array, text.word_lengths, plan.pool)
    return Vectors(array, text.words, len(text))
  if request.unit == 'token':
    pieces = found.tokenizer.pieces
    return Vectors(array, [pieces[i] for i in text.ids], len(text))
  if request.normalize:
    norms = np.linalg.norm(array, axis=-1, keepdims=True)
    array = array / np.maximum(norms, np.finfo(np.float32).tiny)
  return Vectors(array, None, len(text))


def pool_words(
  vectors_TD: np.ndarray, lengths: Sequence[int], pool: str
) -> np.ndarray:
  """Returns a vector for each word.

  Args:
    vectors_TD: float32 [..., T, D] of a text's tokens.
    lengths: how many tokens each word has; zeros stand for a word of none.
    pool: 'first', 'mean' or 'last' of its tokens.

  Returns:
    float32 [..., words, D].
  """
  lengths = np.asarray(lengths, int)
  filled = lengths > 0
  ends = np.cumsum(lengths)[filled]
  starts = ends - lengths[filled]
  *outer, _, width = vectors_TD.shape
  pooled = np.zeros((*outer, len(lengths), width), np.float32)
  if not filled.any():
    return pooled
  if pool == 'mean':
    sums = np.add.reduceat(vectors_TD, starts, axis=-2)
    pooled[..., filled, :] = sums / lengths[filled, None]
  else:
    places = starts if pool == 'first' else ends - 1
    pooled[..., filled, :] = vectors_TD[..., places, :]
  return pooled


@functools.partial(jax.jit, static_argnames=('model', 'choice'))
def _states(
  model: nn.Module,
  params: Any,
  tokens_BT: jax.Array,
  lengths_B: jax.Array,
  *,
  choice: Choice,
) -> jax.Array:
  """Returns the chosen layers [B, K, T, D], or one [B, T, D], in float32."""
  places_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
  inputs = [tokens_BT, places_BT < lengths_B[:, None], places_BT]
  if isinstance(model, bert.Bert):
    inputs.insert(2, jnp.zeros_like(tokens_BT))
  layers_LBTD = features.hidden_layers(model, params, *inputs)
  return layer_choice.choose(layers_LBTD, choice)


@functools.partial(jax.jit, static_argnames=('model', 'choice'))
def _pooled(
  model: nn.Module,
  params: Any,
  tokens_BT: jax.Array,
  lengths_B: jax.Array,
  weights_BT: jax.Array,
  *,
  choice: Choice,
) -> jax.Array:
  """Returns weighted sums over positions: [B, K, D] or [B, D] in float32."""
  states = _states(model, params, tokens_BT, lengths_B, choice=choice)
  # A sum, not a product of matrices: an accelerator would round its factors.
  weights_BT1 = weights_BT[..., None]
  if states.ndim == 4:
    weights_BT1 = weights_BT1[:, None]
  return jnp.sum(weights_BT1 * states, axis=-2)
