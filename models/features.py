"""The hidden states of every layer of a transformer, for use as features."""

import jax

from models import bert, gpt

Array = jax.Array


def hidden_layers(
  model: bert.Bert | gpt.Gpt, params: dict, *inputs: Array
) -> Array:
  """Returns the output of a model's embeddings and of each of its blocks.

  Call it inside a jit: the compiler then leaves out the heads, which nobody
  asks for.

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
  outputs = model.apply(
    {'params': params}, *inputs, train=False, all_layers=True
  )
  return outputs['layers']


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
