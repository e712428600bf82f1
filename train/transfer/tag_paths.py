"""Paths of tags: which tag may follow another, and how a path is scored.

B examples, T position, K tags.
"""

from ml_collections import ConfigDict

from data.scoring.kinds import KINDS
from data.tasks.examples import Task
from data.vocabulary import tag_schemes
from models import crf

# `task.crf` -> the scores of its paths, see `crf.Crf`.
SCHEMES = {
  '': None,
  'iob2': 'learned',
  'bioul': 'learned',
  'viterbi': 'log_probabilities',
  'viterbi_probabilities': 'probabilities',
}


def path_scores(task_config: ConfigDict) -> str | None:
  """Returns the scores of paths of tags; None: each tag is read alone."""
  return SCHEMES[task_config.crf]


def are_learned(task_config: ConfigDict) -> bool:
  """Returns whether the loss is of a CRF's paths, not of single tags."""
  return path_scores(task_config) == 'learned'


def tag_labels(task: Task, task_config: ConfigDict) -> tuple[str, ...]:
  """Returns the labels of a model's tags, in the scheme of `task.crf`."""
  if task_config.crf == 'bioul':
    return tag_schemes.bioul_labels(task.labels)
  return task.labels


def transitions(task: Task, task_config: ConfigDict) -> crf.Allowed | None:
  """Returns which tag may follow which, see `crf.Crf`; None without paths."""
  if path_scores(task_config) is None:
    return None
  return tag_schemes.allowed(tag_labels(task, task_config))


def check_crf(task: Task, task_config: ConfigDict) -> None:
  """Raises ValueError if `task.crf` does not fit a task."""
  if path_scores(task_config) is None:
    return
  found = f'task.crf={task_config.crf!r}: '
  if KINDS[task.kind].unit != 'word':
    raise ValueError(
      f'{found}{task.name} is a task of the kind {task.kind}, and paths'
      ' need tags'
    )
  if task_config.crf == 'bioul' and not tag_schemes.marks_spans(task.labels):
    raise ValueError(
      f'{found}the tags of {task.name} mark no spans ({task.labels[0]!r}, ...):'
      " expected task.crf='iob2', under which all may follow each other"
    )
  if task_config.class_weights and are_learned(task_config):
    raise ValueError(
      f'{found}expected no task.class_weights: the loss is of whole sentences'
    )
