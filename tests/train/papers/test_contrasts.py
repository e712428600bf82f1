"""Differences of two rows: means, intervals and verdicts."""

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
  assert (found.mean, found.published) == (10.0, 2.0)
  assert found.low < 10 < found.high
  assert found.verdict == contrasts.HOLDS


def test_a_single_pretraining_has_no_interval():
  values = {
    ('full', 'x'): contrasts.Value(((1.0, 2.0),)),
    ('less', 'x'): contrasts.Value(((1.0, 1.0),)),
  }
  (found,) = contrasts.find_differences(make_table('x'), values)
  assert (found.mean, found.low, found.verdict) == (0.5, None, '')
