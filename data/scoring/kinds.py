"""The kinds of tasks: all that differs between them, but for the loss.

A new kind is an entry of `KINDS` here; where its loss is new, a function of
`train.transfer.task_losses`.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from data.by_name import ByName
from data.inputs import framing, span_windows, word_windows
from data.inputs.features import Features
from data.scoring import answers, measures
from data.tasks import own
from data.tasks.examples import Example, Prediction, Task


@dataclasses.dataclass(frozen=True)
class Kind:
  """A kind of task.

  Attributes:
    own: how a user's own files are read.
    frame: examples -> rows of tokens.
    decode: logits -> predictions.
    expected: (task, example, answer) -> the form of an answer; False or empty
      if the answer has it.
    average: logits of an ensemble [members, ...] -> logits; None if models'
      logits are of different parts of an example.
    binary_metrics: metrics of two labels only.
    record: prediction -> its answer in JSON.
    chances: (task, prediction, probabilities) -> the probabilities in JSON.
    has_n_best: predictions have several answers, and scores of no answer.
    unit: what a model answers: each 'text', each 'word', a 'part' of a text,
      or a 'document'.
    num_outputs: task -> numbers that a model gives of a unit.
    num_texts: task -> texts that a model of words reads together.
    has_choices: an example has several such groups of texts, one of them right.
    loss: its name in `train.transfer.task_losses`.
  """

  own: own.OwnForm
  frame: framing.Frame
  decode: Callable[[answers.Outputs], list[Prediction]]
  expected: Callable[[Task, Any, Any], str | bool]
  metrics: tuple[str, ...]
  measure: measures.MakeMeasure
  average: Callable[[np.ndarray], np.ndarray] | None = (
    answers.mean_of_probabilities
  )
  binary_metrics: tuple[str, ...] = ()
  record: Callable[[Any], Any] = lambda answer: answer
  chances: Callable[[Task, Prediction, list[float]], Any] = (
    lambda task, found, values: values
  )
  has_n_best: bool = False
  unit: str = 'text'
  num_outputs: Callable[[Task], int] = lambda task: len(task.labels)
  num_texts: Callable[[Task], int] = lambda task: task.num_texts
  has_choices: bool = False
  loss: str = 'classes'


def expected_tags(_: Task, example: Any, answer: Any) -> str | bool:
  """Returns the form of tags; False if an answer has it."""
  count = len(example.words)
  return (
    isinstance(answer, str) or len(answer) != count
  ) and f'{count} tags, one a word'


CLASSIFICATION = Kind(
  own=own.CLASSES,
  frame=framing.classes,
  decode=answers.decode_classes,
  expected=lambda task, _, answer: (
    answer not in task.labels and f'one of the labels {task.labels}'
  ),
  metrics=('accuracy', 'f1', 'macro_f1', 'matthews'),
  binary_metrics=('f1',),
  measure=measures.classes,
  chances=lambda task, found, values: dict(
    zip(task.labels, values, strict=True)
  ),
)
REGRESSION = Kind(
  own=own.SCORES,
  frame=framing.scores,
  decode=answers.decode_scores,
  expected=lambda _, example, answer: (
    (isinstance(answer, str | tuple) or not math.isfinite(answer))
    and 'a finite number'
  ),
  metrics=('pearson', 'spearman'),
  measure=measures.correlations,
  record=float,
  num_outputs=lambda task: 1,
  loss='scores',
)
CHOICE = Kind(
  own=own.CHOICES,
  frame=framing.choices,
  decode=answers.decode_classes,
  expected=lambda _, example, answer: (
    answer not in range(len(example.choices))
    and f'the number of one of {len(example.choices)} choices'
  ),
  metrics=('accuracy',),
  measure=measures.choices,
  record=int,
  chances=lambda task, found, values: {
    str(i): value for i, value in enumerate(values)
  },
  num_outputs=lambda task: 1,
  num_texts=lambda task: 2,  # the context, and a choice
  has_choices=True,
)
TAGGING = Kind(
  own=own.TAGS,
  frame=word_windows.encode,
  decode=answers.decode_tags,
  expected=expected_tags,
  metrics=('f1', 'precision', 'recall', 'accuracy'),
  measure=measures.tags,
  record=list,
  unit='word',
)
SPAN = Kind(
  own=own.SPANS,
  frame=span_windows.encode,
  decode=answers.decode_spans,
  average=answers.mean_of_scores,
  expected=lambda *found: not isinstance(found[-1], str) and 'text',
  metrics=('em', 'f1'),
  measure=measures.answers,
  chances=lambda task, found, values: {found.answer: values[0]},
  has_n_best=True,
  unit='part',
  num_outputs=lambda task: 2,  # its first and its last token
  num_texts=lambda task: 2,  # the question, and its text
  loss='parts',
)
# Name -> kind; those of one corpus's format are imported when looked up.
KINDS = ByName(
  {
    'classification': 'data.scoring.kinds:CLASSIFICATION',
    'regression': 'data.scoring.kinds:REGRESSION',
    'choice': 'data.scoring.kinds:CHOICE',
    'tagging': 'data.scoring.kinds:TAGGING',
    'roles': 'data.scoring.roles:KIND',
    'coreference': 'data.scoring.coreference:KIND',
    'span': 'data.scoring.kinds:SPAN',
  }
)


def own_task(*, kind: str, **settings: Any) -> Task:
  """Declares a task of the user's own files; see `own.task`."""
  if kind not in KINDS:
    raise ValueError(f'own.kind={kind!r}: expected one of {", ".join(KINDS)}')
  task = own.task(KINDS[kind].own, kind=kind, **settings)
  check_metrics(task)
  return task


def check_metrics(task: Task) -> None:
  """Raises ValueError if the task's kind lacks one of its metrics."""
  kind = KINDS[task.kind]
  known = kind.metrics
  if len(task.labels) != 2:
    known = tuple(name for name in known if name not in kind.binary_metrics)
  unknown = sorted(set(task.metrics) - set(known))
  if unknown:
    raise ValueError(
      f'{task.name}: found metrics {unknown}; expected some of {known} for a '
      f'task of kind {task.kind!r} with {len(task.labels)} labels'
    )


def encode(
  task: Task, examples: Sequence[Example], *args: Any, **options: Any
) -> Features:
  """Turns examples into rows of tokens; see `framing.encode`."""
  return framing.encode(
    KINDS[task.kind].frame, task, examples, *args, **options
  )


def decode(outputs: answers.Outputs) -> list[Prediction]:
  """Returns a model's predictions of examples."""
  return KINDS[outputs.task.kind].decode(outputs)


def average(
  task: Task, members: Sequence[Sequence[np.ndarray]]
) -> list[np.ndarray]:
  """Returns an ensemble's logits of each feature from those of each member."""
  mean = KINDS[task.kind].average
  if mean is None:
    raise ValueError(
      f'{task.name}: an ensemble of {task.kind} has no mean: each model keeps '
      'other spans. Predict with one model'
    )
  return [
    mean(np.stack(rows).astype(np.float64))
    for rows in zip(*members, strict=True)
  ]


def check_answer(task: Task, example: Example, answer: Any) -> None:
  """Raises ValueError if a value cannot be an answer to the example."""
  expected = KINDS[task.kind].expected(task, example, answer)
  if expected:
    raise ValueError(
      f'{task.name}, id {example.id!r}: found the answer {answer!r}, expected '
      f'{expected}'
    )
