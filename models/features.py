"""Hidden states as features of tasks, and the names of task heads."""

from collections.abc import Callable, Collection

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import norms

Array = jax.Array

HEADS = ('classifier', 'token_classifier', 'span_classifier')

# Features (Devlin et al. 2018, table 7) from an encoder's 'hidden' [B, T, D] or
# 'layers' [L + 1, B, T, D]. Layer 0 is the embeddings; 'sum_all' omits it.
FEATURES: dict[str, Callable[[dict[str, Array]], Array]] = {
  'last': lambda outputs: outputs['hidden'],
  'first': lambda outputs: outputs['layers'][0],
  'second_to_last': lambda outputs: outputs['layers'][-2],
  'sum_last_4': lambda outputs: _last_4(outputs).sum(axis=0),
  'concat_last_4': lambda outputs: jnp.concatenate(_last_4(outputs), axis=-1),
  'sum_all': lambda outputs: outputs['layers'][1:].sum(axis=0),
}
LAST_4 = ('sum_last_4', 'concat_last_4')


def hidden_layers(model: nn.Module, params: dict, *inputs: Array) -> Array:
  """Returns the outputs of embeddings and blocks, [L + 1, B, T, D].

  The last is the model's 'hidden', with the final norm of a GPT-2. Call it in a
  jit, which drops the unused heads. `params` are unboxed; a Bert's
  `mlm_positions` among `inputs` may have the shape [B, 0].
  """
  outputs = model.apply(
    {'params': params}, *inputs, train=False, all_layers=True
  )
  return outputs['layers']


def token_vectors(model: nn.Module, params: dict) -> Array:
  """Returns each token's own embedding, without a position, float32 [V, D].

  The rows of the table; of a Bert, behind the layer norm of its embeddings.
  `params` are unboxed.
  """
  embeddings = params['embeddings']
  table_VD = embeddings['tokens']['embedding']
  if model.FORM == 'gpt':
    return table_VD
  norm = norms.LayerNorm(model.layer_norm_epsilon, has_bias=model.biases)
  return norm.apply({'params': embeddings['layer_norm']}, table_VD)


def cast_weights(params: dict, dtype: jax.typing.DTypeLike) -> dict:
  """Returns unboxed parameters with matrices cast once, not at every call."""

  def cast(path: tuple, leaf: Array) -> Array:
    is_matrix = path[-1].key in ('kernel', 'embedding')
    return leaf.astype(dtype) if is_matrix else leaf

  return jax.tree_util.tree_map_with_path(cast, params)


def _last_4(outputs: dict[str, Array]) -> Array:
  num_layers = len(outputs['layers']) - 1
  if num_layers < 4:
    raise ValueError(
      f'the features read the last 4 layers, but the encoder has {num_layers}'
    )
  return outputs['layers'][-4:]


def check_name(field: str, name: str, known: Collection[str]) -> None:
  """Checks that a field's value is a known name."""
  if name not in known:
    raise ValueError(f'{field} is {name!r}, expected one of {", ".join(known)}')
