"""Scores of predictions as the official scorers compute them."""

import collections
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from data.scoring import matching, measures
from data.tasks.examples import (
  METRICS,
  Example,
  Prediction,
  SpanExample,
  TaggedExample,
  Task,
)

_BLOCK = 1 << 21  # weights held at a time by the bootstrap


def score(
  task: Task, examples: Sequence[Example], predictions: Iterable[Prediction]
) -> dict[str, float]:
  """Returns the task's metrics of predictions, matched to examples by id.

  Fractions; correlations from -1 to 1. What is not defined is 0: F1 without a
  positive, Matthews with a single class, and the correlation with a constant
  (where SciPy says nan). Accuracy is over all examples, groups or not, as in
  RACE's overall figure; where examples have groups, there is METRIC/GROUP
  besides. Macro F1 is over the classes that occur. Entities are conlleval's.
  Answers are scored as by SQuAD 2.0's script, which agrees with 1.1's unless
  both the right and the given answer are articles and punctuation alone (three
  questions of 1.1's dev set have such right answers); where questions have no
  answer there are also its HasAns_exact, HasAns_f1, NoAns_exact, NoAns_f1.

  Args:
    task: says which metrics.
    examples: with labels.
    predictions: one of each example, in any order.

  Raises:
    ValueError: if ids are missing, unknown or twice there, examples have no
      labels, or an answer is not of the task.
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
  """Returns percentile intervals of what `score` returns.

  Examples are drawn with replacement: texts, questions, sentences of words.
  Nothing is approximated; ranks are those within the resample. A group's
  interval is of the resamples that drew of the group.

  Args:
    task: see `score`, which has the errors too.
    examples: see `score`.
    predictions: see `score`.
    resamples: how many.
    seed: of the draws.
    level: share of the resamples between the two ends.
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
  """Returns the task's measure and the number of examples that it weighs."""
  unknown = set(task.metrics) - set(METRICS[task.kind])
  if unknown:
    raise ValueError(
      f'{task.name}: found metrics {sorted(unknown)}; expected some of '
      f'{METRICS[task.kind]} for a task of kind {task.kind!r}'
    )
  answers = [x.answer for x in matching.match(task, examples, predictions)]
  bare = [example.id for example in examples if not _is_labelled(example)]
  if bare:
    raise ValueError(
      f'{task.name}: {len(bare):,} of {len(examples):,} examples have no labels'
      f' to score with; the first has the id {bare[0]!r}'
    )
  basic = measures.MEASURES[task.kind](task, examples, answers)
  groups = np.array([getattr(example, 'group', '') for example in examples])
  names = [name for name in dict.fromkeys(groups.tolist()) if name]

  def measure(weights: np.ndarray) -> dict[str, np.ndarray]:
    values = basic(weights)
    for group in names:
      of_group = weights * (groups == group)
      is_drawn = of_group.any(1)
      for metric, value in basic(of_group).items():
        values[f'{metric}/{group}'] = np.where(is_drawn, value, np.nan)
    return values

  return measure, len(examples)


def _is_labelled(example: Any) -> bool:
  if isinstance(example, SpanExample):
    return example.is_labelled
  if isinstance(example, TaggedExample):
    return example.tags is not None
  return example.label is not None
