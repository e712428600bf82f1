"""Roles, coreference and questions as runs: they learn and answer again."""

import math

import jax
import numpy as np
import pytest
import runs
import word_runs

from data.scoring import submissions
from data.vocabulary import tag_schemes
from train.params import opened
from train.run import checkpoint, metrics, settings, workdirs
from train.transfer import predictors

pytestmark = pytest.mark.usefixtures('one_device')
LEARNING = {
  'train.steps': 60,
  'train.eval_every': 30,
  'train.log_every': 30,
  'train.patience': None,
  'optim.name': 'adamw',
  'optim.learning_rate': 0.03,
  'model.dropout_rate': 0.0,
}


@pytest.fixture(scope='module')
def maker(small_bert, tmp_path_factory):
  return word_runs.Maker(tmp_path_factory.mktemp('words'), small_bert)


@pytest.fixture(scope='module')
def roles(maker, tmp_path_factory):
  """A finished run of roles: its config and its workdir."""
  changes = {'model.lstm_dim': 8, 'model.num_layers': 2, **LEARNING}
  config = maker.config('deep_srl', 'own roles', **changes)
  workdir = tmp_path_factory.mktemp('runs') / 'roles'
  runs.train(config, workdir)
  return config, workdir


def test_roles_are_learned_of_the_marked_predicate(roles, tmp_path):
  """Each sentence has two predicates: only the mark tells them apart."""
  config, workdir = roles
  assert config.task.crf == 'viterbi'
  results = workdirs.read_results(workdir)
  assert results['metrics']['eval/own/f1'] > 0.9
  found = word_runs.check_answers(config, workdir, tmp_path / 'a.jsonl')
  kept = opened.load_params(workdir / 'model')
  assert set(kept) == {'words', 'marks', 'body'}
  assert kept['marks']['table'].shape == (2, 100)
  for each in found:
    tag_schemes.check_iob2(each.id, each.answer)  # a path that IOB2 allows
  task, split, again = word_runs.predict_dev(config, [workdir])
  submissions.write(task, 'dev', split.examples, again, tmp_path / 'a.props')
  first = (tmp_path / 'a.props').read_text().splitlines()[:7]
  assert [line.split()[0] for line in first] == [
    '-',
    split.examples[0].lemma,
    '-',
    '-',
    '-',
    split.examples[1].lemma,
    '-',
  ]


def test_a_stopped_run_of_roles_goes_on(roles, tmp_path):
  config, workdir = roles
  with word_runs.stopped():
    runs.train(config, tmp_path)
  results = runs.train(config, tmp_path)
  expected = workdirs.read_results(workdir)
  for key in ('state_sha256', 'optimizer_sha256', 'metrics'):
    assert results[key] == expected[key]


@pytest.mark.slow
def test_a_bert_is_taught_roles(small_bert, maker, tmp_path):
  """Its rows end in the predicate, which is a second text."""
  source = maker.source('own roles')
  config = settings.load_config('transfer:task=srl_ewt')
  assert config.task.crf == 'viterbi'
  config = settings.load_config('transfer:task=own')
  changes = {
    'data.source': str(source),
    'init.weights': str(small_bert),
    'own.kind': 'roles',
    **{
      f'own.{name}': f'{name}.gold_conll' for name in ('train', 'dev', 'test')
    },
    'task.crf': 'viterbi',
    'task.max_length': 32,
    'train.platform': 'cpu',
    'train.global_batch': 16,
    'train.steps': 90,
    'train.eval_every': 90,
    'train.log_every': 30,
    'optim.name': 'adamw',
    'optim.learning_rate': 0.01,
    'model.dropout_rate': 0.0,
  }
  config = settings.with_overrides(config, changes).lock()
  results = runs.train(config, tmp_path / 'run')
  assert results['metrics']['eval/own/f1'] > 0.5
  word_runs.check_answers(config, tmp_path / 'run', tmp_path / 'a.jsonl')


@pytest.mark.slow
def test_documents_are_clustered_above_an_elmo(maker, tmp_path):
  changes = {
    **LEARNING,
    'task.word_dim': 8,
    'task.fixed_words': False,
    'train.global_batch': 1,
    'eval.global_batch': 2,
    'train.steps': 150,
    'train.eval_every': 150,
    'optim.learning_rate': 0.01,
  }
  config = maker.config(
    'e2e_coref', 'own documents', **changes, **maker.weights('elmo')
  )
  results = runs.train(config, tmp_path / 'run')
  assert results['metrics']['eval/own/average_f1'] > 0.3
  found = word_runs.check_answers(
    config, tmp_path / 'run', tmp_path / 'a.jsonl'
  )
  assert any(each.answer for each in found)
  task, split, again = word_runs.predict_dev(config, [tmp_path / 'run'])
  file = tmp_path / 'response.conll'
  submissions.write(task, 'dev', split.examples, again, file)
  read = {x.id: x.clusters for x in task.read(file, 'test')}
  assert read == {x.id: x.answer for x in again}
  with pytest.raises(ValueError, match='no mean'):
    word_runs.predict_dev(config, [tmp_path / 'run'] * 2)


@pytest.mark.parametrize(
  'model', [pytest.param('bidaf_plus', marks=pytest.mark.slow), 'bidaf']
)
def test_questions_are_answered_in_words(maker, model, tmp_path):
  changes = {
    **LEARNING,
    'model.lstm_dim': 8,
    'model.filters': ((2, 4),),
    'task.max_length': 64,
    'task.max_question': 8,
    'optim.learning_rate': 0.02,
  }
  if model == 'bidaf_plus':
    changes['optim.average'] = 0.9
  config = maker.config(model, 'own questions', **changes)
  runs.train(config, tmp_path / 'run')
  found = word_runs.check_answers(
    config, tmp_path / 'run', tmp_path / 'a.jsonl'
  )
  rows = metrics.read_metrics(tmp_path / 'run')
  losses = [value for _, name, value in rows if name == 'train/loss']
  assert losses[-1] < 0.9 * math.log(60)  # a guess among the words of a text
  assert all(each.answer for each in found)
  kept = opened.load_params(tmp_path / 'run/model')
  assert np.isfinite(kept['words']['table']).all()
  with pytest.raises(ValueError, match=f'a {model}, which scores no empty'):
    predictors.check_null_odds([tmp_path / 'run'])


@pytest.mark.slow
def test_averages_of_the_parameters_are_scored_and_kept(maker, tmp_path):
  """The plain parameters go on in the checkpoint; the averages are kept."""
  changes = {'train.steps': 4, 'optim.learning_rate': 0.02}
  config = maker.config(
    'bcn', 'own sentences', **changes, **{'optim.average': 0.9}
  )
  runs.train(config, tmp_path)
  job, begun = word_runs.begin(config)
  ended = checkpoint.restore_params(tmp_path, job.shapes.params)
  kept = opened.load_params(tmp_path / 'model')
  first, plain, mean = (
    np.array(jax.tree.leaves(params['body'])[-1])
    for params in (begun.params, ended, kept)
  )
  moved, averaged = np.abs(plain - first).max(), np.abs(mean - first).max()
  assert 0 < averaged < 0.5 * moved


@pytest.mark.parametrize(
  ('model', 'kind'),
  [
    ('deep_srl', 'own roles'),
    ('esim', 'own pairs'),
    # These compile for long.
    pytest.param('e2e_coref', 'own documents', marks=pytest.mark.slow),
    pytest.param('bidaf_plus', 'own questions', marks=pytest.mark.slow),
  ],
)
def test_eight_devices_find_the_same(maker, model, kind):
  changes = {
    'train.global_batch': 4,
    'model.dropout_rate': 0.0,
    'model.lstm_dim': 8,
    'task.word_dim': 8,
    'task.fixed_words': False,
    # Small steps: of spans with almost equal scores, roundings choose.
    'optim.learning_rate': 1e-6,
  }
  config = maker.config(model, kind, **changes)
  expected = word_runs.losses_on(config)
  found = word_runs.losses_on(config, data=2, fsdp=2, tensor=2)
  np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
  np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_published_loss_of_roles_is_of_sentences(maker):
  """AllenNLP's form divides by words, the published one by sentences."""
  losses = {}
  for variant in ('published', 'allennlp'):
    changes = {'model.variant': variant, 'model.dropout_rate': 0.0}
    config = maker.config('deep_srl', 'own roles', **changes)
    job, _ = word_runs.begin(config)
    batches = job.tasks[0].splits['train'].batches
    batch = batches.train_batch(0, slice(0, 8), 8, 0, 4)
    losses[variant] = job.tasks[0].weights(batch)['task']
  assert losses['published'] == 8
  assert losses['allennlp'] == batch['token_mask'].sum() == 56
