"""A small GPT or GPT-2 with a tokenizer, not trained."""

import pydoc_data.topics

import jax
import jax.numpy as jnp
from flax import linen as nn

from data.vocabulary import tokenization
from models import gpt
from models.pretrained.weights import Weights


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
  zeros = jnp.zeros((1, 8), jnp.int32)
  params = nn.unbox(
    model.init(jax.random.key(0), zeros, zeros == 0, zeros, train=False)
  )['params']
  # Large, so that no two tokens are about as likely.
  params = jax.tree.map(lambda leaf: leaf * (4 if leaf.ndim > 1 else 1), params)
  return Weights(
    *('folder', 'workdir', name),
    model=model,
    params=params,
    tokenizer=tokenizer,
  )
