"""Predictions brought together with the examples that they are of."""

import collections
import math
from collections.abc import Iterable, Sequence
from typing import Any

from data.tasks.examples import Example, Prediction, Task

_NAMED = 3  # ids that an error names


def match(
  task: Task, examples: Sequence[Example], predictions: Iterable[Prediction]
) -> list[Prediction]:
  """Returns the examples' predictions in the examples' order.

  Raises:
    ValueError: if there are no examples, ids are missing, unknown or twice
      there, or an answer is none of the task.
  """
  if not examples:
    raise ValueError(f'{task.name}: found no examples, expected at least one')
  predictions = list(predictions)
  found = {prediction.id: prediction for prediction in predictions}
  expected = {example.id for example in examples}
  for what, ids in (
    ('of more than one example', _twice(x.id for x in examples)),
    ('predicted more than once', _twice(x.id for x in predictions)),
    ('without a prediction', [x.id for x in examples if x.id not in found]),
    ('of no example', [name for name in found if name not in expected]),
  ):
    if ids:
      named = ', '.join(repr(name) for name in ids[:_NAMED])
      rest = f' and {len(ids) - _NAMED:,} more' if len(ids) > _NAMED else ''
      raise ValueError(
        f'{task.name}: found ids {what}: {named}{rest}; expected one prediction'
        f' of each of {len(examples):,} examples'
      )
  for example in examples:
    _check_answer(task, example, found[example.id].answer)
  return [found[example.id] for example in examples]


def _twice(ids: Iterable[str]) -> list[str]:
  """Returns the ids that occur more than once."""
  return [name for name, n in collections.Counter(ids).items() if n > 1]


def _check_answer(task: Task, example: Any, answer: Any) -> None:
  """Refuses what cannot be an answer of the task to the example."""
  if task.kind == 'classification':
    is_right = answer in task.labels
    expected = f'one of the labels {task.labels}'
  elif task.kind == 'regression':
    is_right = not isinstance(answer, str | tuple) and math.isfinite(answer)
    expected = 'a finite number'
  elif task.kind == 'choice':
    is_right = answer in range(len(example.choices))
    expected = f'the number of one of {len(example.choices)} choices'
  elif task.kind == 'tagging':
    is_right = not isinstance(answer, str) and (
      len(answer) == len(example.words)
    )
    expected = f'{len(example.words)} tags, one a word'
  else:
    is_right = isinstance(answer, str)
    expected = 'text'
  if not is_right:
    raise ValueError(
      f'{task.name}, id {example.id!r}: found the answer {answer!r}, expected '
      f'{expected}'
    )
