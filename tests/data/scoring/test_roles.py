"""Scores of semantic roles: the script of CoNLL-2005 has the same."""

import dataclasses
import json
import re
import shutil
import subprocess

import allennlp_reference
import numpy as np
import pytest
import scored_cases as cases
from etils import epath

from data.scoring import roles, scores, submissions
from data.tasks import examples, registry
from data.tasks.annotated import roles as role_files

METRICS = role_files.METRICS
COUNT = 400  # propositions


def read_props(path):
  """The propositions of a file of the script."""
  found = role_files.rows(
    epath.Path(path), 'train', columns=role_files.conll2005
  )
  return [example for _, example in found]


def figures_of(printed):
  """The metrics that the script prints, in per cent of two digits."""
  (perfect,) = re.findall(r'Percentage of perfect props : +(\S+)', printed)
  (overall,) = re.findall(r'^ *Overall +(.+)$', printed, re.MULTILINE)
  *_, precision, recall, f1 = overall.split()
  values = (f1, precision, recall, perfect)
  return dict(zip(METRICS, map(float, values), strict=True))


def rounded(values):
  return {name: round(100 * values[name] + 1e-9, 2) for name in METRICS}


def score(gold, answers, **fields):
  task = cases.task('roles', METRICS, **fields)
  predictions = [
    examples.Prediction(example.id, answer)
    for example, answer in zip(gold, answers, strict=True)
  ]
  return scores.score(task, gold, predictions)


def test_the_figures_of_the_script(sesame_data):
  folder = sesame_data / 'srl_eval_cases'
  gold = read_props(folder / 'gold.props')
  found = read_props(folder / 'pred.props')
  values = score(gold, [example.tags for example in found])
  expected = figures_of((folder / 'expected.txt').read_text())
  assert expected == {
    'f1': 72.37,
    'precision': 73.61,
    'recall': 71.18,
    'perfect': 44.42,
  }
  assert rounded(values) == expected


def corrupted(example, rng, labels):
  """Tags with some replaced, which may begin with an I- or lack a V."""
  share = rng.choice([0, 0.02, 0.1, 0.4])
  return tuple(
    str(rng.choice(labels)) if rng.random() < share else tag
    for tag in example.tags
  )


@pytest.fixture(scope='module')
def ewt(sesame_data):
  return registry.load(registry.find('srl_ewt'), str(sesame_data), 'dev')


def test_random_tags_score_as_by_the_script(ewt, tmp_path):
  """Also of the file of predictions, with sentences without predicates."""
  task = registry.find('srl_ewt')
  script = allennlp_reference.fetch() / 'allennlp/tools/srl-eval.pl'
  if not shutil.which('perl'):
    pytest.skip('perl, in which srl-eval.pl is written, is not installed')
  gold = ewt[-COUNT:]
  rng = np.random.default_rng(0)
  # Roles with their continuations more often than the rest.
  labels = [x for x in task.labels if 'ARG1' in x or 'V' in x]
  labels += ['O', 'B-ARG0', 'I-ARG0', 'B-C-ARG0', 'B-R-ARG0', 'I-R-ARG0']
  answers = [corrupted(example, rng, labels) for example in gold]
  for name, tags in (('gold', [e.tags for e in gold]), ('found', answers)):
    predictions = [
      examples.Prediction(example.id, answer)
      for example, answer in zip(gold, tags, strict=True)
    ]
    submissions.write(
      task, 'dev', gold, predictions, tmp_path / f'{name}.props'
    )
  done = subprocess.run(
    ['perl', script, tmp_path / 'gold.props', tmp_path / 'found.props'],
    capture_output=True,
    text=True,
    timeout=60,
  )
  assert done.returncode == 0 and not done.stderr, done.stderr
  skipped = sum(len(part) for example in gold for part in example.skipped)
  assert skipped > 20
  sentences = len({example.sentence for example in gold}) + skipped
  assert re.search(rf'Number of Sentences +: +{sentences}\n', done.stdout)
  assert re.search(rf'Number of Propositions +: +{COUNT}\n', done.stdout)
  values = score(gold, answers)
  assert rounded(values) == figures_of(done.stdout)
  assert 0.1 < values['perfect'] < values['f1'] < 0.9


def test_verbs_are_scored_alone(ewt):
  gold = ewt[:300]
  verbs = [e for e in gold if e.group == 'verb']
  answers = [
    e.tags if e.group == 'verb' else ('O',) * len(e.words) for e in gold
  ]
  values = score(gold, answers)
  assert values['f1/verb'] == values['perfect/verb'] == 1
  assert values['f1/other'] == values['recall/other'] == 0
  assert values['precision'] == 1 > values['recall'] > values['f1/other']
  assert score(verbs, [e.tags for e in verbs])['f1'] == 1


def arguments(text):
  return sorted(roles.arguments(text.split()))


def test_continuations_are_joined_as_by_the_script():
  assert arguments('B-A1 I-A1 B-V B-C-A1 O B-C-A1') == [
    ('A1', ((0, 2), (3, 4), (5, 6)))
  ]
  # Of the last A1 before it; without one, an A1 of its own, which others join.
  assert arguments('B-A1 B-A1 B-C-A1') == [
    ('A1', ((0, 1),)),
    ('A1', ((1, 2), (2, 3))),
  ]
  assert arguments('B-C-A1 B-V B-C-A1') == [('A1', ((0, 1), (2, 3)))]
  assert arguments('B-V B-R-A1 B-C-V B-A0') == [
    ('A0', ((3, 4),)),
    ('R-A1', ((1, 2),)),
  ]
  # All parts of an argument are right, or none is.
  gold = examples.RoleExample(
    '0', tuple('abcd'), tuple('B-A1 B-V O B-C-A1'.split()), predicate=1
  )
  values = score([gold], [('B-A1', 'B-V', 'O', 'O')])
  assert values['f1'] == values['perfect'] == 0
  values = score([gold], [('B-A1', 'O', 'B-V', 'B-C-A1')])
  assert values['f1'] == values['perfect'] == 1


def test_brackets_are_read_back(ewt):
  assert roles.brackets('B-A1 I-A1 O B-V I-A0'.split()) == [
    '(A1*',
    '*)',
    '*',
    '(V*)',
    '(A0*)',
  ]
  for example in ewt[:200]:
    column = list(enumerate(roles.brackets(example.tags)))
    assert role_files._tags('file', column) == example.tags


@pytest.mark.parametrize('name', ['roles.txt', 'roles.props'])
def test_files_of_roles(tmp_path, name):
  words = ('Ann', 'ran', 'and', 'fell')
  told = [
    examples.RoleExample(
      '1-1', words, None, predicate=1, lemma='run', sentence=1
    ),
    examples.RoleExample(
      '1-3', words, None, predicate=3, lemma='fall over', sentence=1
    ),
    examples.RoleExample('2-0', ('Go',), None, predicate=0, sentence=2),
  ]
  told[0] = dataclasses.replace(told[0], skipped=((2,), ()))
  told[2] = dataclasses.replace(told[2], skipped=((), (1,)))
  answers = (
    ('B-A0', 'B-V', 'O', 'O'),
    ('I-A0', 'B-C-A0', 'I-C-A0', 'B-V'),  # a B- is missing
    ('B-V',),
  )
  predictions = [
    examples.Prediction(example.id, answer)
    for example, answer in zip(told, answers, strict=True)
  ]
  task = cases.task('roles', ('f1',), submission='props')
  submissions.write(task, 'test', told, predictions, tmp_path / name)
  assert (tmp_path / name).read_text() == (
    '-\n-\n\n'
    '- (A0*) (A0*)\nrun (V*) (C-A0*\n- * *)\nfall_over * (V*)\n\n'
    'Go (V*)\n\n'
    '-\n\n'
  )
  submissions.write(task, 'test', told, predictions, tmp_path / 'a.jsonl')
  lines = (tmp_path / 'a.jsonl').read_text().splitlines()
  assert json.loads(lines[1]) == {
    'id': '1-3',
    'words': list(words),
    'predicate': 3,
    'answer': list(answers[1]),
  }
