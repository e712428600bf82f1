"""Scores of predictions as the official scorers compute them."""

import collections
from collections.abc import Iterable, Sequence

import numpy as np

from data.scoring import kinds, measures
from data.tasks.examples import Example, Prediction, Task

_BLOCK = 1 << 21  # weights in memory at one time in the bootstrap
_NAMED = 3  # ids in an error message


def score(
  task: Task, examples: Sequence[Example], predictions: Iterable[Prediction]
) -> dict[str, float]:
  """Returns the task's metrics of predictions, matched to examples by id.

  Values are fractions; correlations lie between -1 and 1. Undefined values are
  0: F1 without a positive, Matthews with a single class, correlation with a
  constant (nan in SciPy). Accuracy is over all examples, as RACE's overall
  figure; examples with groups also give METRIC/GROUP. Macro F1 is over the
  classes that occur. Entities are conlleval's, roles srl-eval.pl's. Answers
  are scored as by SQuAD 2.0's script, which agrees with 1.1's unless the right
  and the given answer are both articles and punctuation alone (three questions
  of 1.1's dev set have right answers of this kind); questions without answer
  also give HasAns_exact, HasAns_f1, NoAns_exact and NoAns_f1. Raises ValueError
  if ids are missing, unknown or duplicate, labels are missing, or an answer is
  not of the task.
  """
  measure, count = _measure(task, examples, predictions)
  values = measure(np.ones((1, count)))
  return {name: float(value[0]) for name, value in values.items()}


def bootstrap(
  task: Task,
  examples: Sequence[Example],
  predictions: Iterable[Prediction],
  *,
  resamples: int = 1000,
  seed: int = 0,
  level: float = 0.95,
) -> dict[str, tuple[float, float]]:
  """Returns percentile intervals of the metrics of `score`.

  Examples (texts, questions, sentences) are drawn with replacement, and metrics
  are exact, with ranks within the resample. A group's interval is over
  resamples with its examples. `level` is the share of the resamples in the
  interval.
  """
  if resamples < 1 or not 0 < level < 1:
    raise ValueError(
      f'found resamples={resamples}, level={level}; expected at least one, and'
      ' a level between 0 and 1'
    )
  measure, count = _measure(task, examples, predictions)
  rng = np.random.default_rng(seed)
  values = collections.defaultdict(list)
  at_once = max(_BLOCK // count, 1)
  for first in range(0, resamples, at_once):
    rows = min(at_once, resamples - first)
    drawn = rng.integers(count, size=(rows, count))
    drawn += count * np.arange(rows)[:, None]
    weights = np.bincount(drawn.ravel(), minlength=rows * count)
    weights = weights.reshape(rows, count).astype(np.float64)
    for name, value in measure(weights).items():
      values[name].append(value)
  ends = ((1 - level) / 2, (1 + level) / 2)
  return {
    name: tuple(np.nanquantile(np.concatenate(value), ends).tolist())
    for name, value in values.items()
  }


def _measure(
  task: Task, examples: Sequence[Example], predictions: Iterable[Prediction]
) -> tuple[measures.Measure, int]:
  """Returns the task's measure and the number of weighted examples."""
  kinds.check_metrics(task)
  answers = [x.answer for x in match(task, examples, predictions)]
  bare = [example.id for example in examples if not example.is_labelled]
  if bare:
    raise ValueError(
      f'{task.name}: {len(bare):,} of {len(examples):,} examples have no labels'
      f' to score with; the first has the id {bare[0]!r}'
    )
  kind = kinds.KINDS[task.kind]
  measure_all = kind.measure(task, examples, answers)
  groups = np.array([example.group for example in examples])
  names = [name for name in dict.fromkeys(groups.tolist()) if name]

  def basic(weights: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the task's metrics in its order, and parts such as HasAns_f1."""
    values = measure_all(weights)
    parts = [name for name in values if name not in kind.metrics]
    return {name: values[name] for name in (*task.metrics, *parts)}

  def measure(weights: np.ndarray) -> dict[str, np.ndarray]:
    values = basic(weights)
    for group in names:
      of_group = weights * (groups == group)
      is_drawn = of_group.any(1)
      for metric, value in basic(of_group).items():
        values[f'{metric}/{group}'] = np.where(is_drawn, value, np.nan)
    return values

  return measure, len(examples)


def match(
  task: Task, examples: Sequence[Example], predictions: Iterable[Prediction]
) -> list[Prediction]:
  """Returns the predictions in the examples' order, after checking them."""
  if not examples:
    raise ValueError(f'{task.name}: found no examples, expected at least one')
  predictions = list(predictions)
  found = {prediction.id: prediction for prediction in predictions}
  expected = {example.id for example in examples}
  for problem, ids in (
    ('of more than one example', _duplicates(x.id for x in examples)),
    ('predicted more than once', _duplicates(x.id for x in predictions)),
    ('without a prediction', [x.id for x in examples if x.id not in found]),
    ('of no example', [name for name in found if name not in expected]),
  ):
    if ids:
      named = ', '.join(repr(name) for name in ids[:_NAMED])
      rest = f' and {len(ids) - _NAMED:,} more' if len(ids) > _NAMED else ''
      raise ValueError(
        f'{task.name}: found ids {problem}: {named}{rest}; expected one '
        f'prediction of each of {len(examples):,} examples'
      )
  for example in examples:
    kinds.check_answer(task, example, found[example.id].answer)
  return [found[example.id] for example in examples]


def _duplicates(ids: Iterable[str]) -> list[str]:
  return [name for name, n in collections.Counter(ids).items() if n > 1]
