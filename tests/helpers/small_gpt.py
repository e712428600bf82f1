"""A small GPT or GPT-2 with a tokenizer, not trained."""

import functools
import pydoc_data.topics

import jax
import numpy as np
from flax import linen as nn

from data.vocabulary import tokenization
from models import gpt
from models.pretrained.weights import Weights
from train.vectors.trained_model import TrainedModel


@functools.cache
def small_trained(name='gpt2', max_length=64):
  kind = 'bytebpe' if name == 'gpt2' else 'bpe'
  tokenizer = tokenization.train(
    list(pydoc_data.topics.topics.values())[:20],
    tokenization.parse_training(f'train:{kind}:400'),
  )
  model = gpt.Gpt(
    vocab_size=tokenizer.vocab_size,
    num_layers=2,
    embed_dim=32,
    num_heads=2,
    mlp_dim=64,
    max_length=max_length,
    pre_norm=name == 'gpt2',
  )
  zeros = np.zeros((1, 8), np.int32)
  init = jax.jit(model.init, static_argnames='train')
  params = nn.unbox(
    init(jax.random.key(0), zeros, zeros == 0, zeros, train=False)
  )['params']
  # Large, so that no two tokens are about as likely.
  params = jax.tree.map(
    lambda leaf: np.asarray(leaf) * (4 if leaf.ndim > 1 else 1), params
  )
  weights = Weights(
    'folder',
    'workdir',
    name,
    model=model,
    params=params,
    tokenizer=tokenizer,
  )
  return TrainedModel(weights, use=None)
