"""Small biLMs and sentences that the tests of this folder share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from models import char_cnn, elmo

# Odd on purpose: no two alike.
SIZES = dict(
  lstm_dim=22,
  projection_dim=6,
  num_layers=2,
  filters=((1, 5), (4, 12)),
  num_highway=2,
  char_embed_dim=3,
)
VOCAB_SIZE = 100  # 28 rows of padding
LENGTHS = (9, 4, 1, 7)


def make_model(**fields):
  return elmo.Elmo(**{'vocab_size': VOCAB_SIZE} | SIZES | fields)


def make_ids(lengths=LENGTHS, T=9, seed=0):
  """Character ids [B, T, 50] of random words; no character beyond the ends."""
  rng = np.random.default_rng(seed)
  B = len(lengths)
  ids = rng.integers(0, char_cnn.NUM_CHARACTERS, (B, T, 50))
  ids = np.where(np.arange(50) < rng.integers(1, 50, (B, T, 1)), ids, 260)
  mask = np.arange(T) < np.array(lengths)[:, None]
  ids = np.where(mask[:, :, None], ids, char_cnn.NO_CHARACTER)
  return ids.astype(np.int16), np.array(lengths, np.int32)


def make_streams(B=3, T=8, seed=1):
  """Character ids [2, B, T, 50]."""
  ids, _ = make_ids((T,) * (2 * B), T, seed)
  return ids.reshape(2, B, T, 50)


def make_targets(ids):
  rng = np.random.default_rng(4)
  return rng.integers(0, VOCAB_SIZE, ids.shape[:3])


def make_state(model, B, seed=2):
  """A state that is not zero."""
  rng = np.random.default_rng(seed)
  return jax.tree.map(
    lambda x: rng.normal(0, 0.5, x.shape).astype(np.float32),
    elmo.empty_state(model, B),
  )


def abstract_params(model):
  """Boxed shapes of a model's parameters."""
  shape = (1, 1) if model.num_words else (1, 1, model.max_characters)
  return jax.eval_shape(
    model.init,
    jax.random.key(0),
    jax.ShapeDtypeStruct(shape, jnp.int32),
    jax.ShapeDtypeStruct((1,), jnp.int32),
  )['params']


def draw_params(model):
  """Parameters as they are drawn."""
  shape = (1, 1) if model.num_words else (1, 1, model.max_characters)
  draw = jax.jit(
    lambda rng: nn.meta.unbox(
      model.init(rng, np.zeros(shape, np.int32), np.ones(1, np.int32))
    )['params']
  )
  return jax.device_get(draw(jax.random.key(0)))


@functools.cache
def init_params(model, stddev=0.4):
  """Others: none is 0 or alike, but padding; nothing to compile."""
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda p: rng.normal(0, stddev, p.shape).astype(np.float32),
    nn.meta.unbox(abstract_params(model)),
  )
  tables = [(params.get('softmax', {}), model.vocab_size)]
  if model.num_words:
    tables.append((params['encoder'], model.num_words))
  for table, rows in tables:
    for leaf in table.values():
      leaf[rows:] = 0
  return params


@functools.partial(jax.jit, static_argnums=0)
def embed(model, params, ids, lengths, state=None):
  return model.apply({'params': params}, ids, lengths, state)


@functools.partial(jax.jit, static_argnums=0)
def encode(model, params, ids):
  return model.apply({'params': params}, ids, method='encode')


@functools.partial(jax.jit, static_argnums=0)
def embed_vectors(model, params, x, lengths, state=None):
  return model.apply({'params': params}, x, lengths, state, method='embed')


@functools.partial(jax.jit, static_argnums=0)
def run_streams(model, params, x, state=None, rng=None):
  return model.apply(
    {'params': params},
    x,
    state,
    train=rng is not None,
    rngs=None if rng is None else {'dropout': rng},
    method='run_streams',
  )


def loss_of(model, params, ids, targets, state=None, rng=None):
  """Mean loss of both streams by full softmax, and what it came from."""

  def run(model):
    top, after = model.run_streams(
      model.encode(ids), state, train=rng is not None
    )
    return top, after, model.logits(top)

  top, after, logits = model.apply(
    {'params': params},
    rngs=None if rng is None else {'dropout': rng},
    method=run,
  )
  scores = jax.nn.log_softmax(logits)
  losses = -jnp.take_along_axis(scores, targets[..., None], axis=-1)
  return losses.mean(), (top, after, logits)


@functools.partial(jax.jit, static_argnums=0)
def run(model, params, ids, targets, state=None, rng=None):
  """Returns the loss, (top, state, logits), and the loss's gradient."""
  (loss, rest), gradient = jax.value_and_grad(
    lambda params: loss_of(model, params, ids, targets, state, rng),
    has_aux=True,
  )(params)
  return loss, rest, gradient
