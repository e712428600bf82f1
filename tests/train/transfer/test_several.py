"""Several tasks trained together: their turns, their sums, whole runs."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs
import small_kinds

from data.tasks import registry
from train.engine import sharding
from train.engine.steps import Objective
from train.run import checkpoint, settings
from train.transfer import finetune, predictors, several, sweep

TASKS = ('rte', 'sst2', 'stsb')
pytestmark = pytest.mark.usefixtures('one_device')


def write_sets(folder):
  """RTE as published, and sets of single sentences and of scores."""
  small_kinds.write(folder / 'RTE', 'rte')
  (folder / 'SST-2').mkdir()
  (folder / 'STS-B').mkdir()
  titles = ['index', *'abcdef', 'sentence1', 'sentence2', 'score']
  for seed, (name, count) in enumerate((('train', 40), ('dev', 12))):
    pairs = list(small_kinds._pairs(seed, count))
    (folder / 'SST-2' / f'{name}.tsv').write_text(
      'sentence\tlabel\n'
      + ''.join(f'{a}\t{int(same)}\n' for a, _, same in pairs)
    )
    rows = [
      '\t'.join([str(i), *'abcdef', a, b, str(5.0 if same else i % 2)])
      for i, (a, b, same) in enumerate(pairs)
    ]
    lines = ['\t'.join(titles), *rows]
    (folder / 'STS-B' / f'{name}.tsv').write_text('\n'.join(lines) + '\n')
  return folder


@pytest.fixture(scope='module')
def config(tmp_path_factory):
  folder = write_sets(tmp_path_factory.mktemp('several') / 'glue')
  return settings.with_overrides(
    settings.load_config('transfer:task=rte+sst2+stsb,model=bilstm_attention'),
    {
      'data.source': str(folder),
      'data.bucket': False,
      'task.max_length': 16,
      'task.word_dim': 4,
      'model.lstm_dim': 4,
      'model.hidden_dim': 4,
      'model.num_layers': 1,
      'model.dropout_rate': 0.1,
      'train.platform': 'cpu',
      'train.global_batch': 8,
      'train.steps': 12,
      'train.eval_every': 6,
      'train.log_every': 3,
      'eval.global_batch': 8,
    },
  ).lock()


@pytest.fixture(scope='module')
def job(config, one_device):
  return finetune.plan(config, sharding.make_mesh(config.mesh))


@pytest.fixture(scope='module')
def finished(config, job, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('several') / 'run'
  return workdir, runs.train(config, workdir, shared=job)


def test_turns_are_in_proportion_and_count_each_task():
  sizes, steps = (100, 300, 600), 20_000
  turns = several.Turns(sizes, steps, seed=3)
  found = [turns.at(step) for step in range(steps)]
  tasks = np.array([task for task, _ in found])
  np.testing.assert_array_equal(np.bincount(tasks), turns.totals)
  np.testing.assert_allclose(turns.totals / steps, (0.1, 0.3, 0.6), atol=0.01)
  for task in range(3):
    own = [turn for number, turn in found if number == task]
    assert own == list(range(turns.totals[task]))
  again, other = (several.Turns(sizes, 50, seed) for seed in (3, 4))
  assert [again.at(i) for i in range(50)] == found[:50]
  assert [other.at(i) for i in range(50)] != found[:50]
  alone = several.Turns((7,), 9, seed=3)
  assert [alone.at(i) for i in range(9)] == [(0, i) for i in range(9)]


def test_sums_of_other_tasks_are_zero():
  class One(Objective):
    loss_names = ('task', 'mix_l2')

    def weights(self, batch):
      return {'task': jnp.float32(4), 'mix_l2': jnp.float32(2)}

    def losses(self, outputs, batch):
      sums = {'task': (8.0, 4.0), 'mix_l2': (1.0, 2.0)}
      return sums, {'accuracy': (3.0, 4.0)}

  names = [('rte', True), ('stsb', False), ('sst2', True)]
  named = several.OneOfSeveral(One(), 'sst2', names)
  losses, metrics = named.losses(None, None)
  assert losses['sst2'] == (8.0, 4.0) and losses['mix_l2'] == (1.0, 2.0)
  assert metrics['sst2_accuracy'] == (3.0, 4.0)
  for found in (losses['rte'], losses['stsb'], metrics['rte_accuracy']):
    assert np.asarray(found).tolist() == [0, 0]
  assert set(losses) == set(named.loss_names)
  assert set(metrics) == set(named.metric_names)
  totals = named.weights(None)
  loss = sum(total / totals[name] for name, (total, _) in losses.items())
  assert loss == 8 / 4 + 1 / 2


def test_the_encoder_is_common_and_classifiers_are_not(job):
  params = job.shapes.params['body']
  heads = {f'classifier_{name}' for name in TASKS}
  assert params.keys() == {'encoder', *heads}
  # Pairs alone have the second BiLSTM, and a score no hidden layer.
  assert params['encoder'].keys() == {'encoder', 'pair_encoder'}
  assert params['classifier_stsb'].keys() == {'logits'}
  assert params['classifier_rte'].keys() == {'hidden', 'logits'}
  wide = params['classifier_rte']['hidden']['kernel'].shape[0]
  assert wide == 4 * params['classifier_sst2']['hidden']['kernel'].shape[0]
  words = {program.table.words for program in job.tasks}
  assert len(words) == 1 and 'function' in words.pop()


def test_a_step_changes_one_classifier_and_the_encoder(config, job):
  state = job.begin(0)
  before = jax.device_get(state.params)
  batches = job.tasks[0].splits['train'].batches
  batch = batches.train_batch(0, slice(None), 8, 0, 4)
  with sharding.scope(job.mesh, config.mesh.rules):
    state, report = job.steps['train rte'](
      state, sharding.put_batch(batch, job.mesh), jnp.int32(0), jnp.float32(1)
    )
  after = jax.device_get(state.params)
  assert set(report['sums']) == {*TASKS, 'rte_accuracy', 'sst2_accuracy'}

  def moved(*path):
    old, new = before['body'], after['body']
    for name in path:
      old, new = old[name], new[name]
    return max(
      np.abs(a - b).max()
      for a, b in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
    )

  assert moved('encoder', 'encoder') > 0 and moved('classifier_rte') > 0
  assert moved('classifier_sst2') == moved('classifier_stsb') == 0


def test_a_run_scores_all_tasks_and_answers_each(config, finished):
  workdir, results = finished
  metrics = results['metrics']
  main = [metrics[f'eval/{x}'] for x in ('rte/accuracy', 'sst2/accuracy')]
  main.append(metrics[f'eval/stsb/{registry.find("stsb").metrics[0]}'])
  assert metrics['eval/mean'] == pytest.approx(np.mean(main))
  rows = (workdir / 'metrics.csv').read_text()
  for name in TASKS:
    assert f',train/{name}_loss,' in rows
    facts = json.loads((workdir / 'tasks' / name / 'task.json').read_text())
    assert facts['task'] == name
    lines = (workdir / 'tasks' / name / 'predictions' / 'dev.jsonl').read_text()
    expected = [json.loads(line)['answer'] for line in lines.splitlines()]
    _, _, found = predictors.predict(
      [workdir],
      lambda task: predictors.read_input(task, config.data.source, 'dev'),
      name,
    )
    assert [each.answer for each in found] == pytest.approx(expected)
  with pytest.raises(ValueError, match='model of rte, sst2, stsb: .*found non'):
    predictors.open_member(workdir)
  with pytest.raises(ValueError, match='--task .* found cola'):
    predictors.open_member(workdir, 'cola')


def test_a_stopped_run_ends_in_the_same_bits(
  config, job, finished, tmp_path, monkeypatch
):
  save = checkpoint.Checkpoints.save

  def save_and_stop(self, step, *arguments):
    save(self, step, *arguments)
    if step == 6 and self.folder.name == checkpoint.FOLDER:
      raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(checkpoint.Checkpoints, 'save', save_and_stop)
    with pytest.raises(KeyboardInterrupt):
      runs.train(config, tmp_path / 'run', shared=job)
  assert checkpoint.latest_step(tmp_path / 'run') == 6
  again = runs.train(config, tmp_path / 'run', shared=job)
  for key in ('state_sha256', 'metrics'):
    assert again[key] == finished[1][key]


def test_a_sweep_has_figures_by_task(config, job, monkeypatch, tmp_path):
  monkeypatch.setattr(finetune, 'plan', lambda *_, **__: job)
  summary = sweep.run(config, tmp_path, seeds=(0,))
  assert summary['task'] == 'rte+sst2+stsb'
  assert {'dev/mean', 'rte/dev/accuracy', 'sst2/dev/accuracy'} <= {
    *summary['mean']
  }
  # The sizes of a task model are its config's, not those of weights.
  other = settings.with_overrides(config, {'model.lstm_dim': 5})
  with pytest.raises(ValueError, match=r'another config: model\.lstm_dim diff'):
    sweep.run(other, tmp_path, seeds=(0,))


@pytest.mark.parametrize(
  ('config_name', 'message'),
  [
    ('transfer:task=rte+sst2,model=bcn', 'a bcn is of one task'),
    ('transfer:task=rte+rte,model=bilstm_attention', 'different tasks'),
    ('transfer:task=rte+nope,model=bilstm_attention', "no task 'nope'"),
    ('transfer:task=rte+own,model=bilstm_attention', 'is trained alone'),
    ('transfer:task=rte+sst2', 'by model=bilstm_attention alone'),
  ],
)
def test_tasks_that_do_not_go_together_are_refused(config_name, message):
  with pytest.raises(ValueError, match=message):
    finetune.check_config(settings.load_config(config_name))


def test_a_task_without_a_step_is_refused(config, job, tmp_path, monkeypatch):
  totals = several.Turns

  class NoTurns(totals):
    def __init__(self, *arguments):
      super().__init__(*arguments)
      self.totals = np.array([12, 0, 0])

  monkeypatch.setattr(several, 'Turns', NoTurns)
  with pytest.raises(ValueError, match='sst2: none of the 12 steps is of this'):
    runs.train(config, tmp_path / 'run', shared=job)
