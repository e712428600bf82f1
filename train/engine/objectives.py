"""Losses and metrics as (sum, weight).

So micro-batches, shards and evaluation batches add up exactly: the loss of a
global batch is `sum_k sum_k / weight_k` with the weights of the whole batch.
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

Array = jax.Array
Batch = Mapping[str, Array]
SumAndWeight = tuple[Array, Array]


def mlm_weights(batch: Batch) -> Array:
  """Returns float32 [B, P]: weights of predictions, 0 in padding rows."""
  return batch['mlm_weights'] * batch['example_mask'][:, None]


def nsp_weights(batch: Batch) -> Array:
  """Returns float32 [B]: weights of sentence pairs, 0 in padding rows."""
  return batch['nsp_weights'] * batch['example_mask']


# Loss -> (key of its targets, its weights).
BERT_LOSSES = {
  'mlm': ('mlm_targets', mlm_weights),
  'nsp': ('nsp_labels', nsp_weights),
}


def bert_weights(
  batch: Batch, names: Sequence[str] = tuple(BERT_LOSSES)
) -> dict[str, Array]:
  """Returns each loss's total weight in a global batch, at least 1 (no NaN)."""
  weights = {name: BERT_LOSSES[name][1](batch) for name in names}
  return {name: jnp.maximum(w.sum(), 1) for name, w in weights.items()}


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


def bert_losses(
  outputs: Mapping[str, Array],
  batch: Batch,
  names: Sequence[str] = tuple(BERT_LOSSES),
) -> tuple[dict[str, SumAndWeight], dict[str, SumAndWeight]]:
  """Returns BERT's losses and accuracies, or some by `names`.

  Args:
    outputs: `mlm_logits` [B, P, V] and `nsp_logits` [B, 2] of models.bert.Bert.
    batch: `mlm_targets` int [B, P], `mlm_weights` float [B, P], `nsp_labels`
      int [B] (0 = really next), `nsp_weights` [B], `example_mask` bool [B].
    names: of `BERT_LOSSES`.

  Returns:
    Losses {'mlm', 'nsp'} in nats and metrics {'mlm_accuracy', 'nsp_accuracy'}:
    each (weighted sum, sum of weights), float32 scalars.
  """
  losses, metrics = {}, {}
  for name in names:
    targets, weights_of = BERT_LOSSES[name]
    weights = weights_of(batch)
    values, hits = score_labels(outputs[f'{name}_logits'], batch[targets])
    losses[name] = (jnp.sum(values * weights), weights.sum())
    metrics[f'{name}_accuracy'] = (jnp.sum(hits * weights), weights.sum())
  return losses, metrics


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
