"""The language of a training example: a pure function of its number.

The languages are the leaves of a binary tree. A node sends its example i to the
right if floor((i + 1) f) > floor(i f), where f is the share of the right side.
floor(i f) examples went there before, so the number of an example within a side
needs no table and no state. Of any n consecutive examples, each side gets its
share of n, within 1. So the count of a language differs from n times its share
by less than the depth of the tree, 7 for 104 languages.
"""

import numpy as np

from data.text import languages

_ONE = 1 << 30  # a whole: shares of nodes are multiples of 1 / _ONE


class Interleaving:
  """A fixed order of several languages.

  Attributes:
    shares: float64 [L], of the examples, see `languages.smooth`.
  """

  def __init__(self, sizes: np.ndarray, exponent: float) -> None:
    """Plans the order for `sizes` int [L], positive, and `exponent` 0 to 1."""
    self.shares = languages.smooth(sizes, exponent)
    self._depth = (len(self.shares) - 1).bit_length()
    # The sums of a tree of nodes 1, 2, ...; node n has children 2 n, 2 n + 1.
    sums = np.zeros(2 << self._depth)
    sums[1 << self._depth :][: len(self.shares)] = self.shares
    for node in range((1 << self._depth) - 1, 0, -1):
      sums[node] = sums[2 * node] + sums[2 * node + 1]
    inner = sums[: 1 << self._depth].copy()
    inner[inner == 0] = 1  # node 0 is none, and places without a language
    self._right = np.rint(sums[1::2] / inner * _ONE).astype(np.int64)

  def locate(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the language of each example, and its number in the language.

    `numbers` and both results are int64 [B].
    """
    numbers = np.asarray(numbers, np.int64)
    node = np.ones_like(numbers)
    for _ in range(self._depth):
      share = self._right[node]
      before = _count(numbers, share)
      right = _count(numbers + 1, share) > before
      numbers = np.where(right, before, numbers - before)
      node = 2 * node + right
    return node - (1 << self._depth), numbers


def _count(numbers: np.ndarray, share: np.ndarray) -> np.ndarray:
  """Returns floor(numbers share / _ONE), for any int64 without an overflow."""
  whole, rest = numbers // _ONE, numbers % _ONE
  return whole * share + rest * share // _ONE
