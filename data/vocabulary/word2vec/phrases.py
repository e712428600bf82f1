"""Phrases of words that come together more often than by chance.

As word2phrase.c: a pair a, b becomes the word a_b if

  (count(a b) - delta) / (count(a) count(b)) N > threshold

with N words in the text; further passes make longer phrases. As released, the
last word of a line and the first of the next are counted as a pair, though no
phrase crosses a line; words and pairs of fewer than delta occurrences make no
phrase; and a phrase is not joined to the next word in the same pass.
"""

import collections
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from data.vocabulary import word_counts

JOINT = '_'
# Different words and pairs kept while a text is counted: about 5 GB.
MAX_TYPES = 50_000_000


class Counts(NamedTuple):
  """How often words and pairs, written a_b, are in a text of `num_words`."""

  counts: collections.Counter[str]
  num_words: int


def count(lines: Iterable[str], most: int = MAX_TYPES) -> Counts:
  """Counts the words between white space and their pairs.

  Of more than `most` different ones the rarest are forgotten.
  """
  num_words, before = 0, ''

  def words_and_pairs() -> Iterator[list[str]]:
    nonlocal num_words, before
    for line in lines:
      if words := line.split():
        num_words += len(words)
        pairs = zip([before, *words], words, strict=False)
        before = words[-1]
        yield words + [JOINT.join(pair) for pair in pairs]

  return Counts(word_counts.count_words(words_and_pairs(), most), num_words)


def join(
  lines: Iterable[str], found: Counts, threshold: float, delta: int
) -> Iterator[str]:
  """Yields the lines with phrases joined; `threshold` and `delta` as above."""
  counts = found.counts
  total = np.float32(found.num_words)
  for line in lines:
    joined: list[str] = []
    before, count_before = '', 0
    for word in line.split():
      count_here = counts.get(word, 0)
      pair = counts.get(f'{before}{JOINT}{word}', 0)
      score = np.float32(0)
      if min(count_before, count_here, pair) >= delta:
        # In float32, in the order of the release.
        score = np.float32(pair - delta) / np.float32(count_before)
        score = score / np.float32(count_here) * total
      if joined and score > threshold:
        joined[-1] += JOINT + word
        count_before = 0
      else:
        joined.append(word)
        count_before = count_here
      before = word
    yield ' '.join(joined)
