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
    way: how pairs were scored.
  """

  of_pretrainings: tuple[tuple[float, ...], ...]
  origins: tuple[str, ...] = ()
  way: str = ''

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
    error: the standard error of `mean`; None: too few pre-trainings.
    freedom: the degrees of freedom of the error.
  """

  contrast: Contrast
  column: str
  published: float | None
  mean: float
  error: float | None
  freedom: float

  @property
  def bound(self) -> float | None:
    """Half the width of the interval."""
    if self.error is None:
      return None
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, self.freedom)) * self.error

  @property
  def low(self) -> float | None:
    """The lower end of the interval."""
    return None if self.bound is None else self.mean - self.bound

  @property
  def high(self) -> float | None:
    """The upper end of the interval."""
    return None if self.bound is None else self.mean + self.bound

  @property
  def verdict(self) -> str:
    """Whether the argument holds."""
    if self.low is None:
      return ''
    return HOLDS if self.low > 0 else REVERSED if self.high < 0 else HIDDEN


class Spread(NamedTuple):
  """A pooled variance and its degrees of freedom."""

  variance: float
  freedom: int


def find_differences(table: Table, values: Values) -> list[Difference]:
  """Returns the difference of each argument in each column that has both.

  The standard error is of means over pre-trainings. Two pre-trainings of a row
  alone would say little, so their variance is pooled over the rows of a column
  whose pre-trainings are of one kind; rows that share pre-trainings count once.
  The errors of rows of two kinds are joined as by Welch and Satterthwaite. Rows
  that share their pre-trainings differ by their fine-tunings alone, whose
  variance is pooled likewise; they answer pairs alike. Answers that were scored
  in different ways do not compare. A perplexity's sign is turned.
  """
  found = []
  rows = {row.name: row for row in table.rows}
  for contrast in table.contrasts:
    better, worse = rows[contrast.better], rows[contrast.worse]
    for number, column in enumerate(table.columns):
      ours = [values.get((row.name, column.name)) for row in (better, worse)]
      if None in ours or ours[0].way != ours[1].way:
        continue
      is_shared = bool(ours[0].origins) and ours[0].origins == ours[1].origins
      if is_shared and (column.pairs or column.held_out):
        continue
      of_kinds = {
        kind: [
          values[row.name, column.name]
          for row in table.rows
          if row.kind == kind and (row.name, column.name) in values
        ]
        for kind in (better.kind, worse.kind)
      }
      sign = 1
      printed = [
        table_figures.published_number(rows[name].values[number])
        for name in contrast.published or (better.name, worse.name)
      ]
      if not column.percent:
        sign = -1
        ours = [value.logs for value in ours]
        of_kinds = {
          kind: [value.logs for value in some]
          for kind, some in of_kinds.items()
        }
        printed = [each and 100 * math.log(each) for each in printed]
      spreads = {
        kind: _pool_tunings(some) if is_shared else _pool_means(some)
        for kind, some in of_kinds.items()
      }
      samples = [value.every if is_shared else value.means for value in ours]
      published = None if None in printed else sign * (printed[0] - printed[1])
      found.append(
        Difference(
          contrast,
          column.name,
          published,
          sign * (statistics.fmean(samples[0]) - statistics.fmean(samples[1])),
          *_join(
            [len(sample) for sample in samples],
            [spreads[row.kind] for row in (better, worse)],
            is_one_pool=better.kind == worse.kind,
          ),
        )
      )
  return found


def _pool_means(values: Sequence[Value]) -> Spread:
  """Returns the spread between pre-trainings, each counted once."""
  groups: dict[frozenset, list[Sequence[float]]] = {}
  for number, value in enumerate(_varied(values)):
    origins = frozenset(value.origins or [number])
    shared = next((each for each in groups if each & origins), origins)
    groups.setdefault(shared, []).append(value.means)
  return _pool([*groups.values()])


def _pool_tunings(values: Sequence[Value]) -> Spread:
  """Returns the spread between the fine-tunings of a pre-training."""
  return _pool(
    [[some] for value in _varied(values) for some in value.of_pretrainings]
  )


def _varied(values: Sequence[Value]) -> Sequence[Value]:
  """Leaves out rows of one answer to all: they hide how the others deviate."""
  return [value for value in values if len({*value.every}) > 1] or values


def _pool(groups: Sequence[Sequence[Sequence[float]]]) -> Spread:
  """Pools groups of samples; a group has the freedom of its largest sample."""
  total, freedom = 0.0, 0
  for samples in groups:
    own = max(len(sample) for sample in samples) - 1
    if own:
      squares = sum(
        (each - statistics.fmean(sample)) ** 2
        for sample in samples
        for each in sample
      )
      total += own * squares / sum(len(sample) - 1 for sample in samples)
      freedom += own
  return Spread(total / freedom if freedom else 0.0, freedom)


def _join(
  sizes: Sequence[int], spreads: Sequence[Spread], *, is_one_pool: bool
) -> tuple[float | None, float]:
  """Returns the standard error of a difference of means, and its freedom."""
  parts = [
    spread.variance / size for size, spread in zip(sizes, spreads, strict=True)
  ]
  if not (sum(parts) and all(spread.freedom for spread in spreads)):
    return None, 0
  freedom = spreads[0].freedom
  if not is_one_pool:
    freedom = sum(parts) ** 2 / sum(
      part**2 / spread.freedom
      for part, spread in zip(parts, spreads, strict=True)
    )
  return math.sqrt(sum(parts)), freedom
