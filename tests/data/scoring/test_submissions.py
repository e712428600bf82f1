"""Files of predictions, read back by others, score what was scored."""

import csv
import json
import zipfile

import conlleval
import numpy as np
import pytest
import scored_cases as cases
from scipy import stats
from sklearn import metrics as sklearn_metrics

from data.scoring import scores, submissions
from data.tasks.examples import ChoiceExample, Prediction, TaggedExample

NLI = ('contradiction', 'entailment', 'neutral')
ENTAILMENT = ('entailment', 'not_entailment')


def glue(name, labels=('0', '1'), **fields):
  return cases.task(
    **{
      'kind': 'classification',
      'metrics': ('accuracy',),
      'name': name,
      'labels': labels,
      'submission': 'glue',
      **fields,
    }
  )


def read_tsv(text):
  """The rows of a GLUE file after its header."""
  header, *rows = csv.reader(
    text.splitlines(), delimiter='\t', quoting=csv.QUOTE_NONE
  )
  assert header == ['index', 'prediction']
  return rows


@pytest.mark.parametrize(
  'name, labels, split, file, shown',
  [
    ('cola', ('0', '1'), 'test', 'CoLA.tsv', '01'),
    ('sst2', ('0', '1'), 'test', 'SST-2.tsv', '01'),
    ('mrpc', ('0', '1'), 'test', 'MRPC.tsv', '01'),
    ('qqp', ('different', 'same'), 'test', 'QQP.tsv', '01'),
    ('wnli', ('0', '1'), 'test', 'WNLI.tsv', '01'),
    ('qnli', ENTAILMENT, 'test', 'QNLI.tsv', ENTAILMENT),
    ('rte', ENTAILMENT, 'test', 'RTE.tsv', ENTAILMENT),
    ('mnli', NLI, 'test', 'MNLI-m.tsv', NLI),
    ('mnli', NLI, 'test_matched', 'MNLI-m.tsv', NLI),
    ('mnli', NLI, 'test_mismatched', 'MNLI-mm.tsv', NLI),
    ('mnli', NLI, 'diagnostic', 'AX.tsv', NLI),
    ('diagnostic', NLI, 'test', 'AX.tsv', NLI),
  ],
)
def test_glue_files(tmp_path, name, labels, split, file, shown):
  task = glue(name, labels)
  rng = np.random.default_rng(0)
  gold, found = rng.integers(len(labels), size=(2, 50))
  examples = cases.texts([labels[k] for k in gold])
  predictions = cases.predictions([labels[k] for k in found])
  path = tmp_path / 'glue.zip'
  submissions.write(task, split, examples, predictions[::-1], path)
  with zipfile.ZipFile(path) as archive:
    assert archive.namelist() == [file]
    text = archive.read(file).decode()
  submissions.write(task, split, examples, predictions, tmp_path / 'mine.tsv')
  assert (tmp_path / 'mine.tsv').read_text() == text

  rows = read_tsv(text)
  assert [row[0] for row in rows] == [str(i) for i in range(50)]
  assert {row[1] for row in rows} == set(shown)
  right = [shown[k] for k in gold]
  assert (
    sklearn_metrics.accuracy_score(right, [row[1] for row in rows])
    == (scores.score(task, examples, predictions)['accuracy'])
  )


def test_scores_are_written_within_their_range(tmp_path):
  rng = np.random.default_rng(0)
  gold = rng.random(200) * 5
  found = gold + rng.normal(size=200)
  found[:2] = -0.3, 5.7
  task = glue(
    'stsb',
    labels=(),
    kind='regression',
    metrics=('pearson', 'spearman'),
    score_range=(0.0, 5.0),
  )
  examples = cases.texts(gold.tolist())
  path = tmp_path / 'STS-B.tsv'
  submissions.write(
    task, 'test', examples, cases.predictions(found.tolist()), path
  )
  rows = read_tsv(path.read_text())
  assert [row[1] for row in rows[:2]] == ['0.000', '5.000']
  values = np.array([float(row[1]) for row in rows])
  np.testing.assert_allclose(values, np.clip(found, 0, 5), atol=0.0005001)
  kept = cases.predictions(np.clip(found, 0, 5).tolist())
  scored = scores.score(task, examples, kept)
  assert stats.pearsonr(gold, values)[0] == pytest.approx(
    scored['pearson'], abs=1e-4
  )
  assert stats.spearmanr(gold, values)[0] == pytest.approx(
    scored['spearman'], abs=1e-4
  )


def test_a_zip_takes_several_tasks_and_replaces_one(tmp_path):
  path = tmp_path / 'glue.zip'
  examples = cases.texts([None, None])
  with zipfile.ZipFile(path, 'w') as archive:
    archive.writestr('notes.txt', 'by hand')
  for name, answers in ('rte', '01'), ('cola', '00'), ('rte', '11'):
    predictions = cases.predictions(list(answers))
    submissions.write(glue(name), 'test', examples, predictions, path)
  with zipfile.ZipFile(path) as archive:
    assert archive.testzip() is None
    assert archive.namelist() == ['CoLA.tsv', 'RTE.tsv', 'notes.txt']
    assert archive.read('notes.txt') == b'by hand'
    assert read_tsv(archive.read('RTE.tsv').decode()) == [
      ['0', '1'],
      ['1', '1'],
    ]
  assert [file.name for file in tmp_path.iterdir()] == ['glue.zip']


def test_a_damaged_zip_is_refused_and_kept(tmp_path):
  path = tmp_path / 'glue.zip'
  path.write_text('no zip')
  with pytest.raises(ValueError, match='glue.zip: found a file that is no zip'):
    submissions.write(
      glue('rte'), 'test', cases.texts(['0']), cases.predictions('0'), path
    )
  assert path.read_text() == 'no zip'


def test_squad_files(tmp_path, sesame_data):
  examples = cases.read_squad(sesame_data / 'squad' / 'dev-v2.0.json')[::7]
  predictions = [
    Prediction(
      example.id,
      cases.disturbed(example),
      n_best=(('first', 0.75), (example.question, np.float32(0.25))),
      no_answer=np.float32(0.5),
    )
    for example in examples
  ]
  task = cases.task('span', ('em', 'f1'), submission='squad')
  path, n_best_path, null_odds_path = (
    tmp_path / name for name in ('answers.json', 'n_best.json', 'odds.json')
  )
  submissions.write(
    task,
    'dev',
    examples,
    predictions[::-1],
    path,
    n_best_path=n_best_path,
    null_odds_path=null_odds_path,
  )
  read = json.loads(path.read_text())
  assert list(read) == [example.id for example in examples]
  again = [Prediction(name, answer) for name, answer in read.items()]
  assert scores.score(task, examples, again) == scores.score(
    task, examples, predictions
  )
  n_best = json.loads(n_best_path.read_text())
  assert n_best[examples[0].id] == [
    {'text': 'first', 'probability': 0.75},
    {'text': examples[0].question, 'probability': 0.25},
  ]
  assert set(json.loads(null_odds_path.read_text()).values()) == {0.5}
  bare = [Prediction(example.id, '') for example in examples]
  with pytest.raises(ValueError, match='has no score of no answer'):
    submissions.write(
      task, 'dev', examples, bare, path, null_odds_path=null_odds_path
    )
  assert json.loads(path.read_text()) == read


def test_swag_files(tmp_path):
  rng = np.random.default_rng(0)
  gold, found = rng.integers(4, size=(2, 40))
  examples = [
    ChoiceExample(f'lsmdc{i}', 'He', 'then', tuple('abcd'), int(label))
    for i, label in enumerate(gold)
  ]
  predictions = [
    Prediction(example.id, answer)
    for example, answer in zip(examples, found, strict=True)
  ]
  task = cases.task('choice', ('accuracy',), num_choices=4, submission='swag')
  path = tmp_path / 'swag.csv'
  submissions.write(task, 'dev', examples, predictions, path)
  assert path.read_text().startswith(f',pred\n0,{found[0]}\n1,{found[1]}\n')
  with open(path, newline='') as file:
    read = [int(row['pred']) for row in csv.DictReader(file)]
  assert (
    sklearn_metrics.accuracy_score(gold, read)
    == (scores.score(task, examples, predictions)['accuracy'])
  )


def tagging(**fields):
  metrics = ('f1', 'precision', 'recall', 'accuracy')
  return cases.task('tagging', metrics, submission='conll', **fields)


@pytest.mark.parametrize('name', ['tags.txt', 'tags.conll'])
def test_conll_files(tmp_path, name):
  gold, found = cases.random_tags(200, seed=0)
  examples = [
    TaggedExample(
      example.id,
      example.words,
      example.tags,
      document=i // 50,
      columns=(('NNP', 'B-NP'),) * len(example.words),
    )
    for i, example in enumerate(cases.sentences(gold))
  ]
  task, predictions = tagging(), cases.predictions(map(tuple, found))
  submissions.write(task, 'dev', examples, predictions, tmp_path / name)
  lines = (tmp_path / name).read_text().splitlines()
  heads = [i for i, line in enumerate(lines) if line.startswith('-DOCSTART-')]
  assert len(heads) == 4
  assert lines[:2] == ['-DOCSTART- -X- -X- O O', '']
  assert lines[2] == f'w0 NNP B-NP {gold[0][0]} {found[0][0]}'
  read = conlleval.evaluate(lines)['overall']['chunks']
  values = scores.score(task, examples, predictions)
  assert read['evals'] == pytest.approx(
    {
      'f1': values['f1'],
      'prec': values['precision'],
      'rec': values['recall'],
    }
  )
  fields = [line.split() for line in lines if line and '-DOCS' not in line]
  assert {len(row) for row in fields} == {5}
  assert values['accuracy'] == np.mean([row[3] == row[4] for row in fields])


def test_words_without_tags_or_with_white_space(tmp_path):
  # A line of conlleval is cut at white space of any kind.
  examples = [
    TaggedExample('0', ('10\N{NO-BREAK SPACE}000', 'km'), None),
    TaggedExample('1', ('Rome',), None),
  ]
  path = tmp_path / 'tags.txt'
  submissions.write(
    tagging(),
    'test',
    examples,
    cases.predictions([('O', 'O'), ('B-LOC',)]),
    path,
  )
  assert path.read_text() == '10_000 O\nkm O\n\nRome B-LOC\n\n'


def read_jsonl(path):
  with open(path, encoding='utf-8') as file:
    return [json.loads(line) for line in file]


def test_jsonl_of_every_kind(tmp_path):
  path = tmp_path / 'out.jsonl'

  def written(task, examples, prediction):
    submissions.write(task, 'test', examples, [prediction], path)
    (record,) = read_jsonl(path)
    return record

  assert written(
    glue('mine', ('no', 'yes')),
    cases.texts([None]),
    Prediction('0', 'yes', (np.float32(0.25), np.float32(0.75))),
  ) == {
    'id': '0',
    'answer': 'yes',
    'probabilities': {'no': 0.25, 'yes': 0.75},
  }
  assert written(
    cases.task('regression', ()),
    cases.texts([None]),
    Prediction('0', np.float32(5.5)),
  ) == {'id': '0', 'answer': 5.5}
  assert written(
    cases.task('choice', ()),
    [ChoiceExample('a\u2028b', '', '', ('x', 'y'), None)],
    Prediction('a\u2028b', np.int64(1), (0.25, 0.75)),
  ) == {
    'id': 'a\u2028b',
    'answer': 1,
    'probabilities': {'0': 0.25, '1': 0.75},
  }
  assert written(
    tagging(),
    [TaggedExample('0', ('In', 'Rome'), None)],
    Prediction('0', ('O', 'B-LOC'), (1.0, 0.5)),
  ) == {
    'id': '0',
    'words': ['In', 'Rome'],
    'answer': ['O', 'B-LOC'],
    'probabilities': [1.0, 0.5],
  }
  assert written(
    cases.task('span', ()),
    cases.questions([[]]),
    Prediction('0', '', (0.5,), (('', 0.5), ('caf\u00e9', 0.25)), -1.5),
  ) == {
    'id': '0',
    'answer': '',
    'probabilities': {'': 0.5},
    'n_best': [
      {'text': '', 'probability': 0.5},
      {'text': 'caf\u00e9', 'probability': 0.25},
    ],
    'no_answer': -1.5,
  }
  assert written(
    cases.task('span', ()),
    cases.questions([[]]),
    Prediction('0', '', no_answer=float('inf')),
  ) == {'id': '0', 'answer': ''}


@pytest.mark.parametrize(
  'submission, name, expected',
  [
    ('glue', 'rte.csv', "'.csv', expected .zip or .tsv or .jsonl"),
    ('squad', 'answers.tsv', "'.tsv', expected .json or .jsonl"),
    ('swag', 'swag', "'', expected .csv or .jsonl"),
    ('conll', 'a.tsv', "'.tsv', expected .txt or .conll or .jsonl"),
    ('props', 'a.conll', "'.conll', expected .props or .txt or .jsonl"),
    ('', 'mine.zip', "'.zip', expected .jsonl for"),
  ],
)
def test_endings_that_fit_no_format(tmp_path, submission, name, expected):
  task = glue('rte', submission=submission)
  with pytest.raises(ValueError, match=f'{name}: found the ending {expected}'):
    submissions.check_format(task, tmp_path / name, 'test')
  with pytest.raises(ValueError, match='predictions of rte'):
    submissions.write(task, 'test', [], [], tmp_path / name)


def test_the_zip_takes_test_sets_alone(tmp_path):
  with pytest.raises(ValueError, match="found answers of the split 'dev'"):
    submissions.check_format(glue('rte'), tmp_path / 'RTE.zip', 'dev')
  submissions.check_format(glue('rte'), tmp_path / 'RTE.tsv', 'dev')


def test_a_file_is_the_old_one_or_whole(tmp_path, monkeypatch):
  path = tmp_path / 'rte.tsv'
  path.write_text('old')
  examples = cases.texts([None, None])
  with pytest.raises(ValueError, match="without a prediction: '1'"):
    submissions.write(
      glue('rte'), 'test', examples, cases.predictions('0'), path
    )
  with pytest.raises(ValueError, match="found the answer 'x', expected one of"):
    submissions.write(
      glue('rte'), 'test', examples, cases.predictions('0x'), path
    )

  def fail(*args):
    raise OSError('disk full')

  monkeypatch.setattr('os.replace', fail)
  with pytest.raises(OSError, match='disk full'):
    submissions.write(
      glue('rte'), 'test', examples, cases.predictions('01'), path
    )
  assert path.read_text() == 'old'
  assert [file.name for file in tmp_path.iterdir()] == ['rte.tsv']
