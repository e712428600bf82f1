"""Parts of words by number, as fastText numbers them (Bojanowski et al. 2017).

The letters of <word> from each place on, `shortest` to `longest` of them, are
hashed into a table of buckets. Different parts may share a bucket.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

# FNV-1a of 32 bits; fastText's dictionary.cc takes bytes as signed.
_OFFSET, _PRIME, _MASK = 2166136261, 16777619, 2**32 - 1


def hash_bytes(data: bytes) -> int:
  """Returns fastText's hash of bytes, in range(2^32)."""
  value = _OFFSET
  for byte in data:
    signed = byte | 0xFFFFFF00 if byte > 127 else byte
    value = ((value ^ signed) * _PRIME) & _MASK
  return value


def parts(word: str, shortest: int, longest: int) -> Iterator[str]:
  """Yields the parts of <word>, in the order of their first letter."""
  framed = f'<{word}>'
  for first in range(len(framed)):
    for size in range(shortest, min(longest, len(framed) - first) + 1):
      if size > 1 or 0 < first < len(framed) - 1:  # not < or > alone
        yield framed[first : first + size]


def number(
  words: Sequence[str], buckets: int, shortest: int, longest: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the buckets of words' parts, int32 [all parts], and their counts.

  The parts lie word after word; counts are int32 [words].
  """
  found = [
    [
      hash_bytes(part.encode()) % buckets
      for part in parts(word, shortest, longest)
    ]
    for word in words
  ]
  counts = np.array(list(map(len, found)), np.int32)
  return np.array(list(itertools.chain(*found)), np.int32), counts
