"""Scores of candidates against those of their vectors, with dropout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import dropout
from models.elmo_tasks.coref import mentions, scorer, spans

B, T, W, E, H, P, F = 2, 12, 3, 4, 3, 2, 6
SENTENCES = np.array(
  [[0] * 5 + [1] * 2 + [2] * 4 + [-1], [0] + [1] * 5 + [-1] * 6], 'i4'
)


@pytest.mark.parametrize(
  ('rate', 'with_features'), [(0.0, True), (0.4, True), (0.4, False)]
)
def test_candidates_score_as_their_vectors_do(rate, with_features):
  rng = np.random.default_rng(0)

  def draw(*shape):
    return rng.normal(size=shape).astype('f4')

  S = 2 * E + P + H
  weights = scorer.ScorerWeights(
    draw(S, F), draw(1, F), draw(F, F), draw(1, F), draw(F, 1), draw(1, 1)
  )
  real = SENTENCES[..., None] >= 0
  words = mentions.Words(draw(B, T, E) * real, draw(B, T, H) * real, draw(B, T))
  widths_WP = jnp.asarray(draw(W, P))
  seeds = dropout.draw_seeds(jax.random.key(0), (B,))

  def make_drop(places):
    if not rate:
      return None
    return scorer.Drop(seeds, jnp.asarray(places), rate, with_features)

  N = T * W
  # In another order, as kept spans are not all.
  places = np.stack([rng.permutation(N) for _ in range(B)])
  places = places[:, places.shape[1] // 3 :]

  @jax.jit
  def run(words, places):
    found = mentions.score_candidates(
      weights, widths_WP, words, make_drop(np.arange(N)[None])
    )
    drop = make_drop(places)
    vectors = mentions.span_vectors(widths_WP, words, places, drop)
    expected = scorer.finish(weights, vectors @ weights.first_DF, drop)
    return found, vectors, expected

  found, vectors, expected = run(words, places)
  is_valid = np.take_along_axis(
    np.asarray(spans.candidates(SENTENCES, W)), places, axis=1
  )
  found = np.take_along_axis(np.asarray(found), places, axis=1)
  assert is_valid.sum() > 20
  np.testing.assert_allclose(
    found[is_valid], expected[is_valid], rtol=0, atol=1e-4
  )
  embedded = widths_WP[places % W]
  is_plain = np.allclose(vectors[..., 2 * E : 2 * E + P], embedded)
  assert is_plain == (rate == 0 or not with_features)
  # The head of a span is an average of its words' own vectors.
  b, k = 0, int(np.nonzero(is_valid[0] & (places[0] % W == 2))[0][0])
  first = places[b, k] // W
  shares = np.exp(words.heads_BT[b][first : first + 3])
  own = words.own_BTH[b][first : first + 3]
  np.testing.assert_allclose(
    vectors[b, k, -H:], shares @ own / shares.sum(), atol=1e-5
  )
