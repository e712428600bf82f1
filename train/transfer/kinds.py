"""The kinds of tasks on the model's side; `data.scoring.kinds` has the rest."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from data.tasks.examples import Task
from train.engine import objectives

Array = jax.Array
Batch = Mapping[str, Array]


@dataclasses.dataclass(frozen=True)
class Kind:
  """A kind of task.

  Attributes:
    head: one of `models.features.HEADS`.
    num_outputs: (task, section `task`) -> the head's K, or a ValueError.
    losses: (section `task`, float32 logits, batch) -> losses [B] or, of tags,
      [B, T]; and hits of the same shape, or None.
    of_words: labels are of words, int [B, T], -1 at other tokens.
    of_bert: only a BERT has this kind of output.
    metric_names: of training.
  """

  head: str
  num_outputs: Callable[[Task, Any], int]
  losses: Callable[[Any, Array, Batch], tuple[Array, Array | None]]
  of_words: bool = False
  of_bert: bool = False
  metric_names: tuple[str, ...] = ('accuracy',)


def _class_losses(_: Any, logits: Array, batch: Batch) -> tuple[Array, Array]:
  return objectives.score_labels(logits, jnp.maximum(batch['labels'], 0))


def _score_losses(
  task_config: Any, logits: Array, batch: Batch
) -> tuple[Array, None]:
  labels = batch['labels']
  if not task_config.soft_classes:
    return jnp.square(logits[:, 0] - labels), None
  targets_BK = soft_targets(labels, task_config.soft_classes)
  return -jnp.sum(targets_BK * jax.nn.log_softmax(logits), -1), None


def _span_losses(_: Any, logits: Array, batch: Batch) -> tuple[Array, Array]:
  """Returns means of start and end under a softmax over the real tokens."""
  lowest = jnp.finfo(jnp.float32).min
  logits = jnp.where(batch['token_mask'][..., None], logits, lowest)
  losses, hits = _class_losses(_, logits.swapaxes(1, 2), batch)  # [B, 2, T]
  return losses.mean(axis=-1), hits.prod(axis=-1)


def soft_targets(scores: Array, num_classes: int) -> Array:
  """Returns [B, K]: a score's (0 to K - 1) share of its two nearest classes."""
  distance = jnp.abs(scores[:, None] - jnp.arange(num_classes))
  return jnp.maximum(1 - distance, 0)


def _score_outputs(task: Task, task_config: Any) -> int:
  soft, (low, high) = task_config.soft_classes, task.score_range
  if soft and (low, high) != (0, soft - 1):
    raise ValueError(
      f'task.soft_classes={soft}: the scores of {task.name} lie between'
      f' {low:g} and {high:g}, which needs {high + 1:g} classes from 0'
    )
  return soft or 1


KINDS = {
  'classification': Kind(
    'classifier', lambda task, _: len(task.labels), _class_losses
  ),
  'regression': Kind(
    'classifier', _score_outputs, _score_losses, metric_names=()
  ),
  'choice': Kind('classifier', lambda *_: 1, _class_losses),
  'tagging': Kind(
    'token_classifier',
    lambda task, _: len(task.labels),
    _class_losses,
    of_words=True,
  ),
  'span': Kind('span_classifier', lambda *_: 2, _span_losses, of_bert=True),
}
