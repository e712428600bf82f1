"""Two answers of yes or no: a threshold, and a logistic regression.

Shapes: N example, D feature.
"""

from typing import NamedTuple

import numpy as np
from scipy import optimize, special, stats

MOST_ITERATIONS = 1000
TOLERANCE = 1e-5  # of the gradient's largest element


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


class Logistic(NamedTuple):
  """A logistic regression of standardised features.

  Attributes:
    mean_D, scale_D: of the training examples' features; each is centred and
      divided by its scale.
    weights_D: float64 [D].
    bias: float.
  """

  mean_D: np.ndarray
  scale_D: np.ndarray
  weights_D: np.ndarray
  bias: float

  def answers(self, features_ND: np.ndarray) -> np.ndarray:
    """Returns whether the probability of True is above a half, bool [N]."""
    standard_ND = (features_ND - self.mean_D) / self.scale_D
    return standard_ND @ self.weights_D + self.bias > 0


def fit_logistic(
  features_ND: np.ndarray, labels_N: np.ndarray, strength: float
) -> Logistic:
  """Fits a logistic regression with an L2 penalty, which spares the bias.

  The loss is the sum over examples of -log P(label) plus `strength` / 2 times
  the squared length of the weights, so `strength` is scikit-learn's 1 / C. The
  minimum is found by L-BFGS and is the only one. Constant features are left as
  they are.
  """
  features_ND = np.asarray(features_ND, np.float64)
  mean_D, scale_D = features_ND.mean(axis=0), features_ND.std(axis=0)
  scale_D = np.where(scale_D > 0, scale_D, 1.0)
  standard_ND = (features_ND - mean_D) / scale_D
  signs_N = np.where(labels_N, 1.0, -1.0)

  def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
    weights_D, bias = parameters[:-1], parameters[-1]
    margins_N = signs_N * (standard_ND @ weights_D + bias)
    slopes_N = -signs_N * special.expit(-margins_N)
    value = np.logaddexp(0, -margins_N).sum()
    value += strength / 2 * weights_D @ weights_D
    gradient_D = slopes_N @ standard_ND + strength * weights_D
    return value, np.r_[gradient_D, slopes_N.sum()]

  found = optimize.minimize(
    loss,
    np.zeros(len(mean_D) + 1),
    jac=True,
    method='L-BFGS-B',
    options={'maxiter': MOST_ITERATIONS, 'gtol': TOLERANCE, 'ftol': 1e-12},
  )
  return Logistic(mean_D, scale_D, found.x[:-1], float(found.x[-1]))


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
