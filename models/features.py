"""Hidden states as features: which layers, and the names of their heads.

Shapes: B batch, T position, D embed, L layers.
"""

from collections.abc import Callable, Collection

import jax
import jax.numpy as jnp

from models import bert, gpt

Array = jax.Array


# Under these names a head lies among the parameters.
HEADS = ('classifier', 'token_classifier', 'span_classifier')


# What can be read of an encoder's outputs: 'hidden' [B, T, D] and, but for the
# first, 'layers' [L + 1, B, T, D], of which 0 is the embeddings (Devlin et al.
# 2018, table 7). 'sum_all' is of the L layers, without the embeddings.
FEATURES: dict[str, Callable[[dict[str, Array]], Array]] = {
  'last': lambda outputs: outputs['hidden'],
  'first': lambda outputs: outputs['layers'][0],
  'second_to_last': lambda outputs: outputs['layers'][-2],
  'sum_last_4': lambda outputs: _last_4(outputs).sum(axis=0),
  'concat_last_4': lambda outputs: jnp.concatenate(_last_4(outputs), axis=-1),
  'sum_all': lambda outputs: outputs['layers'][1:].sum(axis=0),
}


LAST_4 = ('sum_last_4', 'concat_last_4')


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


def _last_4(outputs: dict[str, Array]) -> Array:
  num_layers = len(outputs['layers']) - 1
  if num_layers < 4:
    raise ValueError(
      f'features are of the last 4 layers, but the encoder has {num_layers}'
    )
  return outputs['layers'][-4:]


def check_name(field: str, name: str, known: Collection[str]) -> None:
  """Raises a ValueError if a field's value is none of the known."""
  if name not in known:
    raise ValueError(f'{field} is {name!r}, expected one of {", ".join(known)}')
