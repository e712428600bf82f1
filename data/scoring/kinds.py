"""The kinds of tasks: all that differs between them, but for the loss.

A new kind is an entry of `KINDS` here; where its loss is new, a function of
`train.transfer.task_losses`.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from data.by_name import ByName
from data.inputs import framing, word_windows
from data.inputs.features import Features, Framing
from data.scoring import answers, measures
from data.tasks.examples import Example, Prediction, Task


class Kind:
  """A kind of task: how its examples are read, answered and scored.

  Attributes:
    metrics: all that `measure` may give.
    binary_metrics: metrics of two labels only.
    has_n_best: predictions have several answers, and scores of no answer.
    has_mean: whether the logits of all models are of the same parts.
    unit: what a model answers: each 'text', each 'word', a 'part' of a text,
      or a 'document'.
    has_choices: an example has several groups of texts, one of them right.
    loss: its name in `train.transfer.task_losses`.
  """

  metrics: tuple[str, ...]
  binary_metrics: tuple[str, ...] = ()
  has_n_best = False
  has_mean = True
  unit = 'text'
  has_choices = False
  loss = 'classes'

  @staticmethod
  def num_outputs(task: Task) -> int:
    """Returns how many numbers a model gives of a unit."""
    return len(task.labels)

  @staticmethod
  def num_texts(task: Task) -> int:
    """Returns how many texts a model of words reads together."""
    return task.num_texts

  @staticmethod
  def frame(task: Task, examples: Sequence[Any], framing: Framing) -> Features:
    """Returns examples as rows of tokens."""
    raise NotImplementedError

  @staticmethod
  def decode(outputs: answers.Outputs) -> list[Prediction]:
    """Returns predictions from logits."""
    raise NotImplementedError

  @staticmethod
  def average(logits: np.ndarray) -> np.ndarray:
    """Returns an ensemble's logits from its members' [members, ...]."""
    return answers.mean_of_probabilities(logits)

  @staticmethod
  def expected(task: Task, example: Any, answer: Any) -> str | bool:
    """Returns the form of an answer; False or empty if the answer has it."""
    raise NotImplementedError

  @staticmethod
  def measure(
    task: Task, examples: Sequence[Any], found: Sequence[Any]
  ) -> measures.Measure:
    """Returns weights of examples -> metric -> values."""
    raise NotImplementedError

  @staticmethod
  def record(answer: Any) -> Any:
    """Returns an answer as JSON has it."""
    return answer

  @staticmethod
  def chances(task: Task, found: Prediction, values: list[float]) -> Any:
    """Returns the probabilities of a prediction as JSON has them."""
    del task, found
    return values


class Classes(Kind):
  """A class of one text or two."""

  metrics = ('accuracy', 'f1', 'macro_f1', 'matthews')
  binary_metrics = ('f1',)
  frame = staticmethod(framing.classes)
  decode = staticmethod(answers.decode_classes)
  measure = staticmethod(measures.classes)

  @staticmethod
  def expected(task: Task, example: Any, answer: Any) -> str | bool:  # noqa: D102
    del example
    return answer not in task.labels and f'one of the labels {task.labels}'

  @staticmethod
  def chances(task: Task, found: Prediction, values: list[float]) -> Any:  # noqa: D102
    del found
    return dict(zip(task.labels, values, strict=True))


class Scores(Kind):
  """A number for one text or two."""

  metrics = ('pearson', 'spearman')
  loss = 'scores'
  frame = staticmethod(framing.scores)
  decode = staticmethod(answers.decode_scores)
  measure = staticmethod(measures.correlations)
  record = float

  @staticmethod
  def num_outputs(task: Task) -> int:  # noqa: D102
    del task
    return 1

  @staticmethod
  def expected(task: Task, example: Any, answer: Any) -> str | bool:  # noqa: D102
    del task, example
    is_right = not isinstance(answer, str | tuple) and math.isfinite(answer)
    return not is_right and 'a finite number'


class Choices(Kind):
  """One of several continuations or answers."""

  metrics = ('accuracy',)
  has_choices = True
  frame = staticmethod(framing.choices)
  decode = staticmethod(answers.decode_classes)
  measure = staticmethod(measures.choices)
  record = int

  @staticmethod
  def num_outputs(task: Task) -> int:  # noqa: D102
    del task
    return 1

  @staticmethod
  def num_texts(task: Task) -> int:  # noqa: D102
    del task
    return 2  # the context, and a choice

  @staticmethod
  def expected(task: Task, example: Any, answer: Any) -> str | bool:  # noqa: D102
    del task
    count = len(example.choices)
    return (
      answer not in range(count) and f'the number of one of {count} choices'
    )

  @staticmethod
  def chances(task: Task, found: Prediction, values: list[float]) -> Any:  # noqa: D102
    del task, found
    return {str(i): value for i, value in enumerate(values)}


class Tags(Kind):
  """A tag for each word."""

  metrics = ('f1', 'precision', 'recall', 'accuracy')
  unit = 'word'
  frame = staticmethod(word_windows.encode)
  decode = staticmethod(answers.decode_tags)
  measure = staticmethod(measures.tags)
  record = list

  @staticmethod
  def expected(task: Task, example: Any, answer: Any) -> str | bool:  # noqa: D102
    del task
    count = len(example.words)
    is_right = not isinstance(answer, str) and len(answer) == count
    return not is_right and f'{count} tags, one a word'


# Name -> class; those that few tasks have are imported when looked up. Their
# functions need no instance.
KINDS = ByName(
  {
    'classification': 'data.scoring.kinds:Classes',
    'regression': 'data.scoring.kinds:Scores',
    'choice': 'data.scoring.kinds:Choices',
    'tagging': 'data.scoring.kinds:Tags',
    'roles': 'data.scoring.roles:Roles',
    'coreference': 'data.scoring.coreference:Clusters',
    'span': 'data.scoring.questions:Spans',
  }
)


# Kind -> how a user's own files of it are read.
OWN_FORMS = ByName(
  {
    'classification': 'data.tasks.own:CLASSES',
    'regression': 'data.tasks.own:SCORES',
    'choice': 'data.tasks.own:CHOICES',
    'tagging': 'data.tasks.own:TAGS',
    'roles': 'data.tasks.annotated.roles:OWN',
    'coreference': 'data.tasks.annotated.coreference:OWN',
    'span': 'data.tasks.own:SPANS',
  }
)


def own_task(*, kind: str, **settings: Any) -> Task:
  """Declares a task of the user's own files; see `own.task`."""
  if kind not in KINDS:
    raise ValueError(f'own.kind={kind!r}: expected one of {", ".join(KINDS)}')
  from data.tasks import own  # for these tasks alone

  task = own.task(OWN_FORMS[kind], kind=kind, **settings)
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
  kind = KINDS[task.kind]
  if not kind.has_mean:
    raise ValueError(
      f'{task.name}: an ensemble of {task.kind} has no mean: each model keeps '
      'other spans. Predict with one model'
    )
  return [
    kind.average(np.stack(rows).astype(np.float64))
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
