"""Distances of a student's outputs to its teacher's, with gradients."""

import jax
import jax.numpy as jnp

Array = jax.Array


def divergence(logits: Array, teacher: Array, temperature: float) -> Array:
  """Returns T^2 times KL(teacher || student) over the last axis, in nats.

  Both are divided by the temperature T before their softmax. The gradients of
  such a loss fall with 1 / T^2, hence the factor (Hinton et al. 2015, section
  2). Outputs of the teacher below the range of float32 count as impossible.
  """
  log_ours = jax.nn.log_softmax(logits / temperature)
  log_theirs = jax.nn.log_softmax(teacher / temperature)
  shares = jnp.exp(log_theirs)
  distances = jnp.where(shares > 0, shares * (log_theirs - log_ours), 0)
  return temperature**2 * distances.sum(axis=-1)


def directions(ours: Array, theirs: Array) -> Array:
  """Returns 1 - cosine of vectors, float32 [...], of two arrays [..., D]."""
  ours, theirs = ours.astype(jnp.float32), theirs.astype(jnp.float32)
  products = jnp.sum(ours * theirs, axis=-1)
  squares = jnp.sum(ours**2, axis=-1) * jnp.sum(theirs**2, axis=-1)
  return 1 - products * jax.lax.rsqrt(jnp.maximum(squares, 1e-12))
