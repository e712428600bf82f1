"""Shares of attention against loops over tokens."""

import json
import math

import attention_cases
import numpy as np
import pytest

from train.views import attention_shares


def by_loops(attention, layer, head, causal):
  """Each measure of a head, from its definition."""
  weights, words = attention.weights_LNTS[layer, head], attention.words
  symbols, segments = attention.row.symbols, attention.row.segments
  T = len(words)

  def plain(i, j):
    return not (symbols[i] or symbols[j])

  counts = {
    'first': lambda i, j: j == 0,
    'separator': lambda i, j: symbols[j] and j > 0,
    'previous': lambda i, j: j == i - 1,
    'next': lambda i, j: j == i + 1,
    'itself': lambda i, j: i == j,
    'same_word': lambda i, j: plain(i, j) and i != j and words[i] == words[j],
    'other_text': lambda i, j: plain(i, j) and segments[i] != segments[j],
  }
  result = {}
  for name, is_target in counts.items():
    shares = []
    for i in range(1 if causal else 0, T):
      seen = [j for j in range(T) if j <= i or not causal]
      targets = [j for j in seen if is_target(i, j)]
      if targets:
        shares.append(math.fsum(weights[i, j] for j in targets))
    if shares:
      result[name] = math.fsum(shares) / len(shares)
  return result


@pytest.mark.parametrize('causal', [False, True])
@pytest.mark.parametrize('pair', [False, True])
def test_shares_are_their_definition(causal, pair):
  attention = attention_cases.drawn(2, 3, 17, 4, causal=causal, pair=pair)
  found = attention_shares.measure(attention, causal=causal, null_key=False)
  assert ('next' in found) == (not causal)
  assert ('other_text' in found) == pair
  for layer in range(2):
    for head in range(3):
      expected = by_loops(attention, layer, head, causal)
      assert found.keys() == expected.keys() <= attention_shares.MEASURES.keys()
      for name, share in expected.items():
        assert found[name][layer, head] == pytest.approx(share, abs=1e-12)


def test_null_key_gets_the_rest():
  attention = attention_cases.drawn(1, 1, 9, 4)
  attention = attention._replace(weights_LNTS=0.75 * attention.weights_LNTS)
  found = attention_shares.measure(attention, causal=False, null_key=True)
  assert found['null_key'] == pytest.approx(0.25)


def test_summary():
  attention = attention_cases.drawn(2, 3, 17, 4)
  found = attention_shares.as_dict(attention, causal=False, null_key=False)
  found = json.loads(json.dumps(found))
  weights = attention.weights_LNTS.astype(float)
  key, weight = found['strongest'][1][2][5]
  assert weight == pytest.approx(max(weights[1, 2, 5]), abs=1e-6)
  assert weights[1, 2, 5, key] == max(weights[1, 2, 5])
  entropy = np.mean(
    [-sum(p * np.log2(p) for p in row) for row in weights[1, 2]]
  )
  assert found['entropy_bits'][1][2] == pytest.approx(entropy, abs=1e-6)


def test_a_page_opens_at_the_strongest_link():
  attention = attention_cases.drawn(2, 3, 17, 4)
  attention.weights_LNTS[1, 0, 3, 4] = 9  # neighbours
  attention.weights_LNTS[1, 0, 3, 0] = 9  # [CLS]
  attention.weights_LNTS[1, 0, 9, 14] = 9  # equal words
  attention.weights_LNTS[0, 2, 12, 6] = 8
  attention.weights_LNTS[1, 1, 5, 12] = 7
  assert attention_shares.opening(attention) == (0, 2, 12)
  asked = attention.text._replace(word=attention.words[5])
  asked = attention._replace(text=asked)
  assert attention_shares.opening(asked) == (1, 1, 5)
