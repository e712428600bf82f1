"""Intervals, ids that do not match, and predictions that cannot be scored."""

import time

import numpy as np
import pytest
import scored_cases as cases

from data.scoring import kinds, scores
from data.tasks.examples import ChoiceExample, SpanExample

TEXT_METRICS = ('accuracy', 'macro_f1', 'matthews')


def every_kind():
  """Yields (task, examples, predictions) of 60 examples."""
  labels, gold, found = cases.random_classes(2, 60, seed=1)
  yield (
    cases.task('classification', (*TEXT_METRICS, 'f1'), labels=labels),
    cases.texts(gold, ['a', 'b', 'b'] * 20),
    cases.predictions(found),
  )
  rng = np.random.default_rng(2)
  numbers = rng.integers(6, size=60)
  yield (
    cases.task('regression', ('pearson', 'spearman')),
    cases.texts((numbers / 1).tolist()),
    cases.predictions((numbers + rng.integers(3, size=60) / 2).tolist()),
  )
  tags, found_tags = cases.random_tags(60, seed=3)
  yield (
    cases.task('tagging', ('f1', 'precision', 'recall', 'accuracy')),
    cases.sentences(tags),
    cases.predictions(found_tags),
  )
  yield (
    cases.task('span', ('em', 'f1')),
    cases.questions([['one two'], [], ['three']] * 20),
    cases.predictions(['one', '', 'three', 'two one', 'four', ''] * 10),
  )


EVERY_KIND = list(every_kind())


@pytest.mark.parametrize('case', EVERY_KIND, ids=lambda case: case[0].kind)
def test_a_resample_scores_what_its_examples_score(case):
  # Each interval end of one resample is that resample's score.
  task, examples, predictions = case
  drawn = np.random.default_rng(5).integers(60, size=(1, 60))[0]
  again = [
    (_renamed(examples[i], str(n)), _renamed(predictions[i], str(n)))
    for n, i in enumerate(drawn)
  ]
  expected = scores.score(task, *zip(*again, strict=True))
  found = scores.bootstrap(task, examples, predictions, resamples=1, seed=5)
  for name, (low, high) in found.items():
    assert low == high == pytest.approx(expected[name], abs=1e-12), name
  assert set(found) == set(expected)


def _renamed(record, name):
  fields = {key: getattr(record, key) for key in record.__dataclass_fields__}
  return type(record)(**(fields | {'id': name}))


@pytest.mark.parametrize('case', EVERY_KIND, ids=lambda case: case[0].kind)
def test_intervals_hold_the_score_and_grow_with_their_level(case):
  values = scores.score(*case)
  narrow = scores.bootstrap(*case, level=0.5)
  wide = scores.bootstrap(*case, level=0.99)
  assert wide == scores.bootstrap(*case, level=0.99)
  for name, value in values.items():
    assert wide[name][0] <= narrow[name][0] <= narrow[name][1] <= wide[name][1]
    assert wide[name][0] <= value <= wide[name][1]


def test_an_interval_has_the_width_of_its_binomial():
  # 95 % of a mean of 1,000 with p = 0.8 are within 1.96 standard errors.
  task = cases.task('classification', ('accuracy',), labels=('0', '1'))
  examples = cases.texts(['1'] * 1000)
  predictions = cases.predictions(['1'] * 800 + ['0'] * 200)
  low, high = scores.bootstrap(task, examples, predictions)['accuracy']
  half = 1.96 * np.sqrt(0.8 * 0.2 / 1000)
  assert low == pytest.approx(0.8 - half, abs=0.003)
  assert high == pytest.approx(0.8 + half, abs=0.003)


def test_intervals_of_ten_thousand_examples_take_seconds():
  rng = np.random.default_rng(0)
  gold = rng.random(10_000)
  examples = cases.texts(gold.tolist())
  predictions = cases.predictions((gold + rng.random(10_000)).tolist())
  task = cases.task('regression', ('pearson', 'spearman'))
  start = time.process_time()
  scores.bootstrap(task, examples, predictions)
  assert time.process_time() - start < 10  # 2 s where the machine is free


def refused(message, examples, predictions, **fields):
  task = cases.task(
    **{
      'kind': 'classification',
      'metrics': ('accuracy',),
      'labels': ('0', '1'),
      **fields,
    }
  )
  with pytest.raises(ValueError, match=message):
    scores.score(task, examples, predictions)


def test_ids_that_do_not_match():
  examples = cases.texts(['0'] * 6)
  found = cases.predictions(['0'] * 6)
  refused("without a prediction: '1', '2', '3' and 2 more", examples, found[:1])
  refused("more than once: '2'", examples, [*found, found[2]])
  refused("of no example: '6'", examples, cases.predictions(['0'] * 7))
  refused("of more than one example: '0'", examples + examples[:1], found)
  refused('no examples', [], [])


def test_what_cannot_be_scored():
  two = cases.texts(['0', None])
  found = cases.predictions(['0', '1'])
  refused("1 of 2 examples have no labels to score with.*'1'", two, found)
  unlabelled = [SpanExample('0', 'what?', 'text', (), is_labelled=False)]
  refused(
    'no labels to score with',
    unlabelled,
    cases.predictions(['']),
    kind='span',
    metrics=('f1',),
  )
  refused(
    r'found metrics .*f1.*; expected .*macro_f1.* with 3 labels',
    two[:1],
    found[:1],
    metrics=('f1',),
    labels=('0', '1', '2'),
  )
  refused(
    r"found metrics \['bleu'\]; expected some of \('accuracy', 'f1'",
    two[:1],
    found[:1],
    metrics=('bleu',),
  )
  refused(
    "id '0': found the label 'x', expected one of", cases.texts('x'), found[:1]
  )
  with pytest.raises(ValueError, match='level=95; expected'):
    scores.bootstrap(cases.task('span', ()), [], [], level=95)


@pytest.mark.parametrize(
  'kind, example, answer, message',
  [
    (
      'classification',
      cases.texts('0'),
      'yes',
      "'yes', expected one of the la",
    ),
    ('regression', cases.texts([0.5]), float('nan'), 'nan, expected a finite'),
    ('regression', cases.texts([0.5]), '0.5', "'0.5', expected a finite"),
    (
      'tagging',
      cases.sentences([['O', 'O']]),
      ('O',),
      'expected 2 tags, one a',
    ),
    ('tagging', cases.sentences([['O']]), 'O', 'expected 1 tags, one a word'),
    ('span', cases.questions([['yes']]), 1, 'answer 1, expected text'),
    (
      'choice',
      [ChoiceExample('0', '', '', ('a', 'b'), 0)],
      2,
      'answer 2, expected the number of one of 2 choices',
    ),
  ],
)
def test_answers_of_another_kind_of_task(kind, example, answer, message):
  refused(
    f"mine, id '0': found the .*{message}",
    example,
    cases.predictions([answer]),
    kind=kind,
    metrics=kinds.KINDS[kind].metrics[:1],
  )
