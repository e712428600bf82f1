"""Scores equal those of the official scorers and of other libraries."""

import conlleval
import numpy as np
import pytest
import scored_cases as cases
from scipy import stats
from sklearn import metrics as sklearn_metrics

from data.scoring import measures, scores
from data.tasks.examples import ChoiceExample, Prediction

TEXT_METRICS = ('accuracy', 'macro_f1', 'matthews')


@pytest.mark.parametrize('num_classes', [2, 3, 7])
def test_classes_are_scored_as_by_scikit_learn(num_classes):
  labels, gold, found = cases.random_classes(num_classes, 500, seed=num_classes)
  names = TEXT_METRICS + (('f1',) if num_classes == 2 else ())
  task = cases.task('classification', names, labels=labels)
  values = scores.score(task, cases.texts(gold), cases.predictions(found))
  expected = {
    'accuracy': sklearn_metrics.accuracy_score(gold, found),
    'macro_f1': sklearn_metrics.f1_score(gold, found, average='macro'),
    'matthews': sklearn_metrics.matthews_corrcoef(gold, found),
  }
  if num_classes == 2:
    expected['f1'] = sklearn_metrics.f1_score(gold, found, pos_label=labels[1])
  assert tuple(values) == names
  assert values == pytest.approx(expected, abs=1e-12)


def test_a_class_that_never_occurs_is_not_in_macro_f1():
  task = cases.task('classification', ('macro_f1',), labels=('a', 'b', 'c'))
  values = scores.score(
    task, cases.texts(['a', 'a', 'b']), cases.predictions(['a', 'b', 'b'])
  )
  assert values == {'macro_f1': pytest.approx(2 / 3)}


@pytest.mark.parametrize('gold, found', ['00', '01', '10', '11'])
def test_single_classes_give_no_nan(gold, found):
  task = cases.task(
    'classification', ('matthews', 'f1', 'accuracy'), labels=('0', '1')
  )
  values = scores.score(
    task, cases.texts([gold] * 4), cases.predictions([found] * 4)
  )
  same = float(gold == found)
  assert values == {
    'matthews': 0.0,
    'f1': same if gold == '1' else 0.0,
    'accuracy': same,
  }


def test_matthews_by_hand():
  # 3 of 4 positives and 1 of 2 negatives are found.
  task = cases.task('classification', ('matthews',), labels=('0', '1'))
  values = scores.score(
    task, cases.texts(list('111100')), cases.predictions(list('111001'))
  )
  expected = (3 * 1 - 1 * 1) / np.sqrt(4 * 2 * 4 * 2)
  assert values == {'matthews': pytest.approx(expected)}


@pytest.mark.parametrize('offset', [0.0, 1e6])
def test_correlations_are_those_of_scipy(offset):
  rng = np.random.default_rng(0)
  gold = np.round(rng.random(400) * 5 * 4) / 4  # with ties, as STS-B has them
  found = np.round(gold + rng.normal(size=400), 1) + offset
  task = cases.task('regression', ('spearman', 'pearson'))
  examples = cases.texts(gold.tolist())
  predictions = cases.predictions(found.tolist())
  values = scores.score(task, examples, predictions)
  assert list(values) == ['spearman', 'pearson']
  expected = {
    'pearson': stats.pearsonr(gold, found)[0],
    'spearman': stats.spearmanr(gold, found)[0],
  }
  assert values == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize('constant', [0.0, 0.1, 2.7, 1e9])
def test_the_correlation_with_a_constant_is_zero(constant):
  task = cases.task('regression', ('pearson', 'spearman'))
  examples = cases.texts([0.3, 1.7, 4.1, 0.3, 2.2])
  predictions = cases.predictions([constant] * 5)
  assert scores.score(task, examples, predictions) == {
    'pearson': 0.0,
    'spearman': 0.0,
  }
  intervals = scores.bootstrap(task, examples, predictions)
  assert set(intervals.values()) == {(0.0, 0.0)}


def test_choices_and_groups():
  # Overall accuracy weighs questions, not groups, as in RACE.
  task = cases.task('choice', ('accuracy',), num_choices=4)
  groups = ['middle', 'middle', 'high', 'high', 'high']
  examples = [
    ChoiceExample(str(i), 'context', '', tuple('ABCD'), 2, group)
    for i, group in enumerate(groups)
  ]
  answers = [2, np.int32(2), 2, 0, 1]
  values = scores.score(task, examples, cases.predictions(answers))
  assert values == pytest.approx(
    {'accuracy': 3 / 5, 'accuracy/middle': 1.0, 'accuracy/high': 1 / 3}
  )
  intervals = scores.bootstrap(task, examples, cases.predictions(answers))
  assert intervals['accuracy/middle'] == (1.0, 1.0)
  assert intervals['accuracy/high'] == (0.0, 1.0)


@pytest.mark.parametrize(
  'answer, right, em, f1',
  [
    ('Oil crisis', ['The oil crisis.'], 1, 1),
    ('an  oil\tCRISIS!', ['oil crisis'], 1, 1),
    ('oil crisis of 1973', ['oil crisis'], 0, 2 / 3),
    ('to to to', ['to to'], 0, 4 / 5),  # words count as often as they occur
    ('U.S.', ['us'], 1, 1),
    ('well-known', ['well known'], 0, 0),
    ('anthem', ['them'], 0, 0),  # articles are whole words
    ('another a', ['another'], 1, 1),
    ('1973', ['October 1973', 'October', '1973'], 1, 1),
    ('October', ['October 1973', 'of October 1973'], 0, 2 / 3),
    # Of Unicode, neither dashes nor quotation marks are punctuation.
    ('1914\N{EN DASH}1918', ['1914-1918'], 0, 0),
    ('\N{LEFT DOUBLE QUOTATION MARK}yes', ['yes'], 0, 0),
    ('caf\N{LATIN SMALL LETTER E WITH ACUTE}', ['CAF\u00c9'], 1, 1),
    ('new\N{NO-BREAK SPACE}york', ['New York'], 1, 1),
    ('', ['oil crisis'], 0, 0),
    ('', [], 1, 1),
    ('the', [], 1, 1),
    ('oil', [], 0, 0),
    ('', ['.', 'period'], 0, 0),  # '.' is no answer, so it does not count
    ('.', ['.'], 1, 1),
  ],
)
def test_answers_by_hand(answer, right, em, f1):
  assert measures.answer_score(answer, right) == pytest.approx((em, f1))


@pytest.mark.parametrize(
  'file, expected',
  [
    ('dev-v1.1.json', {'em': 4157 / 10570, 'f1': 0.5609109236399848}),
    (
      'dev-v2.0.json',
      {
        'em': 7504 / 11873,
        'f1': 0.719059260765999,
        'HasAns_exact': 2304 / 5928,
        'HasAns_f1': 0.5629876186023397,
        'NoAns_exact': 5200 / 5945,
        'NoAns_f1': 5200 / 5945,
      },
    ),
  ],
)
def test_squad_is_scored_as_by_the_official_script(sesame_data, file, expected):
  # Expected is what version 2.0's script says of the same answers. Version
  # 1.1's counts one more exact match, an empty answer for a full stop.
  examples = cases.read_squad(sesame_data / 'squad' / file)
  predictions = [Prediction(x.id, cases.disturbed(x)) for x in examples]
  task = cases.task('span', ('em', 'f1'))
  values = scores.score(task, examples, predictions[::-1])
  assert values == pytest.approx(expected, abs=1e-9)


def test_a_set_of_unanswerable_questions_has_no_part_with_answers():
  task = cases.task('span', ('f1', 'em'))
  values = scores.score(
    task, cases.questions([[], []]), cases.predictions(['', 'wrong'])
  )
  assert values == {'f1': 0.5, 'em': 0.5, 'NoAns_exact': 0.5, 'NoAns_f1': 0.5}


@pytest.mark.parametrize(
  'tags, expected',
  [
    ('B-PER I-PER O', [(0, 2, 'PER')]),
    ('B-PER B-PER', [(0, 1, 'PER'), (1, 2, 'PER')]),
    ('I-PER O I-PER', [(0, 1, 'PER'), (2, 3, 'PER')]),
    ('B-PER I-LOC I-LOC', [(0, 1, 'PER'), (1, 3, 'LOC')]),
    ('I-PER B-PER I-PER', [(0, 1, 'PER'), (1, 3, 'PER')]),  # IOB1
    ('S-PER I-PER E-PER I-PER', [(0, 1, 'PER'), (1, 3, 'PER'), (3, 4, 'PER')]),
    ('B-my-type I-my-type', [(0, 2, 'my-type')]),
    ('O', []),
  ],
)
def test_entities_by_hand(tags, expected):
  assert list(measures.entities(tags.split())) == expected


@pytest.mark.parametrize('prefixes', ['OB', 'OBI', 'OI', 'OBIES'])
def test_entities_are_scored_as_by_conlleval(prefixes):
  gold, found = cases.random_tags(300, seed=len(prefixes), prefixes=prefixes)
  lines = []
  for gold_row, found_row in zip(gold, found, strict=True):
    pairs = zip(gold_row, found_row, strict=True)
    lines += [f'word {right} {tag}' for right, tag in pairs]
    lines.append('')
  chunks = conlleval.evaluate(lines)['overall']['chunks']['evals']
  same = [a == b for a, b in zip(sum(gold, []), sum(found, []), strict=True)]
  task = cases.task('tagging', ('f1', 'precision', 'recall', 'accuracy'))
  values = scores.score(task, cases.sentences(gold), cases.predictions(found))
  assert values == pytest.approx(
    {
      'f1': chunks['f1'],
      'precision': chunks['prec'],
      'recall': chunks['rec'],
      'accuracy': np.mean(same),
    },
    abs=1e-12,
  )


def test_other_tags_have_an_accuracy_and_no_entities():
  examples = cases.sentences([['NN', 'VB', '-LRB-']])
  found = cases.predictions([('NN', 'NN', '-LRB-')])
  task = cases.task('tagging', ('accuracy',))
  assert scores.score(task, examples, found) == {
    'accuracy': pytest.approx(2 / 3)
  }
  with pytest.raises(ValueError, match="id '0': found the tag 'NN', expected"):
    scores.score(cases.task('tagging', ('f1',)), examples, found)


def test_entities_where_there_are_none():
  task = cases.task('tagging', ('f1', 'precision', 'recall'))
  nothing = {'f1': 0.0, 'precision': 0.0, 'recall': 0.0}
  for gold, found in ('O', 'O'), ('B-PER', 'O'), ('O', 'B-PER'):
    values = scores.score(
      task, cases.sentences([[gold]]), cases.predictions([[found]])
    )
    assert values == nothing
