"""What a task's model is trained for.

Shapes: B examples, C choices or orders of one, T position, K classes, V
vocabulary.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from data.tasks.examples import Task
from train.engine import objectives
from train.engine.objectives import SumAndWeight
from train.engine.steps import Objective

Array = jax.Array
Batch = Mapping[str, Array]

INPUTS = ('tokens', 'token_mask', 'token_types', 'positions', 'last')
CHARACTERS = 'characters'  # the next one, where a batch has it


def build_objective(task: Task, task_config: Any) -> Objective:
  """Returns the objective of a task.

  The losses are those of the papers: cross-entropy of classes, choices and
  tags (a mean over the tagged words), squared error of scores, or with
  `soft_classes` the cross-entropy of a score between its two nearest classes
  (Tai et al. 2015, as GPT's release), and of spans the mean of those of first
  and last token, among the real tokens of the row. With `lm_weight`, so much
  of the language model's loss is added: the mean over rows of a row's mean
  over its tokens after the first, special symbols too, under a softmax over the
  tokens and, of a GPT, the positions (openai/finetune-transformer-lm,
  train.py).
  With `mix_l2`, so much of the sum of the squares of the mix's weights, before
  their softmax, is added (Peters et al. 2018, section 5.1).

  Raises:
    ValueError: if the settings do not fit the task.
  """
  _check(task, task_config)
  # Runs that are older than this key do not have it.
  mix_l2 = getattr(task_config, 'mix_l2', None)
  names = ('task',)
  names += ('lm',) if task_config.lm_weight else ()
  names += ('mix_l2',) if mix_l2 else ()

  def losses(outputs: Mapping[str, Array], batch: Batch) -> Any:
    values, weights, metrics = _task_losses(task, task_config, outputs, batch)
    sums = {'task': (jnp.sum(values * weights), weights.sum())}
    if task_config.lm_weight:
      sums['lm'] = _lm_loss(outputs, batch)
    if mix_l2:  # every row has its share: parts of a batch add up to it
      rows = _row_weights(batch).sum()
      sums['mix_l2'] = (outputs['mix_penalty'] * rows, rows)
    return sums, metrics

  def weights(batch: Batch) -> dict[str, Array]:
    totals = {'task': _weights(task, task_config, batch).sum()}
    if task_config.lm_weight:
      totals['lm'] = _row_weights(batch).sum() / task_config.lm_weight
    if mix_l2:
      totals['mix_l2'] = _row_weights(batch).sum() / mix_l2
    # A batch without a single label has the loss 0, not NaN.
    return {
      name: jnp.where(total > 0, total, 1.0) for name, total in totals.items()
    }

  return Objective(
    transform=lambda host_batch, keys: dict(host_batch),
    inputs=lambda batch: tuple(
      batch[name] for name in (*INPUTS, CHARACTERS) if name in batch
    ),
    weights=weights,
    losses=losses,
    loss_names=names,
    metric_names=() if task.kind == 'regression' else ('accuracy',),
    targets=lambda batch: (batch['labels'], batch['label_mask']),
    perplexities={},
  )


def soft_targets(scores: Array, num_classes: int) -> Array:
  """Returns float32 [B, K]: a score's share of its two nearest classes.

  Args:
    scores: float [B], between 0 and K - 1.
    num_classes: K.
  """
  distance = jnp.abs(scores[:, None] - jnp.arange(num_classes))
  return jnp.maximum(1 - distance, 0)


def _check(task: Task, task_config: Any) -> None:
  weights, soft = tuple(task_config.class_weights), task_config.soft_classes
  mix_l2 = getattr(task_config, 'mix_l2', None)
  if mix_l2 and task_config.features != 'mix':
    raise ValueError(
      f'task.mix_l2={mix_l2} with task.features={task_config.features!r}:'
      " expected task.features='mix', whose weights it is of"
    )
  if weights and (
    task.kind not in ('classification', 'tagging')
    or len(weights) != len(task.labels)
    or min(weights) < 0
  ):
    raise ValueError(
      f'task.class_weights={weights}: expected one for each of the'
      f' {len(task.labels)} labels of {task.name}, 0 or more'
    )
  if soft and task.kind == 'regression':
    low, high = task.score_range
    if (low, high) != (0, soft - 1):
      raise ValueError(
        f'task.soft_classes={soft}: the scores of {task.name} lie between'
        f' {low:g} and {high:g}, which needs {high + 1:g} classes from 0'
      )


def _task_losses(
  task: Task, task_config: Any, outputs: Mapping[str, Array], batch: Batch
) -> tuple[Array, Array, dict[str, SumAndWeight]]:
  """Returns losses, their weights, of one shape, and metrics."""
  logits = outputs['logits'].astype(jnp.float32)
  labels, weights = batch['labels'], _weights(task, task_config, batch)
  if task.kind == 'regression':
    if not task_config.soft_classes:
      return jnp.square(logits[:, 0] - labels), weights, {}
    targets_BK = soft_targets(labels, task_config.soft_classes)
    return -jnp.sum(targets_BK * jax.nn.log_softmax(logits), -1), weights, {}
  if task.kind == 'span':
    lowest = jnp.finfo(jnp.float32).min
    logits = jnp.where(batch['token_mask'][..., None], logits, lowest)
    logits = logits.swapaxes(1, 2)  # [B, 2, T]
  values, hits = objectives.score_labels(logits, jnp.maximum(labels, 0))
  if task.kind == 'span':
    values, hits = values.mean(axis=-1), hits.prod(axis=-1)
  counted = (weights > 0).astype(jnp.float32)
  metrics = {'accuracy': (jnp.sum(hits * counted), counted.sum())}
  return values, weights, metrics


def _weights(task: Task, task_config: Any, batch: Batch) -> Array:
  """Returns float32 [B], of tags [B, T]: what each loss counts."""
  labels = batch['labels']
  weights = _row_weights(batch) * batch['label_mask']
  if task.kind == 'tagging':
    weights = weights[:, None] * (labels >= 0)
  if task_config.class_weights:
    class_weights = jnp.asarray(task_config.class_weights, jnp.float32)
    weights *= jnp.take(class_weights, jnp.maximum(labels, 0))
  return weights


def _row_weights(batch: Batch) -> Array:
  """Returns float32 [B], 0 for rows that fill a batch up."""
  return batch['example_mask'].astype(jnp.float32)


def _lm_loss(outputs: Mapping[str, Array], batch: Batch) -> SumAndWeight:
  """Returns the sum over examples of a row's mean loss, and their number."""
  tokens, mask = batch['tokens'], batch['token_mask']
  targets, counted = tokens[..., 1:], mask[..., 1:].astype(jnp.float32)
  lm_logits = outputs['lm_logits'][..., :-1, :]
  values, _ = objectives.score_labels(lm_logits, targets)
  if 'position_logits' in outputs:
    # The same softmax reaches over both, without a copy of so large an array.
    position_logits = outputs['position_logits'][..., :-1, :]
    of_tokens = jax.nn.logsumexp(lm_logits, axis=-1)
    of_positions = jax.nn.logsumexp(position_logits, axis=-1)
    values += jax.nn.softplus(of_positions - of_tokens)
  means = jnp.sum(values * counted, -1) / jnp.maximum(counted.sum(-1), 1)
  if means.ndim == 2:  # choices, or orders, of one example
    means = means.mean(axis=1)
  weights = _row_weights(batch)
  return jnp.sum(means * weights), weights.sum()
