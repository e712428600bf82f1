"""Exact metrics on held-out text."""

from collections.abc import Callable, Iterable, Mapping

import jax
import numpy as np
from jax.sharding import Mesh

from models.layers import Params
from train.engine import sharding
from train.engine.steps import Batch, EvalStep, Objective

LANGUAGES = 'eval/languages/'  # metrics of one of several languages


def evaluate(
  eval_step: EvalStep,
  params: Params,
  languages: Mapping[str, Iterable[Mapping[str, np.ndarray]]],
  carry: Batch,
  mesh: Mesh,
  objective: Objective,
  after_batch: Callable[[], None] = lambda: None,
) -> dict[str, float]:
  """Returns 'eval/...' metrics over all rows of the languages' batches.

  A mean is a sum over a weight, both added up in float64; `example_mask` marks
  padding rows. Losses of tokens also give perplexities, the unigram baseline's
  perplexity, and `perplexity_ratio`, the worst one over the baseline's. `carry`
  is the first batch's memory. Errors of `after_batch` end the evaluation. With
  several languages, the metrics are also reported for each, as LANGUAGES +
  NAME/..., except the unigram baseline, whose frequencies are of all the text.
  """
  in_all: dict[str, np.ndarray] = {}
  metrics = {}
  for language, batches in languages.items():
    sums: dict[str, np.ndarray] = {}
    for batch in batches:
      on_device = sharding.put_batch(batch, mesh)
      result, carry = eval_step(params, on_device, carry)
      for name, pair in jax.device_get(result).items():
        sums[name] = sums.get(name, np.zeros(2)) + pair.astype(np.float64)
      after_batch()
    for name, pair in sums.items():
      in_all[name] = in_all.get(name, np.zeros(2)) + pair
    sums.pop('baseline', None)
    if len(languages) > 1:
      prefix = f'{LANGUAGES}{language}/'
      metrics |= {
        prefix + name: value
        for name, value in _figures(sums, objective).items()
      }
  metrics |= {
    f'eval/{name}': value for name, value in _figures(in_all, objective).items()
  }
  return dict(sorted(metrics.items()))


def _figures(
  sums: Mapping[str, np.ndarray], objective: Objective
) -> dict[str, float]:
  """Returns means, perplexities and their comparison of (sum, weight) pairs."""
  means = {
    name: float(total / weight)
    for name, (total, weight) in sums.items()
    if weight  # no held-out pair: no NSP metrics
  }
  baseline = means.pop('baseline', None)
  figures = {}
  for name, mean in means.items():
    label = f'{name}_loss' if name in objective.loss_names else name
    figures[label] = mean
  of_tokens = [name for name in objective.perplexities if name in means]
  for name in of_tokens:
    perplexity = objective.perplexities[name]
    figures[perplexity] = float(np.exp(means[name]))
  if of_tokens and baseline is not None:
    worst = max(means[name] for name in of_tokens)
    figures['unigram_perplexity'] = float(np.exp(baseline))
    figures['perplexity_ratio'] = float(np.exp(worst - baseline))
  return figures


def unigram_log_probs(counts: np.ndarray) -> np.ndarray:
  """Returns log-frequencies float32 [V] of counts int [V], 1 added to each."""
  smoothed = counts.astype(np.float64) + 1
  return np.log(smoothed / smoothed.sum()).astype(np.float32)
