"""Losses of distillation: how far student and teacher are apart."""

import jax
import jax.numpy as jnp

from models.layers import LOWEST

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


def relations(x_BTD: Array, mask_BT: Array, num_heads: int) -> Array:
  """Returns how alike a row's vectors are to each other, float32 [B, R, T, S].

  The vectors, such as those of a layer's queries, are split into R relation
  heads of D / R; the products of a pair's are divided by the root of D / R
  (Wang et al. 2021, MiniLMv2, section 3.1). They are the logits of a softmax
  over S; positions without the mask have the lowest float32.
  """
  B, T, D = x_BTD.shape
  x_BTRH = x_BTD.reshape(B, T, num_heads, D // num_heads)
  products_BRTS = jnp.einsum(
    'BTRH,BSRH->BRTS', x_BTRH, x_BTRH, preferred_element_type=jnp.float32
  )
  scale = (D // num_heads) ** -0.5
  return jnp.where(mask_BT[:, None, None], products_BRTS * scale, LOWEST)
