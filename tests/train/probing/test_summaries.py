"""The summary figures: published ones, and those of hand-made probes."""

import math

import numpy as np
import probe_scores
import pytest
from scipy import stats

from train.probing import summaries


@pytest.mark.parametrize('task', probe_scores.BERT_LARGE)
def test_published_expected_layers(task):
  expected, scores = probe_scores.BERT_LARGE[task]
  # The published scores are rounded to 0.01, and their gains sum to about 10.
  near = pytest.approx(expected, abs=0.015)
  assert summaries.expected_layer(scores) == near
  # In percent or not.
  assert summaries.expected_layer([x / 100 for x in scores]) == near


def test_centre_and_divergence():
  assert summaries.centre([1 / 13] * 13) == pytest.approx(6)
  assert summaries.centre([0, 0, 1.0]) == 2
  assert summaries.centre([0.5, 0.3, 0.2]) == pytest.approx(0.7)
  assert summaries.divergence([1 / 8] * 8) == 0
  assert summaries.divergence([0, 1, 0, 0]) == 2
  shares = np.random.default_rng(0).dirichlet(np.ones(7))
  expected = stats.entropy(shares, np.full(7, 1 / 7), base=2)
  assert summaries.divergence(shares.tolist()) == pytest.approx(expected)
  # Negative gains count as none, and the others are made to sum to 1.
  assert summaries.divergence([-3, 2, 2, -1]) == pytest.approx(1)
  assert math.isnan(summaries.divergence([-1, 0]))
  assert math.isnan(summaries.expected_layer([0.5]))


def test_intervals_are_students():
  values = [0.4, 0.5, 0.7]
  found = summaries.average(values)
  low, high = stats.t.interval(
    0.95, 2, loc=np.mean(values), scale=stats.sem(values)
  )
  assert found['mean'] == pytest.approx(np.mean(values))
  assert found['std'] == pytest.approx(np.std(values, ddof=1))
  assert found['mean'] - found['interval'] == pytest.approx(low)
  assert found['mean'] + found['interval'] == pytest.approx(high)
  assert summaries.average([0.4]) == {
    'mean': 0.4,
    'std': None,
    'interval': None,
  }


def test_nothing_is_averaged_with_nan():
  nothing = {'mean': None, 'std': None, 'interval': None}
  assert summaries.average([1.0, math.nan]) == nothing
  # Probes that find nothing at all gain nothing.
  flat = summaries.summarise(runs([(0, 0), (0, 1), (0, 2)], [0.0] * 3), 3)
  assert flat['expected_layer'] == flat['gain_divergence'] == nothing


def runs(pairs, scores):
  """Probes of two seeds, the second's scores 0.02 higher."""
  return [
    {
      **dict(first=first, last=last, seed=seed),
      **dict(dev=score + 0.02 * seed, test=score - 0.1 + 0.02 * seed),
      'shares': [0.25, 0.25, 0.5] if (first, last) == (0, 2) else [],
    }
    for (first, last), score in zip(pairs, scores, strict=True)
    for seed in range(2)
  ]


def test_a_task_is_summarised():
  pairs = [(0, 0), (0, 1), (0, 2), (1, 1), (2, 2)]
  found = summaries.summarise(runs(pairs, [0.5, 0.7, 0.6, 0.8, 0.4]), 3)
  means = [x['dev']['mean'] for x in found['mixes']]
  assert means == pytest.approx([0.51, 0.71, 0.61])
  means = [x['test']['mean'] for x in found['singles']]
  assert means == pytest.approx([0.41, 0.71, 0.31])
  # Gains 0.2 and -0.1: (0.2 - 0.2) / 0.1.
  assert found['expected_layer']['mean'] == pytest.approx(0, abs=1e-9)
  assert found['centre']['mean'] == 1.25
  assert found['mix_divergence']['mean'] == pytest.approx(math.log2(3) - 1.5)
  assert [x['mean'] for x in found['shares']] == [0.25, 0.25, 0.5]
  # Without mixes there are scores of layers alone.
  alone = summaries.summarise(runs([(0, 0), (1, 1), (2, 2)], [0.5] * 3), 3)
  assert alone['mixes'][1:] == [None, None] and alone['shares'] is None
  assert all(alone['singles']) and alone['expected_layer'] is None


def test_selectivity_is_of_each_probe():
  task = runs([(0, 0), (0, 1), (1, 1)], [0.5, 0.9, 0.7])
  control = runs([(0, 0), (0, 1), (1, 1)], [0.4, 0.3, 0.1])
  found = summaries.selectivity(task, control, 3)
  means = {
    name: [x and round(x['mean'], 6) for x in part]
    for name, part in found.items()
  }
  assert means == {'mixes': [0.1, 0.6, None], 'singles': [0.1, 0.6, None]}
