"""Several seeds and settings: what runs, what is kept, what is summed up."""

import json
import os
import pathlib
import shutil
import signal

import pytest
from etils import epath

from train.host import processes
from train.params import opened
from train.run import training, workdirs
from train.transfer import finetune, sweep

pytestmark = pytest.mark.usefixtures('one_device')
GRID = {'optim.learning_rate': [5e-3, 1e-9]}
SEEDS = (0, 1)


@pytest.fixture(scope='module')
def config(make_config):
  return make_config(train__num_epochs=1.0)


@pytest.fixture(scope='module')
def swept(config, tmp_path_factory):
  """A sweep of four runs that was killed in its second: folder, summary."""
  workdir = tmp_path_factory.mktemp('sweeps') / 'swept'
  train, calls = training.train, []

  def killed(job, folder):
    calls.append(folder)
    if len(calls) == 2:
      raise KeyboardInterrupt
    return train(job, folder)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(training, 'train', killed)
    with pytest.raises(KeyboardInterrupt):
      sweep.run(config, workdir, seeds=SEEDS, grid=GRID)
  assert not (workdir / workdirs.SUMMARY_FILE).exists()
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      training, 'train', lambda *a, **k: calls.append(a[1]) or train(*a, **k)
    )
    summary = sweep.run(config, workdir, seeds=SEEDS, grid=GRID)
  assert len(calls) == 2 + 3  # what was finished is not done again
  return workdir, summary


def test_the_summary_says_what_the_runs_did(swept):
  workdir, summary = swept
  assert summary == json.loads((workdir / 'summary.json').read_text())
  found = {}
  for run in summary['runs']:
    results = json.loads((workdir / run['folder'] / 'results.json').read_text())
    value = results['metrics']['eval/own/accuracy']
    assert run['metrics'] == {'dev/accuracy': value}
    assert run['seed'] == results['seed']
    rate = results['config']['optim.learning_rate']
    assert run['settings'] == {'optim.learning_rate': rate}
    found.setdefault(rate, []).append(value)
  assert {rate: len(values) for rate, values in found.items()} == {
    5e-3: 2,
    1e-9: 2,
  }
  means = {rate: sum(values) / 2 for rate, values in found.items()}
  best = max(means, key=means.get)
  assert summary['settings'] == {'optim.learning_rate': best}
  a, b = found[best]
  assert summary['mean']['dev/accuracy'] == pytest.approx((a + b) / 2)
  std = abs(a - b) / 2**0.5  # of a sample
  assert summary['std']['dev/accuracy'] == pytest.approx(std)
  values = [value for values in found.values() for value in values]
  assert summary['best']['metrics']['dev/accuracy'] == max(values)
  assert summary['task'] == 'own' and summary['train_size'] == 96
  for key in ('device', 'revision', 'weights', 'config'):
    assert summary[key]


def test_the_best_model_alone_is_kept(swept):
  workdir, summary = swept
  models = {path.parent.name for path in workdir.glob('*/model')}
  assert models == {summary['best']['folder']}
  opened.open_weights(summary['best']['workdir']).check_complete()
  assert not list(workdir.glob('*/checkpoints'))
  assert len(list(workdir.glob('*/predictions/dev.jsonl'))) == 4


@pytest.mark.parametrize('is_named', [True, False])
def test_the_main_metric_chooses_in_whatever_order_results_are(
  is_named, run_of, tmp_path, monkeypatch
):
  """Pearson's coefficient comes first in a file, and Spearman's chooses."""
  config, workdir, results = run_of('own scores')
  assert results['main_metric'] == 'eval/own/spearman'
  for seed, spearman in enumerate((0.5, 0.9, 0.1)):
    folder = shutil.copytree(workdir, tmp_path / f'seed={seed}')
    figures = {'eval/own/pearson': -spearman, 'eval/own/spearman': spearman}
    changed = results | {'seed': seed}
    changed['metrics'] = results['metrics'] | figures
    changed['config'] = results['config'] | {'train.seed': seed}
    if not is_named:  # as earlier revisions wrote it
      del changed['main_metric']
    workdirs.write_results(folder, changed)
  monkeypatch.setattr(training, 'train', None)  # all are finished
  summary = sweep.run(config, tmp_path, seeds=(0, 1, 2))
  assert summary['best']['seed'] == 1
  assert {entry['main'] for entry in summary['runs']} == {'dev/spearman'}
  assert list(summary['mean'])[0] == 'dev/spearman'
  assert [path.parent.name for path in tmp_path.glob('*/model')] == ['seed=1']


@pytest.mark.slow
def test_sigterm_while_a_run_writes_its_results_ends_the_sweep(
  config, tmp_path, monkeypatch
):
  """That run is finished, and nothing else begins."""
  write = workdirs.write_results

  def write_and_be_asked(workdir, results):
    write(workdir, results)
    os.kill(os.getpid(), signal.SIGTERM)

  with monkeypatch.context() as patch:
    patch.setattr(workdirs, 'write_results', write_and_be_asked)
    with pytest.raises(processes.Preempted, match='1 of 2 runs are finished'):
      sweep.run(config, tmp_path, seeds=SEEDS)
  assert [path.name for path in tmp_path.iterdir()] == ['seed=0']
  summary = sweep.run(config, tmp_path, seeds=SEEDS)
  assert [entry['seed'] for entry in summary['runs']] == [0, 1]


def test_a_finished_sweep_computes_nothing(swept, config, monkeypatch, capsys):
  workdir, summary = swept
  monkeypatch.setattr(finetune, 'plan', None)
  again = sweep.run(config, workdir, seeds=SEEDS, grid=GRID)
  assert again == summary
  capsys.readouterr()
  sweep.print_summary(again, workdir)
  printed, said = capsys.readouterr()
  assert f'all figures in {workdir / workdirs.SUMMARY_FILE}' in printed
  assert not said
  mean = summary['mean']['dev/accuracy']
  assert f'{mean:.4f} ± {summary["std"]["dev/accuracy"]:.4f}' in printed
  assert 'own, 2 seeds, best settings optim.learning_rate=' in printed


@pytest.fixture(scope='module')
def diverged(make_config, tmp_path_factory):
  """A sweep whose first settings diverge: config, grid, folder, summary."""
  config = make_config(train__num_epochs=1.0)
  grid = {'optim.learning_rate': [1e30, 5e-3]}
  workdir = tmp_path_factory.mktemp('sweeps') / 'diverged'
  return (
    config,
    grid,
    workdir,
    sweep.run(config, workdir, seeds=(0,), grid=grid),
  )


def test_the_others_go_on_where_a_run_diverges(diverged, monkeypatch, capsys):
  config, grid, workdir, summary = diverged
  (run,), (lost,) = summary['runs'], summary['diverged']
  assert run['settings'] == summary['settings']
  assert run['settings'] == {'optim.learning_rate': 5e-3}
  assert (lost['seed'], lost['settings']) == (0, {'optim.learning_rate': 1e30})
  assert 'not finite' in lost['error'] and '\n' not in lost['error']
  assert summary == json.loads((workdir / 'summary.json').read_text())
  sweep.print_summary(summary, workdir)
  assert 'own, 1 seeds, beside 1 diverged runs' in capsys.readouterr().out
  # It is not tried again.
  monkeypatch.setattr(finetune, 'plan', None)
  monkeypatch.setattr(training, 'train', None)
  assert sweep.run(config, workdir, seeds=(0,), grid=grid) == summary


def test_a_diverged_run_of_another_config_is_refused(diverged, make_config):
  _, grid, workdir, _ = diverged
  other = make_config(train__num_epochs=2.0)
  with pytest.raises(ValueError, match=r'another config:.*train\.num_epochs'):
    sweep.run(other, workdir, seeds=(0,), grid=grid)


def test_a_sweep_all_of_whose_runs_diverge_says_so(diverged, tmp_path):
  config, _, workdir, summary = diverged
  folder = workdir / summary['diverged'][0]['folder']
  shutil.copytree(folder, tmp_path / folder.name)
  grid = {'optim.learning_rate': [1e30]}
  with pytest.raises(FloatingPointError, match='all runs diverged: the loss'):
    sweep.run(config, tmp_path, seeds=(0,), grid=grid)
  found = json.loads((tmp_path / 'summary.json').read_text())
  assert (found['task'], found['runs']) == ('own', [])
  assert found['diverged'] == summary['diverged']
  assert found['config']['train.num_epochs'] == 1.0


def test_another_config_is_refused(swept, make_config):
  workdir, _ = swept
  other = make_config(train__num_epochs=1.0, task__max_length=16)
  with pytest.raises(ValueError, match=r'another config:.*task\.max_length'):
    sweep.run(other, workdir, seeds=SEEDS, grid=GRID)


def test_settings_that_do_not_fit_the_weights_are_refused_at_first(
  config, tmp_path
):
  grid = {'task.max_length': [16, 4096]}
  with pytest.raises(ValueError, match='task.max_length=4096: expected 8 to'):
    sweep.run(config, tmp_path, grid=grid)
  assert not list(tmp_path.iterdir())


def test_what_a_killed_sweep_left_is_cleared(swept, config, tmp_path):
  workdir, summary = swept
  copy = tmp_path / 'copy'
  shutil.copytree(workdir, copy)
  for run in copy.iterdir():
    if run.is_dir():
      (run / 'checkpoints').mkdir()
  again = sweep.run(config, copy, seeds=SEEDS, grid=GRID)
  assert again['mean'] == summary['mean']
  assert not list(copy.glob('*/checkpoints'))


@pytest.mark.slow
def test_all_models_are_kept_on_request(config, tmp_path):
  summary = sweep.run(config, tmp_path, seeds=SEEDS, keep_all=True)
  assert len(list(tmp_path.glob('*/model'))) == 2
  assert summary['settings'] == {}
  assert [run['folder'] for run in summary['runs']] == ['seed=0', 'seed=1']


def test_grids():
  assert sweep.parse_grid('a.b=1,2.5;c.d=x') == {'a.b': [1, 2.5], 'c.d': ['x']}
  assert sweep.parse_grid('') == {}
  paper = sweep.parse_grid('paper')
  assert list(map(len, paper.values())) == [3, 2, 2]
  tuples = sweep.parse_grid('task.class_weights=(1.0,2.0),(2.0,1.0)')
  assert tuples == {'task.class_weights': [(1.0, 2.0), (2.0, 1.0)]}
  for text in ('a.b', 'a.b=', '=1', 'a.b=1;a.b=2', 'a.b=1,,2'):
    with pytest.raises(ValueError, match='expected KEY=VALUE'):
      sweep.parse_grid(text)


@pytest.mark.parametrize(
  ('grid', 'message'),
  [
    ({'optim.learning_rat': [1.0]}, r'learning_rat.*did you mean'),
    ({'learning_rate': [1.0]}, r'did you mean optim\.learning_rate'),
    ({'train.global_batch': ['many']}, r'global_batch'),
    ({'train.seed': [1, 2]}, r'train\.seed.*--seeds'),
    ({'train.global_batch': [16, 0]}, r'train\.global_batch'),
    ({'train.platform': ['auto', 'tpu']}, "'tpu', but JAX found 'cpu'"),
  ],
)
def test_what_a_grid_cannot_try_is_refused_first(
  config, tmp_path, grid, message
):
  with pytest.raises(ValueError, match=message):
    sweep.run(config, tmp_path / 'sweep', seeds=SEEDS, grid=grid)
  assert not pathlib.Path(tmp_path / 'sweep').exists()


def test_groups_of_a_split_are_told_from_splits():
  metrics = {'eval/a/f1': 1, 'eval/a/f1/verb': 2, 'eval/a/test/f1': 3}
  metrics |= {'eval/a/test/f1/verb': 4}
  results = {
    'main_metric': 'eval/a/f1',
    'metrics': metrics,
    'config': {'task.name': 'a'},
    'seed': 0,
    'seconds': 1,
  }
  entry = sweep._entry(results, {}, epath.Path('here'))
  assert entry['metrics'] == {
    'dev/f1': 1,
    'dev/f1/verb': 2,
    'test/f1': 3,
    'test/f1/verb': 4,
  }
