"""The two TPU kernels of attention, forward and backward.

A call works on one row of the batch, a group of heads at a time which fills a
register, and a block of query positions at a time. Scores are transposed, [S,
T], so that maxima and sums over keys add registers up.

Shapes: B rows, T query position, S key position, N heads, H head, D = N x H.
The arguments of a kernel, in memory of its own: of the row `mask` [1, 1, S],
`qkv` [1, T, 3 D], the context's gradient `by_out` [1, T, D] and the results
`out` [1, T, D] and `by_qkv` [1, T, 3 D]; of all rows the seeds `first` and
`second` [B] and the salts `layer` and `number` [1], of the layer and of the
first head's mask; and room for `bias` [S, block], `by_key` and `by_value` [S,
LANES]. In packed rows `mask` numbers the texts, and `bias` has the number of
each key's text.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from models import dropout, layers

Array = jax.Array

LANES = 128  # width of a TPU's registers
LOWEST = float(layers.LOWEST)
BLOCK = 256  # query positions at a time
VMEM = 16 * 2**20  # bytes that the compiler gives a kernel at least
BYTES_A_CYCLE = 546  # 819 GB/s at 1.5 GHz, a v5e


def _dot(a: Array, b: Array, contracted: tuple[int, int]) -> Array:
  axes = tuple((axis,) for axis in contracted)
  return lax.dot_general(
    a, b, (axes, ((), ())), preferred_element_type=jnp.float32
  )


def _weights(
  query: Array,
  key: Array,
  bias: Array,
  texts_1T: Array | None,
  start: int,
  causal: bool,
) -> tuple[Array, Array]:
  scores_ST = _dot(key, query, (1, 1))
  if texts_1T is None:
    scores_ST = scores_ST + bias
  else:
    scores_ST = jnp.where(bias == texts_1T, scores_ST, LOWEST)
  if causal:
    slots = lax.broadcasted_iota(jnp.int32, scores_ST.shape, 0)
    places = lax.broadcasted_iota(jnp.int32, scores_ST.shape, 1) + start
    scores_ST = jnp.where(slots <= places, scores_ST, LOWEST)
  highest_1T = scores_ST.max(axis=0, keepdims=True)
  weights_ST = jnp.exp(scores_ST - highest_1T)
  total_1T = weights_ST.sum(axis=0, keepdims=True)
  return weights_ST, jnp.where(highest_1T > LOWEST, 1 / total_1T, 0)


def _read_seeds(first: Any, second: Any, layer: Any, number: Any) -> tuple:
  """Returns both seeds of a row with the layer's salt, and the mask's salt."""
  row = pl.program_id(0)  # not known in a loop, if interpreted
  return first[row] ^ layer[0], second[row] + layer[0], number[0]


def _keep(
  seeds: tuple, head: Array, start: int, shape: tuple, rate: float
) -> Array:
  """Returns the dropout mask of a head's weights [S, T] from T = `start` on."""
  first, second, mask = seeds
  slots = lax.broadcasted_iota(jnp.int32, shape, 0)
  places = lax.broadcasted_iota(jnp.int32, shape, 1)
  salt = mask + dropout.salt(head * dropout.ROWS + start)
  hashed = dropout.mix(dropout.salt(places) + slots + salt, first, second)
  return hashed >= jnp.int32(dropout.threshold(rate) - 2**31)


def _heads(group: Array, D: int, part: int) -> Any:
  """Returns the columns of a group of heads in query, key or value, 0 to 2."""
  return pl.ds(pl.multiple_of(part * D + group * LANES, LANES), LANES)


def _heads_of_lanes(H: int) -> Array:
  """Returns [1, LANES], the head of the group that a lane belongs to."""
  return lax.broadcasted_iota(jnp.int32, (1, LANES), 1) // H


def _forward_kernel(
  first,
  second,
  layer,
  number,
  mask,
  qkv,
  out,
  bias,
  *,
  N,
  H,
  T,
  block,
  causal,
  rate,
  packed,
):
  D, per = N * H, LANES // H
  _set_bias(mask, bias, packed)
  seeds = _read_seeds(first, second, layer, number)

  def group(i, _):
    at = functools.partial(_heads, i, D)
    key, value = qkv[0, :, at(1)], qkv[0, :, at(2)].T
    head = _heads_of_lanes(H)
    for start in range(0, T, block):
      S = start + block if causal else T
      places = pl.ds(start, block)
      texts = _texts(mask, start, block) if packed else None
      query = qkv[0, places, at(0)] * H**-0.5
      contexts = []
      for h in range(per):
        weights, share = _weights(
          jnp.where(head == h, query, 0),
          key[:S],
          bias[:S],
          texts,
          start,
          causal,
        )
        if rate:
          keep = _keep(seeds, i * per + h, start, weights.shape, rate)
          weights = jnp.where(keep, weights, 0)
          share = share * (1 / dropout.kept_share(rate))
        context = _dot(
          value[h * H : (h + 1) * H, :S], weights.astype(value.dtype), (1, 0)
        )
        contexts.append(context * share)
      out[0, places, at(0)] = jnp.concatenate(contexts).T.astype(out.dtype)
    return 0

  lax.fori_loop(0, D // LANES, group, 0)


def _set_bias(mask, bias, packed):
  real, masked = 0.0, LOWEST
  if packed:  # no query is of the text -1
    real, masked = mask[0].astype(jnp.float32), -1.0
  row = jnp.where(mask[0] != 0, real, masked)
  bias[...] = jnp.broadcast_to(row, (bias.shape[1], row.shape[1])).T


def _texts(mask, start, block):
  return mask[0][:, start : start + block].astype(jnp.float32)


def _backward_kernel(
  first,
  second,
  layer,
  number,
  mask,
  qkv,
  by_out,
  by_qkv,
  out,
  bias,
  by_key,
  by_value,
  *,
  N,
  H,
  T,
  block,
  causal,
  rate,
  packed,
):
  D, per = N * H, LANES // H
  _set_bias(mask, bias, packed)
  seeds = _read_seeds(first, second, layer, number)

  def group(i, _):
    at = functools.partial(_heads, i, D)
    key, value = qkv[0, :, at(1)], qkv[0, :, at(2)]
    key_T, value_T = key.T, value.T
    head = _heads_of_lanes(H)
    if T > block:
      by_key[...] = jnp.zeros_like(by_key)
      by_value[...] = jnp.zeros_like(by_value)
    for start in range(0, T, block):
      S = start + block if causal else T
      places = pl.ds(start, block)
      query = qkv[0, places, at(0)] * H**-0.5
      gradient = by_out[0, places, at(0)]
      texts = _texts(mask, start, block) if packed else None
      contexts, queries, keys, values = [], [], 0.0, 0.0
      for h in range(per):
        own_query = jnp.where(head == h, query, 0)
        own_gradient = jnp.where(head == h, gradient, 0)
        weights, share = _weights(
          own_query, key[:S], bias[:S], texts, start, causal
        )
        weights = weights * share
        by_weights = _dot(value[:S], own_gradient, (1, 1))
        dropped = weights
        if rate:
          keep = _keep(seeds, i * per + h, start, weights.shape, rate)
          kept = 1 / dropout.kept_share(rate)
          dropped = jnp.where(keep, weights * kept, 0)
          by_weights = jnp.where(keep, by_weights * kept, 0)
        dropped = dropped.astype(key.dtype)
        own = slice(h * H, (h + 1) * H)
        contexts.append(_dot(value_T[own, :S], dropped, (1, 0)))
        by_scores = weights * by_weights
        mean = by_scores.sum(axis=0, keepdims=True)
        by_scores = (by_scores - weights * mean).astype(key.dtype)
        queries.append(_dot(key_T[own, :S], by_scores, (1, 0)))
        keys += _dot(by_scores, own_query, (1, 0))
        values += _dot(dropped, own_gradient, (1, 0))
      out[0, places, at(0)] = jnp.concatenate(contexts).T.astype(out.dtype)
      by_query = jnp.concatenate(queries).T * H**-0.5
      by_qkv[0, places, at(0)] = by_query.astype(by_qkv.dtype)
      if T > block:
        by_key[:S] += keys
        by_value[:S] += values
    if T > block:
      keys, values = by_key[...], by_value[...]
    by_qkv[0, :, at(1)] = keys.astype(by_qkv.dtype)
    by_qkv[0, :, at(2)] = values.astype(by_qkv.dtype)
    return 0

  lax.fori_loop(0, D // LANES, group, 0)


class Kernel(NamedTuple):
  """One of the two kernels.

  The bundles are instruction words, one a cycle, counted in the compiler's
  schedules for a v5e (jax 0.10.2, libtpu 0.0.42.1; 128 to 1,024 tokens).

  Attributes:
    run: the function.
    reads: width of its arguments, in D.
    widths: of its results, in D.
    products: matrix products of all positions with all.
    row_bundles: of a row of the batch, without those that follow.
    group_bundles: of heads that fill a register together.
    weight_bundles: of 1,024 attention weights.
  """

  run: Any
  reads: int
  widths: tuple[int, ...]
  products: int
  row_bundles: int
  group_bundles: int
  weight_bundles: float


KERNELS = {
  'forward': Kernel(_forward_kernel, 3, (1,), 2, 75, 160, 7.45),
  'backward': Kernel(_backward_kernel, 4, (3, 1), 6, 110, 320, 15.4),
}


def find_block(length: int, width: int, itemsize: int) -> int | None:
  """Returns how many query positions the kernels work on at a time.

  None: the chip has too little memory of its own, JAX does not know it, or its
  matrix units do not multiply bfloat16 as it is (v2, v3). `width` is D of one
  device.
  """
  blocks = [min(length, BLOCK), LANES]
  if layers.platform() != 'tpu':
    return blocks[0]
  try:
    chip = pltpu.get_tpu_info()
  except ValueError:  # a chip that JAX does not know yet
    return None
  needs = (
    (block, _memory('backward', length, width, itemsize, block))
    for block in blocks
  )
  suitable = (
    block
    for block, need in needs
    if chip.generation >= 4 and need <= chip.vmem_capacity_bytes
  )
  return next(suitable, None)


def _memory(
  which: str, length: int, width: int, itemsize: int, block: int
) -> int:
  """Returns bytes of the chip's own memory that a kernel needs."""
  kernel = KERNELS[which]
  row = (kernel.reads + sum(kernel.widths)) * length * width * itemsize
  kept = sum(
    4 * rows * columns for rows, columns in _scratch(which, length, block)
  )
  # Rows are read and written beside the work on another; the rest is for
  # weights and their gradients.
  return 2 * row + kept + 8 * 4 * length * block


def _scratch(which: str, length: int, block: int) -> list[tuple[int, int]]:
  sums = 2 if which == 'backward' else 0
  return [(length, block)] + [(length, LANES)] * sums


def call(
  which: str,
  arrays: tuple[Array, ...],
  seeds: tuple[Array, ...],
  *,
  N: int,
  causal: bool,
  rate: float,
  packed: bool = False,
) -> tuple[Array, ...]:
  """Runs a kernel on one device, on (mask, qkv[, gradient of the context])."""
  kernel = KERNELS[which]
  _, qkv, *_ = arrays
  B, T, W = qkv.shape
  D, H = W // 3, W // 3 // N
  block = find_block(T, D, qkv.dtype.itemsize)
  scratch = _scratch(which, T, block)
  results = [
    jax.ShapeDtypeStruct((B, T, n * D), qkv.dtype) for n in kernel.widths
  ]
  starts = range(0, T, block)
  weights = sum(block * (start + block if causal else T) for start in starts)
  moved = sum(a.size * a.dtype.itemsize for a in (*arrays, *results))
  memory = _memory(which, T, D, qkv.dtype.itemsize, block)

  def block_of(array: Any) -> pl.BlockSpec:
    return pl.BlockSpec((1, *array.shape[1:]), lambda row, *_: (row, 0, 0))

  return pl.pallas_call(
    functools.partial(
      kernel.run,
      N=N,
      H=H,
      T=T,
      block=block,
      causal=causal,
      rate=rate,
      packed=packed,
    ),
    grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=len(seeds),
      grid=(B,),
      in_specs=[block_of(array) for array in arrays],
      out_specs=[block_of(array) for array in results],
      scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in scratch],
    ),
    out_shape=results,
    compiler_params=pltpu.CompilerParams(
      vmem_limit_bytes=max(VMEM, memory), dimension_semantics=('parallel',)
    ),
    cost_estimate=pl.CostEstimate(
      flops=2 * kernel.products * B * N * weights * LANES,
      transcendentals=B * N * weights,
      bytes_accessed=moved,
    ),
    metadata={
      'estimated_cycles': str(_cycles(kernel, B, T, D, N * weights, moved))
    },
    interpret=layers.platform() != 'tpu',
    name=f'attention_{which}',
  )(*seeds, *arrays)


def _cycles(
  kernel: Kernel, rows: int, length: int, width: int, weights: int, moved: int
) -> int:
  """Returns the cycles that a call takes on a v5e.

  `weights` are attention weights of a row, `moved` bytes of the call.
  """
  bundles = kernel.row_bundles + length / 3
  bundles += kernel.group_bundles * width / LANES
  bundles += kernel.weight_bundles * weights / 1024
  return round(max(rows * bundles, moved / BYTES_A_CYCLE))
