"""Draws of words by weight."""

import jax
import numpy as np

from data.examples import noise


def test_shares_are_those_of_the_weights():
  weights = np.array([0, 5, 1, 0.25, 0, 2])
  found = noise.alias(weights)
  shares = np.zeros(len(weights))
  np.add.at(shares, found.words, found.shares / 2**24 / len(found.words))
  np.add.at(shares, found.others, (1 - found.shares / 2**24) / len(found.words))
  np.testing.assert_allclose(shares, weights / weights.sum(), atol=1e-7)


def test_draws_follow_the_weights():
  weights = np.array([0, 5, 1, 0.25, 0, 2])
  drawn = noise.alias(weights).draw(jax.random.key(0), (200, 500))
  counts = np.bincount(drawn.ravel(), minlength=6) / drawn.size
  np.testing.assert_allclose(counts, weights / weights.sum(), atol=0.005)
