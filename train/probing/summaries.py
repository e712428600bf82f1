"""Figures that say where in an encoder a task is solved (Tenney et al. 2019b).

As the notebook analysis_bertlayer_ACL_camera_ready.ipynb of
nyu-mll/jiant-v1-legacy computes them. Layers are numbered from 0, the
embeddings.
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

from scipy import stats

from train.host.files import Json

# A trained probe: first, last, seed, dev and test (F1, 0 to 1), and shares.
ProbeRun = Mapping[str, float | Sequence[float]]
Average = dict[str, float | None]  # mean, std and interval, see `average`

CONFIDENCE = 0.95


def differences(scores: Sequence[float]) -> list[float]:
  """Returns the gain of each layer from 1 on, of the mixes of layers 0 to k."""
  return [after - before for before, after in itertools.pairwise(scores)]


def expected_layer(scores: Sequence[float]) -> float:
  """Returns sum_l l d_l / sum_l d_l over layers from 1 on.

  d_l is the gain of layer l, see `differences`, and is kept where it is
  negative. NaN if the gains sum to 0, as of one layer.
  """
  gains = differences(scores)
  total = sum(gains)
  if not total:
    return math.nan
  return sum(layer * gain for layer, gain in enumerate(gains, 1)) / total


def centre(shares: Sequence[float]) -> float:
  """Returns the centre of gravity of a mix, sum_l l s_l."""
  return sum(layer * share for layer, share in enumerate(shares))


def divergence(weights: Sequence[float]) -> float:
  """Returns the divergence of weights from uniform ones, KL, in bits.

  Negative weights count as 0, and all are divided by their sum; NaN if no
  weight is positive. 0 for equal weights, log2(n) for one of n alone.
  """
  weights = [max(weight, 0.0) for weight in weights]
  total = sum(weights)
  if not total:
    return math.nan
  shares = [weight / total for weight in weights if weight]
  return sum(share * math.log2(share * len(weights)) for share in shares)


def average(values: Sequence[float]) -> Average:
  """Returns mean, sample deviation and the half width of an interval.

  The interval of the mean is Student's t with 95 % over the seeds; None for a
  single value. All are None if a value is NaN.
  """
  count = len(values)
  if any(map(math.isnan, values)):
    return dict.fromkeys(('mean', 'std', 'interval'))
  mean = statistics.fmean(values)
  if count == 1:
    return {'mean': mean, 'std': None, 'interval': None}
  std = statistics.stdev(values)
  quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1))
  return {
    'mean': mean,
    'std': std,
    'interval': quantile * std / math.sqrt(count),
  }


def summarise(runs: Sequence[ProbeRun], num_layers: int) -> dict[str, Json]:
  """Returns the figures of a task from its trained probes.

  Each figure is an `average` over seeds, None where it needs mixes that were
  not trained: `mixes` and `singles`, layer -> dev and test; `expected_layer`
  and `gain_divergence` of dev scores; `centre`, `mix_divergence` and `shares`
  of the full mix. `singles` begin at layer 0, the lexical baseline.
  `num_layers` is L.
  """
  seeds = sorted({run['seed'] for run in runs})
  of = {(run['first'], run['last'], run['seed']): run for run in runs}

  def scores(first: int, last: int) -> dict[str, Average] | None:
    found = [of.get((first, last, seed)) for seed in seeds]
    if not all(found):
      return None
    return {
      split: average([run[split] for run in found]) for split in ('dev', 'test')
    }

  layers = range(num_layers)
  summary = {
    'mixes': [scores(0, last) for last in layers],
    'singles': [scores(last, last) for last in layers],
  }
  names = 'expected_layer', 'gain_divergence', 'centre', 'mix_divergence'
  if not all(summary['mixes']):
    return summary | dict.fromkeys((*names, 'shares'))
  full = [of[0, num_layers - 1, seed]['shares'] for seed in seeds]
  dev = [[of[0, last, seed]['dev'] for last in layers] for seed in seeds]
  values = (
    map(expected_layer, dev),
    map(divergence, map(differences, dev)),
    map(centre, full),
    map(divergence, full),
  )
  return (
    summary
    | {name: average(list(x)) for name, x in zip(names, values, strict=True)}
    | {'shares': [average(list(x)) for x in zip(*full, strict=True)]}
  )


def selectivity(
  runs: Sequence[ProbeRun],
  controls: Sequence[ProbeRun],
  num_layers: int,
) -> dict[str, list[Average | None]]:
  """Returns the test F1 of a task minus the F1 of its control task.

  The result has `mixes` and `singles` as in `summarise`, averages over seeds;
  None for probes that were not trained.
  """
  of = {(run['first'], run['last'], run['seed']): run['test'] for run in runs}
  gains: dict[tuple[int, int], list[float]] = {}
  for run in controls:
    layers = run['first'], run['last']
    gain = of[*layers, run['seed']] - run['test']
    gains.setdefault(layers, []).append(gain)

  def gain(first: int, last: int) -> Average | None:
    return average(gains[first, last]) if (first, last) in gains else None

  layers = range(num_layers)
  return {
    'mixes': [gain(0, last) for last in layers],
    'singles': [gain(last, last) for last in layers],
  }
