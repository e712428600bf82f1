"""The losses of tasks: of labels, and of the language model learnt beside.

B examples, T position, V vocabulary, K classes.
"""

import functools
import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from data.examples import masking
from models import crf
from train.architectures.architecture import Vocabulary
from train.engine import objectives
from train.engine.objectives import Batch, SumAndWeight

Array = jax.Array
Outputs = Mapping[str, Array]
# (section `task`, outputs with float32 logits, batch) -> losses [B], of words
# [B, T]; and hits of the same shape, or None.
Losses = Callable[[ConfigDict, Outputs, Batch], tuple[Array, Array | None]]

# Inputs of a second reading, see `hide`.
HIDDEN = ('masked_tokens', 'mlm_positions')
# As google-research/bert pre-trains.
_RATES = masking.Rates(predicted=0.15, masked=0.8, random=0.1)


def class_losses(
  _: ConfigDict, outputs: Outputs, batch: Batch
) -> tuple[Array, Array]:
  """Returns cross-entropies of classes, of choices or of each word's tag."""
  labels = jnp.maximum(batch['labels'], 0)
  # The scores of tags, where the logits are those of the best paths.
  logits = outputs.get('emissions', outputs['logits'])
  return objectives.score_labels(logits.astype(jnp.float32), labels)


def path_losses(
  _: ConfigDict, outputs: Outputs, batch: Batch
) -> tuple[Array, None]:
  """Returns the negative log-likelihoods of the tags of each row's words."""
  labels = batch['labels']
  likelihoods = crf.log_likelihood(
    outputs['emissions'], outputs['transitions'], labels, labels >= 0
  )
  return -likelihoods, None


def score_losses(
  task_config: ConfigDict, outputs: Outputs, batch: Batch
) -> tuple[Array, None]:
  """Returns squared errors, or cross-entropies of soft classes."""
  labels, logits = batch['labels'], outputs['logits']
  if not task_config.soft_classes:
    return jnp.square(logits[:, 0] - labels), None
  targets_BK = soft_targets(labels, task_config.soft_classes)
  return -jnp.sum(targets_BK * jax.nn.log_softmax(logits), -1), None


def span_losses(
  _: ConfigDict, outputs: Outputs, batch: Batch
) -> tuple[Array, Array]:
  """Returns means of start and end under a softmax over the real tokens."""
  lowest = jnp.finfo(jnp.float32).min
  mask = batch['token_mask']
  if mask.ndim == 3:  # of a question and a text: the answer is in the text
    mask = mask[:, -1]
  logits = jnp.where(mask[..., None], outputs['logits'], lowest)
  of_ends = {'logits': logits.swapaxes(1, 2)}  # [B, 2, T]
  losses, hits = class_losses(_, of_ends, batch)
  return losses.mean(axis=-1), hits.prod(axis=-1)


# `data.scoring.kinds.Kind.loss` -> losses of labels. 'paths' are the losses of
# a learned CRF, for any kind; `word_bodies` has 'clusters'.
LOSSES: dict[str, Losses] = {
  'classes': class_losses,
  'scores': score_losses,
  'spans': span_losses,
  'paths': path_losses,
}
WITH_HITS = ('classes', 'spans')
# The loss of a batch is the sum of these losses, not their mean.
SUMMED = ('paths', 'clusters')


def soft_targets(scores: Array, num_classes: int) -> Array:
  """Returns [B, K]: a score's (0 to K - 1) share of its two nearest classes."""
  distance = jnp.abs(scores[:, None] - jnp.arange(num_classes))
  return jnp.maximum(1 - distance, 0)


def hide(batch: Batch, keys_B: Array, vocabulary: Vocabulary) -> Batch:
  """Returns a batch's rows with some tokens hidden, as BERT pre-trains.

  `masked_tokens` are shaped as `tokens`; the others have P predictions in place
  of T positions: `mlm_positions`, `mlm_targets`, `mlm_weights`, see `masking`.
  """
  *rows, length = batch['tokens'].shape
  choices = math.prod(rows[1:])
  keys_R = keys_B
  if choices > 1:
    split = functools.partial(jax.random.split, num=choices)
    keys_R = jax.vmap(split)(keys_B).reshape(-1)
  masked = masking.mask_units(
    {
      'tokens': batch['tokens'].reshape(-1, length),
      'token_mask': batch['token_mask'].reshape(-1, length),
      'example_mask': jnp.repeat(batch['example_mask'], choices),
    },
    keys_R,
    specials=vocabulary.specials,
    vocab_size=vocabulary.size,
    rates=_RATES,
    max_predictions=masking.max_predictions(length, _RATES),
  )
  names = ('mlm_positions', 'mlm_targets', 'mlm_weights')
  found = {'masked_tokens': masked['tokens']}
  found |= {name: masked[name] for name in names}
  return {name: x.reshape(*rows, -1) for name, x in found.items()}


def mlm_loss(outputs: Outputs, batch: Batch) -> SumAndWeight:
  """Returns (sum over predictions of their losses, number of predictions)."""
  loss, _ = objectives.sum_losses(
    outputs, 'lm', batch['mlm_targets'], batch['mlm_weights']
  )
  return loss


def row_weights(batch: Batch) -> Array:
  """Returns 1 of real rows and 0 of padding, float32 [B]."""
  return batch['example_mask'].astype(jnp.float32)


def lm_loss(outputs: Outputs, batch: Batch) -> SumAndWeight:
  """Returns (sum over examples of their mean losses, number of examples)."""
  tokens, mask = batch['tokens'], batch['token_mask']
  rows, examples = tokens.shape[:-1], row_weights(batch)
  # The last place has no next token.
  ends = ((0, 0),) * len(rows) + ((0, 1),)
  targets = jnp.pad(tokens[..., 1:], ends)
  counted = jnp.pad(mask[..., 1:].astype(jnp.float32), ends)
  choices = math.prod(rows[1:])  # or orders, of one example
  of_rows = examples.reshape(-1, *[1] * (len(rows) - 1)) / choices
  of_rows = of_rows / jnp.maximum(counted.sum(-1), 1)
  weights = counted * of_rows[..., None]
  (loss, _), _ = objectives.sum_losses(outputs, 'lm', targets, weights)
  if 'position_logits' in outputs:
    # One softmax over both, without a copy of so large an array.
    of_tokens = jax.nn.logsumexp(outputs['lm_logits'], axis=-1)
    of_positions = jax.nn.logsumexp(outputs['position_logits'], axis=-1)
    loss += jnp.sum(jax.nn.softplus(of_positions - of_tokens) * weights)
  return loss, examples.sum()
