"""Drawn attention of a chosen size, with weights that are its softmax."""

import numpy as np

from models import bert
from train.views import attention_page
from train.views.attention_texts import ShownText
from train.views.attention_weights import Attention, AttentionRow

# Tokens that would end a script, an element or an attribute.
HOSTILE = ["'", '<b>', 'bank', '&amp;', '</script>', '"', '{{data}}']


def drawn(layers, heads, length, dims, *, seed=0, causal=False, pair=True):
  """Returns [CLS] and [SEP] round words, of which every fifth is equal."""
  random = np.random.default_rng(seed)
  shape = layers, length, heads, dims
  query, key = random.normal(size=(2, *shape)).astype(np.float32)
  words = [HOSTILE[i % 7] if i < 8 else f'w{i % 5}' for i in range(length)]
  symbols = [i in (0, length // 2, length - 1) for i in range(length)]
  words = [
    '[SEP]' if symbol else word
    for word, symbol in zip(words, symbols, strict=True)
  ]
  words[0] = '[CLS]'
  segments = [int(pair and i > length // 2) for i in range(length)]
  return Attention(
    ShownText(f'Text {seed}', 'and a second' if pair else None),
    AttentionRow(list(range(length)), segments, symbols),
    words,
    words,
    softmax(query, key, causal).astype(np.float32),
    query,
    key,
  )


def softmax(query, key, causal):
  """Returns weights [L, N, T, S] of queries [L, T, N, H] with keys."""
  scores = np.einsum('LTNH,LSNH->LNTS', query.astype(np.float64), key)
  scores /= np.sqrt(query.shape[-1])
  if causal:
    T = scores.shape[-1]
    scores = np.where(np.tri(T, dtype=bool), scores, -np.inf)
  weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
  return weights / weights.sum(axis=-1, keepdims=True)


def page_of(*attentions, causal=False):
  """Returns the page of drawn texts, of equal sizes."""
  layers, heads, *_ = attentions[0].weights_LNTS.shape
  model = bert.Bert(
    vocab_size=1,
    num_layers=layers,
    num_heads=heads,
    embed_dim=heads * attentions[0].query_LTNH.shape[-1],
    mlp_dim=1,
  )
  return attention_page.Page('drawn', model, causal, attentions)
