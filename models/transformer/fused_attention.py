"""Self-attention in one kernel, whose scores never leave the chip's own memory.

Shapes: B rows, T query position, S key position, N heads, H head, D = N x H.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jax.sharding import PartitionSpec

from models import dropout, layers, norms
from models.transformer import kernels
from models.transformer.layout import Layout

Array = jax.Array
NEEDS = (
  f'sequences of {kernels.LANES} tokens or a multiple of {kernels.BLOCK}, or,'
  f' without dropout, rows that fill {kernels.LANES} together; heads on each'
  f' device that fill registers of {kernels.LANES}; and a TPU from v4 on with'
  ' memory of its own for a row'
)


def head_parts() -> int:
  """Returns over how many devices the mesh in scope spreads the heads."""
  return axes()[-1]


def batch_parts() -> int:
  """Returns over how many devices the mesh in scope spreads the rows."""
  return _size(axes()[0])


def suits(length: int, num_heads: int, head: int, dtype: layers.Dtype) -> bool:
  """Returns whether the kernel takes these sizes, on the device in scope."""
  parts = head_parts()
  width = num_heads // parts * head
  return (
    num_heads % parts == 0
    and length % kernels.LANES == 0
    and (length <= kernels.BLOCK or length % kernels.BLOCK == 0)
    and kernels.LANES % head == 0
    and width % kernels.LANES == 0
    and kernels.find_block(length, width, jnp.dtype(dtype).itemsize) is not None
  )


def texts_a_row(rows: int, length: int) -> int:
  """Returns how many short texts fill a row of the kernel; 1 if none do.

  Each device must have whole rows of them.
  """
  texts, left = divmod(kernels.LANES, length)
  if left or texts < 2 or rows % (texts * batch_parts()):
    return 1
  return texts


def join_rows(
  texts: int, total: norms.Sum, mask_BT: Array, layout: Layout | None
) -> tuple[norms.Sum, Array, Layout | None]:
  """Returns the arguments of attention with so many rows in one.

  The mask numbers the texts of a row, and is 0 at padding, which sees nothing.
  """

  def join(array: Array, axis: int = 0) -> Array:
    rows, length = array.shape[axis : axis + 2]
    joined = rows // texts, texts * length
    return array.reshape(*array.shape[:axis], *joined, *array.shape[axis + 2 :])

  numbers_B1 = 1 + jnp.arange(len(mask_BT))[:, None] % texts
  joined = {
    name: join(getattr(total, name)) for name in ('x', 'mean', 'factor')
  }
  if layout is not None and layout.cos is not None:
    layout = layout._replace(
      cos=join(layout.cos, axis=1), sin=join(layout.sin, axis=1)
    )
  mask_BT = join(jnp.where(mask_BT, numbers_B1, 0))
  return total._replace(**joined), mask_BT, layout


class Turns(NamedTuple):
  """The rotations of a layer's positions, and whether it is local.

  Attributes:
    tables: cos and sin of the rotations, float32 [2, B, T, LANES], of global
      and of local layers; none where positions are not rotated.
    is_local: bool, scalar.
  """

  tables: tuple[Array, ...]
  is_local: Array


def turns_of(layout: Layout | None) -> Turns | None:
  """Returns what the kernels read of a layer's layout.

  Its tables [2, B, T, 1, H / 2] are spread over the lanes of registers.
  """
  if layout is None:
    return None
  if layout.cos is None:
    return Turns((), layout.is_local)
  cos, sin = layout.cos[..., 0, :], layout.sin[..., 0, :]
  heads = kernels.LANES // (2 * cos.shape[-1])
  tables = (
    jnp.tile(jnp.concatenate(halves, axis=-1), heads)
    for halves in ((cos, cos), (-sin, sin))
  )
  return Turns(tuple(tables), layout.is_local)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(
  fields: tuple[kernels.KernelForm, layers.Dtype],
  total: norms.Sum,
  kernel_DE: Array,
  bias_1E: Array,
  out_DD: Array,
  mask_BS: Array,
  seeds: dropout.Seeds | None,
  turns: Turns | None = None,
) -> tuple[Array, Array]:
  """Returns a sum's norm and self-attention to it, both [B, T, D].

  The backward pass keeps the standardised sum alone and computes the rest
  again.

  Args:
    fields: what is computed, and the dtype.
    total: of [B, T, D].
    kernel_DE: projects to query, key and value of all heads, E = 3 D.
    bias_1E: likewise.
    out_DD: projects the contexts; its bias is left out.
    mask_BS: int32 or bool, 1 at keys that may be looked at; in packed rows the
      number of each position's text, 0 at padding.
    seeds: of the first head's dropout mask; None at rate 0.
    turns: of the layer; None where all are alike and nothing is rotated.
  """
  return _attend_forward(
    fields, total, kernel_DE, bias_1E, out_DD, mask_BS, seeds, turns
  )[0]


def _attend_forward(
  fields: tuple,
  total: norms.Sum,
  kernel_DE: Array,
  bias_1E: Array,
  out_DD: Array,
  mask_BS: Array,
  seeds: dropout.Seeds | None,
  turns: Turns | None,
) -> tuple[tuple[Array, Array], tuple]:
  form, dtype = fields
  standard = norms.standardize(total)
  x_BTD = norms.rescale(standard, dtype)
  qkv_BTE = layers.product(x_BTD, kernel_DE, bias_1E)
  (context_BTD,) = _run(form, 'forward', (qkv_BTE,), mask_BS, seeds, turns)
  saved = standard, kernel_DE, bias_1E, out_DD, mask_BS, seeds, turns
  return (x_BTD, context_BTD @ out_DD), saved


def _attend_backward(
  fields: tuple, saved: tuple, gradients: tuple[Array, Array]
) -> tuple[Any, ...]:
  form, dtype = fields
  standard, kernel_DE, bias_1E, out_DD, mask_BS, seeds, turns = saved
  by_x_BTD, by_y_BTD = gradients
  x_BTD = norms.rescale(standard, dtype)
  qkv_BTE = layers.product(x_BTD, kernel_DE, bias_1E)
  by_context_BTD = by_y_BTD @ out_DD.T
  by_qkv_BTE, context_BTD = _run(
    form, 'backward', (qkv_BTE, by_context_BTD), mask_BS, seeds, turns
  )
  by_x_BTD += by_qkv_BTE @ kernel_DE.T
  return (
    norms.standardize_backward(standard, by_x_BTD),
    layers.by_kernel(x_BTD, by_qkv_BTE),
    layers.sum_rows(by_qkv_BTE),
    layers.by_kernel(context_BTD, by_y_BTD),
    None,
    None,
    None,
  )


attend.defvjp(_attend_forward, _attend_backward)


def _run(
  form: kernels.KernelForm,
  which: str,
  arrays: tuple[Array, ...],
  mask_BS: Array,
  seeds: dropout.Seeds | None,
  turns: Turns | None,
) -> tuple[Array, ...]:
  """Runs a kernel on each device's rows and heads; arrays are [B, T, ...]."""
  N = form.N
  B, T = mask_BS.shape
  if seeds is None:
    seeds = dropout.Seeds(*jnp.zeros((2, B), jnp.int32))
  if turns is None:
    turns = Turns((), jnp.zeros((), bool))
  H = arrays[0].shape[-1] // (3 * N)
  batch, heads, parts = axes()

  def local(
    mask_BS: Array,
    first_B: Array,
    second_B: Array,
    layer: Array,
    turns: Turns,
    *arrays: Array,
  ) -> list[Array]:
    number = jnp.full(1, dropout.salt(seeds.mask * dropout.ROWS))
    if heads is not None:
      number += dropout.salt(
        lax.axis_index(heads) * (N // parts) * dropout.ROWS
      )
    is_local = turns.is_local.astype(jnp.int32).reshape(1)
    outputs = kernels.call(
      which,
      (mask_BS[:, None, :], *(a.reshape(*a.shape[:2], -1) for a in arrays)),
      (first_B, second_B, layer.reshape(1), number, is_local),
      form._replace(N=N // parts),
      turns.tables,
    )
    return [split(output, N // parts) for output in outputs]

  def split(array: Array, heads: int) -> Array:
    """Returns an array with an axis of heads, if the mesh splits them."""
    if parts == 1:
      return array
    return array.reshape(*array.shape[:2], -1, heads, H)

  if batch is not None or heads is not None:
    by_head = PartitionSpec(batch)
    if parts > 1:
      by_head = PartitionSpec(batch, None, None, heads, None)
    by_row, whole = PartitionSpec(batch), PartitionSpec()
    tables = (PartitionSpec(None, batch),) * len(turns.tables)
    local = jax.shard_map(
      local,
      in_specs=(
        *[by_row] * 3,
        whole,
        Turns(tables, whole),
        *[by_head] * len(arrays),
      ),
      out_specs=[by_head] * len(kernels.KERNELS[which].widths),
      check_vma=False,
    )
  outputs = local(
    mask_BS.astype(jnp.int32),
    seeds.first,
    seeds.second,
    jnp.int32(seeds.layer),
    turns,
    *(split(array, N) for array in arrays),
  )
  return tuple(output.reshape(B, T, -1) for output in outputs)


def axes() -> tuple[Any, Any, int]:
  """Returns the mesh axes of rows and heads, and of how many parts heads are.

  They are None, None and 1 without a mesh; of unsplit heads, None.
  """
  mesh = jax.sharding.get_abstract_mesh()
  if mesh.empty:
    return None, None, 1
  batch, heads = nn.logical_to_mesh_axes(('batch', 'activation_heads'))
  parts = _size(heads)
  return batch, heads if parts > 1 else None, parts


def _size(names: Any) -> int:
  """Returns the number of devices along axes of the mesh in scope, or one."""
  shape = jax.sharding.get_abstract_mesh().shape
  names = (names,) if isinstance(names, str) else names or ()
  return math.prod(shape[name] for name in names)
