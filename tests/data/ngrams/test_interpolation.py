"""Deleted interpolation: frequencies and classes by hand, fitted weights."""

import math

import numpy as np
import pytest
from ngram_texts import count_lines, draw_lines

from data.ngrams import interpolation
from data.ngrams.counts import BEGIN


def test_frequencies_and_classes_are_those_of_the_counts(tmp_path):
  counts, words = count_lines(tmp_path, ['a b a', 'a b'], 3)
  ids = {word: number for number, word in enumerate(words)}
  # Without their beginnings: a 3, b 2, </s> 2.
  text = [ids[word] for word in ('a', 'b', 'a', 'b', 'b')]
  found = interpolation.frequencies(counts, np.array(text), 3)
  uniform = 1 / (len(words) - 1)
  np.testing.assert_allclose(
    found.shares,
    [
      [uniform] * 5,
      [3 / 7, 2 / 7, 3 / 7, 2 / 7, 2 / 7],
      [0, 2 / 3, 1 / 2, 2 / 3, 0],  # b follows a twice of three times
      [0, 0, 1 / 2, 0, 0],  # a follows (a, b) once of twice; (b, a) ends
    ],
  )
  seen = [0, 0, 2, 1, 2]  # (a, b) twice, (b, a) once, (a, b) again
  expected = [math.ceil(-math.log((1 + times) / 7)) for times in seen]
  assert found.classes.tolist() == expected


def test_weights_are_those_that_the_text_likes_best(tmp_path):
  counts, words = count_lines(tmp_path, draw_lines(80), 3)
  rng = np.random.default_rng(0)
  text = rng.integers(BEGIN + 2, len(words), 300)
  found = interpolation.frequencies(counts, text, 3)
  weights = interpolation.fit(found)
  np.testing.assert_allclose(weights.sum(axis=1), 1)
  best = interpolation.log_probs(weights, found).sum()
  for _ in range(20):  # no other weights are better
    other = weights * np.exp(0.1 * rng.standard_normal(weights.shape))
    other /= other.sum(axis=1, keepdims=True)
    assert interpolation.log_probs(other, found).sum() < best + 1e-3


def test_probabilities_of_all_words_sum_to_one(tmp_path):
  counts, words = count_lines(tmp_path, draw_lines(60), 3)
  rng = np.random.default_rng(1)
  text = rng.integers(BEGIN + 2, len(words), 100)
  weights = interpolation.fit(interpolation.frequencies(counts, text, 3))
  number = len(counts.orders[1].keys) // 2  # some history that was seen
  first = divmod(int(counts.orders[1].keys[number]), len(words))
  rows = [
    interpolation.frequencies(counts, np.array([*first, word]), 3)
    for word in range(len(words))
    if word != BEGIN
  ]
  logs = [interpolation.log_probs(weights, found)[-1] for found in rows]
  assert np.exp(logs).sum() == pytest.approx(1)


def test_an_order_that_was_not_counted_is_named(tmp_path):
  counts, _ = count_lines(tmp_path, ['a b'], 2)
  with pytest.raises(ValueError, match='order 3: expected 2 to 2'):
    interpolation.frequencies(counts, np.array([3]), 3)
