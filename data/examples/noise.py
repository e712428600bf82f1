"""Draws words by their frequency, in constant time (Walker 1977, Vose 1991).

There are V places, each shared by two words. A draw is a place and a number in
[0, 1), which chooses one of its two words.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from data.examples import chance

# Powers of counts, for sampled words: of word2vec.c, and of fastText's release.
POWER, POWER_WITH_PARTS = 0.75, 0.5


class Alias(NamedTuple):
  """A distribution over words.

  Attributes:
    words: int32 [V], the first word of each place.
    shares: uint32 [V], its share of the place, times 2^24.
    others: int32 [V], the other word.
  """

  words: np.ndarray
  shares: np.ndarray
  others: np.ndarray

  def draw(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Returns words, int32 of a shape."""
    bits = jax.random.bits(key, (2, *shape), jnp.uint32)
    place = chance.below(bits[0], len(self.words))
    first = (bits[1] >> 8) < jnp.asarray(self.shares)[place]
    return jnp.where(
      first, jnp.asarray(self.words)[place], jnp.asarray(self.others)[place]
    )


def alias(weights: np.ndarray) -> Alias:
  """Returns the distribution of weights; words of weight 0 have no place."""
  words = np.flatnonzero(weights)
  size = len(words)
  shares = weights[words] * (size / weights.sum())
  left = shares.tolist()
  others = np.arange(size)
  small = np.flatnonzero(shares < 1).tolist()
  large = np.flatnonzero(shares >= 1).tolist()
  while small and large:
    poor, rich = small.pop(), large[-1]
    others[poor] = rich
    left[rich] -= 1 - left[poor]
    if left[rich] < 1:
      small.append(large.pop())
  for rest in small + large:  # 1, but for rounding
    left[rest] = 1.0
  return Alias(
    words.astype(np.int32),
    np.rint(np.array(left) * 2**24).astype(np.uint32),
    words[others].astype(np.int32),
  )
