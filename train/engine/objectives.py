"""Losses and metrics, as sums with their weights.

Losses come as (sum, weight), never as means, so that micro-batches, shards
and evaluation batches add up exactly: the loss of a global batch is
`sum_k sum_k / weight_k` with the weights of the whole batch.
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


# Loss -> its targets, and the weights of these.
BERT_LOSSES = {
  'mlm': ('mlm_targets', mlm_weights),
  'nsp': ('nsp_labels', nsp_weights),
}


def bert_weights(
  batch: Batch, names: Sequence[str] = tuple(BERT_LOSSES)
) -> dict[str, Array]:
  """Returns the divisors of some losses' sums over a global batch, at least 1.

  So a batch without a single matched pair (one short document) has the NSP loss
  0, not NaN. The batch has `mlm_weights` [B, P], `nsp_weights` [B] and
  `example_mask` [B].
  """
  weights = {name: BERT_LOSSES[name][1](batch) for name in names}
  return {name: jnp.maximum(w.sum(), 1) for name, w in weights.items()}


def score_labels(logits: Array, labels: Array) -> tuple[Array, Array]:
  """Scores labels int [...] under a softmax of logits float [..., K].

  Returns:
    Negative log-likelihoods and whether no other class scores higher (a tie
    counts as right), both float32 [...].
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
  """Returns BERT's two losses and two accuracies, or some of them.

  Args:
    outputs: `mlm_logits` [B, P, V] and `nsp_logits` [B, 2] of models.bert.Bert.
    batch: `mlm_targets` int [B, P], `mlm_weights` float [B, P], `nsp_labels`
      int [B] (0 = really next), `nsp_weights` float [B], `example_mask` bool
      [B].
    names: of the losses, some of `BERT_LOSSES`.

  Returns:
    Losses in nats {'mlm', 'nsp'} and metrics {'mlm_accuracy',
    'nsp_accuracy'}: each (weighted sum, sum of weights), float32 scalars.
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
  """Returns the divisor of a left-to-right loss's sum, at least 1.

  Args:
    batch: with `loss_weights` [B, T].
  """
  return {'lm': jnp.maximum(batch['loss_weights'].sum(), 1)}


def lm_losses(
  outputs: Mapping[str, Array], batch: Batch
) -> tuple[dict[str, SumAndWeight], dict[str, SumAndWeight]]:
  """Returns the loss {'lm'} and the accuracy of predicting next tokens.

  Each is a (weighted sum, sum of weights), of `lm_logits` [B, T, V], `targets`
  int [B, T] and `loss_weights` [B, T].
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
  """Returns the divisors of the sums of ELMo's two losses, at least 1.

  The gradient is of the mean over words and directions times the words of a
  row, T (bilm-tf, training.py): of the sum over 2 B. The batch has
  `loss_weights` [B, T].
  """
  weights = batch['loss_weights']
  rows = weights.sum() / weights.shape[1]
  return {name: jnp.maximum(len(DIRECTIONS) * rows, 1) for name in DIRECTIONS}


def bilm_losses(
  outputs: Mapping[str, Array], batch: Batch
) -> tuple[dict[str, SumAndWeight], dict[str, SumAndWeight]]:
  """Returns the losses of the next words, 'forward' and 'backward'; no metrics.

  Each is a (weighted sum, sum of weights), of `losses` float [2, B, T] in nats
  and `loss_weights` [B, T].
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
  """Scores targets by token frequency alone, the newcomer's yardstick.

  Returns (sum of negative log-likelihoods in nats, sum of weights), of targets
  int [...], weights float [...] and log-probabilities [V] of the tokens.
  """
  losses = -jnp.take(log_probs_V, targets, mode='clip')
  return jnp.sum(losses * weights), weights.sum()
