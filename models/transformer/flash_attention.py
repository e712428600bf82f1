"""Self-attention in GPU kernels, whose scores never leave the chip.

A program of a kernel works on a block of positions of one head of one row
(Dao 2024, FlashAttention-2): forward it walks over blocks of keys; backward it
first sums the gradients of its block of keys and values over all queries, then
those of its block of queries over all keys. No two programs write to one place,
so the results are the same to the bit in every run. Dropout draws the masks of
plain attention, by place.

Shapes: B rows, T query position, S key position, N heads, H head, Q = 3, for
query, key and value.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.sharding import PartitionSpec

from models import dropout, layers
from models.transformer import fused_attention
from models.transformer.fused_attention import head_parts

Array = jax.Array

# Positions of a program and of each step of its walk: the longest, or all of a
# shorter row. Matrix units multiply 16 or more.
BLOCK = 64
BLOCKS = (16, 32, BLOCK)
OLDEST = 8.0  # compute capability: Ampere, from 2020
HEADS = (16, 32, 64, 128)  # widths of a head that registers hold
DTYPES = (jnp.bfloat16, jnp.float16)
LOWEST = float(layers.LOWEST)
NEEDS = (
  f'bfloat16 or float16, sequences of {BLOCKS} tokens or a multiple of {BLOCK},'
  f' heads of {HEADS}, and a GPU of compute capability {OLDEST} or newer'
)


def suits(length: int, num_heads: int, head: int, dtype: layers.Dtype) -> bool:
  """Returns whether the kernels take these sizes, on the GPU in use."""
  return (
    _is_new()
    and jnp.dtype(dtype) in [jnp.dtype(each) for each in DTYPES]
    and head in HEADS
    and num_heads % head_parts() == 0
    and _block(length) in BLOCKS
    and length % _block(length) == 0
  )


def _is_new() -> bool:
  """Returns whether the GPU multiplies bfloat16: compute capability 8 or up.

  A step that is compiled without a GPU is compiled for one that does.
  """
  if jax.default_backend() != 'gpu':
    return True
  capability = getattr(jax.local_devices()[0], 'compute_capability', '0')
  return float(capability) >= OLDEST


def _block(length: int) -> int:
  return min(BLOCK, length)


class Fields(NamedTuple):
  """What a kernel is compiled for.

  Attributes:
    causal: a position looks at those before it and itself.
    rate: of dropout of the weights.
    packed: a position looks at those of its own text alone.
    window: how many positions on each side one of a local layer sees; 0: no
      layer is local.
  """

  causal: bool
  rate: float
  packed: bool = False
  window: int = 0


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(
  fields: Fields,
  qkv_BTQNH: Array,
  mask_BS: Array,
  seeds: dropout.Seeds | None,
  is_local: Array | bool = False,
) -> Array:
  """Returns values weighted by the softmax of the scores, [B, T, N, H].

  They are 0 in rows whose keys are all masked. `mask_BS` is 1 or True at keys
  that may be looked at, in packed rows the number of each position's text, 0 at
  padding; `seeds` are of the first head's dropout mask, None at rate 0;
  `is_local` tells whether the layer is, with a window.
  """
  return _attend_forward(fields, qkv_BTQNH, mask_BS, seeds, is_local)[0]


def _attend_forward(
  fields: Fields,
  qkv_BTQNH: Array,
  mask_BS: Array,
  seeds: dropout.Seeds | None,
  is_local: Array | bool,
) -> tuple[Array, tuple]:
  """Returns the contexts, and what the backward pass keeps."""
  numbers_B4 = _join(fields, seeds, is_local, mask_BS.shape)
  mask_BS = mask_BS.astype(jnp.int32)
  context_BTNH, log_sum_BNT = _over_devices(
    functools.partial(_forward, fields),
    (numbers_B4, mask_BS, qkv_BTQNH),
    ('BTNH', 'BNT'),
  )
  saved = numbers_B4, mask_BS, qkv_BTQNH, context_BTNH, log_sum_BNT
  return context_BTNH, saved


def _attend_backward(
  fields: Fields, saved: tuple, gradient_BTNH: Array
) -> tuple[Array | None, ...]:
  """Returns the gradient of queries, keys and values in one array."""
  by_qkv_BTQNH, *_ = _over_devices(
    functools.partial(_backward, fields), (*saved, gradient_BTNH), ('BTQNH',)
  )
  return by_qkv_BTQNH, None, None, None


attend.defvjp(_attend_forward, _attend_backward)


def _join(
  fields: Fields,
  seeds: dropout.Seeds | None,
  is_local: Array | bool,
  shape: tuple[int, int],
) -> Array:
  """Returns a row's numbers, int32 [B, 4]; the columns are `_Row`'s fields."""
  rows, length = shape
  numbers = [jnp.zeros(rows, jnp.int32)] * 3
  if seeds is not None:
    salt = dropout.salt(seeds.mask * dropout.ROWS)
    numbers = [
      seeds.first ^ seeds.layer,
      seeds.second + seeds.layer,
      jnp.full(rows, salt, jnp.int32),
    ]
  reach = jnp.where(is_local, fields.window, length) if fields.window else 0
  return jnp.stack([*numbers, jnp.full(rows, reach, jnp.int32)], axis=1)


def _over_devices(run: Any, arrays: tuple, results: tuple[str, ...]) -> Any:
  """Runs a function on each device's rows and heads, (numbers, mask, ...)."""
  batch, heads, parts = fused_attention.axes()
  if batch is None and heads is None:
    return run(*arrays)
  num_heads = arrays[2].shape[3] // parts

  def local(numbers_B4: Array, *arrays: Array) -> Any:
    if heads is not None:
      first = lax.axis_index(heads) * num_heads
      salt = dropout.salt(first * dropout.ROWS).astype(jnp.int32)
      numbers_B4 = numbers_B4.at[:, 2].add(salt)
    return run(numbers_B4, *arrays)

  def places(axes: str) -> PartitionSpec:
    names = {'B': batch, 'N': heads}
    return PartitionSpec(*(names.get(axis) for axis in axes))

  kinds = ('B4', 'BS', 'BTQNH', 'BTNH', 'BNT', 'BTNH')[: len(arrays)]
  return jax.shard_map(
    local,
    in_specs=tuple(map(places, kinds)),
    out_specs=tuple(map(places, results)),
    check_vma=False,
  )(*arrays)


class _Row(NamedTuple):
  """Numbers of a row, int32 scalars.

  Attributes:
    first: dropout's first seed, with the layer's salt.
    second: its second seed, likewise.
    salt: of the mask, inside of a program of its head's.
    reach: the largest distance of a position that one sees.
  """

  first: Array
  second: Array
  salt: Array
  reach: Array


def _read(numbers: Any) -> _Row:
  """Returns a row's numbers, [4], in a program of a head."""
  head = pl.program_id(1)  # not known in a loop, if interpreted
  first, second, salt, reach = (numbers[i] for i in range(4))
  return _Row(first, second, salt + dropout.salt(head * dropout.ROWS), reach)


def _keep(row: _Row, places_T: Array, slots_S: Array, rate: float) -> Array:
  """Returns the dropout mask [T, S] of a head's weights."""
  rows_T1 = dropout.salt(places_T)[:, None]
  counter_TS = rows_T1 + slots_S[None] + row.salt
  hashed = dropout.mix(counter_TS, row.first, row.second)
  return hashed >= jnp.int32(dropout.threshold(rate) - 2**31)


def _dot(a: Array, b: Array) -> Array:
  return plgpu.dot(a, b).astype(jnp.float32)


class _Tile(NamedTuple):
  """The pairs of a block of queries and a block of keys.

  Attributes:
    allowed: bool [T, S], True where a query may look at a key.
    keep: the dropout mask, likewise; None without dropout.
  """

  allowed: Array
  keep: Array | None


def _pair(
  fields: Fields,
  row: _Row,
  masks: tuple[Array, Array],
  places_T: Array,
  slots_S: Array,
) -> _Tile:
  mask_T, mask_S = masks
  allowed_TS = (mask_S != 0)[None, :]
  if fields.packed:
    allowed_TS = allowed_TS & (mask_T[:, None] == mask_S[None, :])
  if fields.causal:
    allowed_TS = allowed_TS & (slots_S[None, :] <= places_T[:, None])
  if fields.window:
    distance_TS = jnp.abs(slots_S[None, :] - places_T[:, None])
    allowed_TS = allowed_TS & (distance_TS <= row.reach)
  keep_TS = None
  if fields.rate:
    keep_TS = _keep(row, places_T, slots_S, fields.rate)
  return _Tile(allowed_TS, keep_TS)


def _near(
  fields: Fields, row: _Row, number: Array, block: int, length: int
) -> tuple[Array | int, Array | int]:
  """Returns first and end of the blocks within the reach of block `number`."""
  first, end = 0, length // block
  if fields.window:
    first = jnp.maximum(number * block - row.reach, 0) // block
    last = (number * block + block - 1 + row.reach) // block
    end = jnp.minimum(last + 1, end)
  return first, end


def _scaled(query: Array) -> Array:
  """Returns queries over the root of their width, in their own dtype."""
  return query * jnp.asarray(query.shape[-1] ** -0.5, query.dtype)


def _forward_kernel(
  numbers, mask, query, key, value, out, log_sum, *, fields, block
):
  number, length = pl.program_id(0), mask.shape[0]
  row = _read(numbers)
  query_TH = _scaled(query[...])
  places_T = number * block + jnp.arange(block)
  mask_T = mask[pl.ds(number * block, block)]

  def step(i, sums):
    context_TH, highest_T, total_T = sums
    at = pl.ds(i * block, block)
    slots_S = i * block + jnp.arange(block)
    pair = _pair(fields, row, (mask_T, mask[at]), places_T, slots_S)
    scores_TS = jnp.where(pair.allowed, _dot(query_TH, key[at, :].T), LOWEST)
    higher_T = jnp.maximum(highest_T, scores_TS.max(axis=1))
    weights_TS = jnp.exp(scores_TS - higher_T[:, None])
    shrunk_T = jnp.exp(highest_T - higher_T)
    total_T = total_T * shrunk_T + weights_TS.sum(axis=1)
    if pair.keep is not None:
      weights_TS = jnp.where(pair.keep, weights_TS, 0)
    value_SH = value[at, :]
    context_TH = context_TH * shrunk_T[:, None]
    context_TH += _dot(weights_TS.astype(value_SH.dtype), value_SH)
    return context_TH, higher_T, total_T

  first, end = _near(fields, row, number, block, length)
  context_TH, highest_T, total_T = lax.fori_loop(
    first,
    number + 1 if fields.causal else end,
    step,
    (
      jnp.zeros(query_TH.shape, jnp.float32),
      jnp.full((block,), LOWEST, jnp.float32),
      jnp.zeros((block,), jnp.float32),
    ),
  )
  unmasked_T = highest_T > LOWEST
  share_T = jnp.where(
    unmasked_T, 1 / (dropout.kept_share(fields.rate) * total_T), 0
  )
  out[...] = (context_TH * share_T[:, None]).astype(out.dtype)
  log_sum[...] = jnp.where(unmasked_T, highest_T + jnp.log(total_T), jnp.inf)


def _backward_kernel(  # noqa: PLR0913
  numbers,
  mask,
  query,
  key,
  value,
  log_sum,
  mean,
  gradient,
  by_qkv,
  *,
  fields,
  block,
):
  number, length = pl.program_id(0), mask.shape[0]
  row = _read(numbers)
  first, end = _near(fields, row, number, block, length)
  own = pl.ds(number * block, block)
  own_T = number * block + jnp.arange(block)
  dtype, share = by_qkv.dtype, dropout.kept_share(fields.rate)
  zeros_TH = jnp.zeros((block, key.shape[-1]), jnp.float32)

  def gradients(query_TH, key_SH, value_SH, gradient_TH, at, pair):
    """Returns the weights after dropout and the scores' gradient, [T, S]."""
    scores_TS = _dot(query_TH, key_SH.T)
    weights_TS = jnp.where(
      pair.allowed, jnp.exp(scores_TS - log_sum[at][:, None]), 0
    )
    by_weights_TS = _dot(gradient_TH, value_SH.T)
    dropped_TS = weights_TS
    if pair.keep is not None:
      dropped_TS = jnp.where(pair.keep, weights_TS / share, 0)
      by_weights_TS = jnp.where(pair.keep, by_weights_TS / share, 0)
    by_scores_TS = weights_TS * (by_weights_TS - mean[at][:, None])
    return dropped_TS.astype(dtype), by_scores_TS.astype(dtype)

  key_SH, value_SH, own_mask = key[own, :], value[own, :], mask[own]

  def over_queries(i, sums):
    by_key_SH, by_value_SH = sums
    at = pl.ds(i * block, block)
    places_T = i * block + jnp.arange(block)
    query_TH, gradient_TH = _scaled(query[at, :]), gradient[at, :]
    pair = _pair(fields, row, (mask[at], own_mask), places_T, own_T)
    dropped_TS, by_scores_TS = gradients(
      query_TH, key_SH, value_SH, gradient_TH, at, pair
    )
    by_key_SH += _dot(by_scores_TS.T, query_TH)
    by_value_SH += _dot(dropped_TS.T, gradient_TH)
    return by_key_SH, by_value_SH

  by_key_SH, by_value_SH = lax.fori_loop(
    number if fields.causal else first,
    end,
    over_queries,
    (zeros_TH, zeros_TH),
  )
  by_qkv[:, 1, :] = by_key_SH.astype(dtype)
  by_qkv[:, 2, :] = by_value_SH.astype(dtype)

  query_TH, gradient_TH = _scaled(query[own, :]), gradient[own, :]

  def over_keys(i, by_query_TH):
    at = pl.ds(i * block, block)
    slots_S = i * block + jnp.arange(block)
    pair = _pair(fields, row, (own_mask, mask[at]), own_T, slots_S)
    key_SH = key[at, :]
    _, by_scores_TS = gradients(
      query_TH, key_SH, value[at, :], gradient_TH, own, pair
    )
    return by_query_TH + _dot(by_scores_TS, key_SH)

  by_query_TH = lax.fori_loop(
    first,
    number + 1 if fields.causal else end,
    over_keys,
    zeros_TH,
  )
  by_qkv[:, 0, :] = _scaled(by_query_TH).astype(dtype)


def _forward(
  fields: Fields, numbers_B4: Array, mask_BS: Array, qkv_BTQNH: Array
) -> tuple[Array, Array]:
  B, T, _, N, H = qkv_BTQNH.shape
  block = _block(T)
  return _call(
    functools.partial(_forward_kernel, fields=fields, block=block),
    (numbers_B4, mask_BS, qkv_BTQNH, qkv_BTQNH, qkv_BTQNH),
    [
      *_row_specs(T),
      pl.BlockSpec(
        (None, block, None, None, H), lambda i, n, b: (b, i, 0, n, 0)
      ),
      *_key_specs(T, H),
    ],
    [
      jax.ShapeDtypeStruct((B, T, N, H), qkv_BTQNH.dtype),
      jax.ShapeDtypeStruct((B, N, T), jnp.float32),
    ],
    [
      pl.BlockSpec((None, block, None, H), lambda i, n, b: (b, i, n, 0)),
      pl.BlockSpec((None, None, block), lambda i, n, b: (b, n, i)),
    ],
    (T // block, N, B),
    'attention_forward',
  )


def _backward(
  fields: Fields,
  numbers_B4: Array,
  mask_BS: Array,
  qkv_BTQNH: Array,
  context_BTNH: Array,
  log_sum_BNT: Array,
  gradient_BTNH: Array,
) -> tuple[Array, ...]:
  B, T, _, N, H = qkv_BTQNH.shape
  block = _block(T)
  # Of each query, the sum over keys of a weight times its gradient.
  mean_BNT = jnp.einsum(
    'BTNH,BTNH->BNT',
    gradient_BTNH,
    context_BTNH,
    preferred_element_type=jnp.float32,
  )
  whole = pl.BlockSpec((None, None, T), lambda i, n, b: (b, n, 0))
  return _call(
    functools.partial(_backward_kernel, fields=fields, block=block),
    (
      numbers_B4,
      mask_BS,
      *[qkv_BTQNH] * 3,
      log_sum_BNT,
      mean_BNT,
      gradient_BTNH,
    ),
    [
      *_row_specs(T),
      pl.BlockSpec((None, T, None, None, H), lambda i, n, b: (b, 0, 0, n, 0)),
      *_key_specs(T, H),
      whole,
      whole,
      pl.BlockSpec((None, T, None, H), lambda i, n, b: (b, 0, n, 0)),
    ],
    [jax.ShapeDtypeStruct(qkv_BTQNH.shape, qkv_BTQNH.dtype)],
    [pl.BlockSpec((None, block, 3, None, H), lambda i, n, b: (b, i, 0, n, 0))],
    (T // block, N, B),
    'attention_backward',
  )


def _row_specs(length: int) -> list[pl.BlockSpec]:
  """Returns what a program reads of numbers and mask."""
  return [
    pl.BlockSpec((None, 4), lambda i, n, b: (b, 0)),
    pl.BlockSpec((None, length), lambda i, n, b: (b, 0)),
  ]


def _key_specs(length: int, head: int) -> list[pl.BlockSpec]:
  """Returns what a program reads of keys and values: those of its head."""
  shape = (None, length, None, None, head)
  return [
    pl.BlockSpec(shape, lambda i, n, b, part=part: (b, 0, part, n, 0))
    for part in (1, 2)
  ]


def _call(
  kernel: Any,
  arrays: tuple,
  in_specs: list,
  results: list,
  out_specs: list,
  grid: tuple[int, ...],
  name: str,
) -> tuple[Array, ...]:
  outputs = pl.pallas_call(
    kernel,
    grid=grid,
    in_specs=in_specs,
    out_specs=out_specs,
    out_shape=results,
    compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=2),
    interpret=layers.platform() != 'gpu',
    name=name,
  )(*arrays)
  return tuple(outputs)
