"""Initial values of parameters, as the programs of the papers draw them.

Shapes: K towers, P projection, G the four gates, F cells.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from models.layers import Initializer

Array = jax.Array

FORGET_GATE = 2  # in TensorFlow's order of the gates, i j f o
# Added to the forget gate at run time, not stored: TensorFlow's LSTMCell.
FORGET_BIAS = 1.0


def glorot_uniform(fan_in: int, fan_out: int) -> Initializer:
  """Returns TensorFlow's default initializer (Glorot and Bengio 2010, eq. 16).

  It is U(-a, a) with a^2 = 6 / (fan_in + fan_out), PyTorch's Xavier uniform.
  """
  return symmetric_uniform(math.sqrt(6 / (fan_in + fan_out)))


def symmetric_uniform(limit: float) -> Initializer:
  """Returns U(-limit, limit)."""

  def draw(rng: Array, shape: tuple[int, ...]) -> Array:
    return jax.random.uniform(rng, shape, minval=-limit, maxval=limit)

  return draw


def _tensorflow_lstm(inputs: int, P: int, F: int) -> tuple[Initializer, ...]:
  # Both kernels are one matrix on [x; h] in the release: one fan.
  draw = glorot_uniform(inputs + P, 4 * F)
  return draw, draw, nn.initializers.zeros


def _torch_lstm(inputs: int, P: int, F: int) -> tuple[Initializer, ...]:
  del inputs, P
  draw = symmetric_uniform(1 / math.sqrt(F))

  def draw_bias(rng: Array, shape: tuple[int, ...]) -> Array:
    of_input, of_hidden = jax.random.split(rng)
    bias_KGF = draw(of_input, shape) + draw(of_hidden, shape)
    return bias_KGF.at[:, FORGET_GATE].add(-FORGET_BIAS)

  return draw, draw, draw_bias


def _orthogonal_lstm(inputs: int, P: int, F: int) -> tuple[Initializer, ...]:
  del P

  def draw_recurrent(rng: Array, shape: tuple[int, ...]) -> Array:
    K, P, G, F = shape
    draw = nn.initializers.orthogonal()
    kernels = [draw(key, (P, G * F)) for key in jax.random.split(rng, K)]
    return jnp.stack(kernels).reshape(shape)

  # A forget bias of 1 is FORGET_BIAS.
  return (
    glorot_uniform(inputs, 4 * F),
    draw_recurrent,
    nn.initializers.zeros,
  )


# (inputs, P, F) -> initializers of an LSTM's input kernel [K, inputs, G, F],
# recurrent kernel [K, P, G, F] and bias [K, G, F].
LSTMS: dict[str, Callable[[int, int, int], tuple[Initializer, ...]]] = {
  'tensorflow': _tensorflow_lstm,
  # torch.nn.LSTM, where each gate has two biases: its default.
  'torch': _torch_lstm,
  # All gates one matrix, Xavier uniform on the input, orthogonal on the hidden
  # state; forget bias 1: AllenNLP 0.9.0, training_config/esim.jsonnet.
  'orthogonal': _orthogonal_lstm,
}


# (fan in, fan out) -> initializers of a linear layer's kernel and bias.
LINEARS: dict[str, Callable[[int, int], tuple[Initializer, Initializer]]] = {
  # torch.nn.Linear's default.
  'torch': lambda fan_in, fan_out: (
    symmetric_uniform(1 / math.sqrt(fan_in)),
    symmetric_uniform(1 / math.sqrt(fan_in)),
  ),
  # AllenNLP 0.9.0, training_config/esim.jsonnet.
  'xavier': lambda fan_in, fan_out: (
    glorot_uniform(fan_in, fan_out),
    nn.initializers.zeros,
  ),
}
