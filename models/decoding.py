"""Text generation with a left-to-right model: sampling and decoding loop.

Shapes: B batch, T position, V vocabulary, padded to a multiple of 128.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from models import gpt

Array = jax.Array

# Sizes of prompts (powers of two) and caches, for few compiled programs.
SHORTEST_PROMPT = 16
SLOT_MULTIPLE = 64
NO_TOKEN = -1  # after the end of a row
LEAST_TEMPERATURE = 1e-6  # float32 logits may overflow below


@dataclasses.dataclass(frozen=True)
class Sampling:
  """How to draw a token; the filters apply in the order of the attributes.

  Attributes:
    temperature: divides the logits; 0 takes the likeliest token.
    top_k: draw among the k likeliest tokens; 0: among all.
    top_p: draw among the fewest tokens whose probabilities sum to this share
      (Holtzman et al. 2019, section 3.1).
  """

  temperature: float = 1.0
  top_k: int = 0
  top_p: float = 1.0

  def __post_init__(self):
    """Checks that the values are in range."""
    for name, ok, expected in (
      (
        'temperature',
        self.temperature == 0 or self.temperature >= LEAST_TEMPERATURE,
        f'0 (greedy) or at least {LEAST_TEMPERATURE:g}',
      ),
      ('top_k', self.top_k >= 0, 'a count, or 0 for all'),
      ('top_p', 0 < self.top_p <= 1, 'a share in (0, 1]'),
    ):
      if not ok:
        raise ValueError(
          f'{name} is {getattr(self, name)}, expected {expected}'
        )


GREEDY = Sampling(temperature=0.0)


def filter_logits(
  logits_BV: Array, sampling: Sampling, vocab_size: int
) -> Array:
  """Returns float32 logits [B, V] to draw from, -inf at excluded tokens.

  Ties with the last token kept are kept too. The temperature must be above 0.
  """
  real_V = jnp.arange(logits_BV.shape[-1]) < vocab_size
  logits_BV = logits_BV.astype(jnp.float32) / sampling.temperature
  logits_BV = jnp.where(real_V, logits_BV, -jnp.inf)
  likeliest = None
  if 0 < sampling.top_k < vocab_size:
    likeliest, _ = lax.top_k(logits_BV, sampling.top_k)
    logits_BV = _keep_from(logits_BV, likeliest[:, -1:])
  if sampling.top_p < 1:
    if likeliest is None:
      likeliest = jnp.sort(logits_BV, axis=-1, descending=True)
    probabilities = jax.nn.softmax(likeliest, axis=-1)
    # Exclusive sums: the token that reaches the share is the last one kept.
    before = jnp.cumsum(probabilities, axis=-1) - probabilities
    kept = (before < sampling.top_p).sum(axis=-1, keepdims=True)
    kept = jnp.maximum(kept, 1)  # where the share is 0 in float32
    logits_BV = _keep_from(
      logits_BV, jnp.take_along_axis(likeliest, kept - 1, axis=-1)
    )
  return logits_BV


def _keep_from(logits_BV: Array, lowest_B1: Array) -> Array:
  return jnp.where(logits_BV >= lowest_B1, logits_BV, -jnp.inf)


def sample(
  logits_BV: Array, rngs_B: Array, sampling: Sampling, vocab_size: int
) -> Array:
  """Draws int32 [B], one token a row, each row with its own key."""
  if sampling.temperature == 0:
    return jnp.argmax(logits_BV[:, :vocab_size], axis=-1).astype(jnp.int32)
  filtered_BV = filter_logits(logits_BV, sampling, vocab_size)
  tokens_B = jax.vmap(jax.random.categorical)(rngs_B, filtered_BV)
  return tokens_B.astype(jnp.int32)


class _Loop(NamedTuple):
  """The decoding state: the next token to read of each row, and the cache."""

  tokens_B: Array
  positions_B: Array
  done_B: Array
  cache: gpt.Cache


@functools.partial(jax.jit, static_argnames=('model', 'slots'))
def _prefill(
  model: gpt.Gpt, params: dict, tokens_BT: Array, counts_B: Array, slots: int
) -> gpt.Cache:
  """Returns the cache of the first counts_B tokens of each row."""
  B, T = tokens_BT.shape
  positions_BT = jnp.broadcast_to(jnp.arange(T), (B, T))
  outputs = model.apply(
    {'params': params},
    tokens_BT,
    positions_BT < counts_B[:, None],
    positions_BT,
    train=False,
    cache=gpt.empty_cache(model, B, slots),
  )
  return outputs['cache']  # the compiler leaves out the unused logits


@functools.partial(
  jax.jit,
  static_argnames=('model', 'sampling', 'width'),
  donate_argnames='loop',
)
def _emit(
  model: gpt.Gpt,
  params: dict,
  loop: _Loop,
  rngs_B: Array,
  stop_ids: Array,
  num_steps: Array,
  sampling: Sampling,
  width: int,
) -> tuple[Array, _Loop]:
  """Returns up to num_steps new tokens a row in [B, width], and the state."""

  def body(carry: tuple) -> tuple:
    i, emitted_BT, loop = carry
    outputs = model.apply(
      {'params': params},
      loop.tokens_B[:, None],
      ~loop.done_B[:, None],
      loop.positions_B[:, None],
      train=False,
      cache=loop.cache,
    )
    positions_B = loop.positions_B + 1
    # Keys by position: the size of chunks does not change the draws.
    step_rngs_B = jax.vmap(jax.random.fold_in)(rngs_B, positions_B)
    tokens_B = sample(
      outputs['lm_logits'][:, 0], step_rngs_B, sampling, model.vocab_size
    )
    shown_B = jnp.where(loop.done_B, NO_TOKEN, tokens_B)
    emitted_BT = lax.dynamic_update_slice_in_dim(
      emitted_BT, shown_B[:, None], i, axis=1
    )
    done_B = loop.done_B | jnp.isin(tokens_B, stop_ids)
    loop = _Loop(tokens_B, positions_B, done_B, outputs['cache'])
    return i + 1, emitted_BT, loop

  def unfinished(carry: tuple) -> Array:
    i, _, loop = carry
    return (i < num_steps) & ~loop.done_B.all()

  nothing_BT = jnp.full((loop.tokens_B.shape[0], width), NO_TOKEN, jnp.int32)
  _, emitted_BT, loop = lax.while_loop(unfinished, body, (0, nothing_BT, loop))
  return emitted_BT, loop


def generate(
  model: gpt.Gpt,
  params: dict,
  tokens: np.ndarray,
  lengths: np.ndarray,
  *,
  max_new_tokens: int,
  rngs: Array,
  sampling: Sampling = GREEDY,
  stop_ids: Sequence[int] = (),
  chunk: int = 16,
) -> Iterator[np.ndarray]:
  """Yields new tokens of prompts, int32 [B, at most chunk], computed on demand.

  A row has NO_TOKEN after its end, and does not depend on other rows. Compiled
  once for each model, batch size, sampling, number of stop ids, chunk, and
  power of two above the longest prompt.

  Args:
    model: `prepare_decoding` beforehand saves a copy of the parameters here.
    params: unboxed.
    tokens: int [B, T], prompts followed by padding.
    lengths: int [B], tokens of each prompt, at least 1.
    max_new_tokens: of each row; prompt and new tokens may be `max_length` + 1,
      because the last token is not read.
    rngs: [B] keys, one a row.
    sampling: how to draw tokens.
    stop_ids: a row ends after the first of these tokens.
    chunk: most tokens of a row at a time.
  """
  tokens, lengths = np.asarray(tokens), np.asarray(lengths)
  B, T = tokens.shape
  if lengths.shape != (B,) or rngs.shape != (B,):
    raise ValueError(
      f'{B} prompts, but lengths of shape {lengths.shape} and keys of shape '
      f'{rngs.shape}: expected one of each a prompt'
    )
  if B == 0 or lengths.min() < 1 or lengths.max() > T:
    raise ValueError(
      f'prompt lengths are {lengths.tolist()}, expected 1 to {T} tokens: begin '
      'an empty text with the token that separates texts'
    )
  longest = int(lengths.max())
  if longest + max_new_tokens > model.max_length + 1:
    raise ValueError(
      f'a prompt of {longest} tokens and {max_new_tokens} new ones do not fit '
      f'in the {model.max_length} positions of the model: shorten one of them'
    )
  model, params = gpt.prepare_decoding(model, params)
  # The loop reads the last token of each prompt, and alone computes logits.
  width = longest - 1
  if width:
    width = max(SHORTEST_PROMPT, 1 << (width - 1).bit_length())
    width = min(width, model.max_length)
  slots = -(-(width + max_new_tokens) // SLOT_MULTIPLE) * SLOT_MULTIPLE

  def emit() -> Iterator[np.ndarray]:
    if width:
      prompts = np.zeros((B, width), np.int32)
      given = tokens[:, :width]
      prompts[:, : given.shape[1]] = given
      cache = _prefill(model, params, prompts, lengths - 1, slots)
    else:
      cache = gpt.empty_cache(model, B, slots)
    loop = _Loop(
      tokens_B=jnp.asarray(tokens[np.arange(B), lengths - 1], jnp.int32),
      positions_B=jnp.asarray(lengths - 1, jnp.int32),
      done_B=jnp.zeros(B, bool),
      cache=cache,
    )
    stops, left = jnp.asarray(stop_ids, jnp.int32), max_new_tokens
    while left > 0 and not np.asarray(loop.done_B).all():
      steps = min(chunk, left)
      emitted, loop = _emit(
        model, params, loop, rngs, stops, steps, sampling, chunk
      )
      left -= steps
      emitted = np.asarray(emitted)[:, :steps]
      written = (emitted != NO_TOKEN).any(axis=0).sum()
      yield emitted[:, :written]

  return emit()  # the checks are made before the first chunk is asked for
