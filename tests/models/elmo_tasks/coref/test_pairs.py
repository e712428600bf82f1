"""Scores of pairs in blocks against all pairs at once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import dropout
from models.elmo_tasks.coref import pairs, scorer, spans
from models.layers import LOWEST

D, P, F = 5, 2, 4


def draw(*shape):
  return np.random.default_rng(sum(shape)).normal(size=shape).astype('f4')


WEIGHTS = scorer.ScorerWeights(
  draw(3 * D + 3 * P, F),
  draw(1, F),
  draw(F, F),
  draw(1, F),
  draw(F, 1),
  draw(1, 1),
)


def make_features(K):
  return pairs.Features(draw(10, P), draw(2, P), draw(P), jnp.arange(K) % 3)


def all_scores(K, spans_KD):
  """Returns scores of all pairs [target, antecedent], from their features."""
  features = jax.tree.map(np.asarray, make_features(K))
  target, antecedent = np.indices((K, K))
  x = np.concatenate(
    [
      spans_KD[target],
      spans_KD[antecedent],
      spans_KD[target] * spans_KD[antecedent],
      features.speakers[
        (features.speaker_K[target] == features.speaker_K[antecedent]) * 1
      ],
      np.broadcast_to(features.genre, (K, K, P)),
      features.distances[spans.bucket(np.maximum(target - antecedent, 0))],
    ],
    axis=-1,
  )
  x = np.maximum(x @ WEIGHTS.first_DF + WEIGHTS.first_bias_1F, 0)
  x = np.maximum(x @ WEIGHTS.second_FF + WEIGHTS.second_bias_1F, 0)
  return (x @ WEIGHTS.score_F1 + WEIGHTS.score_bias_11)[..., 0]


@pytest.mark.parametrize(('K', 'A'), [(9, 3), (5, 5)])
def test_blocks_equal_all_pairs(monkeypatch, K, A):
  monkeypatch.setattr(pairs, 'BLOCK', 2)
  spans_KD = draw(K, D)
  found = jax.jit(
    lambda count: pairs.nearest_scores(
      WEIGHTS, spans_KD, count, make_features(K), A, None, 0.0
    )
  )
  expected = all_scores(K, spans_KD)
  for count in (K, K - 3, 0):
    scores = np.asarray(found(count))
    assert scores.shape == (K, A)
    for k in range(count):
      for a in range(min(A, k)):
        assert abs(scores[k, a] - expected[k, k - 1 - a]) < 1e-4
    # Blocks without a real target are skipped.
    assert not scores[count + count % 2 :].any()


def test_chosen_pairs_equal_all_pairs(monkeypatch):
  monkeypatch.setattr(pairs, 'BLOCK', 2)
  K = 5
  spans_KD = draw(K, D)
  antecedents = np.array([[-1, -1], [0, -1], [1, 0], [2, 0], [3, 1]])
  bias = np.where(antecedents >= 0, draw(K, 2), LOWEST).astype('f4')
  arrays = map(jnp.asarray, (spans_KD, antecedents, bias))
  scores, expected_KD = jax.jit(
    lambda count, spans_KD, antecedents_KA, bias_KA: pairs.chosen_scores(
      WEIGHTS,
      spans_KD,
      count,
      make_features(K),
      antecedents_KA,
      bias_KA,
      None,
      0.0,
    )
  )(K, *arrays)
  plain = all_scores(K, spans_KD)
  for k in range(K):
    weights, average = 1.0, spans_KD[k]
    for a, place in enumerate(antecedents[k].tolist()):
      if place < 0:
        assert scores[k, a] == LOWEST
        continue
      score = plain[k, place] + bias[k, a]
      assert abs(scores[k, a] - score) < 1e-4
      weights += np.exp(score)
      average = average + np.exp(score) * spans_KD[place]
    np.testing.assert_allclose(
      expected_KD[k], average / weights, rtol=1e-4, atol=1e-5
    )


def test_blocks_have_masks_of_their_own(monkeypatch):
  monkeypatch.setattr(pairs, 'BLOCK', 2)
  K, A, rate = 16, 4, 0.5
  seeds = dropout.draw_seeds(jax.random.key(0), (K,))
  # Equal spans, so that only dropout tells scores apart.
  same = jnp.ones((K, D))
  features = make_features(K)._replace(
    distances=jnp.ones((10, P)), speaker_K=jnp.zeros(K, jnp.int32)
  )
  positive = jax.tree.map(np.abs, WEIGHTS)
  run = jax.jit(
    functools.partial(
      pairs.nearest_scores,
      positive,
      same,
      K,
      features,
      A,
      rate=rate,
    )
  )
  plain, dropped = run(seeds_K=None), run(seeds_K=seeds)
  np.testing.assert_allclose(plain[A:], plain[-1, 0], rtol=1e-5)
  # A span as antecedent of targets at one place in their blocks.
  first, second = dropped[A:-2, :2], dropped[A + 2 :, 2:]
  assert np.isclose(first, second).mean() < 0.5
  # Antecedents of one target; targets of a block.
  assert np.isclose(dropped[A:, 0], dropped[A:, 1]).mean() < 0.5
  assert np.isclose(dropped[A::2, 0], dropped[A + 1 :: 2, 1]).mean() < 0.5
