"""Batches of a task, as its losses read them."""

import jax.numpy as jnp
import numpy as np


def make(labels, shape=(4,), *, length=6, real=None):
  rng = np.random.default_rng(0)
  lengths = rng.integers(3, length + 1, shape)
  mask = np.arange(length) < lengths[..., None]
  batch = {
    'tokens': rng.integers(1, 9, (*shape, length)).astype(np.int32) * mask,
    'token_mask': mask,
    'labels': np.asarray(labels),
    'label_mask': np.ones(shape[0], bool),
    'example_mask': np.ones(shape[0], bool) if real is None else real,
  }
  return {name: jnp.asarray(array) for name, array in batch.items()}
