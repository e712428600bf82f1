"""Answers out of scores, against every pair tried in turn."""

import dataclasses
import json
import math

import numpy as np
import pytest
import squad_json

from data.scoring import kinds, spans, submissions
from data.tasks.examples import Prediction, SpanExample, Task
from data.vocabulary.words import split_words

TASK = Task('squad', 'SQuAD', 'span', {}, None)


@pytest.fixture(scope='module')
def asked(sesame_data, minilm):
  examples = squad_json.read(sesame_data / 'squad/dev-v2.0.json')[::150]
  features = kinds.encode(TASK, examples, minilm, 96, doc_stride=32)
  assert len(features) > 2 * len(examples)
  return examples, features


@pytest.fixture(scope='module')
def asked_in_words(sesame_data):
  examples = squad_json.read(sesame_data / 'squad/dev-v1.1.json')[::150]
  features = kinds.encode(TASK, examples, None, 96, doc_stride=32, form='words')
  assert len(features) > 1.5 * len(examples)
  return examples, features


def random_logits(features, seed, digits=None):
  rng = np.random.default_rng(seed)
  logits = [
    rng.normal(size=(2, int(n) + 3)).astype(np.float32) * 3
    for n in features.lengths
  ]
  if digits is not None:  # many equals
    logits = [each.round(digits) for each in logits]
  return [each[0] for each in logits], [each[1] for each in logits]


def decode(features, examples, starts, ends, **options):
  logits = [np.stack(pair, axis=1) for pair in zip(starts, ends, strict=True)]
  return spans.decode(features, examples, logits, spans.Options(**options))


def brute_force(
  features, number, example, starts, ends, n_best, max_answer, allow_no_answer
):
  """run_squad.py's `write_predictions`, pair by pair."""
  found, nulls = [], []
  for i in np.flatnonzero(features.examples == number):
    place = features.place(i, features.num_rows - 1)
    length = place.stop - place.start
    text = features.token_spans[place].tolist()
    best = features.max_context[place].tolist()
    start, end = starts[i].tolist(), ends[i].tolist()
    nulls.append(start[0] + end[0])
    tops = [
      sorted(range(length), key=scores.__getitem__, reverse=True)[:n_best]
      for scores in (start, end)
    ]
    for s in tops[0]:
      for e in tops[1]:
        is_text = text[s][0] >= 0 and text[e][0] >= 0
        if is_text and best[s] and s <= e < s + max_answer:
          answer = example.context[text[s][0] : text[e][1]]
          found.append((start[s] + end[e], answer))
  if allow_no_answer:
    found.append((min(nulls), ''))
  texts = {}
  for score, text in sorted(found, key=lambda item: -item[0]):
    if len(texts) < n_best and text not in texts:
      texts[text] = score
  if allow_no_answer or not texts:
    texts.setdefault('', min(nulls))
  total = sum(math.exp(score) for score in texts.values())
  chances = [(t, math.exp(score) / total) for t, score in texts.items()]
  answers = [(t, score) for t, score in texts.items() if t]
  margin = min(nulls) - (answers[0][1] if answers else 0.0)
  return chances, margin


@pytest.mark.parametrize('allow_no_answer', [False, True])
@pytest.mark.parametrize('n_best,max_answer,digits', [(20, 30, 2), (5, 3, 0)])
def test_answers_are_those_of_brute_force(
  asked, allow_no_answer, n_best, max_answer, digits
):
  examples, features = asked
  starts, ends = random_logits(features, n_best, digits)
  for i in np.flatnonzero(features.examples % 2):
    starts[i][0] += 18
  predictions = decode(
    features,
    examples,
    starts,
    ends,
    n_best=n_best,
    max_answer=max_answer,
    threshold=0.5,
    allow_no_answer=allow_no_answer,
  )
  refused = 0
  for number, (example, found) in enumerate(
    zip(examples, predictions, strict=True)
  ):
    chances, margin = brute_force(
      features,
      number,
      example,
      starts,
      ends,
      n_best,
      max_answer,
      allow_no_answer,
    )
    assert found.id == example.id
    # Where the score of none is equal to a text's, either may come first.
    assert dict(found.n_best) == pytest.approx(dict(chances))
    texts = [text for text, _ in found.n_best if text]
    assert texts == [text for text, _ in chances if text]
    assert found.no_answer == pytest.approx(margin, abs=1e-6)
    expected = next((text for text, _ in chances if text), '')
    if allow_no_answer and margin > 0.5:
      expected = ''
    assert found.answer == expected
    assert found.probabilities == (dict(found.n_best)[expected],)
    refused += not expected
  assert not allow_no_answer or 5 < refused < len(examples) - 5


@pytest.mark.parametrize('n_best,max_answer,digits', [(20, 17, 2), (5, 3, 0)])
def test_answers_in_words_are_those_of_brute_force(
  asked_in_words, n_best, max_answer, digits, tmp_path
):
  examples, features = asked_in_words
  starts, ends = random_logits(features, n_best, digits)
  both = [
    decode(
      features,
      examples,
      starts,
      ends,
      n_best=n_best,
      max_answer=max_answer,
      threshold=-99.0,
      allow_no_answer=allow_no_answer,
    )
    for allow_no_answer in (False, True)
  ]
  assert both[0] == both[1]  # there is no score of no answer
  for number, (example, found) in enumerate(
    zip(examples, both[0], strict=True)
  ):
    chances, _ = brute_force(
      features, number, example, starts, ends, n_best, max_answer, False
    )
    assert found.no_answer is None
    assert dict(found.n_best) == pytest.approx(dict(chances))
    assert [text for text, _ in found.n_best] == [text for text, _ in chances]
    assert found.answer == chances[0][0]
    assert len(split_words(found.answer, 'marks')) <= max_answer
    assert found.probabilities == (found.n_best[0][1],)

  def write(**options):
    path = tmp_path / 'answers.jsonl'
    submissions.write(TASK, 'dev', examples, both[0], path, **options)
    return [json.loads(line) for line in path.read_text().splitlines()]

  records = write(n_best_path=tmp_path / 'n_best.json')
  assert 'no_answer' not in records[0]
  assert records[0]['n_best'][0]['text'] == both[0][0].answer
  with pytest.raises(ValueError, match='has no score of no answer'):
    write(null_odds_path=tmp_path / 'odds.json')


def test_clear_scores_give_the_labelled_answer(asked):
  examples, features = asked
  starts, ends = random_logits(features, 1)
  for i, (start, end) in enumerate(features.labels):
    starts[i][start] = ends[i][end] = 40
  predictions = decode(features, examples, starts, ends, allow_no_answer=True)
  answered = 0
  for example, found in zip(examples, predictions, strict=True):
    text = example.answers[0][0] if example.answers else ''
    if len(text.split()) < 15 and text in found.answer:
      answered += bool(text)
    if not example.answers:
      assert found.answer == '' and found.no_answer > 0
  assert answered >= 0.9 * sum(bool(e.answers) for e in examples)


@pytest.mark.parametrize('allow_no_answer', [False, True])
@pytest.mark.parametrize('n_best', [1, 2])
def test_few_candidates(minilm, n_best, allow_no_answer):
  word = SpanExample('w', 'what?', 'one', ())
  empty = SpanExample('e', 'what?', '\u200b', ())
  features = kinds.encode(TASK, [word, empty], minilm, 80)
  for shift in (-9.0, 9.0):
    starts, ends = random_logits(features, n_best)
    starts[0][0] = starts[1][0] = shift
    place = features.second_starts[0]
    starts[0][place] = ends[0][place] = 6.0
    predictions = decode(
      features,
      [word, empty],
      starts,
      ends,
      n_best=n_best,
      threshold=99.0,
      allow_no_answer=allow_no_answer,
    )
    assert predictions[1].answer == ''
    assert predictions[1].n_best == (('', 1.0),)
    if shift < 0 or n_best > 1:
      assert predictions[0].answer == 'one'
    else:  # the only start is not in the text
      assert predictions[0].answer == ''
    assert sum(p for _, p in predictions[0].n_best) == pytest.approx(1)
    assert all(math.isfinite(p.no_answer) for p in predictions)


def exact(example, text):
  right = [answer for answer, _ in example.answers] or ['']
  return float(text in right)


def at(example, prediction, threshold):
  text = next((t for t, _ in prediction.n_best if t), '')
  return exact(example, '' if prediction.no_answer > threshold else text)


@pytest.mark.parametrize('seed', range(20))
def test_the_threshold_is_the_best_one(seed):
  rng = np.random.default_rng(seed)
  examples = [
    SpanExample(str(n), '?', 'yes', (('yes', 0),) * int(rng.integers(2)))
    for n in range(12)
  ]
  predictions = [
    Prediction(
      e.id,
      '',
      n_best=(('', 0.6), (str(rng.choice(['yes', 'no'])), 0.4)),
      no_answer=float(rng.integers(-4, 5)) - 0.25 * len(e.answers),
    )
    for e in examples
  ]
  chosen = spans.tune_threshold(examples, predictions, exact)

  def total(threshold):
    return sum(
      at(e, p, threshold) for e, p in zip(examples, predictions, strict=True)
    )

  assert total(chosen) == max(map(total, np.arange(-6, 7, 0.125)))


def test_thresholds_at_the_ends():
  answer = SpanExample('a', '?', 'yes', (('yes', 0),))
  none = dataclasses.replace(answer, answers=())
  prediction = Prediction('a', 'yes', n_best=(('yes', 1.0),), no_answer=-3.0)
  assert spans.tune_threshold([answer], [prediction], exact) == -3.0
  below = spans.tune_threshold([none], [prediction], exact)
  assert below < -3.0 and at(none, prediction, below) == 1
