"""Choices by random bits in integer arithmetic, the same on every device."""

import jax
import jax.numpy as jnp

Array = jax.Array


def below(draw: Array, bound: Array | int) -> Array:
  """Maps uint32 draws to range(bound), or 0; uneven by under bound / 2^32."""
  bound = jnp.maximum(bound, 1).astype(jnp.uint32)
  return (draw % bound).astype(jnp.int32)


def happens(draw: Array, rate: float) -> Array:
  """Returns True for the share `rate` of the draws, in steps of 2^-24."""
  return (draw >> 8) < jnp.uint32(round(rate * 2**24))


def pick(candidates: Array, draw: Array) -> Array:
  """Returns the place of a random True candidate, or 0 if all are False."""
  rank = jnp.cumsum(candidates)
  wanted = 1 + below(draw, rank[-1])
  return jnp.argmax(rank >= wanted).astype(jnp.int32)
