"""Small BERTs and batches that the tests of this folder share."""

import functools

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from configs import variants
from models import bert
from train.architectures import bert as pretraining
from train.architectures.architecture import Vocabulary
from train.run import settings

VOCAB_SIZE = 1000  # 24 rows of padding
TINY = variants.BERT['bert-tiny']
BASE_WIDTH = variants.BERT['bert-base'] | {'num_layers': 2}
INPUTS = ('tokens', 'token_mask', 'token_types', 'positions', 'mlm_positions')


def make_batch(seed=0, lengths=(37, 20, 5, 36), T=37, P=5):
  """A batch of odd shapes; rows have as many predictions as they can hold."""
  rng = np.random.default_rng(seed)
  B = len(lengths)
  lengths = np.array(lengths)[:, None]
  mask = np.arange(T) < lengths
  split = lengths // 2
  order = np.argsort(np.where(mask, rng.random((B, T)), 2), axis=1)
  return {
    'tokens': np.where(mask, rng.integers(5, VOCAB_SIZE, (B, T)), 0).astype(
      np.int32
    ),
    'token_mask': mask,
    'token_types': ((np.arange(T) >= split) & mask).astype(np.int32),
    'positions': np.tile(np.arange(T, dtype=np.int32), (B, 1)),
    'mlm_positions': np.sort(order[:, :P], axis=1).astype(np.int32),
    'mlm_targets': rng.integers(0, VOCAB_SIZE, (B, P)).astype(np.int32),
    'mlm_weights': (np.arange(P) < lengths // 4).astype(np.float32),
    'nsp_labels': rng.integers(0, 2, B).astype(np.int32),
    'nsp_weights': np.ones(B, np.float32),
    'example_mask': np.ones(B, bool),
  }


def make_model(sizes=TINY, **fields):
  fields = {'vocab_size': VOCAB_SIZE, 'max_length': 64} | sizes | fields
  return bert.Bert(**fields)


def draw_params(boxed, vocab_size=VOCAB_SIZE):
  """Parameters of abstract ones: none at 0 or 1, where mistakes hide, but rows
  of padding. Nothing is compiled.
  """
  rng = np.random.default_rng(0)

  def draw(path, leaf):
    ones = path[-1].key == 'scale'
    return (ones + 0.025 * rng.normal(size=leaf.shape)).astype(np.float32)

  params = jax.tree_util.tree_map_with_path(draw, nn.meta.unbox(boxed))
  params['embeddings']['tokens']['embedding'][vocab_size:] = 0
  if 'mlm' in params:
    params['mlm']['bias'][vocab_size:] = 0
  return params


@functools.cache
def init_params():
  """Parameters of make_model(), whatever its fields but the sizes."""
  return draw_params(
    abstract_params(vocab_size=VOCAB_SIZE, max_length=64, **TINY)
  )


@functools.cache
def masked_tokens():
  """The objective of masked tokens and next sentences."""
  config = settings.load_config('bert_tiny')
  return pretraining.MaskedTokens(config, 64, Vocabulary.of_size(VOCAB_SIZE))


def losses_of(outputs, batch):
  sums, _ = masked_tokens().losses(outputs, batch)
  weights = masked_tokens().weights(batch)
  return {name: sums[name][0] / weights[name] for name in sums}


@functools.partial(jax.jit, static_argnums=0, static_argnames='sow')
def run(model, params, batch, rng=None, sow=False):
  """Returns outputs, sown values, losses, and the gradient of their sum."""

  def loss(params):
    outputs, sown = model.apply(
      {'params': params},
      *[batch[k] for k in INPUTS],
      train=rng is not None,
      rngs=None if rng is None else {'dropout': rng},
      mutable=['intermediates'] if sow else [],
    )
    losses = losses_of(outputs, batch)
    return sum(losses.values()), (outputs, sown.get('intermediates'), losses)

  gradient, rest = jax.grad(loss, has_aux=True)(params)
  return *rest, gradient


@functools.partial(jax.jit, static_argnums=0)
def run_layers(model, params, inputs, rng=None):
  """Returns hidden states, and the gradient of a mean of weighted sums.

  Of any encoder: for what its layers do, whatever the heads.
  """

  def total(params):
    hidden = model.apply(
      {'params': params},
      *inputs,
      train=rng is not None,
      rngs=None if rng is None else {'dropout': rng},
    )['hidden']
    weights = 0.05 * np.cos(np.arange(hidden.shape[-1]))
    return (hidden @ weights).mean(), hidden

  gradient, hidden = jax.grad(total, has_aux=True)(params)
  return hidden, gradient


def relative_errors(ours, theirs):
  """Error of each parameter (each layer's apart), by Euclidean norms."""
  errors = {}
  leaves = jax.tree_util.tree_leaves_with_path(theirs)
  for (path, reference), given in zip(
    leaves, jax.tree.leaves(ours), strict=True
  ):
    stacked = path[0].key == 'layers'
    pairs = (
      zip(given, reference, strict=True) if stacked else [(given, reference)]
    )
    for i, (a, b) in enumerate(pairs):
      name = jax.tree_util.keystr(path, simple=True, separator='/')
      errors[f'{name}[{i}]'] = np.linalg.norm(a - b) / np.linalg.norm(b)
  return errors


def assert_close(ours, theirs, tolerance):
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=tolerance),
    ours,
    theirs,
  )


def abstract_params(**fields):
  model = bert.Bert(**fields)
  length = jax.ShapeDtypeStruct((1, 8), jnp.int32)
  mask = jax.ShapeDtypeStruct((1, 8), bool)
  return jax.eval_shape(
    functools.partial(model.init, train=False),
    jax.random.key(0),
    length,
    mask,
    length,
    length,
    length,
  )['params']
