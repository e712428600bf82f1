"""The two TPU kernels of attention, forward and backward.

A call works on one row of the batch, a group of heads at a time which fills a
register, and a block of query positions at a time. Scores are transposed, [S,
T], so that maxima and sums over keys add registers up. In a local layer a block
reads the keys near it alone.

Shapes: B rows, T query position, S key position, N heads, H head, D = N x H.
The arguments of a kernel, in memory of its own: of the row `mask` [1, 1, S],
`qkv` [1, T, 3 D], where positions are rotated `cos` and `sin` [1, 1, T, LANES],
the context's gradient `by_out` [1, T, D] and the results `out` [1, T, D] and
`by_qkv` [1, T, 3 D]; of all rows the seeds `first` and `second` [B], the salts
`layer` and `number` [1], of the layer and of the first head's mask, and
`local` [1], 1 in a local layer; and room for `bias` [S, block], `by_key` and
`by_value` [S, LANES]. In packed rows `mask` numbers the texts, and `bias` has
the number of each key's text.
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
SCALARS = 5  # first, second, layer, number, local
VMEM = 16 * 2**20  # bytes that the compiler gives a kernel at least
BYTES_A_CYCLE = 546  # 819 GB/s at 1.5 GHz, a v5e


def _dot(a: Array, b: Array, contracted: tuple[int, int]) -> Array:
  axes = tuple((axis,) for axis in contracted)
  return lax.dot_general(
    a, b, (axes, ((), ())), preferred_element_type=jnp.float32
  )


class KernelForm(NamedTuple):
  """What a kernel computes.

  Attributes:
    N: number of heads.
    causal: a position looks at those before it and itself.
    rate: of dropout of the weights.
    packed: rows hold several texts, and a position sees its own alone.
    window: how many positions on each side one of a local layer sees; 0: no
      layer is local.
    global_every: of the layers one in so many is global; for the estimate.
  """

  N: int
  causal: bool
  rate: float
  packed: bool = False
  window: int = 0
  global_every: int = 1


class _Part(NamedTuple):
  """Query positions that are worked on together, and the keys that they see."""

  start: int
  keys: slice


def _parts(form: KernelForm, T: int, block: int, is_local: bool) -> list[_Part]:
  """Returns the parts of a row; keys begin and end with a register's rows."""
  parts = []
  for start in range(0, T, block):
    first, last = 0, start + block if form.causal else T
    if is_local:
      first = max(0, start - form.window) // LANES * LANES
      reached = -(-(start + block + form.window) // LANES) * LANES
      last = min(last, reached)
    parts.append(_Part(start, slice(first, last)))
  return parts


def count_weights(form: KernelForm, T: int, block: int) -> float:
  """Returns how many weights a head of a row has, a mean over the layers."""

  def count(is_local: bool) -> int:
    parts = _parts(form, T, block, is_local)
    return sum(block * (keys.stop - keys.start) for _, keys in parts)

  if not form.window:
    return count(False)
  share = 1 / form.global_every
  return share * count(False) + (1 - share) * count(True)


def _read_seeds(first: Any, second: Any, layer: Any, number: Any) -> tuple:
  """Returns both seeds of a row with the layer's salt, and the mask's salt."""
  row = pl.program_id(0)  # not known in a branch or a loop, if interpreted
  return first[row] ^ layer[0], second[row] + layer[0], number[0]


def _places_of_lanes(H: int) -> tuple[Array, Array]:
  """Returns [1, LANES], the head of the group and the place in it of a lane."""
  lanes = lax.broadcasted_iota(jnp.int32, (1, LANES), 1)
  return lanes // H, lanes % H


def _turn(x: Array, cos: Array, sin: Array, H: int) -> Array:
  """Returns queries or keys [T, LANES] turned by their positions.

  `sin` is negative where a lane is of its head's first half.
  """
  wide = x.astype(jnp.float32)
  other = pltpu.roll(wide, LANES - H // 2, 1)
  if H < LANES:  # of a head that fills the register both rolls are the same
    _, place = _places_of_lanes(H)
    other = jnp.where(place < H // 2, other, pltpu.roll(wide, H // 2, 1))
  return (wide * cos + other * sin).astype(x.dtype)


def _hide(
  array_ST: Array, masked: float, form: KernelForm, part: _Part, is_local: bool
) -> Array:
  """Returns a part's scores or bias, `masked` where its form hides a key."""
  slots = lax.broadcasted_iota(jnp.int32, array_ST.shape, 0)
  ahead = lax.broadcasted_iota(jnp.int32, array_ST.shape, 1) - slots
  ahead += part.start - part.keys.start
  if form.causal:
    array_ST = jnp.where(ahead >= 0, array_ST, masked)
  if is_local:
    array_ST = jnp.where(jnp.abs(ahead) <= form.window, array_ST, masked)
  return array_ST


class _RowReader:
  """A row of the batch, as the kernels read it; refs are as in the module.

  Attributes:
    form: what is computed.
    width: D, of all heads.
    head: H, of one.
    parts: of the query positions.
  """

  def __init__(self, form, seeds, mask, qkv, turns, bias, is_local):
    """Fills `bias` [S, block] from `mask` [1, 1, S]."""
    self._seeds = seeds
    self._mask, self._qkv, self._turns, self._bias = mask, qkv, turns, bias
    T, block = bias.shape
    self.form = form
    self.width = qkv.shape[-1] // 3
    self.head = self.width // form.N
    self.parts = _parts(form, T, block, is_local)
    self._is_local = is_local
    real, masked = 0.0, LOWEST
    if form.packed:  # no query is of the text -1
      real, masked = mask[0].astype(jnp.float32), -1.0
    keys_1S = jnp.where(mask[0] != 0, real, masked)
    bias_ST = jnp.broadcast_to(keys_1S, (block, T)).T
    if len(self.parts) == 1:
      bias_ST = _hide(bias_ST, masked, form, self.parts[0], is_local)
    bias[...] = bias_ST

  def lanes(self, group: Array, which: int) -> Any:
    """Returns a group of heads' columns in query, key or value, 0 to 2."""
    start = which * self.width + group * LANES
    return pl.ds(pl.multiple_of(start, LANES), LANES)

  def query(self, group: Array, part: _Part) -> Array:
    """Returns the turned and scaled queries of a part, [T, LANES]."""
    places = pl.ds(part.start, self._bias.shape[1])
    query = self._qkv[0, places, self.lanes(group, 0)]
    return self.turn(query, places) * self.head**-0.5

  def key(self, group: Array) -> Array:
    """Returns the turned keys, [S, LANES]."""
    return self.turn(self._qkv[0, :, self.lanes(group, 1)], slice(None))

  def turn(self, x: Array, places: Any, sign: int = 1) -> Array:
    """Returns queries or keys turned by their places, or back at -1."""
    if not self._turns:
      return x
    cos, sin = (table[0, 0, places] for table in self._turns)
    return _turn(x, cos, sign * sin, self.head)

  def weights(
    self, query: Array, key: Array, part: _Part
  ) -> tuple[Array, Array]:
    """Returns weights [S, T] of a part, and the factor that normalises them.

    The factor [1, T] is 0 where no key is seen.
    """
    scores_ST = _dot(key[part.keys], query, (1, 1))
    bias_ST = self._bias[part.keys]
    if self.form.packed:
      end = part.start + self._bias.shape[1]
      texts_1T = self._mask[0][:, part.start : end].astype(jnp.float32)
      scores_ST = jnp.where(bias_ST == texts_1T, scores_ST, LOWEST)
    else:
      scores_ST = scores_ST + bias_ST
    if len(self.parts) > 1:
      scores_ST = _hide(scores_ST, LOWEST, self.form, part, self._is_local)
    highest_1T = scores_ST.max(axis=0, keepdims=True)
    weights_ST = jnp.exp(scores_ST - highest_1T)
    total_1T = weights_ST.sum(axis=0, keepdims=True)
    return weights_ST, jnp.where(highest_1T > LOWEST, 1 / total_1T, 0)

  def keep(self, head: Array, part: _Part, shape: tuple) -> Array:
    """Returns the dropout mask of a head's weights [S, T] of a part."""
    first, second, mask = self._seeds
    slots = lax.broadcasted_iota(jnp.int32, shape, 0) + part.keys.start
    places = lax.broadcasted_iota(jnp.int32, shape, 1)
    salt = mask + dropout.salt(head * dropout.ROWS + part.start)
    hashed = dropout.mix(dropout.salt(places) + slots + salt, first, second)
    return hashed >= jnp.int32(dropout.threshold(self.form.rate) - 2**31)


def _in_layer(form, local, run):
  """Calls `run` with whether the layer is local."""
  if not form.window:
    run(False)
    return
  pl.when(local[0] == 0)(functools.partial(run, False))
  pl.when(local[0] != 0)(functools.partial(run, True))


def _forward_kernel(*refs, form):
  (*scalars, mask, qkv), rest = refs[: SCALARS + 2], refs[SCALARS + 2 :]
  *turns, out, bias = rest
  seeds = _read_seeds(*scalars[:4])

  def run(is_local):
    row = _RowReader(form, seeds, mask, qkv, turns, bias, is_local)
    _, block = bias.shape
    H, per = row.head, LANES // row.head
    head, _ = _places_of_lanes(H)

    def group(i, _):
      key, value = row.key(i), qkv[0, :, row.lanes(i, 2)].T
      for part in row.parts:
        query = row.query(i, part)
        contexts = []
        for h in range(per):
          own_query = jnp.where(head == h, query, 0)
          weights, share = row.weights(own_query, key, part)
          if form.rate:
            keep = row.keep(i * per + h, part, weights.shape)
            weights = jnp.where(keep, weights, 0)
            share = share * (1 / dropout.kept_share(form.rate))
          context = _dot(
            value[h * H : (h + 1) * H, part.keys],
            weights.astype(value.dtype),
            (1, 0),
          )
          contexts.append(context * share)
        context = jnp.concatenate(contexts).T.astype(out.dtype)
        out[0, pl.ds(part.start, block), row.lanes(i, 0)] = context
      return 0

    lax.fori_loop(0, row.width // LANES, group, 0)

  _in_layer(form, scalars[-1], run)


def _backward_kernel(*refs, form):
  (*scalars, mask, qkv), rest = refs[: SCALARS + 2], refs[SCALARS + 2 :]
  *turns, by_out, by_qkv, out, bias, by_key, by_value = rest
  seeds = _read_seeds(*scalars[:4])

  def run(is_local):
    row = _RowReader(form, seeds, mask, qkv, turns, bias, is_local)
    _, block = bias.shape
    H, per = row.head, LANES // row.head
    head, _ = _places_of_lanes(H)

    def group(i, _):
      key, value = row.key(i), qkv[0, :, row.lanes(i, 2)]
      key_T, value_T = key.T, value.T
      if len(row.parts) > 1:
        by_key[...] = jnp.zeros_like(by_key)
        by_value[...] = jnp.zeros_like(by_value)
      for part in row.parts:
        places = pl.ds(part.start, block)
        query = row.query(i, part)
        gradient = by_out[0, places, row.lanes(i, 0)]
        contexts, queries, keys, values = [], [], 0.0, 0.0
        for h in range(per):
          own_query = jnp.where(head == h, query, 0)
          own_gradient = jnp.where(head == h, gradient, 0)
          weights, share = row.weights(own_query, key, part)
          weights = weights * share
          by_weights = _dot(value[part.keys], own_gradient, (1, 1))
          dropped = weights
          if form.rate:
            keep = row.keep(i * per + h, part, weights.shape)
            kept = 1 / dropout.kept_share(form.rate)
            dropped = jnp.where(keep, weights * kept, 0)
            by_weights = jnp.where(keep, by_weights * kept, 0)
          dropped = dropped.astype(key.dtype)
          own = slice(h * H, (h + 1) * H)
          contexts.append(_dot(value_T[own, part.keys], dropped, (1, 0)))
          by_scores = weights * by_weights
          mean = by_scores.sum(axis=0, keepdims=True)
          by_scores = (by_scores - weights * mean).astype(key.dtype)
          queries.append(_dot(key_T[own, part.keys], by_scores, (1, 0)))
          keys += _dot(by_scores, own_query, (1, 0))
          values += _dot(dropped, own_gradient, (1, 0))
        context = jnp.concatenate(contexts).T.astype(out.dtype)
        out[0, places, row.lanes(i, 0)] = context
        by_query = jnp.concatenate(queries).T * H**-0.5
        by_query = row.turn(by_query, places, -1).astype(by_qkv.dtype)
        by_qkv[0, places, row.lanes(i, 0)] = by_query
        if len(row.parts) > 1:
          by_key[part.keys] += keys
          by_value[part.keys] += values
      if len(row.parts) > 1:
        keys, values = by_key[...], by_value[...]
      keys = row.turn(keys, slice(None), -1)
      by_qkv[0, :, row.lanes(i, 1)] = keys.astype(by_qkv.dtype)
      by_qkv[0, :, row.lanes(i, 2)] = values.astype(by_qkv.dtype)
      return 0

    lax.fori_loop(0, row.width // LANES, group, 0)

  _in_layer(form, scalars[-1], run)


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
    dropout_bundles: likewise, of their dropout.
    turn_bundles: of a group whose positions are rotated, and of each position.
  """

  run: Any
  reads: int
  widths: tuple[int, ...]
  products: int
  row_bundles: int
  group_bundles: int
  weight_bundles: float
  dropout_bundles: float
  turn_bundles: tuple[float, float]


KERNELS = {
  'forward': Kernel(_forward_kernel, 3, (1,), 2, 75, 160, 5.25, 2.2, (45, 0.7)),
  'backward': Kernel(
    _backward_kernel, 4, (3, 1), 6, 110, 320, 13.5, 1.9, (140, 1.1)
  ),
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
  row += 2 * 4 * length * LANES  # where positions are rotated
  kept = sum(
    4 * rows * columns for rows, columns in _scratch(which, length, block)
  )
  # Rows are read and written beside the work on another; the rest is for
  # weights and their gradients.
  return 2 * row + kept + 9 * 4 * length * block


def _scratch(which: str, length: int, block: int) -> list[tuple[int, int]]:
  sums = 2 if which == 'backward' else 0
  return [(length, block)] + [(length, LANES)] * sums


def call(
  which: str,
  arrays: tuple[Array, ...],
  scalars: tuple[Array, ...],
  form: KernelForm,
  turns: tuple[Array, ...] = (),
) -> tuple[Array, ...]:
  """Runs a kernel on one device.

  Args:
    which: 'forward' or 'backward'.
    arrays: mask, qkv[, gradient of the context], see the module.
    scalars: first, second, layer, number and local, likewise.
    form: what it computes.
    turns: where positions are rotated cos and sin, float32 [2, B, T, LANES],
      of global and of local layers.
  """
  kernel = KERNELS[which]
  mask, qkv, *rest = arrays
  B, T, W = qkv.shape
  D = W // 3
  block = find_block(T, D, qkv.dtype.itemsize)
  scratch = _scratch(which, T, block)
  results = [
    jax.ShapeDtypeStruct((B, T, n * D), qkv.dtype) for n in kernel.widths
  ]
  weights = form.N * count_weights(form, T, block)
  moved = sum(a.size * a.dtype.itemsize for a in (*arrays, *results))
  moved += sum(table.nbytes // 2 for table in turns)
  memory = _memory(which, T, D, qkv.dtype.itemsize, block)

  def block_of(array: Any) -> pl.BlockSpec:
    return pl.BlockSpec((1, *array.shape[1:]), lambda row, *_: (row, 0, 0))

  def table_of(table: Array) -> pl.BlockSpec:
    return pl.BlockSpec(
      (1, 1, *table.shape[2:]), lambda row, *refs: (refs[-1][0], row, 0, 0)
    )

  return pl.pallas_call(
    functools.partial(kernel.run, form=form),
    grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=len(scalars),
      grid=(B,),
      in_specs=[
        block_of(mask),
        block_of(qkv),
        *map(table_of, turns),
        *map(block_of, rest),
      ],
      out_specs=[block_of(array) for array in results],
      scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in scratch],
    ),
    out_shape=results,
    compiler_params=pltpu.CompilerParams(
      vmem_limit_bytes=max(VMEM, memory), dimension_semantics=('parallel',)
    ),
    cost_estimate=pl.CostEstimate(
      flops=round(2 * kernel.products * B * weights * LANES),
      transcendentals=round(B * weights),
      bytes_accessed=moved,
    ),
    metadata={
      'estimated_cycles': str(
        _cycles(kernel, form, bool(turns), (B, T, D), weights, moved)
      )
    },
    interpret=layers.platform() != 'tpu',
    name=f'attention_{which}',
  )(*scalars, mask, qkv, *turns, *rest)


def _cycles(
  kernel: Kernel,
  form: KernelForm,
  turns: bool,
  sizes: tuple[int, int, int],
  weights: float,
  moved: int,
) -> int:
  """Returns the cycles that a call takes on a v5e.

  `sizes` are B, T and D, `weights` attention weights of a row, `moved` bytes of
  the call.
  """
  rows, length, width = sizes
  a_group, a_weight = kernel.group_bundles, kernel.weight_bundles
  if form.rate:
    a_weight += kernel.dropout_bundles
  if turns:
    once, each = kernel.turn_bundles
    a_group += once + each * length
  bundles = kernel.row_bundles + length / 3
  bundles += a_group * width / LANES
  bundles += a_weight * weights / 1024
  return round(max(rows * bundles, moved / BYTES_A_CYCLE))
