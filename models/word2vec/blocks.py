"""Blocks of a text with the words in reach of them, and sums over neighbours.

Shapes: B row of text, T word of a row, D embed, N block of neighbouring words
of a row, C word of a block, O offset of a neighbour, 2 w of them with w the
window, K word in reach of a block.
"""

import jax
import jax.numpy as jnp

Array = jax.Array
BLOCK = 64  # words that share samples: products large enough, samples various


def offsets(w: int) -> list[int]:
  """Returns the offsets of a window's neighbours, in rising order."""
  return [offset for offset in range(-w, w + 1) if offset]


def by_offset(x: Array, w: int) -> list[Array]:
  """Returns a block's neighbours, [B, N, K, ...] as [B, N, C, ...] each."""
  return [x[:, :, w + o : w + o + BLOCK] for o in offsets(w)]


def sum_neighbours(x_BNKD: Array, which_OBNC: list[Array]) -> Array:
  """Returns the sums of some neighbours of each word, [B, N, C, D].

  XLA makes one loop of it, on a CPU 4 times as fast as products with matrices
  of zeros and ones. Of sums without blocks, scores take 10 times as long.
  """

  def add(x_BNKD: Array) -> Array:
    each = by_offset(x_BNKD, len(which_OBNC) // 2)
    return sum(
      (which_BNC.astype(x.dtype)[..., None] * x).astype(jnp.float32)
      for which_BNC, x in zip(which_OBNC, each, strict=True)
    )

  # As a TPU's products: half the bytes of rows travel to the other devices.
  return jax.lax.platform_dependent(
    x_BNKD, tpu=lambda x: add(x.astype(jnp.bfloat16)), default=add
  )


def with_halo(x: Array, w: int, fill: float) -> Array:
  """Returns blocks with their neighbours, [B, T, ...] as [B, N, K, ...]."""
  rows, length, *rest = x.shape
  blocks = x.reshape(rows, length // BLOCK, BLOCK, *rest)
  padded = jnp.pad(
    blocks,
    ((0, 0), (1, 1), *((0, 0),) * (blocks.ndim - 2)),
    constant_values=fill,
  )
  before = padded[:, :-2, BLOCK - w :]
  return jnp.concatenate([before, blocks, padded[:, 2:, :w]], axis=2)


def add_halo(x_BNKD: Array, w: int) -> Array:
  """Adds blocks where they overlap: the transpose of `with_halo`."""
  rows, num_blocks, _, dim = x_BNKD.shape
  before, inner, behind = jnp.split(x_BNKD, [w, w + BLOCK], axis=2)

  def place(x: Array, block: int, first: int) -> Array:
    around = (1 + block, 1 - block), (first, BLOCK - w - first)
    return jnp.pad(x, ((0, 0), *around, (0, 0)))[:, 1:-1]

  whole = inner + place(before, -1, BLOCK - w) + place(behind, 1, 0)
  return whole.reshape(rows, num_blocks * BLOCK, dim)
