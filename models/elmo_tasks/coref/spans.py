"""Candidate spans of documents: numbering, pruning, distances.

Shapes: B document, T word, W width, N candidate, K kept span. A candidate's
number is (first word) W + (its number of words - 1), so candidates are in the
order of their first, then of their last word. Source: kentonl/e2e-coref,
coref_kernels.cc and coref_model.py.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from models import layers

Array = jax.Array

NUM_DISTANCES = 10  # 0, 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64 and more


def bucket(distances: Array | np.ndarray) -> Array | np.ndarray:
  """Returns the bins of distances >= 0: int32 in 0..NUM_DISTANCES - 1."""
  edges = np.array([1, 2, 3, 4, 5, 8, 16, 32, 64])
  return (distances[..., None] >= edges).sum(axis=-1, dtype=np.int32)


def windows(x: Array, width: int) -> Array:
  """Returns [..., T, W, F], x [..., T, F] at each place and the places after.

  It is 0 beyond the end.
  """
  T = x.shape[-2]
  padded = jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, width - 1), (0, 0)])
  return jnp.stack([padded[..., v : v + T, :] for v in range(width)], axis=-2)


def candidates(sentences_BT: Array, width: int) -> Array:
  """Returns bool [B, N]: whether the span lies inside of a sentence.

  `sentences_BT` are int32, the number of each word's sentence, -1 at padding.
  """
  # Behind the end is 0, as at padding.
  numbers_BT = sentences_BT + 1
  last_BTW = windows(numbers_BT[..., None], width)[..., 0]
  is_inside_BTW = (last_BTW == numbers_BT[..., None]) & (last_BTW > 0)
  return is_inside_BTW.reshape(len(sentences_BT), -1)


def max_kept(T: int, width: int, kept_per_word: float) -> int:
  """Returns K, the most spans that a document of T words keeps, at least 1."""
  possible = sum(min(width, T - t) for t in range(T))
  return max(1, min(math.floor(kept_per_word * T), possible))


def num_kept(mask_BT: Array, kept_per_word: float) -> Array:
  """Returns int32 [B], how many spans each document may keep."""
  # Floors in float64, as Python's: float32 would lose spans at some lengths.
  floors = np.floor(kept_per_word * np.arange(mask_BT.shape[1] + 1))
  return jnp.asarray(floors.astype('i4'))[mask_BT.sum(axis=1)]


def prune(
  scores_BN: Array,
  valid_BN: Array,
  limit_B: Array,
  K: int,
  width: int,
  *,
  may_cross: bool,
) -> Array:
  """Returns the numbers of the spans to keep, int32 [B, K] in their order.

  Spans are taken by falling score, of equal ones the first, until `limit_B` are
  kept. Without `may_cross` a span is passed over that overlaps with one kept
  before without one being inside of the other. N stands at padding, at the end.
  """
  B, N = scores_BN.shape
  order_BN = jnp.argsort(
    jnp.where(valid_BN, -scores_BN, jnp.inf), axis=1, stable=True
  ).astype(jnp.int32)
  limit_B = jnp.minimum(limit_B, K)
  num_valid_B = valid_BN.sum(axis=1)
  if may_cross:
    limit_B1 = jnp.minimum(limit_B, num_valid_B)[:, None]
    kept_BK = jnp.where(jnp.arange(K) < limit_B1, order_BN[:, :K], N)
  else:
    # A document after the other: side by side, the loops would copy all states
    # at each step.
    kept_BK = lax.map(
      lambda inputs: _keep(*inputs, K, width), (order_BN, num_valid_B, limit_B)
    )
  return jnp.sort(kept_BK, axis=1)


def _keep(
  order_N: Array, num_valid: Array, limit: Array, K: int, W: int
) -> Array:
  """Returns the kept spans of one document in the order taken, [K]."""
  N = len(order_N)
  offsets_W = jnp.arange(W)

  def goes_on(state: tuple) -> Array:
    i, count, *_ = state
    return (i < num_valid) & (count < limit)

  def step(state: tuple) -> tuple:
    i, count, kept_K, last_end_T, first_start_T = state
    span = order_N[i]
    start, longer = span // W, span % W
    end = start + longer
    # Of the kept spans that begin at a word the longest, and that end there.
    last_W = lax.dynamic_slice(last_end_T, (start,), (W,))
    first_W = lax.dynamic_slice(first_start_T, (start,), (W,))
    begins_inside_W = (offsets_W > 0) & (offsets_W <= longer) & (last_W > end)
    ends_inside_W = (offsets_W < longer) & (first_W < start)
    is_free = ~(begins_inside_W | ends_inside_W).any()
    kept_K = kept_K.at[count].set(jnp.where(is_free, span, N))
    last_end_T = last_end_T.at[start].max(jnp.where(is_free, end, -1))
    first_start_T = first_start_T.at[end].min(jnp.where(is_free, start, N))
    return i + 1, count + is_free, kept_K, last_end_T, first_start_T

  places = N // W + W
  state = (
    jnp.int32(0),
    jnp.int32(0),
    jnp.full(K, N, jnp.int32),
    jnp.full(places, -1, jnp.int32),
    jnp.full(places, N, jnp.int32),
  )
  with layers.at_most(N):
    return lax.while_loop(goes_on, step, state)[2]
