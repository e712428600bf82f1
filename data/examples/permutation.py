"""Shuffles examples: permutations from a key, without a table or a state."""

import numpy as np

ORDER = 1  # keeps this use of a seed apart from others
_FEISTEL_ROUNDS = 6


def order_key(seed: int, phase: int, epoch: int) -> int:
  """Returns the key of the permutation that orders an epoch's examples."""
  return int(make_keys(ORDER, seed, phase, epoch)[0])


def permute(
  indices: np.ndarray, size: int | np.ndarray, key: int | np.ndarray
) -> np.ndarray:
  """Maps indices, int64 of any shape, through a permutation of range(size).

  A Feistel network on the smallest power of two that holds the size; results
  outside are mapped again. `key` is in range(2^64). Size and key may be arrays
  [n], one of each for indices [n].
  """
  shape = np.shape(indices)
  values = np.array(indices, np.uint64).reshape(-1)
  sizes = np.atleast_1d(size)
  bits = np.frexp((sizes - 1).astype(np.float64))[1]  # exact below 2^53
  low_bits = (bits - bits // 2).astype(np.uint64)
  one = np.uint64(1)
  low_mask = (one << low_bits) - one
  high_mask = (one << (bits // 2).astype(np.uint64)) - one
  keys = [make_keys(key, number) for number in range(_FEISTEL_ROUNDS)]
  settings = [sizes.astype(np.uint64), low_bits, low_mask, high_mask, *keys]
  todo = np.arange(len(values))
  while len(todo):
    value = values[todo]
    limit, shift, low_bound, high_bound, *round_keys = (
      each[todo] if len(each) > 1 else each for each in settings
    )
    high, low = value >> shift, value & low_bound
    for number, round_key in enumerate(round_keys):
      if number % 2:
        low ^= mix_bits(high, round_key) & low_bound
      else:
        high ^= mix_bits(low, round_key) & high_bound
    value = high << shift | low
    values[todo] = value
    todo = todo[value >= limit]
  return values.astype(np.int64).reshape(shape)


def make_keys(*parts: int | np.ndarray) -> np.ndarray:
  """Returns keys, uint64 [n], of numbers or arrays [n]; n is 1 of numbers."""
  keys = np.zeros(1, np.uint64)
  for part in parts:
    keys = mix_bits(np.atleast_1d(np.asarray(part)), keys)
  return keys


def mix_bits(values: np.ndarray, keys: np.ndarray) -> np.ndarray:
  """Returns uint64 hashes; splitmix64 (Steele et al. 2014) of both in turn."""
  mixed = np.asarray(values).astype(np.uint64)
  for addend in (keys, np.zeros(1, np.uint64)):
    mixed = mixed + (addend + np.uint64(0x9E3779B97F4A7C15))
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
  return mixed
