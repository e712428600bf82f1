"""Vectors of tokens, words and sentences by BERT, GPT and GPT-2."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from models.layers import Params
from train.architectures.architecture import Architecture
from train.vectors import layer_choice, length_batches, text_layers
from train.vectors.length_batches import TextBatch
from train.vectors.request import PIECE, Choice
from train.vectors.text_plan import TextPlan
from train.vectors.vector_files import VectorFile

# Texts sorted by length together: bytes of their vectors, bounds of tokens.
HELD_BYTES = 256_000_000
FEWEST_TOKENS, MOST_TOKENS = 4096, 131_072
ENCODED_TEXTS, ENCODED_CHARACTERS = 1024, 1_000_000  # at a time


@dataclasses.dataclass(frozen=True)
class _Text:
  ids: list[int]
  words: list[str] | None = None
  word_lengths: list[int] | None = None

  def __len__(self) -> int:
    return len(self.ids)


def embed_numbered(
  plan: TextPlan,
  model: nn.Module,
  params: Params,
  texts: Iterable[str | Sequence[str]],
  *,
  batch_tokens: int | None = None,
) -> Iterator[tuple[int, VectorFile]]:
  """Yields (number, vectors) of texts as they come out of the batches.

  Texts are numbered from 0 and read as needed; their vectors depend on nothing
  else. Texts beyond the model's positions are read in `token_windows`. A text
  without tokens has no vectors; as a sentence it is the vector of BERT's two
  symbols, or zeros by a GPT. A word without tokens has a vector of zeros.
  Texts may be lists of words if `plan.split` keeps them. `model` and `params`
  are of `TrainedModel.prepared`. `batch_tokens` is rows times length; None for
  the device's default.
  """
  if batch_tokens is not None and batch_tokens < 1:
    raise ValueError(f'--batch_tokens={batch_tokens}: expected 1 or more')
  sentence = plan.is_sentence
  *layers, _, width = layer_choice.empty(
    plan.choice, model.num_layers, model.embed_dim
  )
  token_bytes = 0 if sentence else 4 * math.prod(layers) * width
  stretch_tokens = min(
    max(HELD_BYTES // max(token_bytes, 1), FEWEST_TOKENS), MOST_TOKENS
  )
  waiting: dict[int, tuple[_Text, np.ndarray, int]] = {}

  def compute(items: list) -> Iterator[tuple[TextBatch, jax.Array]]:
    for batch, inputs in text_layers.batches(plan, items, batch_tokens):
      if sentence:
        weights_BT = np.zeros((batch.rows, batch.length), np.float32)
        for row, (number, window) in enumerate(batch.numbers):
          place, weight = plan.weights(window, len(waiting[number][0]))
          weights_BT[row, place] = weight
        inputs = *inputs, weights_BT
      options = {'family': plan.family, 'choice': plan.choice}
      yield batch, _embed(model, params, *inputs, **options)

  encoded = _encode(plan, texts)
  for stretch in length_batches.read_ahead(encoded, stretch_tokens):
    items = []
    for number, text in stretch:
      tokens = [] if sentence else [len(text)]
      array = np.zeros((*layers, *tokens, width), np.float32)
      if not text.ids and not (sentence and plan.added):
        yield number, _finished(plan, text, array)
        continue
      windows = plan.windows(len(text))
      waiting[number] = text, array, len(windows)
      items += [
        ((number, window), text.ids[window.start : window.end])
        for window in windows
      ]
    for batch, rows in length_batches.on_host(compute(items)):
      for (number, window), row in zip(batch.numbers, rows, strict=False):
        text, array, missing = waiting.pop(number)
        if sentence:
          array += row
        else:
          part = array[..., window.first : window.last, :]
          part[...] = row[..., plan.place(window), :]
        if missing > 1:
          waiting[number] = text, array, missing - 1
        else:
          yield number, _finished(plan, text, array)


def _encode(
  plan: TextPlan, texts: Iterable[str | Sequence[str]]
) -> Iterator[_Text]:
  """Yields texts as the tokenizer cuts them."""
  for part in _parts(texts):
    if plan.unit not in ('word', PIECE):
      yield from map(_Text, plan.encode(part))
      continue
    split = [plan.split(text) for text in part]
    encoded = plan.tokenizer.encode_words(split)
    for words, ids in zip(split, encoded, strict=True):
      yield _Text(sum(ids, []), words, [len(word) for word in ids])


def _parts(texts: Iterable[Sequence]) -> Iterator[list[Sequence]]:
  """Yields lists of texts to encode together."""
  part, size = [], 0
  for text in texts:
    part.append(text)
    size += len(text)
    if len(part) == ENCODED_TEXTS or size > ENCODED_CHARACTERS:
      yield part
      part, size = [], 0
  if part:
    yield part


def _finished(plan: TextPlan, text: _Text, array: np.ndarray) -> VectorFile:
  """Returns a text's vectors, pooled and scaled as requested."""
  if plan.unit == 'word':
    array = pool_words(array, text.word_lengths, plan.pool)
    return VectorFile(array, text.words, len(text))
  if plan.unit in ('token', PIECE):
    pieces = plan.tokenizer.pieces
    return VectorFile(array, [pieces[i] for i in text.ids], len(text))
  if plan.normalize:
    norms = np.linalg.norm(array, axis=-1, keepdims=True)
    array = array / np.maximum(norms, np.finfo(np.float32).tiny)
  return VectorFile(array, None, len(text))


def pool_words(
  vectors_TD: np.ndarray, lengths: Sequence[int], pool: str
) -> np.ndarray:
  """Pools tokens into words, float32 [..., words, D]; zeros for length 0."""
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


@functools.partial(jax.jit, static_argnames=('family', 'model', 'choice'))
def _embed(
  model: nn.Module,
  params: Params,
  tokens_BT: jax.Array,
  lengths_B: jax.Array,
  weights_BT: jax.Array | None = None,
  *,
  family: Architecture,
  choice: Choice,
) -> jax.Array:
  """Returns layers [B, K, T, D] or [B, T, D], or their weighted sums over T."""
  layers_LBTD = text_layers.hidden_layers(
    model, params, tokens_BT, lengths_B, family=family
  )
  states = layer_choice.choose(layers_LBTD, choice)
  if weights_BT is None:
    return states
  # A sum, not a product of matrices: an accelerator would round its factors.
  weights_BT1 = weights_BT[..., None]
  if states.ndim == 4:
    weights_BT1 = weights_BT1[:, None]
  return jnp.sum(weights_BT1 * states, axis=-2)
