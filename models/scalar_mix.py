"""ELMo's learned average of a model's layers (Peters et al. 2018, eq. 1).

Shapes: L layers with the embedding layer, B batch, T position, D features. The
layers come from `elmo.Elmo`, or from `features.hidden_layers`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models.layers import named

Array = jax.Array

# Parameter names that `regularisation` looks for: no other module may use them.
WEIGHTS = 'mix_weights'
SCALE = 'mix_scale'

EPSILON = 1e-12  # added to the variance: bilm-tf, elmo.py


class ScalarMix(nn.Module):
  """gamma * sum_l softmax(w)_l * layers[l], w and gamma learned.

  w starts at 0 and gamma at 1: the plain mean. A task names each of its mixes.

  Attributes:
    num_layers: L.
    layer_norm: bring each layer to mean 0 and variance 1 first, over all
      unmasked positions of the batch and all D features, without gain or bias.
    use_top_only: scale only the last layer by gamma, without norm, as released.
  """

  num_layers: int
  layer_norm: bool = False
  use_top_only: bool = False

  @nn.compact
  def __call__(self, layers_LBTD: Array, mask_BT: Array) -> Array:
    """Returns the mix [B, T, D] of float [L, B, T, D], embeddings first.

    `mask_BT` is for `layer_norm` only: masked positions do not influence the
    others, but are mixed and normalised too, as in the released program
    (bilm-tf, elmo.py): a padding of zeros does not stay zero.
    """
    if layers_LBTD.ndim != 4 or layers_LBTD.shape[0] != self.num_layers:
      raise ValueError(
        f'layers are {layers_LBTD.shape}, expected [{self.num_layers}, B, T, D]'
      )
    if mask_BT.shape != layers_LBTD.shape[1:3]:
      raise ValueError(
        f'the mask is {mask_BT.shape}, expected one value for each position of'
        f' the layers, {layers_LBTD.shape[1:3]}'
      )
    gamma = self.param(SCALE, named(nn.initializers.ones, ()), ())
    if self.use_top_only:
      mixed_BTD = layers_LBTD[-1].astype(jnp.float32)
    else:
      weights_L = self.param(
        WEIGHTS, named(nn.initializers.zeros, ('layers',)), (self.num_layers,)
      )
      x_LBTD = layers_LBTD.astype(jnp.float32)
      if self.layer_norm:
        x_LBTD = _normalize(x_LBTD, mask_BT)
      # A sum, not a matrix product, whose factors a TPU would round.
      share_L111 = jax.nn.softmax(weights_L)[:, None, None, None]
      mixed_BTD = jnp.sum(share_L111 * x_LBTD, axis=0)
    return (gamma * mixed_BTD).astype(layers_LBTD.dtype)


def _normalize(x_LBTD: Array, mask_BT: Array) -> Array:
  """Returns float32 layers, each at mean 0 and variance 1 where unmasked."""
  mask_BT1 = mask_BT[:, :, None]
  # 0, not NaN, for a batch without real tokens.
  count = jnp.maximum(mask_BT.sum(), 1) * x_LBTD.shape[-1]

  def mean(x_LBTD: Array) -> Array:
    masked_LBTD = jnp.where(mask_BT1, x_LBTD, 0)
    return masked_LBTD.sum(axis=(1, 2, 3), keepdims=True) / count

  x_LBTD = x_LBTD - mean(x_LBTD)
  return x_LBTD * lax.rsqrt(mean(jnp.square(x_LBTD)) + EPSILON)


def regularisation(params: Any, strength: float) -> Array:
  """Returns the penalty strength * sum(w^2) over all mixes, float32 [].

  A large strength (1) keeps a mix near the plain mean, a small one (0.001) lets
  it choose (Peters et al. 2018, section 5.1). Raises ValueError without a mix.
  """
  leaves = jax.tree_util.tree_leaves_with_path(nn.meta.unbox(params))
  mixes: dict[str, list[Array]] = {WEIGHTS: [], SCALE: []}
  for path, leaf in leaves:
    name = getattr(path[-1], 'key', None) if path else None
    if name in mixes:
      mixes[name].append(leaf)
  if not mixes[SCALE]:
    raise ValueError(
      f'there is no ScalarMix among these {len(leaves)} parameters (none is'
      f' named {SCALE}): pass the parameters of the whole task model'
    )
  squares = [jnp.square(weights_L).sum() for weights_L in mixes[WEIGHTS]]
  return strength * jnp.asarray(sum(squares), jnp.float32)
