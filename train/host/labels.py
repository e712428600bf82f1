"""Places of labels beside points, so that none covers another.

Shapes: N point. All lengths are in one unit, such as pixels.
"""

from collections.abc import Sequence

import numpy as np

DIRECTIONS = 16
DISTANCES = (4.0, 10.0, 18.0, 28.0, 40.0, 55.0, 75.0, 100.0, 130.0)
POINT = 3.0  # half of a point's width, with some room round it

Box = tuple[float, float, float, float]  # left, lowest, right, highest


def place(
  points_N2: np.ndarray,
  sizes_N2: np.ndarray,
  bounds: Box,
  lines: Sequence[np.ndarray] = (),
) -> np.ndarray:
  """Returns the centre of each label's box, float64 [N, 2].

  A label takes the place nearest to its point, right of it first, where it lies
  inside of the bounds and covers no point, no line and no earlier label; where
  there is none, the one that covers least.

  Args:
    points_N2: places of the points, inside of the bounds.
    sizes_N2: width and height of the labels.
    bounds: that labels keep to.
    lines: the two ends of each, [2, 2].
  """
  points_N2 = np.asarray(points_N2, np.float64).reshape(-1, 2)
  sizes_N2 = np.asarray(sizes_N2, np.float64).reshape(-1, 2)
  taken = [_box(point, (2 * POINT, 2 * POINT)) for point in points_N2]
  for first, last in lines:
    count = 1 + int(np.hypot(*np.subtract(last, first)) / (2 * POINT))
    taken += [
      _box(point, (POINT, POINT)) for point in np.linspace(first, last, count)
    ]
  angles = 2 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
  # From the right, alternately above and below.
  order = np.argsort(np.abs((angles + np.pi) % (2 * np.pi) - np.pi))
  ways = [(np.cos(a), np.sin(a)) for a in angles[order]]
  centres = np.zeros_like(points_N2)
  for number, (point, size) in enumerate(zip(points_N2, sizes_N2, strict=True)):
    best, least = point, np.inf
    for centre in _candidates(point, size, ways):
      box = _box(centre, size)
      covered = sum(_shared(box, other) for other in taken)
      covered += 10 * (size[0] * size[1] - _shared(box, bounds))
      if covered < least - 1e-9:
        best, least = centre, covered
      if covered <= 1e-9:
        break
    centres[number] = best
    taken.append(_box(best, size))
  return centres


def _candidates(
  point: np.ndarray, size: np.ndarray, ways: Sequence[tuple[float, float]]
) -> list[np.ndarray]:
  return [
    point + (POINT + distance + size / 2) * np.array(way)
    for distance in DISTANCES
    for way in ways
  ]


def _box(centre: Sequence[float], size: Sequence[float]) -> Box:
  (x, y), (width, height) = centre, size
  return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _shared(first: Box, second: Box) -> float:
  """Returns the area that two boxes have in common."""
  width = min(first[2], second[2]) - max(first[0], second[0])
  height = min(first[3], second[3]) - max(first[1], second[1])
  return max(0.0, width) * max(0.0, height)
