"""What tells the layers of a stack apart: windows, rotary positions.

Shapes: B batch, T query position, S key position, N heads, H head, L layers,
K kinds of layers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


class Layout(NamedTuple):
  """A layer's place in its stack, and the rotations of its positions.

  Attributes:
    is_first: bool, of each layer [L]; inside of a layer a scalar.
    is_local: whether a position sees its window alone; likewise.
    cos: float32 [2, B, T, 1, H / 2], of global and of local layers; None where
      positions are not rotated.
    sin: likewise.
  """

  is_first: Array
  is_local: Array
  cos: Array | None = None
  sin: Array | None = None


def local_layers(num_layers: int, window: int, global_every: int) -> np.ndarray:
  """Returns bool [L]: with a window, all but every `global_every`th layer.

  The first is global (Warner et al. 2024, "Smarter, Better, Faster, Longer").
  """
  numbers = np.arange(num_layers)
  return (numbers % global_every != 0) & (window > 0)


def make(
  num_layers: int,
  positions_BT: Array,
  head: int,
  bases: tuple[float, float] | None,
  *,
  max_length: int,
  window: int,
  global_every: int,
) -> Layout:
  """Returns the layout of all layers of a stack.

  `bases` are the longest wavelengths over 2 pi of the rotations in global and
  in local layers (Su et al. 2021, "RoFormer", section 3.2.2); None: none.
  Positions are below `max_length`. Their cosines are looked up in a constant:
  XLA's CPU compiler would compute them again in each place of each layer.
  """
  layout = Layout(
    is_first=jnp.arange(num_layers) == 0,
    is_local=jnp.asarray(local_layers(num_layers, window, global_every)),
  )
  if bases is None:
    return layout
  shares = np.arange(0, head, 2, dtype=np.float32) / head
  rates_KH = np.stack([np.float32(base) ** -shares for base in bases])
  positions_T1 = np.arange(max_length, dtype=np.float32)[:, None]
  angles_KTH = positions_T1 * rates_KH[:, None]
  tables = jnp.asarray([np.cos(angles_KTH), np.sin(angles_KTH)])
  cos, sin = tables[:, :, positions_BT, None]
  return layout._replace(cos=cos, sin=sin)


def rotate(x_BTNH: Array, layout: Layout) -> Array:
  """Returns queries or keys turned by their positions, in their dtype.

  Each number of the first half of a head is paired with one of the second.
  """
  cos_BT1H, sin_BT1H = (
    jnp.where(layout.is_local, table[1], table[0])
    for table in (layout.cos, layout.sin)
  )
  first, second = jnp.split(x_BTNH.astype(jnp.float32), 2, axis=-1)
  turned = (
    first * cos_BT1H - second * sin_BT1H,
    second * cos_BT1H + first * sin_BT1H,
  )
  return jnp.concatenate(turned, axis=-1).astype(x_BTNH.dtype)


def near(length: int, slots: int, first: Array | int, window: int) -> Array:
  """Returns bool [T, S], True where position first + t is near slot s.

  Near are the `window` positions on each side, and itself.
  """
  places_T1 = first + jnp.arange(length)[:, None]
  return jnp.abs(places_T1 - jnp.arange(slots)) <= window
