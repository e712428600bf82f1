"""What the head of a task is called, and which hidden states it may read.

Shapes: B batch, T position, D embed, L layers.
"""

from collections.abc import Callable, Collection

import jax
import jax.numpy as jnp

Array = jax.Array

# Under these names a head lies among the parameters.
HEADS = ('classifier', 'token_classifier', 'span_classifier')


def _last_4(outputs: dict[str, Array]) -> Array:
  num_layers = len(outputs['layers']) - 1
  if num_layers < 4:
    raise ValueError(
      f'features are of the last 4 layers, but the encoder has {num_layers}'
    )
  return outputs['layers'][-4:]


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


def check_name(field: str, name: str, known: Collection[str]) -> None:
  """Raises a ValueError if a field's value is none of the known."""
  if name not in known:
    raise ValueError(f'{field} is {name!r}, expected one of {", ".join(known)}')
