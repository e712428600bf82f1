"""Self-attention with little memory for its backward pass.

Shapes: B batch, T query position, S key position, D embed, N heads, H head, Q
query, key and value, Z rows times heads.

The scores [B, N, T, S] are by far the largest arrays of a training step: 113 MB
a layer of MiniLM at 16 x 384. So the backward pass computes them again, a block
of query positions at a time, from each row's log-sum of exponentials (Rabe and
Staats 2021; Dao et al. 2022). Only the dropout mask is saved whole.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models.layers import (
  Dropout,
  Dtype,
  Initializer,
  Linear,
  kept_share,
  truncated_normal,
)

Array = jax.Array
# Cached keys [Z, H, S] and values [Z, S, H]. Z is B x N in one axis: with two,
# XLA's CPU compiler copies them at every step for a batch of 1 (jax 0.10).
KeyValue = tuple[Array, Array]
Past = tuple[Array, Array, Array]  # keys, values, and the first slot to write

QUERY_BLOCK = 128  # query positions at most; fewer leave matrix units idle

LOWEST = jnp.finfo(jnp.float32).min  # finite: a masked row gives no NaN


def masked_softmax(scores_BNTS: Array, mask: Array) -> Array:
  """Returns the float32 softmax over unmasked keys; rows without one are 0."""
  scores_BNTS = scores_BNTS.astype(jnp.float32)
  weights_BNTS = jax.nn.softmax(jnp.where(mask, scores_BNTS, LOWEST), axis=-1)
  return jnp.where(mask, weights_BNTS, 0)


def causal_mask(length: int, slots: int, first: Array | int) -> Array:
  """Returns bool [T, S], True where position first + t may look at slot s."""
  return jnp.arange(slots) <= first + jnp.arange(length)[:, None]


# ---- Without a past --------------------------------------------------------


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
  keep_BNTS: Array | None,
  share_kept: float,
) -> Array:
  """Returns values weighted by the softmax of the scores, [B, T, N, H].

  They have the dtype of the values, and are 0 in wholly masked rows. Queries
  are already scaled. `mask` is bool, broadcast to [B, N, T, S], True where T
  may look at S. `keep_BNTS` is the dropout mask of the weights, which are
  divided by `share_kept`; None: no dropout.
  """
  return _attend_forward(
    query_BTNH, key_BSNH, value_BSNH, mask, keep_BNTS, share_kept
  )[0]


class _Rows(NamedTuple):
  """Arrays with an axis of query positions, all of them or a block."""

  query_BTNH: Array
  mask: Array  # of rank 4, its third axis T or 1
  keep_BNTS: Array | None
  log_sum_BNT1: Array | None = None  # of exponentials; inf: all are masked
  context_BTNH: Array | None = None
  gradient_BTNH: Array | None = None


def _attend_forward(
  query_BTNH: Array,
  key_BSNH: Array,
  value_BSNH: Array,
  mask: Array,
  keep_BNTS: Array | None,
  share_kept: float,
) -> tuple[Array, Any]:
  """Returns the contexts, and the residuals of the backward pass."""
  mask = jnp.reshape(mask, (1,) * (4 - mask.ndim) + mask.shape)

  def mix_block(sums: Any, rows: _Rows) -> Any:
    scores_BNTS = jnp.where(rows.mask, score(rows.query_BTNH, key_BSNH), LOWEST)
    highest_BNT1 = scores_BNTS.max(axis=-1, keepdims=True)
    weights_BNTS = jnp.exp(scores_BNTS - highest_BNT1)
    total_BNT1 = weights_BNTS.sum(axis=-1, keepdims=True)
    unmasked_BNT1 = highest_BNT1 > LOWEST
    if rows.keep_BNTS is not None:
      weights_BNTS = jnp.where(rows.keep_BNTS, weights_BNTS, 0)
    context_BTNH = jnp.einsum(
      'BNTS,BSNH->BTNH',
      weights_BNTS.astype(value_BSNH.dtype),
      value_BSNH,
      preferred_element_type=jnp.float32,
    )
    # Divided after the product, which has H columns, not S.
    share_BNT1 = jnp.where(unmasked_BNT1, 1 / (share_kept * total_BNT1), 0)
    context_BTNH *= share_BNT1.swapaxes(1, 2)
    log_sum_BNT1 = jnp.where(
      unmasked_BNT1, highest_BNT1 + jnp.log(total_BNT1), jnp.inf
    )
    return sums, (context_BTNH.astype(value_BSNH.dtype), log_sum_BNT1)

  rows = _Rows(query_BTNH, mask, keep_BNTS)
  _, (context_BTNH, log_sum_BNT1) = _over_blocks(mix_block, None, rows, (1, 2))
  rows = rows._replace(log_sum_BNT1=log_sum_BNT1, context_BTNH=context_BTNH)
  return context_BTNH, (rows, key_BSNH, value_BSNH)


def _attend_backward(
  share_kept: float, residuals: Any, gradient_BTNH: Array
) -> tuple[Array | None, ...]:
  """Returns the gradients of queries, keys and values."""
  # The barrier keeps the compiler from storing the scores for both passes.
  (rows, key_BSNH, value_BSNH), gradient_BTNH = lax.optimization_barrier(
    (residuals, gradient_BTNH)
  )
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
    dropped_BNTS = weights_BNTS
    if rows.keep_BNTS is not None:
      dropped_BNTS = jnp.where(rows.keep_BNTS, weights_BNTS / share_kept, 0)
      by_weights_BNTS = jnp.where(
        rows.keep_BNTS, by_weights_BNTS / share_kept, 0
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
  axes = _Rows(1, 2, 2, 2, 1, 1)
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


# ---- With a past: decoding, which has no backward pass ---------------------


def write_past(past: Past, key_BTNH: Array, value_BTNH: Array) -> KeyValue:
  """Returns the past's keys and values with T more slots written."""
  key_ZHS, value_ZSH, start = past
  B, T, N, H = key_BTNH.shape
  key_ZHT = key_BTNH.transpose(0, 2, 3, 1).reshape(B * N, H, T)
  value_ZTH = value_BTNH.swapaxes(1, 2).reshape(B * N, T, H)
  return (
    lax.dynamic_update_slice_in_dim(key_ZHS, key_ZHT, start, axis=2),
    lax.dynamic_update_slice_in_dim(value_ZSH, value_ZTH, start, axis=1),
  )


def score_past(query_BTNH: Array, key_ZHS: Array) -> Array:
  """Returns the float32 scores [B, N, T, S] of queries with cached keys."""
  B, T, N, H = query_BTNH.shape
  query_ZTH = query_BTNH.swapaxes(1, 2).reshape(B * N, T, H)
  scores_ZTS = jnp.einsum(
    'ZTH,ZHS->ZTS', query_ZTH, key_ZHS, preferred_element_type=jnp.float32
  )
  return scores_ZTS.reshape(B, N, T, -1)


def mix_past(weights_BNTS: Array, value_ZSH: Array) -> Array:
  """Returns the contexts [B, T, N, H] of cached values."""
  B, N, T, S = weights_BNTS.shape
  weights_ZTS = weights_BNTS.reshape(B * N, T, S)
  context_ZTH = jnp.einsum('ZTS,ZSH->ZTH', weights_ZTS, value_ZSH)
  return context_ZTH.reshape(B, N, T, -1).swapaxes(1, 2)


class SelfAttention(nn.Module):
  """Multi-head self-attention (Vaswani et al. 2017, section 3.2).

  `dropout_rate` is of the attention probabilities. `kernel_init` draws the
  projection to query, key and value, `out_init` the output projection.
  """

  num_heads: int
  dropout_rate: float = 0.0
  kernel_init: Initializer = truncated_normal
  out_init: Initializer = truncated_normal
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: Array, past: Past | None = None
  ) -> tuple[Array, KeyValue | None]:
    """Mixes positions; sows the probabilities as 'attention' [B, N, T, S].

    `mask` is bool, broadcast to [B, N, T, S], True where T may look at S. The S
    slots are `x_BTD` itself, or a `past` with its keys and values written into
    it (without dropout). Returns [B, T, D] in `dtype`, and the written past.
    """
    D = x_BTD.shape[-1]
    H = D // self.num_heads
    qkv_BTQNH = Linear(
      features=(3, self.num_heads, H),
      in_names=('embed',),
      out_names=('qkv', 'heads', 'head'),
      kernel_init=self.kernel_init,
      dtype=self.dtype,
      name='qkv',
    )(x_BTD)
    qkv_BTQNH = nn.with_logical_constraint(
      qkv_BTQNH,
      (
        'batch',
        'activation_length',
        'activation_qkv',
        'activation_heads',
        'activation_head',
      ),
    )
    query_BTNH, key_BSNH, value_BSNH = (qkv_BTQNH[:, :, i] for i in range(3))
    query_BTNH = query_BTNH * jnp.asarray(H**-0.5, self.dtype)
    present = None
    if past is not None:
      present = write_past(past, key_BSNH, value_BSNH)
      weights_BNTS = masked_softmax(score_past(query_BTNH, present[0]), mask)
      self.sow('intermediates', 'attention', weights_BNTS)
      context_BTNH = mix_past(weights_BNTS.astype(self.dtype), present[1])
    else:
      if self.is_mutable_collection('intermediates'):  # else never computed
        weights_BNTS = masked_softmax(score(query_BTNH, key_BSNH), mask)
        self.sow('intermediates', 'attention', weights_BNTS)
      B, T, N, _ = query_BTNH.shape
      dropout = Dropout(self.dropout_rate)
      context_BTNH = attend(
        query_BTNH,
        key_BSNH,
        value_BSNH,
        mask,
        dropout.draw((B, N, T, T)),
        kept_share(self.dropout_rate),
      )
    context_BTNH = nn.with_logical_constraint(
      context_BTNH,
      ('batch', 'activation_length', 'activation_heads', 'activation_head'),
    )
    x_BTD = Linear(
      features=(D,),
      in_names=('heads', 'head'),
      out_names=('embed',),
      kernel_init=self.out_init,
      dtype=self.dtype,
      name='out',
    )(context_BTNH)
    return x_BTD, present
