"""Every kind of task: learnt, scored, and answered again by the workdir."""

import csv
import json
import pathlib
import re
import string
import zipfile

import numpy as np
import pytest
import runs
import small_kinds
from scipy import stats

from data.scoring import scores, submissions
from train.run import settings
from train.transfer import predictors

pytestmark = pytest.mark.usefixtures('one_device')
METRICS = {
  'own pairs': {'accuracy'},
  'rte': {'accuracy'},
  'own scores': {'spearman', 'pearson'},
  'conll2003': {'f1', 'precision', 'recall'},
  'swag': {'accuracy'},
  'own questions': {'f1', 'em'},
  'squad2': {'f1', 'em'}
  | {
    f'{part}_{name}' for part in ('HasAns', 'NoAns') for name in ('exact', 'f1')
  },
}


def dev_file(config):
  """Returns the file that dev was read from."""
  names = ('eng.testa', 'val.csv', 'dev-v2.0.json', 'dev.tsv', 'dev.jsonl')
  paths = [pathlib.Path(config.data.source, name) for name in names]
  return next(path for path in paths if path.exists())


def answered(run, file, split='dev'):
  """Returns what `train.predict` says: task, split and predictions."""
  _, workdir, _ = run
  return predictors.predict(
    [workdir], lambda task: predictors.read_input(task, file, split)
  )


@pytest.mark.parametrize(
  ('count', 'steps', 'epochs'),
  [
    # 24 questions in 200 windows, 8 a step.
    ('bert', 6, '2 epochs by the number of examples, 0.24 by that of windows'),
    ('rows', 50, '2 epochs of these'),
  ],
)
def test_the_plan_says_which_epochs(
  config_of, tmp_path, capsys, count, steps, epochs
):
  config = settings.with_overrides(
    config_of('own questions'),
    {'train.steps': None, 'train.num_epochs': 2.0, 'train.count': count},
  ).lock()
  runs.train(config, tmp_path, dry_run=True)
  assert f'{steps} steps of 8 windows, {epochs}, dev' in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize('kind', METRICS)
def test_a_run_is_scored_and_answers_again(run_of, tmp_path, kind):
  config, workdir, results = run = run_of(kind)
  name = config.task.name
  figures = {
    key.removeprefix(f'eval/{name}/'): value
    for key, value in results['metrics'].items()
  }
  dev = {key for key in figures if '/' not in key}
  assert dev == METRICS[kind]
  assert results['steps'] == 4
  assert all(np.isfinite(value) for value in figures.values())

  task, split, predictions = answered(run, dev_file(config))
  assert scores.score(task, split.examples, predictions) == {
    key: figures[key] for key in dev
  }
  again = tmp_path / 'again.jsonl'
  submissions.write(task, 'dev', split.examples, predictions, again)
  there = workdir / 'predictions' / 'dev.jsonl'
  first, second = (
    [json.loads(line) for line in file.read_text().splitlines()]
    for file in (there, again)
  )
  assert len(first) == len(second) == small_kinds.SIZES['dev']
  for a, b in zip(first, second, strict=True):
    assert (a['id'], a['answer']) == (b['id'], b['answer'])

  # A labelled test set is scored as well, one without labels is not.
  has_test = config.own.test is not None or name == 'conll2003'
  written = (workdir / 'predictions' / 'test.jsonl').exists()
  assert written == has_test == any(key.startswith('test/') for key in figures)


def own_answers(run, split='dev'):
  """Returns (record of the file, what was answered) of JSONL."""
  config, workdir, _ = run
  lines = (workdir / 'predictions' / f'{split}.jsonl').read_text().splitlines()
  source = pathlib.Path(config.data.source, f'{split}.jsonl').read_text()
  return list(
    zip(
      map(json.loads, source.splitlines()), map(json.loads, lines), strict=True
    )
  )


def test_scores_correlate_as_scipy_says(run_of):
  run = run_of('own scores')
  for split, prefix in (('dev', ''), ('test', 'test/')):
    pairs = own_answers(run, split)
    gold = [record['score'] for record, _ in pairs]
    found = [record['answer'] for _, record in pairs]
    for name, function in (
      ('pearson', stats.pearsonr),
      ('spearman', stats.spearmanr),
    ):
      assert run[2]['metrics'][f'eval/own/{prefix}{name}'] == pytest.approx(
        function(gold, found)[0]
      )


def test_answers_without_no_answer_are_never_empty(run_of):
  config, workdir, results = run_of('own questions')
  facts = json.loads((workdir / 'task.json').read_text())
  assert not facts['no_answer'] and facts['threshold'] == 0
  exact = []
  for record, found in own_answers((config, workdir, results)):
    assert found['answer'] in record['context'] and found['answer']
    exact.append(found['answer'] == record['answers'][0]['text'])
  assert results['metrics']['eval/own/em'] == pytest.approx(np.mean(exact))


def test_gluebenchmarks_file_scores_the_same(run_of, tmp_path):
  config, _, results = run = run_of('rte')
  file = dev_file(config)
  task, split, predictions = answered(run, file)
  # As if of the test set, which alone the zip takes.
  for output in (tmp_path / 'all.zip', tmp_path / 'RTE.tsv'):
    submissions.write(task, 'test', split.examples, predictions, output)
  with zipfile.ZipFile(tmp_path / 'all.zip') as archive:
    text = archive.read('RTE.tsv').decode()
  assert text == (tmp_path / 'RTE.tsv').read_text()
  titles, *rows = [line.split('\t') for line in text.splitlines()]
  assert [title.lower() for title in titles] == ['index', 'prediction']
  gold = [line.split('\t') for line in file.read_text().splitlines()[1:]]
  right = [
    (index, label) == (one[0], one[3])
    for (index, label), one in zip(rows, gold, strict=True)
  ]
  assert np.mean(right) == pytest.approx(
    results['metrics']['eval/rte/accuracy']
  )
  # The official folder's test set, whose answers nobody has.
  task, split, predictions = answered(run, config.data.source, 'test')
  assert len(predictions) == 6 and not split.is_labelled


def test_swags_file_scores_the_same(run_of, tmp_path):
  config, _, results = run = run_of('swag')
  file = dev_file(config)
  task, split, predictions = answered(run, file)
  submissions.write(
    task, 'dev', split.examples, predictions, tmp_path / 'a.csv'
  )
  with file.open() as gold, (tmp_path / 'a.csv').open() as found:
    gold, found = list(csv.DictReader(gold)), list(csv.DictReader(found))
  right = [a['label'] == b['pred'] for a, b in zip(gold, found, strict=True)]
  accuracy = results['metrics']['eval/swag/accuracy']
  assert np.mean(right) == pytest.approx(accuracy)


def entities(tags):
  """Returns {(type, first, last)} of IOB2, read by a regular expression."""
  text = ''.join(f'<{tag}>' for tag in tags)
  found = set()
  for match in re.finditer(r'<B-(\w+)>(<I-\1>)*', text):
    first = text[: match.start()].count('<')
    found.add((match[1], first, first + match[0].count('<')))
  return found


def test_conlls_columns_score_the_same(run_of, tmp_path):
  config, _, results = run = run_of('conll2003')
  task, split, predictions = answered(run, dev_file(config))
  output = tmp_path / 'a.txt'
  submissions.write(task, 'dev', split.examples, predictions, output)
  sentences = [
    [line.split() for line in block.splitlines()]
    for block in output.read_text().split('\n\n')
    if block.strip() and not block.startswith('-DOCSTART-')
  ]
  assert len(sentences) == 12
  # Those of 40 words, which no row holds, have a tag for each.
  assert max(map(len, sentences)) == 40
  gold = {
    (i, *e)
    for i, s in enumerate(sentences)
    for e in entities([row[-2] for row in s])
  }
  # What follows nothing of its type begins an entity: conlleval's rule.
  found = set()
  for i, sentence in enumerate(sentences):
    tags, before = [], 'O'
    for row in sentence:
      begins = row[-1][0] == 'I' and before[1:] != row[-1][1:]
      tags.append('B' + row[-1][1:] if begins else row[-1])
      before = row[-1]
    found |= {(i, *entity) for entity in entities(tags)}
  right = len(gold & found)
  expected = 2 * right / max(len(gold) + len(found), 1)
  assert len(gold) > 5
  f1 = results['metrics']['eval/conll2003/f1']
  assert f1 == pytest.approx(expected)


def normalized(text):
  text = ''.join(c for c in text.lower() if c not in string.punctuation)
  return ' '.join(w for w in text.split() if w not in ('a', 'an', 'the'))


def test_squads_json_scores_the_same(run_of, tmp_path):
  config, workdir, results = run = run_of('squad2')
  task, split, predictions = answered(run, dev_file(config))
  paths = [tmp_path / f'{name}.json' for name in ('answers', 'best', 'odds')]
  submissions.write(
    task,
    'dev',
    split.examples,
    predictions,
    paths[0],
    n_best_path=paths[1],
    null_odds_path=paths[2],
  )
  answers, best, odds = (json.loads(path.read_text()) for path in paths)
  facts = json.loads((workdir / 'task.json').read_text())
  assert facts['no_answer']
  gold = {
    qa['id']: [answer['text'] for answer in qa['answers']]
    for article in json.loads(dev_file(config).read_text())['data']
    for paragraph in article['paragraphs']
    for qa in paragraph['qas']
  }
  exact = [
    normalized(answers[key]) in map(normalized, texts or [''])
    for key, texts in gold.items()
  ]
  em = results['metrics']['eval/squad2/em']
  assert em == pytest.approx(np.mean(exact))
  for key in gold:  # the tuned threshold decides
    is_none = odds[key] > facts['threshold']
    text = next(each['text'] for each in best[key] if each['text'])
    assert answers[key] == ('' if is_none else text)
  # No other threshold would have given a better F1, and here F1 is EM.
  texts = {k: next(e['text'] for e in best[k] if e['text']) for k in gold}
  for threshold in (-np.inf, *odds.values()):
    hits = [
      normalized('' if odds[k] > threshold else texts[k])
      in map(normalized, gold[k] or [''])
      for k in gold
    ]
    assert np.mean(hits) <= results['metrics']['eval/squad2/f1'] + 1e-9
