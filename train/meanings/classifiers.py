"""A threshold for answers of yes or no, and a test of two classifiers.

Shapes: N example.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats


def best_threshold(values_N: np.ndarray, labels_N: np.ndarray) -> float:
  """Returns the threshold of the highest accuracy; values from it on are True.

  It lies half-way between two neighbouring values, or outside all of them: -inf
  calls every value True, inf none. Of equally good ones it is the lowest.
  """
  order = np.argsort(values_N, kind='stable')
  values, labels = values_N[order], labels_N[order]
  # Right answers if the first n values are False and the others True.
  right = np.r_[0, np.cumsum(~labels)] + np.r_[np.cumsum(labels[::-1])[::-1], 0]
  differ = np.r_[True, values[1:] != values[:-1], True]
  place = int(np.where(differ, right, -1).argmax())
  if place in (0, len(values)):
    return -np.inf if place == 0 else np.inf
  return float(values[place - 1] / 2 + values[place] / 2)


class Comparison(NamedTuple):
  """Two classifiers on the same examples, by McNemar's exact test.

  Attributes:
    difference: accuracy of the first minus that of the second, a fraction.
    only_first: examples that the first alone answers right.
    only_second: likewise.
    p_value: two-sided, of equal accuracies: binomial over the examples that one
      of them alone answers right.
  """

  difference: float
  only_first: int
  only_second: int
  p_value: float


def compare(first_N: np.ndarray, second_N: np.ndarray) -> Comparison:
  """Compares two classifiers by bool [N], whether their answers are right."""
  only_first = int((first_N & ~second_N).sum())
  only_second = int((second_N & ~first_N).sum())
  differing = only_first + only_second
  p_value = 1.0
  if differing:
    p_value = float(stats.binomtest(only_first, differing).pvalue)
  difference = (only_first - only_second) / len(first_N)
  return Comparison(difference, only_first, only_second, p_value)
