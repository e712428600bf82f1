"""Small drawn models of every family with one vocabulary of whole words."""

import jax
import numpy as np
from etils import epath
from flax import linen as nn

from models import bert, elmo, gpt
from models.baselines import nnlm
from models.pretrained import strict
from models.pretrained.weights import Weights, abstract_params
from train.vectors.trained_model import TrainedModel

SIZES = dict(num_layers=2, embed_dim=16, num_heads=2, mlp_dim=32, max_length=24)


def make(name, vocab_size):
  """Returns a small module of a family."""
  if name == 'gpt':
    return gpt.Gpt(vocab_size=vocab_size, **SIZES)
  if name == 'bert':
    return bert.Bert(vocab_size=vocab_size, **SIZES)
  if name == 'nnlm':
    return nnlm.Nnlm(
      vocab_size=vocab_size, embed_dim=8, hidden_dim=8, order=3, max_length=24
    )
  return elmo.Elmo(
    vocab_size=vocab_size,
    lstm_dim=12,
    projection_dim=6,
    filters=((1, 4), (2, 8)),
    char_embed_dim=4,
  )


def draw(name, tokenizer):
  """Returns Weights of a family whose parameters are drawn."""
  model = make(name, tokenizer.softmax_size)
  shapes = jax.eval_shape(nn.unbox, abstract_params(model))
  random = np.random.default_rng(len(name))
  params = jax.tree.map(
    lambda leaf: random.normal(0, 0.3, leaf.shape).astype(np.float32), shapes
  )
  reads_words = name == 'elmo'
  return Weights(
    epath.Path(name),
    'workdir',
    name,
    model=model,
    shapes=strict.flatten(shapes),
    reads_words=reads_words,
    tokenizer=tokenizer if reads_words else tokenizer.predicted(),
    read=lambda places, keep: params,
    params=params,
  )


def trained(name, tokenizer, **changes):
  """Returns a TrainedModel of `draw`, with other fields of Weights."""
  weights = draw(name, tokenizer)._replace(**changes)
  return TrainedModel(weights, use=None)
