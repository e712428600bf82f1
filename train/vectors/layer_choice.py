"""Chosen layers, K of L with the embeddings, apart or as one."""

import functools

import jax
import jax.numpy as jnp

from models import scalar_mix
from train.vectors.request import Choice


def choose(layers_LBTD: jax.Array, choice: Choice) -> jax.Array:
  """Returns layers as [B, K, T, D], or one [B, T, D or K D], in float32."""
  layers_LBTD = layers_LBTD.astype(jnp.float32)
  if choice.layers == 'top':
    return layers_LBTD[-1]
  if choice.layers not in ('all', 'mean'):
    layers_LBTD = layers_LBTD[jnp.array(choice.layers)]
  if 'mean' in (choice.layers, choice.combine):
    return layers_LBTD.mean(axis=0)
  if choice.combine == 'concat':
    return jnp.concatenate(list(layers_LBTD), axis=-1)
  if choice.combine == 'sum':
    return layers_LBTD.sum(axis=0)
  if choice.combine == 'mix':
    *weights, scale = choice.mix
    params = {
      scalar_mix.WEIGHTS: jnp.array(weights),
      scalar_mix.SCALE: jnp.array(scale),
    }
    everywhere_BT = jnp.ones(layers_LBTD.shape[1:3], bool)
    mix = scalar_mix.ScalarMix(len(weights))
    return mix.apply({'params': params}, layers_LBTD, everywhere_BT)
  return layers_LBTD.swapaxes(0, 1)


@functools.lru_cache  # tracing takes a millisecond
def empty(choice: Choice, num_layers: int, width: int) -> tuple[int, ...]:
  """Returns the shape of the vectors of a text without tokens, D = `width`."""
  nothing = jax.ShapeDtypeStruct((num_layers + 1, 1, 0, width), jnp.float32)
  return jax.eval_shape(lambda x: choose(x, choice), nothing).shape[1:]
