"""From a model's logits to answers, on the host."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from data.inputs.features import Features
from data.scoring import spans
from data.tasks.examples import Example, Prediction, Task


def answer(
  task: Task,
  examples: Sequence[Example],
  features: Features,
  logits: Sequence[np.ndarray],
  task_config: Any,
  *,
  no_answer: bool = False,
  threshold: float = 0.0,
) -> list[Prediction]:
  """Returns what a model says of each example, in their order.

  Args:
    task: of the examples.
    examples: N of them.
    features: of the examples.
    logits: of each feature: [K] of classes, choices, soft classes or [1] of a
      score; [T, K] of tags; [T, 2] of a span's first and last token.
    task_config: the section `task` of a config.
    no_answer: spans: whether there may be none.
    threshold: how far no answer must be ahead of the best.
  """
  if task.kind == 'span':
    return spans.decode(
      features,
      examples,
      [each[:, 0] for each in logits],
      [each[:, 1] for each in logits],
      n_best=task_config.n_best,
      max_answer=task_config.max_answer,
      threshold=threshold,
      allow_no_answer=no_answer,
    )
  if task.kind == 'tagging':
    return _tags(task, examples, features, logits)
  return [
    _answer_row(task, example, row.astype(np.float64))
    for example, row in zip(examples, logits, strict=True)
  ]


def _answer_row(task: Task, example: Example, row: np.ndarray) -> Prediction:
  if task.kind == 'regression' and len(row) == 1:
    return Prediction(example.id, float(row[0]))
  probabilities = special.softmax(row)
  if task.kind == 'regression':
    return Prediction(example.id, float(probabilities @ np.arange(len(row))))
  best = int(row.argmax())
  return Prediction(
    example.id,
    best if task.kind == 'choice' else task.labels[best],
    tuple(probabilities.tolist()),
  )


def _tags(
  task: Task,
  examples: Sequence[Example],
  features: Features,
  logits: Sequence[np.ndarray],
) -> list[Prediction]:
  tags = [[''] * len(example.words) for example in examples]
  chances = [[0.0] * len(example.words) for example in examples]
  for number, rows in enumerate(logits):
    example = features.examples[number]
    start = features.offsets[number]
    words = features.word_index[start : start + len(rows)]
    places = np.flatnonzero(words >= 0)
    probabilities = special.softmax(rows[places].astype(np.float64), axis=-1)
    best = probabilities.argmax(axis=-1)
    for place, chosen, row in zip(places, best, probabilities, strict=True):
      tags[example][words[place]] = task.labels[chosen]
      chances[example][words[place]] = float(row[chosen])
  return [
    Prediction(example.id, tuple(found), tuple(probable))
    for example, found, probable in zip(examples, tags, chances, strict=True)
  ]


def average(
  task: Task, members: Sequence[Sequence[np.ndarray]]
) -> list[np.ndarray]:
  """Returns an ensemble's logits of each feature.

  Those of classes, choices and tags are the logarithms of the mean of the
  members' probabilities; of scores and spans the means of theirs.

  Args:
    task: of all of them.
    members: the logits of each member, of the same features.
  """
  averaged = []
  for rows in zip(*members, strict=True):
    stacked = np.stack(rows).astype(np.float64)
    if task.kind == 'span' or stacked.shape[-1] == 1:
      averaged.append(stacked.mean(axis=0))
      continue
    log_probabilities = special.log_softmax(stacked, axis=-1)
    averaged.append(
      special.logsumexp(log_probabilities, axis=0) - np.log(len(rows))
    )
  return averaged
