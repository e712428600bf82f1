"""A threshold against all thresholds, McNemar's test against all outcomes."""

import itertools
import math

import numpy as np
import pytest

from train.meanings import classifiers


@pytest.mark.parametrize('seed', range(8))
def test_no_threshold_is_better(seed):
  chance = np.random.default_rng(seed)
  values = chance.integers(0, 9, 25) / 8  # many are equal
  labels = chance.random(25) < (values if seed % 2 else 0.5)
  threshold = classifiers.best_threshold(values, labels)
  edges = np.unique(values)
  tried = [-np.inf, *(edges[1:] / 2 + edges[:-1] / 2), np.inf]
  right = [((values >= each) == labels).mean() for each in tried]
  assert threshold == tried[int(np.argmax(right))]


def test_thresholds_outside():
  values = np.array([0.1, 0.2])
  assert classifiers.best_threshold(values, np.array([True, True])) == -np.inf
  assert classifiers.best_threshold(values, np.array([False, False])) == np.inf


def test_mcnemars_test_counts_every_outcome():
  first = np.array([1, 1, 1, 1, 1, 0, 1, 0, 0], bool)
  second = np.array([0, 0, 0, 0, 1, 1, 0, 1, 0], bool)
  found = classifiers.compare(first, second)
  assert (found.only_first, found.only_second) == (5, 2)
  assert found.difference == pytest.approx(first.mean() - second.mean())
  outcomes = [sum(each) for each in itertools.product((0, 1), repeat=7)]
  extreme = [each for each in outcomes if math.comb(7, each) <= math.comb(7, 5)]
  assert found.p_value == pytest.approx(len(extreme) / len(outcomes))
  assert classifiers.compare(first, first).p_value == 1
