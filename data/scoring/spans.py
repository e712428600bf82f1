"""Answers out of the scores of their first and last tokens.

As google-research/bert has it (run_squad.py, `write_predictions`), but that an
answer is the stretch of the text itself that its tokens are from.
"""

from collections.abc import Callable, Sequence

import numpy as np

from data.inputs.features import Features
from data.tasks.examples import Prediction, SpanExample


def decode(
  features: Features,
  examples: Sequence[SpanExample],
  start_logits: Sequence[np.ndarray],
  end_logits: Sequence[np.ndarray],
  *,
  n_best: int = 20,
  max_answer: int = 30,
  threshold: float = 0.0,
  allow_no_answer: bool,
) -> list[Prediction]:
  """Returns the answer of every question.

  In each window the `n_best` best starts meet the `n_best` best ends: both in
  the text, the start where no other window shows more of both its sides, the
  end not before it. Of all windows' pairs those with the highest sum of scores
  are the n best, each text once; their probabilities are the softmax of the
  sums. No answer has the lowest score of [CLS] as start and end that any window
  gives.

  Args:
    features: windows of the questions.
    examples: the questions that they were made of.
    start_logits: of each window float [T], T at least its length.
    end_logits: the same for ends.
    n_best: how many answers to return, and see above.
    max_answer: tokens of an answer at most.
    threshold: there is no answer if its score is so much higher than the best
      answer's.
    allow_no_answer: whether there may be none; then the n best have it among
      them, last if it is not one of them.

  Returns:
    A prediction for each example, in their order; with `no_answer` whether it
    is allowed or not. Where no pair will do, the answer is empty, and the best
    answer's score counts as 0.
  """
  windows: list[list[int]] = [[] for _ in examples]
  for i, number in enumerate(features.examples.tolist()):
    windows[number].append(i)
  return [
    _answer(
      example,
      [
        _candidates(
          features, i, start_logits[i], end_logits[i], n_best, max_answer
        )
        for i in mine
      ],
      min(float(start_logits[i][0]) + float(end_logits[i][0]) for i in mine),
      n_best,
      threshold,
      allow_no_answer,
    )
    for example, mine in zip(examples, windows, strict=True)
  ]


def _candidates(
  features: Features,
  i: int,
  start_logits: np.ndarray,
  end_logits: np.ndarray,
  n_best: int,
  max_answer: int,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns scores float64 [P] and stretches of the text [P, 2] of a window."""
  place = features.place(i)
  spans = features.token_spans[place]
  starts = _best(start_logits, len(spans), n_best)
  ends = _best(end_logits, len(spans), n_best)
  starts = starts[features.max_context[place][starts]]
  ends = ends[spans[ends, 1] >= 0]
  size = ends - starts[:, None] + 1
  first, last = np.nonzero((size >= 1) & (size <= max_answer))
  starts, ends = starts[first], ends[last]
  scores = start_logits[starts].astype(np.float64) + end_logits[ends]
  return scores, np.stack([spans[starts, 0], spans[ends, 1]], axis=1)


def _best(logits: np.ndarray, length: int, n_best: int) -> np.ndarray:
  """Returns the places of the highest, of equals the first ones first."""
  return np.argsort(-np.asarray(logits[:length]), kind='stable')[:n_best]


def _answer(
  example: SpanExample,
  candidates: Sequence[tuple[np.ndarray, np.ndarray]],
  null_score: float,
  n_best: int,
  threshold: float,
  allow_no_answer: bool,
) -> Prediction:
  """Chooses among all windows' candidates."""
  scores, stretches = map(np.concatenate, zip(*candidates, strict=True))
  found: dict[str, float] = {}
  for i in np.argsort(-scores, kind='stable').tolist():
    if len(found) == n_best:
      break
    begin, end = stretches[i]
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
  no_answer = null_score - best
  answer = next(iter(found), '')
  if allow_no_answer and no_answer > threshold:
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

  Args:
    examples: questions with and without answers.
    predictions: of each, in their order; whether they say that there is no
      answer does not matter.
    score_fn: (example, answer) -> its F1, the answer empty for none.

  Returns:
    `no_answer` of the last question that is answered, of equal sums the one
    that answers least; just below all of them if none is best.
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
  """Returns the best answer, whether there may be none or not."""
  return next((text for text, _ in prediction.n_best if text), '')
