"""Layer norm in two parts, so that its result need not be kept in memory.

A block measures the mean and variance of its sum; the next block applies them
where it reads the sum.

Shapes: D embed. Statistics are float32.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models.layers import Dtype, named, read_param

Array = jax.Array


class Sum(NamedTuple):
  """A residual sum, and the layer norm over D that it still has to pass.

  Attributes:
    x: [..., D].
    mean: float32 [..., 1].
    factor: 1 / standard deviation, likewise.
    share: 1 / D; 0 if mean and factor do not depend on x.
    scale: float32 [1, D].
    bias: likewise.
  """

  x: Array
  mean: Array
  factor: Array
  share: Array
  scale: Array
  bias: Array


class Standard(NamedTuple):
  """What the backward pass of a layer norm keeps; fields as in `Sum`.

  Attributes:
    x: at mean 0 and variance 1.
    factor: 1 / standard deviation.
    share: see `Sum`.
    scale: see `Sum`.
    bias: see `Sum`.
  """

  x: Array
  factor: Array
  share: Array
  scale: Array
  bias: Array


def identity_sum(x: Array) -> Sum:
  """Returns x as a sum that its layer norm does not change."""
  shape, width = (*x.shape[:-1], 1), (1, x.shape[-1])
  return Sum(
    x,
    mean=jnp.zeros(shape),
    factor=jnp.ones(shape),
    share=jnp.zeros(()),
    scale=jnp.ones(width),
    bias=jnp.zeros(width),
  )


def standardize(total: Sum) -> Standard:
  """Returns a sum at mean 0 and variance 1."""
  x = (total.x.astype(jnp.float32) - total.mean) * total.factor
  return Standard(x.astype(total.x.dtype), *total[2:])


def rescale(standard: Standard, dtype: Dtype) -> Array:
  """Returns the layer norm's output, in `dtype`."""
  x = standard.x.astype(jnp.float32)
  scale, bias = (
    array.reshape((1,) * (x.ndim - 1) + array.shape[-1:])
    for array in (standard.scale, standard.bias)
  )
  return (x * scale + bias).astype(dtype)


def standardize_backward(standard: Standard, gradient: Array) -> Sum:
  """Returns the gradient of a sum from that of its layer norm's output."""
  gradient = gradient.astype(jnp.float32)
  x = standard.x.astype(jnp.float32)
  rows = tuple(range(x.ndim - 1))
  scale = standard.scale.reshape((1,) * len(rows) + standard.scale.shape[-1:])
  scaled = gradient * scale
  first = scaled.sum(axis=-1, keepdims=True) * standard.share
  second = (scaled * x).sum(axis=-1, keepdims=True) * standard.share
  by_x = standard.factor * (scaled - first - x * second)
  return Sum(
    by_x.astype(standard.x.dtype),
    mean=None,
    factor=None,
    share=None,
    scale=(gradient * x).sum(axis=rows)[None],
    bias=gradient.sum(axis=rows)[None],
  )


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def normalize(total: Sum, dtype: Dtype) -> Array:
  """Returns a sum after its layer norm, in `dtype`."""
  return rescale(standardize(total), dtype)


def _normalize_forward(total: Sum, dtype: Dtype) -> tuple[Array, Standard]:
  standard = standardize(total)
  return rescale(standard, dtype), standard


normalize.defvjp(
  _normalize_forward,
  lambda dtype, standard, gradient: (standardize_backward(standard, gradient),),
)


def _moments(x: Array) -> tuple[Array, Array]:
  """Returns mean and variance over the last axis, float32 [..., 1]."""
  wide = x.astype(jnp.float32)
  mean = wide.mean(axis=-1, keepdims=True)
  if x.dtype == jnp.float32:
    return mean, jnp.square(wide - mean).mean(axis=-1, keepdims=True)
  # Both sums in one pass, which the product that makes x can do. A large mean
  # costs digits, but fewer than x lacks.
  square = jnp.square(wide).mean(axis=-1, keepdims=True)
  return mean, jnp.maximum(square - jnp.square(mean), 0)


class LayerNorm(nn.Module):
  """Layer norm over the last axis, with float32 statistics, perhaps no bias."""

  epsilon: float
  dtype: Dtype = jnp.float32
  has_bias: bool = True

  def __call__(self, x: Array) -> Array:
    """Returns x at mean 0 and variance 1, times scale, plus bias."""
    return normalize(self.measure(x), self.dtype)

  @nn.compact
  def measure(self, x: Array) -> Sum:
    """Returns x with its statistics and the norm's weights."""
    D = x.shape[-1]
    ones, zeros = nn.initializers.ones, nn.initializers.zeros
    scale = read_param(self, 'scale', named(ones, ('embed',)), (D,))
    bias = jnp.zeros(D)
    if self.has_bias:
      bias = read_param(self, 'bias', named(zeros, ('embed',)), (D,))
    mean, variance = _moments(lax.stop_gradient(x))
    return Sum(
      x,
      mean,
      factor=lax.rsqrt(variance + self.epsilon),
      share=jnp.full((), 1 / D),
      scale=scale.reshape(1, D),
      bias=bias.reshape(1, D),
    )
