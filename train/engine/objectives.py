"""Losses and metrics as (sum, weight).

So micro-batches, shards and evaluation batches add up exactly: the loss of a
global batch is `sum_k sum_k / weight_k` with the weights of the whole batch.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

Array = jax.Array
Batch = Mapping[str, Array]
SumAndWeight = tuple[Array, Array]


def score_labels(logits: Array, labels: Array) -> tuple[Array, Array]:
  """Returns (negative log-likelihoods, hits) of labels, both float32 [...].

  Logits are float [..., K], labels int [...]. A tie counts as a hit.
  """
  logits = logits.astype(jnp.float32)
  label_logits = jnp.take_along_axis(
    logits, labels[..., None], axis=-1, mode='clip'
  )[..., 0]
  losses = jax.nn.logsumexp(logits, axis=-1) - label_logits
  hits = label_logits >= jax.lax.stop_gradient(logits).max(axis=-1)
  return losses, hits.astype(jnp.float32)


def lm_weights(batch: Batch) -> dict[str, Array]:
  """Returns the sum of `loss_weights` [B, T], at least 1."""
  return {'lm': jnp.maximum(batch['loss_weights'].sum(), 1)}


def lm_losses(
  outputs: Mapping[str, Array], batch: Batch
) -> tuple[dict[str, SumAndWeight], dict[str, SumAndWeight]]:
  """Returns the loss {'lm'} and the accuracy of next tokens, as (sum, weight).

  They take `lm_logits` [B, T, V], `targets` int [B, T], `loss_weights` [B, T].
  """
  weights = batch['loss_weights']
  values, hits = score_labels(outputs['lm_logits'], batch['targets'])
  total = weights.sum()
  return (
    {'lm': (jnp.sum(values * weights), total)},
    {'lm_accuracy': (jnp.sum(hits * weights), total)},
  )


DIRECTIONS = ('forward', 'backward')


def bilm_weights(batch: Batch) -> dict[str, Array]:
  """Returns the divisors of ELMo's two losses, 2 B each, at least 1.

  Their sum is T times the mean over words, directions (bilm-tf, training.py).
  """
  weights = batch['loss_weights']
  rows = weights.sum() / weights.shape[1]
  return {name: jnp.maximum(len(DIRECTIONS) * rows, 1) for name in DIRECTIONS}


def bilm_losses(
  outputs: Mapping[str, Array], batch: Batch
) -> tuple[dict[str, SumAndWeight], dict[str, SumAndWeight]]:
  """Returns ELMo's losses 'forward' and 'backward', (sum, weight); no metrics.

  They take `losses` float [2, B, T] in nats and `loss_weights` [B, T].
  """
  weights = batch['loss_weights']
  losses = {
    name: (jnp.sum(values * weights), weights.sum())
    for name, values in zip(DIRECTIONS, outputs['losses'], strict=True)
  }
  return losses, {}


def unigram_losses(
  log_probs_V: Array, targets: Array, weights: Array
) -> SumAndWeight:
  """Returns (sum of negative log-likelihoods in nats, sum of weights).

  The unigram baseline: log-probabilities [V] score targets and weights [...].
  """
  losses = -jnp.take(log_probs_V, targets, mode='clip')
  return jnp.sum(losses * weights), weights.sum()
