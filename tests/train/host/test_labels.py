"""Labels keep apart, inside of the picture, and near their points."""

import itertools

import numpy as np
import pytest

from train.host import labels


@pytest.mark.parametrize('seed', range(3))
def test_no_label_covers_another_or_a_point(seed):
  random = np.random.default_rng(seed)
  points = random.uniform(20, 380, (30, 2))
  points[:4] = points[0]  # equal points, too
  sizes = np.stack([random.uniform(10, 60, 30), np.full(30, 12.0)], axis=1)
  bounds = (0, 0, 400, 400)
  centres = labels.place(points, sizes, bounds)
  boxes = list(map(labels._box, centres, sizes))
  for first, second in itertools.combinations(boxes, 2):
    assert labels._shared(first, second) < 1e-6
  for box in boxes:
    assert labels._shared(box, bounds) == pytest.approx(
      (box[2] - box[0]) * (box[3] - box[1])
    )
    for x, y in points:
      assert not (box[0] < x < box[2] and box[1] < y < box[3])
  near = np.linalg.norm(centres - points, axis=1)
  assert np.median(near) < 60


def test_a_label_alone_stands_right_of_its_point():
  ((x, y),) = labels.place([[50, 50]], [[20, 10]], (0, 0, 200, 100))
  assert y == 50 and x == 50 + labels.POINT + labels.DISTANCES[0] + 10
  ((x, _),) = labels.place([[195, 50]], [[20, 10]], (0, 0, 200, 100))
  assert x + 10 <= 200
