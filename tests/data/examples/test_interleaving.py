"""Which language an example is of."""

import numpy as np
import pytest

from data.examples.interleaving import Interleaving

STRETCH = 10_000


def draw_sizes(count):
  """Sizes as unequal as those of Wikipedias."""
  return (10 + 100 * np.random.default_rng(0).pareto(0.6, count)).astype(int)


@pytest.mark.parametrize('exponent', [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize('count', [2, 6, 104])
@pytest.mark.parametrize('first', [0, 7_654_321, 3 * 10**15])
def test_shares_of_any_stretch(count, exponent, first):
  sizes = draw_sizes(count)
  order = Interleaving(sizes, exponent)
  expected = (sizes / sizes.sum()) ** exponent
  expected /= expected.sum()
  np.testing.assert_allclose(order.shares, expected)
  language, _ = order.locate(first + np.arange(5 * STRETCH))
  for number, share in enumerate(expected):
    seen = np.append(0, np.cumsum(language == number))
    shares = (seen[STRETCH:] - seen[:-STRETCH]) / STRETCH
    assert np.abs(shares - share).max() < 1e-3


def test_a_language_far_larger_than_a_hundred_others():
  sizes = [10**9, *([10] * 100)]
  language, _ = Interleaving(sizes, 1.0).locate(np.arange(3 * STRETCH))
  assert (language == 0).sum() >= 3 * STRETCH - 7


@pytest.mark.parametrize('count', [1, 2, 3, 7, 104])
def test_each_language_is_numbered_through(count):
  order = Interleaving(draw_sizes(count), 0.7)
  language, number = order.locate(np.arange(30_000))
  assert set(language) <= set(range(count))
  for chosen in range(count):
    found = number[language == chosen]
    assert np.array_equal(found, np.arange(len(found)))


def test_any_numbers_in_any_order_give_the_same():
  order = Interleaving(draw_sizes(6), 0.7)
  language, number = order.locate(np.arange(20_000))
  for processes in (1, 2, 4):  # each with its rows of the batches of 64
    for step in (0, 17, 311):
      rows = 64 * step + np.arange(64)
      parts = [order.locate(part) for part in np.split(rows, processes)]
      together = np.concatenate([part[0] for part in parts])
      assert np.array_equal(together, language[rows])
      together = np.concatenate([part[1] for part in parts])
      assert np.array_equal(together, number[rows])
  mixed = np.random.default_rng(0).permutation(20_000)
  again = Interleaving(draw_sizes(6), 0.7).locate(mixed)
  assert np.array_equal(again[0], language[mixed])
  assert np.array_equal(again[1], number[mixed])
