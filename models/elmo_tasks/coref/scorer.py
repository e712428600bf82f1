"""Two ReLU layers and a score, whose first layer's input may be in parts.

Shapes: D inputs, F hidden, N row.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import dropout, initial, layers
from models.elmo_tasks.coref import coupled_lstm
from models.layers import Dtype, Initializer

Array = jax.Array

# (fan in, fan out) -> initializers of a linear layer's kernel and bias.
STARTS = {
  # TensorFlow's defaults, as in the releases of 2017 and 2018.
  'tensorflow': lambda fan_in, fan_out: (
    initial.glorot_uniform(fan_in, fan_out),
    coupled_lstm.vector_init,
  ),
  # Xavier normal, biases PyTorch's: AllenNLP 0.9.0, coref.jsonnet.
  'allennlp': lambda fan_in, fan_out: (
    normal(math.sqrt(2 / (fan_in + fan_out))),
    initial.symmetric_uniform(1 / math.sqrt(fan_in)),
  ),
}


def normal(stddev: float) -> Initializer:
  """Returns an initializer of a normal distribution about 0."""
  return lambda rng, shape: stddev * jax.random.normal(rng, shape)


class ScorerWeights(NamedTuple):
  """Kernels and biases of a `Scorer`, in its dtype; biases are [1, width]."""

  first_DF: Array
  first_bias_1F: Array
  second_FF: Array
  second_bias_1F: Array
  score_F1: Array
  score_bias_11: Array


class Scorer(nn.Module):
  """The parameters of two hidden layers and a score.

  Attributes:
    hidden_dim: F of both layers.
    start: one of `STARTS`.
    dtype: of activations.
  """

  hidden_dim: int
  start: str
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, width: int) -> ScorerWeights:
    """Returns the weights for `width` inputs."""
    F = self.hidden_dim
    make = functools.partial(linear, start=self.start, dtype=self.dtype)
    return ScorerWeights(
      *make(width, F, name='hidden_0').weights((width,)),
      *make(F, F, name='hidden_1').weights((F,)),
      *make(F, 1, name='score', out_name='classes').weights((F,)),
    )


def linear(
  fan_in: int,
  fan_out: int,
  *,
  start: str,
  name: str,
  out_name: str = 'mlp',
  dtype: Dtype = jnp.float32,
) -> layers.Linear:
  """Returns a linear layer, whose parameters are the caller's under `name`."""
  kernel_init, bias_init = STARTS[start](fan_in, fan_out)
  return layers.Linear(
    features=(fan_out,),
    in_names=('embed',),
    out_names=(out_name,),
    kernel_init=kernel_init,
    bias_init=bias_init,
    dtype=dtype,
    name=name,
  )


class Drop(NamedTuple):
  """Dropout by the places of rows, which gives each part of rows its own mask.

  Attributes:
    seeds: of leading axes that broadcast with those of the rows' numbers; its
      layer is `dropout.salt` of a number below 2**16.
    rows: int32, numbers of rows, shaped as the activations but the last axis.
    rate: of dropout.
    with_features: drop embedded features, too.
  """

  seeds: dropout.Seeds
  rows: Array
  rate: float
  with_features: bool = True

  def __call__(self, x: Array, mask: int) -> Array:
    """Returns x [..., rows, F] with the dropout mask of number `mask`."""
    layer = self.seeds.layer + dropout.salt(mask * 2**16)
    keep = dropout.is_kept(
      self.seeds.replace(layer=layer),
      self.rows[..., None],
      jnp.arange(x.shape[-1], dtype=jnp.int32),
      self.rate,
    )
    scale = jnp.asarray(1 / dropout.kept_share(self.rate), x.dtype)
    return jnp.where(keep, x * scale, 0)


def drop_features(drop: Drop | None, x: Array) -> Array:
  """Returns embedded features [..., rows, P] with dropout, if there is one."""
  return drop(x, 2) if drop and drop.with_features else x


def finish(weights: ScorerWeights, hidden: Array, drop: Drop | None) -> Array:
  """Returns float32 scores [...] of the first layer's products [..., F].

  The first layer's bias is not yet in them. `drop` uses its masks 0 and 1.
  """
  hidden = nn.relu(hidden + weights.first_bias_1F[0])
  hidden = hidden if drop is None else drop(hidden, 0)
  hidden = nn.relu(hidden @ weights.second_FF + weights.second_bias_1F[0])
  hidden = hidden if drop is None else drop(hidden, 1)
  scores = jnp.einsum(
    '...F,FC->...C',
    hidden,
    weights.score_F1,
    preferred_element_type=jnp.float32,
  )
  return scores[..., 0] + weights.score_bias_11[0, 0].astype(jnp.float32)
