"""What each head attends to: shares of its weights on tokens of a kind.

Shapes: T query position, S key position, L layer, N head.
"""

import numpy as np

from train.host.files import Json
from train.views.attention_weights import Attention

# Measure -> its title, and the keys that count.
MEASURES = {
  'first': ('first token', 'the first token of the row'),
  'separator': ('[SEP]', 'the symbols [SEP]'),
  'previous': ('previous', 'the token before'),
  'next': ('next', 'the token after'),
  'itself': ('itself', 'the token itself'),
  'same_word': (
    'same word',
    'other tokens of the same word, here or elsewhere in the text',
  ),
  'other_text': ('other text', 'tokens of the other text of a pair'),
  'null_key': ('null key', 'the learned key of nothing'),
}
VISIBLE = 28  # tokens without scrolling


def _shifted(attention: Attention, offset: int) -> np.ndarray:
  return np.eye(len(attention.pieces), k=offset, dtype=bool)


def _first(attention: Attention) -> np.ndarray:
  T = len(attention.pieces)
  return np.broadcast_to(np.arange(T) == 0, (T, T))


def _separators(attention: Attention) -> np.ndarray:
  symbols_S = np.array(attention.row.symbols)
  symbols_S[0] = False  # [CLS]
  return np.broadcast_to(symbols_S, (len(symbols_S),) * 2)


def _same_word(attention: Attention) -> np.ndarray:
  words = np.array(attention.words)
  real = ~np.array(attention.row.symbols)
  same = words[:, None] == words
  return same & real & real[:, None] & ~_shifted(attention, 0)


def _other_text(attention: Attention) -> np.ndarray:
  segments = np.array(attention.row.segments)
  real = ~np.array(attention.row.symbols)
  return (segments[:, None] != segments) & real & real[:, None]


# Measure -> (attention -> bool [T, S], the keys that count for each query).
_TARGETS = {
  'first': _first,
  'separator': _separators,
  'previous': lambda attention: _shifted(attention, -1),
  'next': lambda attention: _shifted(attention, 1),
  'itself': lambda attention: _shifted(attention, 0),
  'same_word': _same_word,
  'other_text': _other_text,
}


def measure(
  attention: Attention, *, causal: bool, null_key: bool
) -> dict[str, np.ndarray]:
  """Returns measure -> float64 [L, N], the mean share over tokens.

  The mean is over the queries that have such a key in sight. In a `causal`
  model the first token, which sees nothing but itself, is no query. Measures
  for which no query is left are not in the result; with `null_key` there is one
  more, the share that no token gets.
  """
  weights_LNTS = attention.weights_LNTS.astype(np.float64)
  T = len(attention.pieces)
  seen_TS = np.tri(T, dtype=bool) if causal else np.ones((T, T), bool)
  is_query_T = seen_TS.sum(axis=1) > 1 if T > 1 else np.ones(T, bool)
  result = {}
  for name, targets in _TARGETS.items():
    chosen_TS = targets(attention) & seen_TS
    queries_T = chosen_TS.any(axis=1) & is_query_T
    if queries_T.any():
      shares_LNT = np.where(chosen_TS, weights_LNTS, 0).sum(axis=-1)
      result[name] = shares_LNT[..., queries_T].mean(axis=-1)
  if null_key:
    result['null_key'] = 1 - weights_LNTS.sum(axis=-1).mean(axis=-1)
  return result


def entropy(attention: Attention) -> np.ndarray:
  """Returns each head's mean entropy over tokens in bits, float64 [L, N]."""
  weights_LNTS = attention.weights_LNTS.astype(np.float64)
  logs = np.log2(np.where(weights_LNTS > 0, weights_LNTS, 1))
  return -(weights_LNTS * logs).sum(axis=-1).mean(axis=-1)


def opening(attention: Attention) -> tuple[int, int, int]:
  """Returns the (layer, head, query), from 0, at which a page opens.

  The head with the largest weight between two tokens that are neither symbols
  nor neighbours nor of one word; from a token of the text's `word` to one of
  its `target`, where it has them, and near the top of a long text.
  """
  text, words = attention.text, np.array(attention.words)
  places = np.arange(len(words))
  real = ~np.array(attention.row.symbols)
  far = abs(places[:, None] - places) > 1
  chosen_TS = far & real & real[:, None] & ~_same_word(attention)
  for asked_TS in (
    (words == text.word)[:, None],
    (words == text.target)[None],
    (places < VISIBLE)[:, None] & (places < VISIBLE),
  ):
    if (chosen_TS & asked_TS).any():
      chosen_TS &= asked_TS
  shown = np.where(chosen_TS, attention.weights_LNTS, -1)
  layer, head, token, _ = np.unravel_index(shown.argmax(), shown.shape)
  return int(layer), int(head), int(token)


def as_dict(
  attention: Attention, *, causal: bool, null_key: bool
) -> dict[str, Json]:
  """Returns a text's shares and a summary of its weights, for JSON.

  `strongest` has for each layer, head and query the number of the key with the
  largest weight, from 0, and the weight.
  """
  best_LNT = attention.weights_LNTS.argmax(axis=-1)
  top_LNT = attention.weights_LNTS.max(axis=-1)
  shares = measure(attention, causal=causal, null_key=null_key)
  return {
    'text': attention.text.first,
    'pair': attention.text.second,
    'tokens': attention.pieces,
    'segments': attention.row.segments,
    'shares': {name: _rounded(array) for name, array in shares.items()},
    'entropy_bits': _rounded(entropy(attention)),
    'strongest': [
      [
        [
          [int(key), round(float(top), 6)]
          for key, top in zip(*head, strict=True)
        ]
        for head in zip(*layer, strict=True)
      ]
      for layer in zip(best_LNT, top_LNT, strict=True)
    ],
  }


def _rounded(array_LN: np.ndarray) -> list[list[float]]:
  return np.round(array_LN, 6).tolist()
