"""The edge probe: classes of spans, or of pairs, from frozen layers.

Tenney et al. 2019, as nyu-mll/jiant-v1-legacy has it (edge_probing.py,
simple_modules.py).

Shapes: L layer with the embeddings, B row, T piece of a row, D width, P target
of a row, H projection, K class.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from models.layers import LOWEST

Array = jax.Array

HIDDEN_DIM, DROPOUT_RATE = 256, 0.3
NORM_EPSILON = 1e-5  # PyTorch's
LAYER_WEIGHTS, LAYER_SCALE = 'layer_weights', 'layer_scale'


def _uniform(fan_in: int) -> Any:
  """Returns PyTorch's initializer of linear maps, weights and biases alike."""
  limit = 1 / math.sqrt(fan_in)
  return lambda rng, shape, dtype=jnp.float32: jax.random.uniform(
    rng, shape, dtype, -limit, limit
  )


def _linear(dim: int, fan_in: int, name: str) -> nn.Dense:
  init = _uniform(fan_in)
  return nn.Dense(dim, kernel_init=init, bias_init=init, name=name)


class EdgeProbe(nn.Module):
  """A two-layer classifier of pooled spans, over a mix of layers.

  Attributes:
    num_layers: L.
    num_classes: K.
    num_spans: 1 or 2, of each target; each has its own projection and pooling.
    hidden_dim: H, of the projections and of the classifier.
    dropout_rate: of the classifier's hidden layer, in training.
  """

  num_layers: int
  num_classes: int
  num_spans: int = 1
  hidden_dim: int = HIDDEN_DIM
  dropout_rate: float = DROPOUT_RATE

  @nn.compact
  def __call__(
    self,
    layers: Sequence[Array],
    spans: Sequence[Array],
    used_L: Array,
    keep_BPH: Array | None = None,
  ) -> Array:
    """Returns the logits of the classes, float32 [B, P, K].

    Args:
      layers: of each span's side, float [L, B, T, D], embeddings first. A row
        has pieces of any number of sentences; sides may differ in T.
      spans: of each side, int [B, P, 2], (first piece, piece after the last);
        an empty one stands for padding.
      used_L: bool [L], the layers of the mix, one or more.
      keep_BPH: bool [B, P, H], False where dropout takes an element away; None
        without dropout.
    """
    weights_L = self.param(
      LAYER_WEIGHTS, nn.initializers.zeros, (self.num_layers,)
    )
    scale = self.param(LAYER_SCALE, nn.initializers.ones, ())
    shares_L = scale * mix_shares(weights_L, used_L)
    pooled = []
    for side in range(self.num_spans):
      # A product with a matrix, whose gradient takes a third of a sum's time on
      # a CPU; in full precision, as an accelerator would round the shares.
      flat_LN = layers[side].reshape(self.num_layers, -1)
      mixed_N = jnp.dot(shares_L, flat_LN, precision='highest')
      mixed_BTD = mixed_N.reshape(layers[side].shape[1:])
      fan_in = mixed_BTD.shape[-1]
      states_BTH = _linear(self.hidden_dim, fan_in, f'project_{side}')(
        mixed_BTD
      )
      # The source's bias of the scores changes no softmax.
      scorer_H = self.param(
        f'scorer_{side}', _uniform(self.hidden_dim), (self.hidden_dim,)
      )
      pooled.append(_pool(states_BTH, states_BTH @ scorer_H, spans[side]))
    width = self.num_spans * self.hidden_dim
    hidden_BPH = jnp.tanh(
      _linear(self.hidden_dim, width, 'hidden')(jnp.concatenate(pooled, -1))
    )
    hidden_BPH = nn.LayerNorm(
      epsilon=NORM_EPSILON, use_fast_variance=False, name='norm'
    )(hidden_BPH)
    if keep_BPH is not None:
      hidden_BPH = jnp.where(keep_BPH, hidden_BPH / (1 - self.dropout_rate), 0)
    return _linear(self.num_classes, self.hidden_dim, 'classes')(hidden_BPH)


def mix_shares(weights_L: Array, used_L: Array) -> Array:
  """Returns the softmax of the weights of used layers; 0 of the others."""
  return jax.nn.softmax(jnp.where(used_L, weights_L, -jnp.inf))


def _pool(states_BTH: Array, scores_BT: Array, spans_BP2: Array) -> Array:
  """Returns averages over spans by the softmax of scores, [B, P, H]."""
  places_T = jnp.arange(states_BTH.shape[1])
  inside_BPT = (places_T >= spans_BP2[..., :1]) & (
    places_T < spans_BP2[..., 1:]
  )
  scores_BPT = jnp.where(inside_BPT, scores_BT[:, None], LOWEST)
  shares_BPT = jax.nn.softmax(scores_BPT)
  return jnp.einsum('bpt,bth->bph', shares_BPT, states_BTH)


def loss(
  logits_BPK: Array, labels_BPK: Array, mask_BP: Array
) -> tuple[Array, Array]:
  """Returns the sum of the sigmoid cross-entropies in nats, and its weight.

  `labels_BPK` are 0 or 1; the weight is the number of targets, True in
  `mask_BP`, times K.
  """
  # The logarithm of 1 + exp(x), less x of the right classes; no overflow.
  losses_BPK = (
    jnp.maximum(logits_BPK, 0)
    - logits_BPK * labels_BPK
    + jnp.log1p(jnp.exp(-jnp.abs(logits_BPK)))
  )
  total = jnp.sum(jnp.where(mask_BP[..., None], losses_BPK, 0))
  return total, mask_BP.sum() * logits_BPK.shape[-1]


def count(
  logits_BPK: Array, labels_BPK: Array, mask_BP: Array
) -> tuple[Array, Array]:
  """Returns how often each class is found rightly, and found, int32 [K].

  A class is found in a target where its logit is 0 or more.
  """
  found_BPK = (logits_BPK >= 0) & mask_BP[..., None]
  add = functools.partial(jnp.sum, axis=(0, 1), dtype=jnp.int32)
  return add(found_BPK & (labels_BPK > 0)), add(found_BPK)
