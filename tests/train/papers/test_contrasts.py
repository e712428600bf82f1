"""Differences of two rows: means, intervals and verdicts."""

import dataclasses
import math
import statistics

import pytest
from scipy import stats

from configs.tables import base, small
from configs.tables.base import Contrast
from train.papers import contrasts


def make_table(column, full='', less='', *, percent=True):
  return base.Table(
    id='small/x',
    title='',
    source='',
    columns=(base.Column(column, percent=percent),),
    contrasts=(Contrast('', 'full', 'less'),),
    rows=(
      small.row('full', (full,), 'ablation:gpt'),
      small.row('less', (less,), 'ablation:gpt'),
    ),
  )


def test_two_rows_alone_have_the_interval_of_a_t_test():
  values = {
    ('full', 'x'): contrasts.Value(((1.0, 3.0), (4.0,), (5.5,))),
    ('less', 'x'): contrasts.Value(((1.0,), (1.5,), (0.5,))),
  }
  (found,) = contrasts.find_differences(make_table('x'), values)
  by_scipy = stats.ttest_ind([2.0, 4.0, 5.5], [1.0, 1.5, 0.5])
  interval = by_scipy.confidence_interval(0.95)
  assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_a_lower_perplexity_is_better():
  values = {
    (row, 'p'): contrasts.Value(((a,), (b,)))
    for row, a, b in (('full', 10.0, 11.0), ('less', 20.0, 21.0))
  }
  (found,) = contrasts.find_differences(
    make_table('p', 3.0, 5.0, percent=False), values
  )
  logs = [100 * math.log(value) for value in (20 * 21, 10 * 11)]
  assert found.mean == pytest.approx((logs[0] - logs[1]) / 2)
  assert found.published == pytest.approx(100 * math.log(5 / 3))
  assert found.low < found.mean < found.high
  assert found.verdict == contrasts.HOLDS


def test_rows_of_the_same_pretrainings_differ_by_their_fine_tunings():
  values = {
    ('full', 'x'): contrasts.Value(((1.0, 1.2), (5.0, 5.2)), ('a', 'b')),
    ('less', 'x'): contrasts.Value(((0.0, 0.2), (4.0, 4.2)), ('a', 'b')),
  }
  (found,) = contrasts.find_differences(make_table('x'), values)
  # Four pairs of deviation 0.1 * sqrt(2): four degrees of freedom.
  bound = stats.t.ppf(0.975, 4) * 0.1 * math.sqrt(2) * math.sqrt(2 / 4)
  assert found.mean == pytest.approx(1.0)
  assert found.high - found.mean == pytest.approx(bound)
  # They answer pairs alike.
  table = make_table('x')
  column = dataclasses.replace(table.columns[0], pairs='x')
  table = dataclasses.replace(table, columns=(column,))
  assert not contrasts.find_differences(table, values)


def of_rows(rows, *pairs):
  """Returns a table of rows of a name and a config, and arguments."""
  return dataclasses.replace(
    make_table('x'),
    contrasts=tuple(Contrast('', *pair) for pair in pairs),
    rows=tuple(small.row(name, ('',), config) for name, config in rows),
  )


def test_rows_of_the_same_pretrainings_count_once():
  """Four rows of two pre-trainings, and two rows of two others each."""
  shared = {'a': (1.0, 3.0), 'b': (2.0, 5.0), 'c': (0.0, 1.0), 'd': (4.0, 4.5)}
  alone = {'e': (6.0, 7.0), 'f': (2.0, 2.5)}
  values = {
    (name, 'x'): contrasts.Value(tuple((x,) for x in means), origins)
    for some, origins in ((shared, ('p', 'q')), (alone, ()))
    for name, means in some.items()
  }
  table = of_rows(
    [(name, 'ablation:bert') for name, _ in values], ('a', 'e'), ('e', 'f')
  )
  of_groups = [
    statistics.fmean(map(statistics.variance, shared.values())),
    *map(statistics.variance, alone.values()),
  ]
  bound = stats.t.ppf(0.975, 3) * math.sqrt(statistics.fmean(of_groups))
  for each in contrasts.find_differences(table, values):
    assert each.freedom == 3
    assert each.high - each.mean == pytest.approx(bound)


def test_rows_of_two_kinds_have_the_interval_of_welch():
  samples = {'full': [80.0, 84.0, 83.0], 'none': [68.3, 68.4, 68.6]}
  values = {
    (name, 'x'): contrasts.Value(tuple((x,) for x in sample))
    for name, sample in samples.items()
  }
  rows = [('full', 'ablation:bert'), ('none', 'ablation:bert,untrained')]
  (found,) = contrasts.find_differences(of_rows(rows, ('full', 'none')), values)
  welch = stats.ttest_ind(*samples.values(), equal_var=False)
  interval = welch.confidence_interval(0.95)
  assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_an_untrained_row_does_not_narrow_the_others_intervals():
  values = {
    ('full', 'x'): contrasts.Value(((80.0,), (84.0,))),
    ('less', 'x'): contrasts.Value(((70.0,), (72.0,))),
    ('none', 'x'): contrasts.Value(((68.3,), (68.5,))),
    ('words', 'x'): contrasts.Value(((60.0,), (60.1,))),
  }
  table = of_rows(
    [
      ('full', 'ablation:bert'),
      ('less', 'ablation:bert,no_nsp'),
      ('none', 'ablation:bert,untrained'),
    ],
    ('full', 'less'),
  )
  table = dataclasses.replace(
    table, rows=(*table.rows, small.word_row('words', 1))
  )
  (found,) = contrasts.find_differences(table, values)
  by_scipy = stats.ttest_ind([80.0, 84.0], [70.0, 72.0])
  interval = by_scipy.confidence_interval(0.95)
  assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_answers_scored_in_two_ways_do_not_compare():
  both, one = (
    contrasts.Value(((1.0,), (2.0,)), way=way) for way in ('both', 'one')
  )
  table = make_table('x')
  values = {('full', 'x'): both, ('less', 'x'): one}
  assert not contrasts.find_differences(table, values)
  values = {('full', 'x'): both, ('less', 'x'): both}
  assert contrasts.find_differences(table, values)


def test_a_row_of_one_answer_does_not_narrow_the_others_intervals():
  values = {
    ('full', 'x'): contrasts.Value(((1.0,), (3.0,))),
    ('less', 'x'): contrasts.Value(((0.0, 0.0), (0.0,))),
  }
  (found,) = contrasts.find_differences(make_table('x'), values)
  bound = stats.t.ppf(0.975, 1) * math.sqrt(2)
  assert found.high - found.mean == pytest.approx(bound)


def test_a_single_pretraining_has_no_interval():
  values = {
    ('full', 'x'): contrasts.Value(((1.0, 2.0),)),
    ('less', 'x'): contrasts.Value(((1.0, 1.0),)),
  }
  (found,) = contrasts.find_differences(make_table('x'), values)
  assert (found.mean, found.low, found.verdict) == (0.5, None, '')
