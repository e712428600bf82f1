"""Cosines, components and neighbours against scikit-learn."""

import numpy as np
import pytest
from sklearn import decomposition, neighbors
from sklearn.metrics import pairwise

from train.meanings import geometry


@pytest.fixture
def vectors():
  return np.random.default_rng(0).normal(1, 1, (40, 7)).astype(np.float32)


def test_cosines(vectors):
  found = geometry.cosines(vectors)
  expected = pairwise.cosine_similarity(vectors.astype(np.float64))
  np.testing.assert_allclose(found, expected, atol=1e-12)
  np.testing.assert_array_equal(found, found.T)
  assert not geometry.cosines(np.zeros((2, 3))).any()


def test_components(vectors):
  points, shares = geometry.project(vectors)
  model = decomposition.PCA(2, svd_solver='full').fit(vectors.astype(float))
  expected = model.transform(vectors)
  signs = np.sign((points * expected).sum(axis=0))
  np.testing.assert_allclose(points, signs * expected, atol=1e-6)
  np.testing.assert_allclose(shares, model.explained_variance_ratio_, rtol=1e-6)
  # The picture of mirrored vectors is a mirrored one; of equal ones it is the
  # same, whatever their signs in the decomposition.
  np.testing.assert_allclose(geometry.project(-vectors).points, -points)
  again = geometry.project(vectors[::-1]).points
  np.testing.assert_allclose(again[::-1], points, atol=1e-9)


def test_a_picture_of_next_to_nothing(vectors):
  for few in (vectors[:1], np.repeat(vectors[:1], 5, axis=0)):
    points, shares = geometry.project(few)
    assert points.shape == (len(few), 2) and not points.any()
    assert shares == (0.0, 0.0)
  points, shares = geometry.project(vectors[:2])
  assert shares == pytest.approx((1, 0)) and abs(points[:, 1]).max() < 1e-6


def test_nearest_neighbours_leave_one_out(vectors, monkeypatch):
  monkeypatch.setattr(geometry, 'ROWS', 16)
  classes = np.random.default_rng(1).integers(3, size=len(vectors))
  found = geometry.nearest_classes(vectors, classes, np.arange(len(vectors)))
  for row in range(len(vectors)):
    others = np.arange(len(vectors)) != row
    model = neighbors.KNeighborsClassifier(1, metric='cosine')
    model.fit(vectors[others], classes[others])
    assert found[row] == model.predict(vectors[[row]])[0]


def test_equal_sentences_are_no_neighbours_and_ties_vote():
  vectors = np.array([[1, 0], [1, 0], [1, 1e-9], [1, 0], [0, 1]], np.float32)
  classes = np.array([1, 0, 0, 1, 2])
  found = geometry.nearest_classes(vectors, classes, np.arange(5))
  # Of the others at [1, 0]: 0 0 1, 1 0 1, 1 0 1, 1 0 0; then all four tie.
  assert found.tolist() == [0, 1, 1, 0, 0]
  groups = np.array([0, 0, 0, 1, 2])
  found = geometry.nearest_classes(vectors, classes, groups)
  assert found.tolist() == [1, 1, 1, 0, 0]
