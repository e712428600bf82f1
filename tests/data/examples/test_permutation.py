"""Permutations by a key."""

import numpy as np
import pytest

from data.examples import permutation


@pytest.mark.parametrize(
  'size', [1, 2, 3, 5, 8, 9, 100, 1000, 1024, 1025, 65_536, 65_537]
)
def test_permute_is_a_bijection(size):
  indices = np.arange(size)
  first = permutation.permute(indices, size, 1)
  assert np.array_equal(np.sort(first), indices)
  if size >= 100:
    second = permutation.permute(indices, size, 2)
    # Two random orders agree at about one place, neighbours are apart, and
    # places are not correlated: 6 sigma.
    assert (first == second).sum() < 12
    assert (np.abs(np.diff(first)) == 1).sum() < 15
    for one, two in (
      (first, indices),
      (first, second),
      (first[1:], first[:-1]),
    ):
      assert abs(np.corrcoef(one, two)[0, 1]) < 6 / size**0.5


def test_permute_any_part_and_huge_sizes():
  size = 3_000_000_019
  indices = np.array([0, 1, 5, size - 1]).reshape(2, 2)
  places = permutation.permute(indices, size, 7)
  assert places.shape == (2, 2)
  assert ((0 <= places) & (places < size)).all()
  assert permutation.permute(np.array(5), size, 7) == places[1, 0]


def test_permute_is_the_same_everywhere():
  # Changes of these numbers change the order of every run.
  assert permutation.permute(np.arange(10), 10, 3).tolist() == [
    1,
    6,
    5,
    9,
    3,
    8,
    0,
    7,
    2,
    4,
  ]


def test_small_permutations_are_all_reached():
  orders = {
    tuple(permutation.permute(np.arange(4), 4, key).tolist())
    for key in range(2000)
  }
  assert len(orders) >= 12


def test_many_permutations_at_once():
  """Sizes and keys of each place give what each pair of them gives alone."""
  rng = np.random.default_rng(0)
  sizes = rng.integers(1, 5000, 300)
  keys = rng.integers(0, 2**64, 300, np.uint64)
  places = rng.integers(0, sizes)
  together = permutation.permute(places, sizes, keys)
  alone = [
    int(permutation.permute(np.array([place]), int(size), int(key))[0])
    for place, size, key in zip(places, sizes, keys, strict=True)
  ]
  assert together.tolist() == alone
