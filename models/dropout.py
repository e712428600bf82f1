"""Dropout, whose masks are drawn again in the backward pass.

A mask is a hash of each element's place and of its row's seeds: as cheap to
draw twice as to keep, the same on every mesh, and drawn inside of kernels too.

Shapes: B batch.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import struct
from jax import lax

Array = jax.Array

ROWS = 2**12  # of a mask at most: the layer's next mask begins after them
_SALT = np.int32(0x9E3779B9 - 2**32)  # its multiples lie far apart


def threshold(rate: float) -> int:
  """Returns how many of the 2**32 random values drop an element."""
  dropping = round(rate * 2**32)
  if not 0 <= dropping < 2**32:
    raise ValueError(f'dropout rate is {rate}, expected 0 <= rate < 1')
  return dropping


def kept_share(rate: float) -> float:
  """Returns the exact probability that dropout keeps an element."""
  return 1 - threshold(rate) / 2**32


def check_length(length: int) -> None:
  """Checks that the masks of a layer have no rows in common."""
  if length > ROWS:
    raise ValueError(
      f'sequences are {length} tokens long, expected at most {ROWS} in training'
      ' with dropout'
    )


@struct.dataclass
class Seeds:
  """The seeds of the dropout masks of a batch's rows.

  Attributes:
    first: int32 [B], of `draw_seeds`.
    second: likewise.
    layer: int32, of `salt`, tells layers apart.
    mask: tells the masks of a layer apart.
  """

  first: Array
  second: Array
  layer: Array | int = 0
  mask: int = struct.field(pytree_node=False, default=0)


def draw_seeds(rng: Array, rows: Sequence[int]) -> Seeds:
  """Returns the seeds of a dropout mask for each row.

  They do not depend on the sharding (JAX's partitionable threefry).
  """
  bits = jax.random.bits(rng, (2, *rows), jnp.uint32)
  return Seeds(*lax.bitcast_convert_type(bits, jnp.int32))


def salt(number: Any) -> Any:
  """Returns int32 that tells masks apart by their number, or numbers."""
  with np.errstate(over='ignore'):  # it wraps around
    return number * _SALT


def mix(x: Array, first: Array, second: Array, layer: Array | int = 0) -> Array:
  """Returns a hash of int32 numbers, int32, of which the high bits are best.

  Multiplications and shifts of lowbias32 (Wellons 2018, hash-prospector), with
  the second seed between its rounds, and the layer's salt at both. Two's
  complement wraps around everywhere.
  """
  x = x ^ layer ^ first
  x = (x ^ lax.shift_right_logical(x, jnp.full_like(x, 16))) * np.int32(
    0x7FEB352D
  )
  x = x + layer + second
  return (x ^ lax.shift_right_logical(x, jnp.full_like(x, 15))) * np.int32(
    0x846CA68B - 2**32
  )


def is_kept(seeds: Seeds, rows: Array, columns: Array, rate: float) -> Array:
  """Returns whether dropout keeps elements, bool, by their row and column.

  `rows` and `columns` are int32 that broadcast to [..., rows, columns], the
  seeds are [...]. Rows lie far apart, at multiples of the salt: numbered one
  after the other, elements 30 and 34 rows of 1,024 apart would be correlated.
  """
  first, second = seeds.first[..., None, None], seeds.second[..., None, None]
  place = columns + salt(rows + seeds.mask * ROWS)
  hashed = mix(place, first, second, seeds.layer)
  return hashed >= np.int32(threshold(rate) - 2**31)


def keep_mask(seeds: Seeds, shape: Sequence[int], rate: float) -> Array:
  """Returns the dropout mask, bool of `shape`, True at the elements to keep."""
  shape = tuple(shape)
  matrix = (1,) * (2 - len(shape)) + shape
  rows = lax.broadcasted_iota(jnp.int32, matrix, len(matrix) - 2)
  columns = lax.broadcasted_iota(jnp.int32, matrix, len(matrix) - 1)
  return is_kept(seeds, rows, columns, rate).reshape(shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def drop(x: Array, seeds: Seeds, rate: float) -> Array:
  """Returns x after dropout by seeds, see `apply`."""
  keep = keep_mask(seeds, x.shape, rate)
  return jnp.where(keep, x * jnp.asarray(1 / kept_share(rate), x.dtype), 0)


def _drop_backward(rate: float, seeds: Seeds, gradient: Array) -> tuple:
  # The barrier keeps the compiler from storing the mask for both passes.
  return drop(gradient, lax.optimization_barrier(seeds), rate), None


drop.defvjp(
  lambda x, seeds, rate: (drop(x, seeds, rate), seeds), _drop_backward
)


def apply(rng: Array, x: Array, rate: float) -> Array:
  """Returns x after dropout, scaled by the exact `kept_share`.

  The mask is drawn again in the backward pass.
  """
  return drop(x, draw_seeds(rng, x.shape[:-2]), rate)


class Dropout(nn.Module):
  """Dropout with keys of the rng stream 'dropout'; rate 0 needs no key."""

  rate: float

  def __call__(self, x: Array) -> Array:
    """Returns x with dropout."""
    if self.rate == 0:
      return x
    return apply(self.make_rng('dropout'), x, self.rate)
