"""Rows of two languages that find each other: cosine and margin.

Shapes: N row of each language, R row of a block, D the vectors' width.
"""

from collections.abc import Iterator

import numpy as np

from train.meanings import geometry

# k of Artetxe and Schwenk 2019, Margin-based Parallel Corpus Mining.
NEIGHBOURS = 4
# The margin divides by a mean cosine, which vectors of few sentences may bring
# to 0 or below when the language's mean is removed.
LEAST_MEAN = 1e-6
# (name, criterion, whether the language's mean is removed).
WAYS = (
  ('cosine', 'cosine', False),
  ('cosine, centred', 'cosine', True),
  ('margin', 'margin', False),
  ('margin, centred', 'margin', True),
)
DIRECTIONS = ('forward', 'backward')  # from the first file, from the second


def accuracies(
  one_ND: np.ndarray, other_ND: np.ndarray
) -> dict[str, dict[str, float]]:
  """Returns the accuracy of each of `WAYS` in both `DIRECTIONS`.

  Row i of one language is found if no row of the other is nearer to it than
  row i; where m rows are equally near (within 1e-6), it counts 1/m. Nearest is
  the row of the largest cosine, or of the largest margin: the cosine over the
  average of both rows' mean cosines with their `NEIGHBOURS` nearest rows of the
  other language. Centred rows are those without the mean of their language.
  """
  one_ND, other_ND = (np.asarray(x, np.float64) for x in (one_ND, other_ND))
  found = {}
  for name, criterion, centred in WAYS:
    pair = one_ND, other_ND
    if centred:
      pair = (rows_ND - rows_ND.mean(axis=0) for rows_ND in pair)
    one, other = map(geometry.unit, pair)
    means = None, None
    if criterion == 'margin':
      means = _near_means(one, other), _near_means(other, one)
    found[name] = {
      'forward': _accuracy(one, other, *means),
      'backward': _accuracy(other, one, *reversed(means)),
    }
  return found


def _near_means(from_ND: np.ndarray, to_ND: np.ndarray) -> np.ndarray:
  """Returns the mean cosine of each row with its nearest rows, [N]."""
  count = min(NEIGHBOURS, len(to_ND))
  return np.concatenate(
    [
      np.partition(cosines_RN, -count, axis=1)[:, -count:].mean(axis=1)
      for _, cosines_RN in _blocks(from_ND, to_ND)
    ]
  )


def _accuracy(
  from_ND: np.ndarray,
  to_ND: np.ndarray,
  from_means_N: np.ndarray | None,
  to_means_N: np.ndarray | None,
) -> float:
  """Returns the share of rows that find theirs; by the margin, given means."""
  points = 0.0
  for rows_R, scores_RN in _blocks(from_ND, to_ND):
    if from_means_N is not None:
      means_RN = (from_means_N[rows_R, None] + to_means_N) / 2
      scores_RN /= np.maximum(means_RN, LEAST_MEAN)
    best_R1 = scores_RN.max(axis=1, keepdims=True)
    nearest_RN = scores_RN >= best_R1 - geometry.TIE
    own_R = nearest_RN[np.arange(len(rows_R)), rows_R]
    points += (own_R / nearest_RN.sum(axis=1)).sum()
  return float(points / len(from_ND))


def _blocks(
  from_ND: np.ndarray, to_ND: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Yields (numbers of rows, their cosines with all of the other language)."""
  for start in range(0, len(from_ND), geometry.ROWS):
    rows_RD = from_ND[start : start + geometry.ROWS]
    yield np.arange(start, start + len(rows_RD)), rows_RD @ to_ND.T
