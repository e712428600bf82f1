"""Losses and metrics as (sum, weight).

In this form micro-batches, shards and evaluation batches add up exactly: the
loss of a global batch is `sum_k sum_k / weight_k`, with the weights of the
whole batch.
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
  losses, label_logits = _log_loss(logits, labels)
  logits, label_logits = jax.lax.stop_gradient((logits, label_logits))
  hits = label_logits >= logits.max(axis=-1)
  return losses, hits.astype(jnp.float32)


@jax.custom_vjp
def _log_loss(logits: Array, labels: Array) -> tuple[Array, Array]:
  """Returns negative log-likelihoods and the labels' logits, float32 [...]."""
  return _log_loss_forward(logits, labels)[0]


def _log_loss_forward(logits: Array, labels: Array) -> tuple[tuple, tuple]:
  label_logits = jnp.take_along_axis(
    logits, labels[..., None], axis=-1, mode='clip'
  )[..., 0]
  log_sums = jax.nn.logsumexp(logits, axis=-1)
  saved = logits, labels, log_sums
  return (log_sums - label_logits, label_logits), saved


def _log_loss_backward(saved: tuple, gradients: tuple) -> tuple[Array, None]:
  """Returns the gradient in one pass over the logits, without a scatter."""
  logits, labels, log_sums = saved
  classes = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
  # As `mode='clip'` reads them.
  labels = jnp.clip(labels, 0, logits.shape[-1] - 1)[..., None]
  likely = jnp.exp(logits - log_sums[..., None])
  return gradients[0][..., None] * (likely - (classes == labels)), None


_log_loss.defvjp(_log_loss_forward, _log_loss_backward)


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
