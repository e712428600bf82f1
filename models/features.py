"""The hidden states of every layer of a transformer, for use as features."""

from typing import Any

import jax
import jax.numpy as jnp

from models import bert, gpt

Array = jax.Array


def hidden_layers(
  model: bert.Bert | gpt.Gpt, params: dict, *inputs: Array
) -> Array:
  """Returns the output of a model's embeddings and of each of its blocks.

  Call it inside a jit: the compiler then leaves out the heads and the attention
  probabilities, which nobody asks for.

  Args:
    model: with its layers stacked or not, in a loop or unrolled.
    params: its parameters, unboxed.
    *inputs: what its `__call__` takes, in that order; for a Bert without
      predictions, `mlm_positions` may be of shape [B, 0].

  Returns:
    [L + 1, B, T, D] in the model's dtype, without dropout. The last one is what
    the model returns as 'hidden': of a GPT-2, its last block's output after the
    final norm, which the others have not seen.
  """
  outputs, variables = model.apply(
    {'params': params}, *inputs, train=False, mutable=['intermediates']
  )
  sown = variables['intermediates']
  (embedded_BTD,) = sown['embedded']
  blocks = _block_outputs(sown, model.num_layers)
  return jnp.stack([embedded_BTD, *blocks[:-1], outputs['hidden']])


def _block_outputs(sown: dict[str, Any], num_layers: int) -> list[Array]:
  """Returns what the blocks sowed, L of [B, T, D], stacked by a scan or not."""
  if 'layers' in sown:
    (hidden_LBTD,) = sown['layers']['hidden']
    return list(hidden_LBTD)
  return [sown[f'layers_{i}']['hidden'][0] for i in range(num_layers)]


def cast_weights(params: dict, dtype: jax.typing.DTypeLike) -> dict:
  """Returns parameters whose matrices are in the dtype they are multiplied in.

  What a model computes stays the same; it casts nothing, call after call.

  Args:
    params: unboxed.
    dtype: of the model.
  """

  def cast(path: tuple, leaf: Array) -> Array:
    is_matrix = path[-1].key in ('kernel', 'embedding')
    return leaf.astype(dtype) if is_matrix else leaf

  return jax.tree_util.tree_map_with_path(cast, params)
