"""Answers of questions from the scores of their first and last tokens.

As google-research/bert (run_squad.py, `write_predictions`), except that an
answer is always a span of characters of the text itself.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from data.inputs.features import Features
from data.tasks.examples import Prediction, SpanExample


class Options(NamedTuple):
  """Settings of the answers to questions.

  Attributes:
    n_best: number of returned answers, and of paired starts and ends.
    max_answer: tokens of an answer at most.
    threshold: the answer is empty if the score of no answer exceeds the best
      answer's by more.
    allow_no_answer: the n best include the empty answer, at least as the last.
  """

  n_best: int = 20
  max_answer: int = 30
  threshold: float = 0.0
  allow_no_answer: bool = False


def decode(
  features: Features,
  examples: Sequence[SpanExample],
  logits: Sequence[np.ndarray],
  options: Options,
) -> list[Prediction]:
  """Returns a prediction for every question, in order.

  In each window the `n_best` best starts are paired with the `n_best` best
  ends. Both are tokens of the text, the start has most context in this window,
  and the end is not before it. The pairs of all windows with the highest sums
  of scores are the n best, each text once; their probabilities are the softmax
  of the sums. The score of no answer is the lowest sum of [CLS] as start and
  end over the windows. Without a valid pair the answer is empty, and the best
  answer's score is 0. `logits` of a window are float [T, 2], of starts and
  ends; T may be padded.

  Where the question is a row of its own, logits are of the window's row, which
  has no [CLS]: predictions have no `no_answer`, and an answer wherever there is
  a pair.
  """
  has_null = features.num_rows == 1
  windows: list[list[int]] = [[] for _ in examples]
  for i, number in enumerate(features.examples.tolist()):
    windows[number].append(i)
  return [
    _answer(
      example,
      [candidates(features, i, logits[i], options) for i in mine],
      min(float(logits[i][0, 0]) + float(logits[i][0, 1]) for i in mine)
      if has_null
      else None,
      options,
    )
    for example, mine in zip(examples, windows, strict=True)
  ]


def candidates(
  features: Features, i: int, logits: np.ndarray, options: Options
) -> tuple[np.ndarray, np.ndarray]:
  """Returns a window's pairs: scores float64 [P] and characters [P, 2]."""
  place = features.place(i, features.num_rows - 1)
  spans = features.token_spans[place]
  order = np.argsort(-logits[: len(spans)], axis=0, kind='stable')
  starts, ends = order[: options.n_best].T
  starts = starts[features.max_context[place][starts]]
  ends = ends[spans[ends, 1] >= 0]
  size = ends - starts[:, None] + 1
  first, last = np.nonzero((size >= 1) & (size <= options.max_answer))
  starts, ends = starts[first], ends[last]
  scores = logits[starts, 0].astype(np.float64) + logits[ends, 1]
  return scores, np.stack([spans[starts, 0], spans[ends, 1]], axis=1)


def _answer(
  example: SpanExample,
  candidates: Sequence[tuple[np.ndarray, np.ndarray]],
  null_score: float | None,
  options: Options,
) -> Prediction:
  """Returns the prediction from all windows' candidates.

  Without the score of no answer, `null_score`, there is none to be allowed.
  """
  n_best = options.n_best
  allow_no_answer = options.allow_no_answer and null_score is not None
  scores, bounds = map(np.concatenate, zip(*candidates, strict=True))
  found: dict[str, float] = {}
  for i in np.argsort(-scores, kind='stable').tolist():
    if len(found) == n_best:
      break
    begin, end = bounds[i]
    found.setdefault(example.context[begin:end], float(scores[i]))
  best = next(iter(found.values()), 0.0)
  if allow_no_answer:
    ahead = sum(score >= null_score for score in found.values())
    kept = n_best if ahead >= n_best else max(1, n_best - 1)
    texts = list(found.items())[:kept]
    texts.insert(min(ahead, len(texts)), ('', null_score))
  else:
    texts = list(found.items()) or [('', 0.0)]
  scores = np.array([score for _, score in texts])
  weights = np.exp(scores - scores.max())
  weights = (weights / weights.sum()).tolist()
  chances = {text: w for (text, _), w in zip(texts, weights, strict=True)}
  no_answer = None if null_score is None else null_score - best
  answer = next(iter(found), '')
  if allow_no_answer and no_answer > options.threshold:
    answer = ''
  return Prediction(
    id=example.id,
    answer=answer,
    probabilities=(chances[answer],),
    n_best=tuple(chances.items()),
    no_answer=no_answer,
  )


def tune_threshold(
  examples: Sequence[SpanExample],
  predictions: Sequence[Prediction],
  score_fn: Callable[[SpanExample, str], float],
) -> float:
  """Returns the threshold with the highest sum of scores (evaluate-v2.0.py).

  `predictions` are in the examples' order; `score_fn` is (example, answer) ->
  F1, the answer empty for no answer. The threshold is the highest `no_answer`
  of an answered question, of equal sums the lowest; just below all without one.
  """
  margins = np.array([prediction.no_answer for prediction in predictions])
  gains = np.array(
    [
      score_fn(example, _best_text(prediction)) - score_fn(example, '')
      for example, prediction in zip(examples, predictions, strict=True)
    ],
    np.float64,
  )
  order = np.argsort(margins, kind='stable')
  margins, sums = margins[order], np.cumsum(gains[order])
  # Questions of one margin are answered together.
  ends = np.flatnonzero(np.append(np.diff(margins) > 0, True))
  best = ends[np.argmax(sums[ends])]
  if sums[best] <= 0:
    return float(np.nextafter(margins[0], -np.inf))
  return float(margins[best])


def _best_text(prediction: Prediction) -> str:
  return next((text for text, _ in prediction.n_best if text), '')
