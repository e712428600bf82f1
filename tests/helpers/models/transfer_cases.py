"""Small encoders with heads of tasks, and batches, for tests of this folder."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import published_cases
from flax import linen as nn

from models import bert, gpt, task_model

INPUTS = ('tokens', 'token_mask', 'token_types', 'positions', 'last')


def make_batch(seed=0, lengths=(13, 7, 2, 12, 9, 4), T=13, choices=None):
  """Inputs of odd shapes and labels for every head, [B, T] or [B, K, T]."""
  rng = np.random.default_rng(seed)
  B = len(lengths)
  rows = (B,) if choices is None else (B, choices)
  lengths = np.array(lengths)
  if choices is not None:  # of which each has its own length
    lengths = rng.permuted(np.tile(lengths[:, None], (1, choices)), axis=0)
  mask = np.arange(T) < lengths[..., None]
  return {
    'tokens': np.where(mask, rng.integers(5, 131, mask.shape), 0).astype('i4'),
    'token_mask': mask,
    'token_types': (mask & (np.arange(T) >= lengths[..., None] // 2)).astype(
      'i4'
    ),
    'positions': np.broadcast_to(np.arange(T, dtype='i4'), (*rows, T)),
    'last': (lengths - 1).astype('i4'),
    'label': rng.integers(0, choices or 3, B).astype('i4'),
    'score': rng.uniform(0, 5, B).astype('f4'),
    'tags': np.where(mask, rng.integers(0, 5, mask.shape), -100),
    'spans': np.stack([lengths // 3, lengths // 2], axis=-1).astype('i4'),
  }


def inputs_of(batch):
  return [batch[key] for key in INPUTS]


def make_bert(heads=('pooler',), **fields):
  sizes = published_cases.BERT | {'num_layers': 2} | fields
  return bert.Bert(heads=heads, **sizes)


def make_gpt(**fields):
  return gpt.Gpt(**published_cases.GPT | {'mlp_dim': 256} | fields)


def make_model(encoder, head='classifier', num_outputs=3, **fields):
  fields = {'dropout_rate': 0.0, 'bilstm_dim': 8} | fields
  return task_model.TaskModel(
    backbone=encoder, head=head, num_outputs=num_outputs, **fields
  )


def boxed_params(model, batch):
  """The tree of parameters' shapes, with the names of their axes."""
  return jax.eval_shape(
    functools.partial(model.init, train=False),
    jax.random.key(0),
    *inputs_of(batch),
  )['params']


def draw_params(model, batch):
  """Parameters without compiling what draws them, none of them 0 or 1."""
  rng = np.random.default_rng(0)

  def draw(path, leaf):
    ones = path[-1].key == 'scale' and path[-2].key.endswith('norm')
    return ones + 0.05 * rng.normal(size=leaf.shape).astype('f4')

  params = jax.tree_util.tree_map_with_path(
    draw, nn.meta.unbox(boxed_params(model, batch))
  )
  params['embeddings']['tokens']['embedding'][model.backbone.vocab_size :] = 0
  return params


@functools.partial(jax.jit, static_argnums=0)
def run(model, params, inputs, rng=None):
  """Returns the outputs, of training where there is a key."""
  return model.apply(
    {'params': params},
    *inputs,
    train=rng is not None,
    rngs=None if rng is None else {'dropout': rng},
  )


def loss_of(name, logits, batch):
  """The mean loss that Hugging Face's class computes."""

  def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)

  if name == 'TokenClassification':
    known = batch['tags'] >= 0
    values = cross_entropy(logits, jnp.maximum(batch['tags'], 0))
    return jnp.sum(values * known) / known.sum()
  if name == 'QuestionAnswering':
    return cross_entropy(logits.swapaxes(1, 2), batch['spans']).mean()
  if name == 'regression':
    return jnp.square(logits[:, 0] - batch['score']).mean()
  return cross_entropy(logits, batch['label']).mean()
