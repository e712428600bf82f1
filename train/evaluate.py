"""Exact figures on held-out text."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from train import sharding
from train.steps import Objective


def evaluate(
  eval_step: Callable[[Any, Any], dict[str, jax.Array]],
  params: Any,
  batches: Iterable[Mapping[str, np.ndarray]],
  mesh: Mesh,
  objective: Objective,
) -> dict[str, float]:
  """Returns 'eval/...' metrics over all rows of `batches`.

  Every mean is a sum over a weight, both added up in float64 over the batches;
  the first loss also gives a perplexity, and `baseline` that of a predictor
  which knows token frequencies only.

  Args:
    eval_step: the jitted step of `steps.make_eval_step`.
    params: the parameters.
    batches: host batches of one shape, padded rows marked in `example_mask`.
    mesh: the mesh.
    objective: what the sums are of.
  """
  sums: dict[str, np.ndarray] = {}
  for batch in batches:
    result = jax.device_get(eval_step(params, sharding.put_batch(batch, mesh)))
    for name, pair in result.items():
      sums[name] = sums.get(name, np.zeros(2)) + pair.astype(np.float64)
  means = {
    name: float(total / weight)
    for name, (total, weight) in sums.items()
    if weight  # no held-out pair can be told: no NSP figures
  }
  metrics = {}
  baseline = means.pop('baseline')
  for name, mean in means.items():
    if name in objective.loss_names:
      metrics[f'eval/{name}_loss'] = mean
    else:
      metrics[f'eval/{name}'] = mean
  loss = means[objective.loss_names[0]]
  metrics[f'eval/{objective.perplexity}'] = float(np.exp(loss))
  metrics['eval/unigram_perplexity'] = float(np.exp(baseline))
  metrics['eval/perplexity_ratio'] = float(np.exp(loss - baseline))
  return dict(sorted(metrics.items()))


def unigram_log_probs(counts: np.ndarray) -> np.ndarray:
  """Returns log p of each token by its frequency, float32 [V].

  One is added to each count, so that no token is impossible.

  Args:
    counts: int [V], how often each token stands in the training text.
  """
  smoothed = counts.astype(np.float64) + 1
  return np.log(smoothed / smoothed.sum()).astype(np.float32)
