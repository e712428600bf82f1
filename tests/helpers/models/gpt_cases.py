"""Small GPTs and batches that the tests of this folder share."""

import functools

import bert_cases
import jax
import jax.numpy as jnp
import numpy as np
import published_cases
from etils import epath
from flax import linen as nn

from configs import variants
from models import gpt
from models.pretrained import gpt as pretrained
from train.engine import objectives

VOCAB_SIZE = 1000  # 24 rows of padding
TINY = variants.GPT['gpt-tiny']
BASE_WIDTH = variants.GPT2['gpt2'] | {'num_layers': 2}
INPUTS = ('tokens', 'token_mask', 'positions')


def make_batch(seed=0, lengths=(37, 20, 5, 36), T=37):
  """A batch of odd shapes; rows begin at the left."""
  rng = np.random.default_rng(seed)
  B = len(lengths)
  mask = np.arange(T) < np.array(lengths)[:, None]
  tokens = np.where(mask, rng.integers(0, VOCAB_SIZE, (B, T)), 0)
  following = np.zeros_like(mask)
  following[:, :-1] = mask[:, 1:]
  return {
    'tokens': tokens.astype(np.int32),
    'token_mask': mask,
    'positions': np.tile(np.arange(T, dtype=np.int32), (B, 1)),
    'targets': np.roll(tokens, -1, axis=1).astype(np.int32),
    'loss_weights': following.astype(np.float32),
  }


def make_model(sizes=TINY, **fields):
  fields = {'vocab_size': VOCAB_SIZE, 'max_length': 64} | sizes | fields
  return gpt.Gpt(**fields)


@functools.cache
def draw_params(pre_norm):
  """Parameters of make_model() as they are drawn."""
  model, batch = make_model(pre_norm=pre_norm), make_batch()
  return jax.jit(
    lambda rng: nn.meta.unbox(
      model.init(rng, *[batch[k] for k in INPUTS], train=False)['params']
    )
  )(jax.random.key(0))


@functools.cache
def init_params(pre_norm):
  """Others, none at 0 or 1; whatever the fields but sizes and pre_norm."""
  return bert_cases.draw_params(
    abstract_params(
      vocab_size=VOCAB_SIZE, max_length=64, pre_norm=pre_norm, **TINY
    )
  )


def open_arrays(arrays, model):
  """Opens arrays under Hugging Face's names as weights of a model."""
  return pretrained.from_hugging_face(
    epath.Path('arrays'),
    'gpt2' if model.pre_norm else 'gpt',
    pretrained.to_config(model),
    published_cases.in_memory(arrays),
  )


def loss_of(outputs, batch):
  values, _ = objectives.score_labels(outputs['lm_logits'], batch['targets'])
  weights = batch['loss_weights']
  return jnp.sum(values * weights) / weights.sum()


@functools.partial(jax.jit, static_argnums=0, static_argnames='sow')
def run(model, params, batch, rng=None, sow=False):
  """Returns outputs, sown values, loss, and its gradient."""

  def loss(params):
    outputs, sown = model.apply(
      {'params': params},
      *[batch[k] for k in INPUTS],
      train=rng is not None,
      rngs=None if rng is None else {'dropout': rng},
      mutable=['intermediates'] if sow else [],
    )
    loss = loss_of(outputs, batch)
    return loss, (outputs, sown.get('intermediates'), loss)

  gradient, rest = jax.grad(loss, has_aux=True)(params)
  return *rest, gradient


@functools.partial(jax.jit, static_argnums=0)
def forward(model, params, tokens, token_mask, positions, cache=None):
  return model.apply(
    {'params': params}, tokens, token_mask, positions, train=False, cache=cache
  )


def abstract_params(**fields):
  model = gpt.Gpt(**fields)
  ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)
  mask = jax.ShapeDtypeStruct((1, 8), bool)
  return jax.eval_shape(
    functools.partial(model.init, train=False),
    jax.random.key(0),
    ids,
    mask,
    ids,
  )['params']
