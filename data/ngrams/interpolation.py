"""Deleted interpolation, with weights by how often the history was seen.

Jelinek and Mercer 1980, in the form of Bengio et al. 2003, section 4.1: the
relative frequencies of a word after no history, one word, two words, .. and the
uniform distribution are mixed, with weights for each class of histories. The
class of a history h of n - 1 words is ceil(-log((1 + count(h)) / words)). The
weights are fitted on a text that was not counted.
"""

import itertools
from typing import NamedTuple

import numpy as np

from data.ngrams.counts import BEGIN, NgramCounts
from data.ngrams.model import lookup

_ROUNDS = 50  # of expectation and maximisation


class Frequencies(NamedTuple):
  """The probabilities to mix of each word of a text.

  Attributes:
    shares: float [1 + orders, words], the uniform distribution's first, then
      relative frequencies after 0, 1, .. words.
    classes: int [words], of the longest histories.
  """

  shares: np.ndarray
  classes: np.ndarray


def frequencies(
  counts: NgramCounts, ids: np.ndarray, order: int
) -> Frequencies:
  """Returns the frequencies of a text's words, int [words], by some counts.

  The first word of the text has no history.
  """
  if not 2 <= order <= len(counts.orders):
    raise ValueError(f'order {order}: expected 2 to {len(counts.orders)}')
  ids = np.asarray(ids, np.int64)
  once = np.asarray(counts.orders[0].counts, np.float64)
  total = once.sum() - once[BEGIN]
  shares = [np.full(len(ids), 1 / (counts.num_words - 1)), once[ids] / total]
  numbers, seen = ids, np.zeros(len(ids))
  for lower, longer in itertools.pairwise(counts.orders[:order]):
    heads = np.concatenate([[-1], numbers[:-1]])
    known = heads >= 0
    of_head = np.bincount(
      longer.keys // counts.num_words, longer.counts, len(lower.keys)
    )
    seen = np.where(known, of_head[heads], 0)
    numbers = np.full(len(ids), -1)
    numbers[known] = lookup(
      longer.keys, heads[known] * counts.num_words + ids[known]
    )
    share = np.zeros(len(ids))
    hit = numbers >= 0
    share[hit] = longer.counts[numbers[hit]] / seen[hit]
    shares.append(share)
  classes = np.ceil(-np.log((1 + seen) / total)).astype(np.int64)
  return Frequencies(np.stack(shares), np.maximum(classes, 0))


def fit(found: Frequencies) -> np.ndarray:
  """Returns the weights of each class, float [classes, 1 + orders].

  They make the text of `found` most probable; a class that it lacks has equal
  ones.
  """
  num_classes, num_shares = found.classes.max() + 1, len(found.shares)
  weights = np.full((num_classes, num_shares), 1 / num_shares)
  sizes = np.bincount(found.classes, minlength=num_classes)
  for _ in range(_ROUNDS):
    parts = weights[found.classes].T * found.shares
    parts /= parts.sum(axis=0)
    sums = [np.bincount(found.classes, part, num_classes) for part in parts]
    fitted = np.stack(sums, axis=1) / np.maximum(sizes, 1)[:, None]
    weights = np.where(sizes[:, None] > 0, fitted, weights)
  return weights


def log_probs(weights: np.ndarray, found: Frequencies) -> np.ndarray:
  """Returns the log-probability of each word of a text, in nats."""
  # A text to score may have rarer histories than the one to fit on.
  classes = np.minimum(found.classes, len(weights) - 1)
  return np.log((weights[classes].T * found.shares).sum(axis=0))
