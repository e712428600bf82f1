"""The loss of coreference against a plain sum; predicted links."""

import math

import jax
import numpy as np

from models.elmo_tasks.coref import loss
from models.layers import LOWEST

K, A = 5, 3
SPANS = [
  [(0, 0), (1, 3), (2, 2), (5, 6), (6, 6)],
  [(0, 1), (4, 4), (-1, -1), (-1, -1), (-1, -1)],
]
# The last is no kept span.
MENTIONS = [
  [(0, 0, 3), (2, 2, 3), (6, 6, 3), (1, 3, 0), (5, 6, 1), (9, 9, 1)],
  [(0, 1, 0), (4, 4, 0), (-1, -1, -1), (-1, -1, -1), (-1, -1, -1)]
  + [(-1,) * 3],
]


def make_outputs():
  rng = np.random.default_rng(0)
  spans = np.array(SPANS, 'i4')
  places = np.arange(K)[:, None] - 1 - np.arange(A)
  antecedents = np.stack(
    [
      np.where((places >= 0) & (spans[b, :, :1] >= 0), places, -1)
      for b in (0, 1)
    ]
  )
  scores = rng.normal(0, 2, (2, K, A))
  scores = np.where(antecedents >= 0, scores, LOWEST).astype('f4')
  return {
    'starts': spans[..., 0],
    'ends': spans[..., 1],
    'antecedents': antecedents.astype('i4'),
    'logits': np.pad(scores, [(0, 0), (0, 0), (1, 0)]),
  }


def plain_loss(outputs, b, mentions):
  clusters = {(i, j): c for i, j, c in mentions if c >= 0}
  total = 0.0
  for k, span in enumerate(SPANS[b]):
    if span[0] < 0:
      continue
    weights = {-1: 1.0}
    for a, place in enumerate(outputs['antecedents'][b, k].tolist()):
      if place >= 0:
        weights[place] = math.exp(outputs['logits'][b, k, 1 + a])
    own = clusters.get(span)
    gold = [
      place
      for place in weights
      if place >= 0 and own is not None and clusters.get(SPANS[b][place]) == own
    ]
    share = sum(weights[place] for place in gold or [-1])
    total -= math.log(share / sum(weights.values()))
  return total


def test_equals_a_plain_sum():
  outputs = make_outputs()
  expected = [plain_loss(outputs, b, MENTIONS[b]) for b in (0, 1)]
  losses = jax.jit(loss.antecedent_losses)(outputs, np.array(MENTIONS, 'i4'))
  np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_without_mentions_no_span_has_an_antecedent():
  outputs = make_outputs()
  expected = [plain_loss(outputs, b, []) for b in (0, 1)]
  for mentions in (np.zeros((2, 0, 3), 'i4'), np.full((2, 1, 3), -1, 'i4')):
    losses = jax.jit(loss.antecedent_losses)(outputs, mentions)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_links_are_of_the_best_antecedent():
  outputs = make_outputs()
  found = np.asarray(loss.links(outputs))
  np.testing.assert_array_equal(found[..., :2], SPANS)
  assert {-1} < {*found[0, :, 2].tolist()}
  for b in (0, 1):
    for k in range(K):
      best = outputs['logits'][b, k].argmax() - 1
      expected = -1 if best < 0 else outputs['antecedents'][b, k, best]
      assert found[b, k, 2] == expected
