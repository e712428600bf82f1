"""A small ELMo, not trained, and one sentence's vectors by the whole of it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from data.vocabulary import characters
from models import elmo

SIZES = dict(
  lstm_dim=11,
  projection_dim=6,
  num_layers=2,
  filters=((1, 5), (4, 12)),
  num_highway=1,
  char_embed_dim=3,
)
NEAR = dict(rtol=0, atol=1e-6)  # vectors are of about 1


def random_params(model):
  shapes = jax.eval_shape(
    model.init,
    jax.random.key(0),
    jnp.zeros((1, 1, model.max_characters), jnp.int32),
    jnp.ones(1, jnp.int32),
  )['params']
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda leaf: rng.normal(0, 0.4, leaf.shape).astype(np.float32),
    nn.unbox(shapes),
  )


@functools.cache
def small_elmo():
  model = elmo.Elmo(vocab_size=0, **SIZES)
  return model, random_params(model)


@functools.partial(jax.jit, static_argnums=0)
def apply(model, params, ids, lengths, state):
  return model.apply({'params': params}, ids, lengths, state)


def embed_alone(model, params, sentence, state=None, T=16):
  """One sentence through the whole model: all layers, state after it."""
  words = ['<S>', *sentence, '</S>']
  ids = np.zeros((1, T, 50), np.int16)
  ids[0, : len(words)], _ = characters.encode_words(words)
  vectors, state = apply(model, params, ids, np.array([len(words)]), state)
  return np.asarray(vectors[:, 0, 1 : len(words) - 1]), state
