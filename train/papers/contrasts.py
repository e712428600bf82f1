"""A paper's arguments as differences of two rows, and whether they hold."""

import math
import statistics
from collections.abc import Mapping
from typing import NamedTuple

from scipy import stats

from configs.tables.base import Column, Contrast, Table
from train.papers import table_figures

CONFIDENCE = 0.95
HOLDS, REVERSED, HIDDEN = 'holds', 'reversed', 'does not show'


class Value(NamedTuple):
  """The figures of a cell: a list of values for each pre-training."""

  of_pretrainings: tuple[tuple[float, ...], ...]

  @property
  def means(self) -> list[float]:
    """The mean of each pre-training's fine-tunings."""
    return [statistics.fmean(values) for values in self.of_pretrainings]

  @property
  def every(self) -> list[float]:
    """All values."""
    return [value for values in self.of_pretrainings for value in values]


Values = Mapping[tuple[str, str], Value]  # of (row, column)


class Difference(NamedTuple):
  """A difference of two rows in a column, of scores as the column shows them.

  Attributes:
    published: the same of the paper; None if it has none.
    low: the end of the interval, like `high`; None: too few pre-trainings.
  """

  contrast: Contrast
  column: str
  published: float | None
  mean: float
  low: float | None
  high: float | None

  @property
  def verdict(self) -> str:
    """Whether the argument holds."""
    if self.low is None:
      return ''
    return HOLDS if self.low > 0 else REVERSED if self.high < 0 else HIDDEN


def find_differences(table: Table, values: Values) -> list[Difference]:
  """Returns the difference of each argument in each column that has both.

  The standard error is of means over pre-trainings. Their deviation is pooled
  over the rows of a column, and so are its degrees of freedom: two
  pre-trainings of a row alone would say nothing. A perplexity's sign is turned.
  """
  found = []
  for contrast in table.contrasts:
    rows = {row.name: row for row in table.rows}
    better, worse = rows[contrast.better], rows[contrast.worse]
    for number, column in enumerate(table.columns):
      ours = [values.get((row.name, column.name)) for row in (better, worse)]
      if None in ours:
        continue
      sign = 1 if column.percent else -1
      mean, low, high = _compare(*ours, _deviation(column, table, values))
      if sign < 0:
        mean, low, high = (
          -mean,
          *((None, None) if low is None else (-high, -low)),
        )
      printed = [
        table_figures.published_number(row.values[number])
        for row in (better, worse)
      ]
      published = None if None in printed else sign * (printed[0] - printed[1])
      found.append(
        Difference(contrast, column.name, published, mean, low, high)
      )
  return found


def _deviation(
  column: Column, table: Table, values: Values
) -> tuple[float, int]:
  """Returns the pooled deviation of pre-trainings, and its freedom."""
  squares, freedom = 0.0, 0
  for row in table.rows:
    if (row.name, column.name) in values:
      means = values[row.name, column.name].means
      squares += sum((each - statistics.fmean(means)) ** 2 for each in means)
      freedom += len(means) - 1
  return math.sqrt(squares / freedom) if freedom else 0.0, freedom


def _compare(
  better: Value, worse: Value, pooled: tuple[float, int]
) -> tuple[float, float | None, float | None]:
  """Returns the difference of two rows and its interval, if there is one."""
  deviation, freedom = pooled
  mean = statistics.fmean(better.means) - statistics.fmean(worse.means)
  if not freedom:
    return mean, None, None
  error = deviation * math.sqrt(1 / len(better.means) + 1 / len(worse.means))
  bound = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
  return mean, mean - bound, mean + bound
