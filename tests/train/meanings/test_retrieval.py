"""Cosine and margin against loops over all pairs, and scikit-learn."""

import math

import numpy as np
import pytest
from sklearn import neighbors

from train.meanings import geometry, retrieval


def cosine(one, other):
  return math.fsum(one * other) / math.sqrt(
    math.fsum(one * one) * math.fsum(other * other)
  )


def accuracy_by_loops(one, other, criterion):
  """The accuracy from `one` to `other`, of vectors without ties."""
  table = [[cosine(x, y) for y in other] for x in one]

  def nearby(cosines):
    best = sorted(cosines, reverse=True)[:4]
    return math.fsum(best) / len(best)

  right = 0
  for i, row in enumerate(table):
    scores = row
    if criterion == 'margin':
      scores = []
      for j, each in enumerate(row):
        mean = (nearby(row) + nearby([line[j] for line in table])) / 2
        scores.append(each / max(mean, 1e-6))
    right += scores.index(max(scores)) == i
  return right / len(one)


@pytest.fixture
def pair():
  """Vectors [40, 6] whose translations are noisy, each language aside."""
  rng = np.random.default_rng(0)
  meaning = rng.normal(0, 1, (40, 6))
  return tuple(
    (meaning + rng.normal(0, 0.6, (40, 6)) + shift).astype(np.float32)
    for shift in (rng.normal(0, 2, 6), rng.normal(0, 2, 6))
  )


def expected_of(one, other):
  one, other = one.astype(np.float64), other.astype(np.float64)
  expected = {}
  for name in ('cosine', 'cosine, centred', 'margin', 'margin, centred'):
    x, y = one, other
    if name.endswith('centred'):
      x, y = x - x.mean(0), y - y.mean(0)
    criterion = name.partition(',')[0]
    expected[name] = {
      'forward': accuracy_by_loops(x, y, criterion),
      'backward': accuracy_by_loops(y, x, criterion),
    }
  return expected


def test_every_way(pair, monkeypatch):
  monkeypatch.setattr(geometry, 'ROWS', 16)  # the last block is not full
  found = retrieval.accuracies(*pair)
  assert found == expected_of(*pair)
  accuracies = [x for ways in found.values() for x in ways.values()]
  assert len(set(accuracies)) > 4  # the ways do differ
  for one, other, direction in ((*pair, 'forward'), (*pair[::-1], 'backward')):
    search = neighbors.NearestNeighbors(n_neighbors=1, metric='cosine')
    nearest = search.fit(other).kneighbors(one, return_distance=False)[:, 0]
    right = (nearest == np.arange(40)).mean()
    assert found['cosine'][direction] == pytest.approx(right)


@pytest.mark.parametrize('count', [2, 3, 5])
def test_few_sentences(pair, count):
  """Mean cosines of centred vectors may be negative here."""
  few = [vectors[:count] for vectors in pair]
  assert retrieval.accuracies(*few) == expected_of(*few)


def test_equally_near_rows_share_the_point():
  one = np.eye(4, 5)[[0, 1, 2, 3]]
  other = np.eye(4, 5)[[0, 1, 1, 1]]  # of 1 .. 3 nobody knows the translation
  found = retrieval.accuracies(one, other)['cosine']
  # Row 1 has three equal ones; rows 2 and 3 are as far from all.
  assert found['forward'] == pytest.approx((1 + 1 / 3 + 1 / 4 + 1 / 4) / 4)
  assert found['backward'] == pytest.approx((1 + 1 + 0 + 0) / 4)
  same = np.ones((4, 5))
  for ways in retrieval.accuracies(same, same).values():
    assert ways == {'forward': 0.25, 'backward': 0.25}  # chance
