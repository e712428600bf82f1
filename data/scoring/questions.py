"""The kind of questions about a text, see `data.scoring.kinds`."""

from typing import Any

from data.inputs import span_windows
from data.scoring import answers, kinds, measures
from data.tasks.examples import Prediction, Task


class Spans(kinds.Kind):
  """A part of a text that answers a question, or none."""

  metrics = ('em', 'f1')
  has_n_best = True
  unit = 'part'
  loss = 'spans'
  frame = staticmethod(span_windows.encode)
  decode = staticmethod(answers.decode_spans)
  average = staticmethod(answers.mean_of_scores)
  measure = staticmethod(measures.answers)

  @staticmethod
  def num_outputs(task: Task) -> int:  # noqa: D102
    del task
    return 2  # of its first and its last token

  @staticmethod
  def num_texts(task: Task) -> int:  # noqa: D102
    del task
    return 2  # the question, and its text

  @staticmethod
  def expected(task: Task, example: Any, answer: Any) -> str | bool:  # noqa: D102
    del task, example
    return not isinstance(answer, str) and 'text'

  @staticmethod
  def chances(task: Task, found: Prediction, values: list[float]) -> Any:  # noqa: D102
    del task
    return {found.answer: values[0]}
