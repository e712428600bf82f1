"""Differences of two rows: means, intervals and verdicts."""

import pytest
from scipy import stats

from configs.tables import base, small
from configs.tables.base import Contrast
from train.papers import contrasts


def test_two_rows_alone_have_the_interval_of_a_t_test():
  values = {
    ('full', 'x'): contrasts.Value(((1.0, 3.0), (4.0,), (5.5,))),
    ('less', 'x'): contrasts.Value(((1.0,), (1.5,), (0.5,))),
  }
  table = base.Table(
    id='small/x',
    title='',
    source='',
    columns=(base.Column('x'),),
    contrasts=(Contrast('', 'full', 'less'),),
    rows=tuple(small.row(name, ('',), 'ablation:gpt') for name, _ in values),
  )
  (found,) = contrasts.find_differences(table, values)
  by_scipy = stats.ttest_ind([2.0, 4.0, 5.5], [1.0, 1.5, 0.5])
  interval = by_scipy.confidence_interval(0.95)
  assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_a_lower_perplexity_is_better():
  values = {
    (row, 'p'): contrasts.Value(((a,), (b,)))
    for row, a, b in (('full', 10.0, 11.0), ('less', 20.0, 21.0))
  }
  table = base.Table(
    id='small/x',
    title='',
    source='',
    columns=(base.Column('p', percent=False),),
    contrasts=(Contrast('', 'full', 'less'),),
    rows=(
      small.row('full', (3.0,), 'ablation:gpt'),
      small.row('less', (5.0,), 'ablation:gpt'),
    ),
  )
  (found,) = contrasts.find_differences(table, values)
  assert (found.mean, found.published) == (10.0, 2.0)
  assert found.low < 10 < found.high
  assert found.verdict == contrasts.HOLDS


def test_a_single_pretraining_has_no_interval():
  values = {
    ('full', 'x'): contrasts.Value(((1.0, 2.0),)),
    ('less', 'x'): contrasts.Value(((1.0, 1.0),)),
  }
  table = base.Table(
    id='small/x',
    title='',
    source='',
    columns=(base.Column('x'),),
    contrasts=(Contrast('', 'full', 'less'),),
    rows=tuple(small.row(name, ('',), 'ablation:gpt') for name, _ in values),
  )
  (found,) = contrasts.find_differences(table, values)
  assert (found.mean, found.low, found.verdict) == (0.5, None, '')
