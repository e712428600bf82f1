"""The training objective of a task. B examples, T position, V vocabulary."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from data.examples import masking
from data.tasks.examples import Task
from train.architectures.architecture import Vocabulary
from train.engine import objectives
from train.engine.objectives import SumAndWeight
from train.engine.steps import Objective
from train.transfer import kinds
from train.transfer.kinds import Array, Batch

# Inputs of a second reading, see `hide`.
HIDDEN = ('masked_tokens', 'mlm_positions')
# As google-research/bert pre-trains.
_RATES = masking.Rates(predicted=0.15, masked=0.8, random=0.1)


class TaskObjective(Objective):
  """The objective of a task, with the losses of the papers.

  Classes, choices and tags: cross-entropy, for tags a mean over tagged words,
  or with `sums_words` over sentences of the sum over words; with a CRF the
  negative log-likelihood of each sentence's tags, summed.
  Scores: squared error, or with `soft_classes` the cross-entropy of a score
  between its two nearest classes (Tai et al. 2015, as GPT's release). Spans:
  the mean of the cross-entropies of first and last token.

  `lm_weight` times the language model's loss is added: the mean over rows of a
  row's mean over its tokens after the first, special symbols included, under a
  softmax over the tokens and, of a GPT, the positions
  (openai/finetune-transformer-lm, train.py). With the `vocabulary` of a BERT
  instead, the mean over tokens that are hidden in a second reading of the same
  rows, drawn at each step (`hide`). So is `mix_l2` times the sum of
  squares of the mix's weights before their softmax (Peters et al. 2018, section
  5.1).
  """

  def __init__(
    self,
    task: Task,
    task_config: Any,
    inputs: Callable[[Batch], tuple] = lambda batch: (),
    *,
    sums_words: bool = False,
    vocabulary: Vocabulary | None = None,
  ):
    """Raises ValueError if the settings do not fit the task.

    `inputs` returns the arrays of a batch that the model reads; by default
    none, for losses without a model.
    """
    kinds.check_crf(task, task_config)
    kind = kinds.kind_of(task, task_config)
    class_weights = tuple(task_config.class_weights)
    # Configs older than this key lack it.
    mix_l2 = getattr(task_config, 'mix_l2', None)
    if mix_l2 and task_config.features != 'mix':
      raise ValueError(
        f'task.mix_l2={mix_l2} with task.features={task_config.features!r}:'
        " expected task.features='mix', whose weights it penalises"
      )
    if class_weights and (
      len(class_weights) != len(task.labels) or min(class_weights) < 0
    ):
      raise ValueError(
        f'task.class_weights={class_weights}: expected one for each of the'
        f' {len(task.labels)} labels of {task.name}, 0 or more'
      )
    kind.num_outputs(task, task_config)  # checks the settings
    # ELMo's task models lack the key.
    lm_weight = getattr(task_config, 'lm_weight', None)
    factors = {'task': 1, 'lm': lm_weight, 'mix_l2': mix_l2}
    self._factors = {name: f for name, f in factors.items() if f}
    self._kind, self._task, self._settings = kind, task, task_config
    self._inputs, self._sums_words = inputs, sums_words
    self._vocabulary, self._class_weights = vocabulary, class_weights
    self.loss_names = tuple(self._factors)
    self.metric_names = kind.metric_names

  def transform(self, host_batch: Batch, keys_B: Array) -> dict[str, Array]:
    """Returns the batch, with hidden tokens where a BERT predicts them."""
    hidden = {}
    if self._vocabulary:
      hidden = hide(host_batch, keys_B, self._vocabulary)
    return {**host_batch, **hidden}

  def inputs(self, batch: Batch) -> tuple:
    """Returns the arrays of a batch that the model reads."""
    return self._inputs(batch)

  def losses(self, outputs: Mapping[str, Array], batch: Batch) -> Any:
    """Returns the task's loss and the added ones, and the accuracy if any."""
    outputs = {**outputs, 'logits': outputs['logits'].astype(jnp.float32)}
    values, hits = self._kind.losses(self._settings, outputs, batch)
    weights = self._label_weights(batch)
    metrics = {}
    if hits is not None:
      counted = (weights > 0).astype(jnp.float32)
      metrics['accuracy'] = (jnp.sum(hits * counted), counted.sum())
    sums = {'task': (jnp.sum(values * weights), weights.sum())}
    if 'lm_logits' in outputs and 'mlm_targets' in batch:
      sums['lm'] = _mlm_loss(outputs, batch)
    elif 'lm' in self._factors and self._vocabulary is None:
      sums['lm'] = _lm_loss(outputs, batch)
    if 'mix_l2' in self._factors:  # split over rows, as batches are
      rows = _row_weights(batch).sum()
      sums['mix_l2'] = (outputs['mix_penalty'] * rows, rows)
    return sums, metrics

  def weights(self, batch: Batch) -> dict[str, Array]:
    """Returns each loss's divisor, the factor of the loss in it."""
    rows = _row_weights(batch).sum()
    totals = {name: rows / factor for name, factor in self._factors.items()}
    if 'lm' in self._factors and self._vocabulary is not None:
      totals['lm'] = batch['mlm_weights'].sum() / self._factors['lm']
    if self._kind.summed:
      totals['task'] = jnp.float32(1)
    elif self._sums_words:
      totals['task'] = rows
    else:
      totals['task'] = self._label_weights(batch).sum()
    # A batch without a single label has the loss 0, not NaN.
    return {
      name: jnp.where(total > 0, total, 1.0) for name, total in totals.items()
    }

  def targets(self, batch: Batch) -> tuple[Array, Array]:
    """Returns the labels, and which rows have one."""
    return batch['labels'], batch['label_mask']

  def _label_weights(self, batch: Batch) -> Array:
    """Returns each label's weight, float32 [B], of words [B, T]."""
    labels = batch['labels']
    weights = _row_weights(batch) * batch['label_mask']
    if self._kind.of_words:
      weights = weights[:, None] * (labels >= 0)
    if self._task.kind == 'span':  # windows of words that lack the answer
      weights = weights * (labels >= 0).all(axis=1)
    if self._class_weights:
      table = jnp.asarray(self._class_weights, jnp.float32)
      weights *= jnp.take(table, jnp.maximum(labels, 0))
    return weights


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


def _mlm_loss(outputs: Mapping[str, Array], batch: Batch) -> SumAndWeight:
  """Returns (sum over predictions of their losses, number of predictions)."""
  values, _ = objectives.score_labels(
    outputs['lm_logits'], batch['mlm_targets']
  )
  weights = batch['mlm_weights']
  return jnp.sum(values * weights), weights.sum()


def _row_weights(batch: Batch) -> Array:
  return batch['example_mask'].astype(jnp.float32)


def _lm_loss(outputs: Mapping[str, Array], batch: Batch) -> SumAndWeight:
  """Returns (sum over examples of their mean losses, number of examples)."""
  tokens, mask = batch['tokens'], batch['token_mask']
  targets, counted = tokens[..., 1:], mask[..., 1:].astype(jnp.float32)
  lm_logits = outputs['lm_logits'][..., :-1, :]
  values, _ = objectives.score_labels(lm_logits, targets)
  if 'position_logits' in outputs:
    # One softmax over both, without a copy of so large an array.
    position_logits = outputs['position_logits'][..., :-1, :]
    of_tokens = jax.nn.logsumexp(lm_logits, axis=-1)
    of_positions = jax.nn.logsumexp(position_logits, axis=-1)
    values += jax.nn.softplus(of_positions - of_tokens)
  means = jnp.sum(values * counted, -1) / jnp.maximum(counted.sum(-1), 1)
  if means.ndim == 2:  # choices, or orders, of one example
    means = means.mean(axis=1)
  weights = _row_weights(batch)
  return jnp.sum(means * weights), weights.sum()
