"""Losses and metrics as (sum, weight).

In this form micro-batches, shards and evaluation batches add up exactly: the
loss of a global batch is `sum_k sum_k / weight_k`, with the weights of the
whole batch.
"""

import functools
import math
import operator
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import lax

from models import layers

Array = jax.Array
Batch = Mapping[str, Array]
SumAndWeight = tuple[Array, Array]

# Places of a block in `_head_loss`, for each feature. A block's logits should
# stay in the caches, but each block adds to a gradient of the table's size.
_PLACES_PER_FEATURE = 4


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


def sum_losses(
  outputs: Mapping[str, Array | layers.Head],
  name: str,
  labels: Array,
  weights: Array,
) -> tuple[SumAndWeight, SumAndWeight]:
  """Returns the loss of labels and the share of hits, as (sum, weight).

  Args:
    outputs: of a module: NAME_logits [..., K], and perhaps NAME_head, which is
      read instead where that is faster.
    name: of the loss.
    labels: int [...].
    weights: float [...], the weight of each label.
  """
  head = outputs.get(f'{name}_head')
  if head is not None and _by_blocks():
    loss, hits = _head_loss(head, labels, weights)
  else:
    values, hits = score_labels(outputs[f'{name}_logits'], labels)
    loss, hits = jnp.sum(values * weights), jnp.sum(hits * weights)
  total = weights.sum()
  return (loss, total), (hits, total)


def _by_blocks() -> bool:
  """Returns whether `_head_loss` is the fast way: on one device of a CPU.

  There an array of all logits is read and written from memory several times,
  and on several devices each block would wait for the others' gradients.
  """
  shape = jax.sharding.get_abstract_mesh().shape
  return layers.platform() == 'cpu' and math.prod(shape.values()) == 1


@jax.custom_vjp
def _head_loss(
  head: layers.Head, labels: Array, weights: Array
) -> tuple[Array, Array]:
  """Returns the weighted sums of losses and hits, without all the logits.

  They are computed for a block of places at a time, and the gradient with them.
  A sum has one gradient for all places, which multiplies theirs later. The
  table's is transposed at last: a CPU's product is faster so.
  """
  return _head_loss_forward(head, labels, weights)[0]


def _head_loss_forward(
  head: layers.Head, labels: Array, weights: Array
) -> tuple[tuple[Array, Array], layers.Head]:
  x_BPD, table_VD, bias_V = head
  (V, D), places = table_VD.shape, labels.size
  table_VD = table_VD.astype(x_BPD.dtype)
  blocks = -(-places // (_PLACES_PER_FEATURE * D))
  N = -(-places // blocks)

  def split(x: Array, *widths: int) -> Array:  # [blocks, N, ...]
    x = x.reshape(places, *widths)
    x = jnp.pad(x, ((0, blocks * N - places), *((0, 0) for _ in widths)))
    return x.reshape(blocks, N, *widths)

  def add(
    so_far: tuple[Array, ...], block: tuple[Array, ...]
  ) -> tuple[tuple[Array, ...], Array]:
    x_ND, labels_N, weights_N = block
    product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
    logits_NV = product('ND,VD->NV', x_ND, table_VD) + bias_V
    tokens_NV = lax.broadcasted_iota(jnp.int32, logits_NV.shape, 1)
    is_label_NV = tokens_NV == labels_N[:, None]
    at_labels_N = jnp.take_along_axis(
      logits_NV, labels_N[:, None], axis=1, mode='clip'
    )[:, 0]
    highest_N = logits_NV.max(axis=1)
    powers_NV = jnp.exp(logits_NV - highest_N[:, None])
    sums_N = powers_NV.sum(axis=1)
    losses_N = jnp.log(sums_N) + highest_N - at_labels_N
    gradient_NV = powers_NV * (weights_N / sums_N)[:, None]
    gradient_NV -= jnp.where(is_label_NV, weights_N[:, None], 0)
    gradient_NV = gradient_NV.astype(x_ND.dtype)
    found = (
      jnp.sum(losses_N * weights_N),
      jnp.sum((at_labels_N >= highest_N) * weights_N),
      product('ND,NV->DV', x_ND, gradient_NV),
      gradient_NV.astype(jnp.float32).sum(axis=0),
    )
    by_x_ND = jnp.einsum('NV,VD->ND', gradient_NV, table_VD)
    return jax.tree.map(operator.add, so_far, found), by_x_ND

  empty = jnp.zeros(()), jnp.zeros(()), jnp.zeros((D, V)), jnp.zeros(V)
  labels = jnp.clip(labels, 0, V - 1)  # as `score_labels` reads them
  split_up = split(x_BPD, D), split(labels), split(weights)
  (loss, hits, by_table_DV, by_bias_V), by_x = lax.scan(add, empty, split_up)
  by_x_BPD = by_x.reshape(-1, D)[:places].reshape(x_BPD.shape)
  gradient = layers.Head(
    by_x_BPD,
    by_table_DV.T.astype(head.table_VD.dtype),
    by_bias_V.astype(bias_V.dtype),
  )
  return (loss, hits), gradient


def _head_loss_backward(
  gradient: layers.Head, outer: tuple[Array, Array]
) -> tuple[layers.Head, None, None]:
  scale = outer[0]
  return (
    layers.Head(*(scale.astype(x.dtype) * x for x in gradient)),
    None,
    None,
  )


_head_loss.defvjp(_head_loss_forward, _head_loss_backward)


def lm_weights(batch: Batch) -> dict[str, Array]:
  """Returns the sum of `loss_weights` [B, T], at least 1."""
  return {'lm': jnp.maximum(batch['loss_weights'].sum(), 1)}


def lm_losses(
  outputs: Mapping[str, Array], batch: Batch
) -> tuple[dict[str, SumAndWeight], dict[str, SumAndWeight]]:
  """Returns the loss {'lm'} and the accuracy of next tokens, as (sum, weight).

  They take `lm_logits` [B, T, V] and perhaps `lm_head`, see `sum_losses`,
  `targets` int [B, T] and `loss_weights` [B, T].
  """
  loss, hits = sum_losses(
    outputs, 'lm', batch['targets'], batch['loss_weights']
  )
  return {'lm': loss}, {'lm_accuracy': hits}


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
