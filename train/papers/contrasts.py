"""A paper's arguments as differences of two rows, and whether they hold."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scipy import stats

from configs.tables.base import Contrast, Table
from train.papers import table_figures

CONFIDENCE = 0.95
HOLDS, REVERSED, HIDDEN = 'holds', 'reversed', 'does not show'


class Value(NamedTuple):
  """The figures of a cell.

  Attributes:
    of_pretrainings: the values of each pre-training's fine-tunings.
    origins: the names of the pre-trainings, which rows may share.
  """

  of_pretrainings: tuple[tuple[float, ...], ...]
  origins: tuple[str, ...] = ()

  @property
  def means(self) -> list[float]:
    """The mean of each pre-training's fine-tunings."""
    return [statistics.fmean(values) for values in self.of_pretrainings]

  @property
  def every(self) -> list[float]:
    """All values."""
    return [value for values in self.of_pretrainings for value in values]

  @property
  def logs(self) -> 'Value':
    """The same of a hundred times the logarithms: differences in per cent."""
    return self._replace(
      of_pretrainings=tuple(
        tuple(100 * math.log(value) for value in values)
        for values in self.of_pretrainings
      )
    )


Values = Mapping[tuple[str, str], Value]  # of (row, column)


class Difference(NamedTuple):
  """A difference of two rows in a column, in points; of perplexities, per cent.

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
  pre-trainings of a row alone would say nothing. Rows that share their
  pre-trainings differ by their fine-tunings alone, whose deviation is pooled
  likewise; they answer pairs alike. A perplexity's sign is turned.
  """
  found = []
  for contrast in table.contrasts:
    rows = {row.name: row for row in table.rows}
    better, worse = rows[contrast.better], rows[contrast.worse]
    for number, column in enumerate(table.columns):
      ours = [values.get((row.name, column.name)) for row in (better, worse)]
      if None in ours:
        continue
      is_shared = bool(ours[0].origins) and ours[0].origins == ours[1].origins
      if is_shared and (column.pairs or column.held_out):
        continue
      of_column = [
        values[row.name, column.name]
        for row in table.rows
        if (row.name, column.name) in values
      ]
      sign = 1
      if not column.percent:
        sign = -1
        ours = [value.logs for value in ours]
        of_column = [value.logs for value in of_column]
      groups = [[value.means] for value in of_column]
      if is_shared:
        groups = [value.of_pretrainings for value in of_column]
      # A row with one answer to all says nothing of the others' deviation.
      pooled = _deviation(
        [
          group
          for value, of_row in zip(of_column, groups, strict=True)
          if len({*value.every}) > 1
          for group in of_row
        ]
      )
      samples = [value.every if is_shared else value.means for value in ours]
      mean, low, high = _compare(*samples, pooled)
      if sign < 0:
        mean, low, high = (
          -mean,
          *((None, None) if low is None else (-high, -low)),
        )
      printed = [
        table_figures.published_number(row.values[number])
        for row in (better, worse)
      ]
      if sign < 0 and None not in printed:
        printed = [100 * math.log(value) for value in printed]
      published = None if None in printed else sign * (printed[0] - printed[1])
      found.append(
        Difference(contrast, column.name, published, mean, low, high)
      )
  return found


def _deviation(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
  """Returns the pooled deviation within groups, and its degrees of freedom."""
  squares = sum(
    (each - statistics.fmean(group)) ** 2 for group in groups for each in group
  )
  freedom = sum(len(group) - 1 for group in groups)
  return math.sqrt(squares / freedom) if freedom else 0.0, freedom


def _compare(
  better: Sequence[float], worse: Sequence[float], pooled: tuple[float, int]
) -> tuple[float, float | None, float | None]:
  """Returns the difference of two means and its interval, if there is one."""
  deviation, freedom = pooled
  mean = statistics.fmean(better) - statistics.fmean(worse)
  if not freedom:
    return mean, None, None
  error = deviation * math.sqrt(1 / len(better) + 1 / len(worse))
  bound = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
  return mean, mean - bound, mean + bound
