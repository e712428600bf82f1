"""Self-attention with little memory for its backward pass.

Shapes: B batch, T query position, S key position, N heads, H head.

The scores [B, N, T, S] are by far the largest arrays of a training step: 113 MB
a layer of MiniLM at 16 x 384. So the backward pass computes them again, a block
of query positions at a time, from each row's log-sum of exponentials (Rabe and
Staats 2021; Dao et al. 2022), and the dropout mask too.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from models.dropout import ROWS, Seeds, is_kept, kept_share
from models.layers import LOWEST

Array = jax.Array
QUERY_BLOCK = 128  # query positions at most; fewer leave matrix units idle


def masked_softmax(scores_BNTS: Array, mask: Array) -> Array:
  """Returns the float32 softmax over unmasked keys; rows without one are 0."""
  scores_BNTS = scores_BNTS.astype(jnp.float32)
  weights_BNTS = jax.nn.softmax(jnp.where(mask, scores_BNTS, LOWEST), axis=-1)
  return jnp.where(mask, weights_BNTS, 0)


def causal_mask(length: int, slots: int, first: Array | int) -> Array:
  """Returns bool [T, S], True where position first + t may look at slot s."""
  return jnp.arange(slots) <= first + jnp.arange(length)[:, None]


def score(query_BTNH: Array, key_BSNH: Array) -> Array:
  """Returns the float32 scores [B, N, T, S] of queries with keys."""
  return jnp.einsum(
    'BTNH,BSNH->BNTS', query_BTNH, key_BSNH, preferred_element_type=jnp.float32
  )


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def attend(
  query_BTNH: Array,
  key_BSNH: Array,
  value_BSNH: Array,
  mask: Array,
  seeds: Seeds | None,
  rate: float,
) -> Array:
  """Returns values weighted by the softmax of the scores, [B, T, N, H].

  They have the dtype of the values, and are 0 in wholly masked rows. Queries
  are already scaled. `mask` is bool, broadcast to [B, N, T, S], True where T
  may look at S. `seeds` draw the dropout mask of the weights, which drops a
  share `rate`; None: no dropout.
  """
  return _attend_forward(query_BTNH, key_BSNH, value_BSNH, mask, seeds, rate)[0]


class _Rows(NamedTuple):
  """Arrays with an axis of query positions, all of them or a block."""

  query_BTNH: Array
  mask: Array  # of rank 4, its third axis T or 1
  places_T: Array
  log_sum_BNT1: Array | None = None  # of exponentials; inf: all are masked
  context_BTNH: Array | None = None
  gradient_BTNH: Array | None = None


def _attend_forward(
  query_BTNH: Array,
  key_BSNH: Array,
  value_BSNH: Array,
  mask: Array,
  seeds: Seeds | None,
  rate: float,
) -> tuple[Array, Any]:
  """Returns the contexts, and the residuals of the backward pass."""
  mask = jnp.reshape(mask, (1,) * (4 - mask.ndim) + mask.shape)

  def mix_block(sums: Any, rows: _Rows) -> Any:
    scores_BNTS = jnp.where(rows.mask, score(rows.query_BTNH, key_BSNH), LOWEST)
    highest_BNT1 = scores_BNTS.max(axis=-1, keepdims=True)
    weights_BNTS = jnp.exp(scores_BNTS - highest_BNT1)
    total_BNT1 = weights_BNTS.sum(axis=-1, keepdims=True)
    unmasked_BNT1 = highest_BNT1 > LOWEST
    weights_BNTS = _drop(weights_BNTS, rows.places_T, seeds, rate)
    context_BTNH = jnp.einsum(
      'BNTS,BSNH->BTNH',
      weights_BNTS.astype(value_BSNH.dtype),
      value_BSNH,
      preferred_element_type=jnp.float32,
    )
    # Divided after the product, which has H columns, not S.
    share_BNT1 = jnp.where(
      unmasked_BNT1, 1 / (kept_share(rate) * total_BNT1), 0
    )
    context_BTNH *= share_BNT1.swapaxes(1, 2)
    log_sum_BNT1 = jnp.where(
      unmasked_BNT1, highest_BNT1 + jnp.log(total_BNT1), jnp.inf
    )
    return sums, (context_BTNH.astype(value_BSNH.dtype), log_sum_BNT1)

  rows = _Rows(query_BTNH, mask, jnp.arange(query_BTNH.shape[1]))
  _, (context_BTNH, log_sum_BNT1) = _over_blocks(mix_block, None, rows, (1, 2))
  rows = rows._replace(log_sum_BNT1=log_sum_BNT1, context_BTNH=context_BTNH)
  return context_BTNH, (rows, key_BSNH, value_BSNH, seeds)


def _attend_backward(
  rate: float, residuals: Any, gradient_BTNH: Array
) -> tuple[Array | None, ...]:
  """Returns the gradients of queries, keys and values."""
  # The barrier keeps the compiler from storing the scores for both passes.
  residuals, gradient_BTNH = lax.optimization_barrier(
    (residuals, gradient_BTNH)
  )
  rows, key_BSNH, value_BSNH, seeds = residuals
  dtype = value_BSNH.dtype

  def add_block(sums: tuple[Array, Array], rows: _Rows) -> Any:
    scores_BNTS = score(rows.query_BTNH, key_BSNH)
    weights_BNTS = jnp.where(
      rows.mask, jnp.exp(scores_BNTS - rows.log_sum_BNT1), 0
    )
    mean_BTN1 = jnp.sum(  # sum over S of each weight times its gradient
      rows.gradient_BTNH.astype(jnp.float32) * rows.context_BTNH,
      axis=-1,
      keepdims=True,
    )
    by_weights_BNTS = score(rows.gradient_BTNH, value_BSNH)
    share = kept_share(rate)
    dropped_BNTS, by_weights_BNTS = (
      _drop(array_BNTS / share, rows.places_T, seeds, rate)
      for array_BNTS in (weights_BNTS, by_weights_BNTS)
    )
    by_scores_BNTS = weights_BNTS * (by_weights_BNTS - mean_BTN1.swapaxes(1, 2))
    by_scores_BNTS = by_scores_BNTS.astype(dtype)
    by_query_BTNH = jnp.einsum('BNTS,BSNH->BTNH', by_scores_BNTS, key_BSNH)
    parts = (
      jnp.einsum(
        'BNTS,BTNH->BSNH',
        by_scores_BNTS,
        rows.query_BTNH,
        preferred_element_type=jnp.float32,
      ),
      jnp.einsum(
        'BNTS,BTNH->BSNH',
        dropped_BNTS.astype(dtype),
        rows.gradient_BTNH,
        preferred_element_type=jnp.float32,
      ),
    )
    return jax.tree.map(jnp.add, sums, parts), (by_query_BTNH,)

  zeros_BSNH = jnp.zeros(key_BSNH.shape, jnp.float32)
  (by_key_BSNH, by_value_BSNH), (by_query_BTNH,) = _over_blocks(
    add_block,
    (zeros_BSNH, zeros_BSNH),
    rows._replace(gradient_BTNH=gradient_BTNH),
    (1,),
  )
  return (
    by_query_BTNH,
    by_key_BSNH.astype(dtype),
    by_value_BSNH.astype(dtype),
    None,
    None,
  )


def _drop(
  array_BNTS: Array, places_T: Array, seeds: Seeds | None, rate: float
) -> Array:
  """Returns an array with zeros where dropout drops, at query positions."""
  if seeds is None:
    return array_BNTS
  _, heads, _, width = array_BNTS.shape
  rows_NT1 = places_T[:, None] + ROWS * jnp.arange(heads)[:, None, None]
  keep_BNTS = is_kept(
    seeds.replace(first=seeds.first[:, None], second=seeds.second[:, None]),
    rows_NT1,
    jnp.arange(width),
    rate,
  )
  return jnp.where(keep_BNTS, array_BNTS, 0)


attend.defvjp(_attend_forward, _attend_backward)


def _over_blocks(
  function: Any, sums: Any, rows: _Rows, out_axes: tuple[int, ...]
) -> Any:
  """Scans blocks; returns the sums, and the arrays joined at `out_axes`."""
  length = rows.query_BTNH.shape[1]
  sizes = [n for n in range(1, QUERY_BLOCK + 1) if length % n == 0]
  num_blocks = length // sizes[-1]
  # Where only small blocks divide the length, one block is faster.
  if sizes[-1] < QUERY_BLOCK / 4 or num_blocks == 1:
    return function(sums, rows)
  axes = _Rows(1, 2, 0, 2, 1, 1)
  divided = {}
  for name, array in rows._asdict().items():
    axis = getattr(axes, name)
    if array is not None and array.shape[axis] == length:
      shape = array.shape
      shape = (*shape[:axis], num_blocks, sizes[-1], *shape[axis + 1 :])
      divided[name] = jnp.moveaxis(array.reshape(shape), axis, 0)

  def step(sums: Any, parts: dict[str, Array]) -> Any:
    return function(sums, rows._replace(**parts))

  sums, arrays = lax.scan(step, sums, divided)
  joined = []
  for array, axis in zip(arrays, out_axes, strict=True):
    array = jnp.moveaxis(array, 0, axis)
    shape = (*array.shape[:axis], length, *array.shape[axis + 2 :])
    joined.append(array.reshape(shape))
  return sums, tuple(joined)
