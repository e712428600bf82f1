"""The kinds of tasks on the model's side; `data.scoring.kinds` has the rest."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from data.by_name import ByName
from data.tasks.examples import Task
from data.vocabulary import tag_schemes
from models import crf
from train.engine import objectives

Array = jax.Array
Batch = Mapping[str, Array]
Outputs = Mapping[str, Array]


def _logits(outputs: Outputs) -> Array:
  return outputs['logits'].astype(jnp.float32)


def _row_lengths(outputs: Outputs, batch: Batch) -> Array:
  """Returns a row's real tokens, the most of several rows."""
  del outputs
  lengths = batch['token_mask'].sum(axis=-1)
  return lengths if lengths.ndim == 1 else lengths.max(axis=-1)


@dataclasses.dataclass(frozen=True)
class Kind:
  """A kind of task.

  Attributes:
    head: one of `models.features.HEADS`.
    num_outputs: (task, section `task`) -> the head's K, or a ValueError.
    losses: (section `task`, outputs, batch) -> losses [B] or, `of_words`,
      [B, T]; and hits of the same shape, or None. Outputs have float32 logits.
    of_words: a loss is of a word, with labels int [B, T], -1 at other tokens.
    of_bert: only a BERT has this kind of output.
    num_texts: task -> texts that a model of words reads together.
    has_choices: an example has several such groups of texts, one of them right.
    summed: the loss of a batch is the sum of its losses, not their mean.
    metric_names: of training.
    answers: outputs -> arrays [B, ...] that the host decodes, see
      `data.scoring.answers`.
    lengths: (outputs, batch) -> int [B], places of these arrays that are real.
  """

  head: str
  num_outputs: Callable[[Task, Any], int]
  losses: Callable[[Any, Outputs, Batch], tuple[Array, Array | None]]
  of_words: bool = False
  of_bert: bool = False
  num_texts: Callable[[Task], int] = lambda task: task.num_texts
  has_choices: bool = False
  summed: bool = False
  metric_names: tuple[str, ...] = ('accuracy',)
  answers: Callable[[Outputs], Array] = _logits
  lengths: Callable[[Outputs, Batch], Array] = _row_lengths


def _class_losses(_: Any, outputs: Outputs, batch: Batch) -> tuple:
  labels = jnp.maximum(batch['labels'], 0)
  # The scores of tags, where the logits are those of the best paths.
  logits = outputs.get('emissions', outputs['logits'])
  return objectives.score_labels(logits.astype(jnp.float32), labels)


def _path_losses(_: Any, outputs: Outputs, batch: Batch) -> tuple[Array, None]:
  """Returns the negative log-likelihoods of the tags of each row's words."""
  labels = batch['labels']
  likelihoods = crf.log_likelihood(
    outputs['emissions'], outputs['transitions'], labels, labels >= 0
  )
  return -likelihoods, None


def _score_losses(
  task_config: Any, outputs: Outputs, batch: Batch
) -> tuple[Array, None]:
  labels, logits = batch['labels'], outputs['logits']
  if not task_config.soft_classes:
    return jnp.square(logits[:, 0] - labels), None
  targets_BK = soft_targets(labels, task_config.soft_classes)
  return -jnp.sum(targets_BK * jax.nn.log_softmax(logits), -1), None


def _span_losses(_: Any, outputs: Outputs, batch: Batch) -> tuple:
  """Returns means of start and end under a softmax over the real tokens."""
  lowest = jnp.finfo(jnp.float32).min
  mask = batch['token_mask']
  if mask.ndim == 3:  # of a question and a text: the answer is in the text
    mask = mask[:, -1]
  logits = jnp.where(mask[..., None], outputs['logits'], lowest)
  of_ends = {'logits': logits.swapaxes(1, 2)}  # [B, 2, T]
  losses, hits = _class_losses(_, of_ends, batch)
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


CLASSIFICATION = Kind(
  'classifier', lambda task, _: len(task.labels), _class_losses
)
REGRESSION = Kind('classifier', _score_outputs, _score_losses, metric_names=())
CHOICE = Kind(
  'classifier',
  lambda *_: 1,
  _class_losses,
  num_texts=lambda task: 2,  # the context, and a choice
  has_choices=True,
)
TAGS = Kind(
  'token_classifier',
  lambda task, _: len(task.labels),
  _class_losses,
  of_words=True,
)
SPAN = Kind(
  'span_classifier',
  lambda *_: 2,
  _span_losses,
  of_bert=True,
  num_texts=lambda task: 2,  # the question, and its text
)
# Name -> kind; the losses of documents are imported when looked up.
KINDS = ByName(
  {
    'classification': 'train.transfer.kinds:CLASSIFICATION',
    'regression': 'train.transfer.kinds:REGRESSION',
    'choice': 'train.transfer.kinds:CHOICE',
    'tagging': 'train.transfer.kinds:TAGS',
    'roles': 'train.transfer.kinds:TAGS',
    'span': 'train.transfer.kinds:SPAN',
    'coreference': 'train.transfer.documents:KIND',
  }
)
# Tags under a CRF. Its loss is a sum (AllenNLP 0.9.0, crf_tagger.py).
PATHS = Kind(
  'token_classifier',
  lambda task, task_config: len(tag_labels(task, task_config)),
  _path_losses,
  summed=True,
  metric_names=(),
)
# `task.crf` -> the scores of its paths, see `crf.Crf`.
SCHEMES = {
  '': None,
  'iob2': 'learned',
  'bioul': 'learned',
  'viterbi': 'log_probabilities',
  'viterbi_probabilities': 'probabilities',
}


def kind_of(task: Task, task_config: Any) -> Kind:
  """Returns the kind of a task, with a CRF that of paths of tags."""
  return PATHS if path_scores(task_config) == 'learned' else KINDS[task.kind]


def path_scores(task_config: Any) -> str | None:
  """Returns the scores of paths of tags; None: each tag is read alone."""
  return SCHEMES[getattr(task_config, 'crf', '')]  # configs older than it: none


def tag_labels(task: Task, task_config: Any) -> tuple[str, ...]:
  """Returns the labels of a model's tags, in the scheme of `task.crf`."""
  if getattr(task_config, 'crf', '') == 'bioul':
    return tag_schemes.bioul_labels(task.labels)
  return task.labels


def transitions(task: Task, task_config: Any) -> crf.Allowed | None:
  """Returns which tag may follow another, see `crf.Crf`; None: all alone."""
  if path_scores(task_config) is None:
    return None
  return tag_schemes.allowed(tag_labels(task, task_config))


def check_crf(task: Task, task_config: Any) -> None:
  """Raises ValueError if `task.crf` does not fit a task."""
  if path_scores(task_config) is None:
    return
  found = f'task.crf={task_config.crf!r}: '
  if not KINDS[task.kind].of_words:
    raise ValueError(
      f'{found}{task.name} is a task of the kind {task.kind}, and paths'
      ' need tags'
    )
  if task_config.crf == 'bioul' and not tag_schemes.marks_spans(task.labels):
    raise ValueError(
      f'{found}the tags of {task.name} mark no spans ({task.labels[0]!r}, ...):'
      " expected task.crf='iob2', under which all may follow each other"
    )
  if task_config.class_weights and path_scores(task_config) == 'learned':
    raise ValueError(
      f'{found}expected no task.class_weights: the loss is of whole sentences'
    )
