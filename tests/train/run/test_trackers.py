"""Rows at trackers, by stand-ins for the three packages.

Each has the calls that `trackers` makes, with the real packages' arguments, and
writes what it is given to a file. tests/bench/trackers.py runs the packages.
"""

import json
import math
import shutil
import sys

import pytest
import runs

from train.run import metrics, settings, trackers

pytestmark = pytest.mark.usefixtures('one_device')

# What all stand-ins share: each call is a line of a file.
CALLS = """
import json
def told(*call):
  with open(FILE, 'a') as file:
    file.write(json.dumps(call) + '\\n')
"""
WANDB = """
class Settings:
  def __init__(
    self, *, silent, console, disable_code, disable_git, x_disable_machine_info,
    x_disable_meta, x_disable_stats, x_save_requirements,
    x_transaction_log_flush_interval,
  ):
    pass

class Run:
  offline, dir, url = True, 'wandb/run/files', None
  def define_metric(self, name, *, step_metric):
    assert (name, step_metric) == ('*', 'step')
  def log(self, data):
    values = dict(data)
    told('wandb', self.id, 'log', values.pop('step'), values)
  def finish(self, exit_code):
    told('wandb', self.id, 'end', exit_code)

def init(*, project, name, id, resume, dir, config, settings):
  assert resume == 'allow' and isinstance(settings, Settings)
  print('noise')
  run = Run()
  run.id = id
  told('wandb', id, 'begin', project, name, config)
  return run
"""
MLFLOW = """
import types

class MlflowClient:
  tracking_uri = 'sqlite:///mlflow.db'
  def get_experiment_by_name(self, name):
    return None
  def create_experiment(self, name):
    return name
  def create_run(self, experiment_id, *, run_name):
    told('mlflow', 'its-own', 'begin', experiment_id, run_name)
    return types.SimpleNamespace(info=types.SimpleNamespace(run_id='its-own'))
  def update_run(self, run_id, *, status):
    told('mlflow', run_id, 'begin again', status)
  def log_batch(self, run_id, metrics=(), params=()):
    assert len(params) <= 100
    for metric in metrics:
      assert '@' not in metric.key
      told('mlflow', run_id, 'log', metric.step, {metric.key: metric.value})
    if params:
      told('mlflow', run_id, 'params', {p.key: p.value for p in params})
  def set_terminated(self, run_id, status):
    told('mlflow', run_id, 'end', status)

class Metric:
  def __init__(self, key, value, timestamp, step):
    self.key, self.value, self.step = key, value, step

class Param:
  def __init__(self, key, value):
    self.key, self.value = key, value
"""
TRACKIO = """
class Run:
  def log(self, metrics, step):
    told('trackio', self.id, 'log', step, metrics)
  def finish(self):
    told('trackio', self.id, 'end')

def init(*, project, name, resume, config, embed, auto_log_gpu, auto_log_cpu):
  assert (resume, embed, auto_log_gpu, auto_log_cpu) == ('allow', *3 * [False])
  run = Run()
  run.id = name
  told('trackio', name, 'begin', project, name, config)
  return run
"""


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
  """The packages, which write a file; returns a function that reads it."""
  site = tmp_path / 'site'
  (site / 'mlflow').mkdir(parents=True)
  told = f'FILE = {str(tmp_path / "calls")!r}{CALLS}'
  (site / 'wandb.py').write_text(told + WANDB)
  (site / 'trackio.py').write_text(told + TRACKIO)
  (site / 'mlflow/__init__.py').touch()
  (site / 'mlflow/tracking.py').write_text(told + MLFLOW)
  (site / 'mlflow/entities.py').write_text(
    'from mlflow.tracking import Metric, Param\n'
  )
  monkeypatch.syspath_prepend(site)
  monkeypatch.chdir(tmp_path)
  names = ['wandb', 'trackio', 'mlflow', 'mlflow.tracking', 'mlflow.entities']
  for name in names:
    monkeypatch.delitem(sys.modules, name, raising=False)

  def calls(name):
    lines = (tmp_path / 'calls').read_text().splitlines()
    return [call[1:] for call in map(json.loads, lines) if call[0] == name]

  yield calls
  for name in names:
    sys.modules.pop(name, None)


def rows_of(calls):
  """Returns (step, metric) -> values, of calls of a stand-in."""
  found = {}
  for _, kind, *rest in calls:
    if kind == 'log':
      step, values = rest
      for name, value in values.items():
        found.setdefault((step, name), []).append(value)
  return found


def rows_of_file(workdir):
  return {
    (step, name): [value]
    for step, name, value in metrics.read_metrics(workdir)
    if not math.isnan(value)
  }


def test_all_get_the_rows_of_a_run_and_its_config(
  finished, small_config, stand_ins, tmp_path, capsys
):
  """A run that was stopped after 8 steps, without trackers until then."""
  workdir = shutil.copytree(finished[0], tmp_path / 'run')
  shutil.rmtree(workdir / 'checkpoints' / '12')
  (workdir / 'results.json').unlink()
  written = json.loads((workdir / 'config.json').read_text())
  del written['train']['trackers']  # as those of earlier revisions
  (workdir / 'config.json').write_text(json.dumps(written))
  config = small_config(train__trackers=('wandb', 'mlflow', 'trackio'))
  results = runs.train(config, workdir)
  assert results['state_sha256'] == finished[1]['state_sha256']
  assert 'noise' not in capsys.readouterr().out
  ids = json.loads((workdir / 'trackers.json').read_text())
  flat = settings.flatten(config)
  for name in ('wandb', 'mlflow', 'trackio'):
    calls = stand_ins(name)
    assert {call[0] for call in calls} == {ids[name]}
    shown = ids[name] if name == 'trackio' else 'run'
    assert calls[0][1:4] == ['begin', 'sesame', shown]
    assert name == 'mlflow' or calls[0][4] == flat
    assert rows_of(calls) == rows_of_file(workdir)
    assert calls[-1][1] == 'end'
  params = [call[2] for call in stand_ins('mlflow') if call[1] == 'params']
  assert params[0] == {key: str(value) for key, value in flat.items()}
  assert stand_ins('mlflow')[-1][2] == 'FINISHED'
  assert stand_ins('wandb')[-1][2] == 0


def write(workdir, names, steps, ends=True):
  """Writes rows of steps as a run does, which is whole if it `ends`."""
  workdir.mkdir(exist_ok=True)
  writer = metrics.MetricsWriter(workdir, step=steps[0] - 1)
  try:
    with trackers.Trackers(names, workdir, workdir, {'train.seed': 1}) as open_:
      writer.readers.append(open_.write)
      for step in steps:
        writer.write(step, {'train/loss': 1 / step, 'time/mfu': math.nan})
        writer.write(step, {'eval/xnli/accuracy@de': 0.5}, whole=True)
      if not ends:
        raise KeyboardInterrupt
  except KeyboardInterrupt:
    pass
  writer.close()


def test_a_continued_run_continues_those_of_its_trackers(stand_ins, tmp_path):
  workdir = tmp_path / 'run'
  write(workdir, ('mlflow', 'wandb'), [1, 2, 3], ends=False)
  write(workdir, ('wandb', 'mlflow', 'trackio'), [3, 4])
  ids = json.loads((workdir / 'trackers.json').read_text())
  assert set(ids) == {'wandb', 'mlflow', 'trackio'}
  for name in ids:
    calls = stand_ins(name)
    assert {call[0] for call in calls} == {ids[name]}
    ends = [call[2:] for call in calls if call[1] == 'end']
    assert (
      ends
      == {
        'wandb': [[1], [0]],
        'mlflow': [['KILLED'], ['FINISHED']],
        'trackio': [[]],
      }[name]
    )
    found = rows_of(calls)
    # The third step, which was done again, comes again, with equal values.
    assert {key: values[:1] for key, values in found.items()} == {
      (step, metric.replace('@', ':') if name == 'mlflow' else metric): value
      for (step, metric), value in rows_of_file(workdir).items()
    }
    twice = {step for (step, _), values in found.items() if len(values) == 2}
    assert twice == (set() if name == 'trackio' else {3})
  assert ['its-own', 'begin again', 'RUNNING'] in stand_ins('mlflow')


def test_errors_of_a_run_are_told_once_and_rows_sent_later(
  stand_ins, tmp_path, capsys, monkeypatch
):
  workdir = tmp_path / 'run'
  write(workdir, ['trackio'], [1])
  import trackio

  log, failures = trackio.Run.log, iter([True, True, False, False, False, True])

  def failing(run, values, step):
    if next(failures, False):
      raise ConnectionError('no route to host\nand more')
    log(run, values, step)

  monkeypatch.setattr(trackio.Run, 'log', failing)
  capsys.readouterr()
  write(workdir, ['trackio'], [2, 3])
  said = capsys.readouterr().err
  assert said.count('takes no rows for now') == 1
  assert 'no route to host' in said and 'and more' not in said
  assert 'lacks the last 1 rows' in said
  whole = rows_of_file(workdir)
  assert whole.pop((3, 'eval/xnli/accuracy@de')) == [0.5]
  assert rows_of(stand_ins('trackio')) == whole


def test_one_that_hangs_does_not_hold_a_run(
  stand_ins, tmp_path, capsys, monkeypatch
):
  import threading

  import wandb

  free = threading.Event()
  monkeypatch.setattr(wandb.Run, 'log', lambda *_: free.wait(60))
  monkeypatch.setattr(trackers, 'WAIT', 0.1)
  write(tmp_path / 'run', ['wandb'], [1, 2])
  assert 'wandb is slow' in capsys.readouterr().err
  free.set()


def test_one_that_cannot_begin_is_an_error_and_later_a_warning(
  stand_ins, tmp_path, capsys, monkeypatch
):
  import wandb

  def fail(**_):
    raise RuntimeError('No API key')

  workdir = tmp_path / 'run'
  init = wandb.init
  monkeypatch.setattr(wandb, 'init', fail)
  with pytest.raises(ValueError, match='wandb does not begin a run: No API'):
    write(workdir, ['wandb'], [1])
  assert not (workdir / 'trackers.json').exists()
  monkeypatch.setattr(wandb, 'init', init)
  write(workdir, ['wandb'], [1])
  monkeypatch.setattr(wandb, 'init', fail)
  write(workdir, ['wandb'], [2])
  assert 'wandb does not continue run' in capsys.readouterr().err
  assert (2, 'train/loss', 0.5) in metrics.read_metrics(workdir)


@pytest.mark.parametrize(
  ('names', 'message'),
  [
    (('tensorboard',), "found 'tensorboard', expected some of wandb, mlflow"),
    (('mlflow',), 'mlflow is not installed: pip install mlflow'),
    (('wandb',), 'wandb is not installed'),  # but a folder of that name is here
    (('trackio', 'trackio'), 'expected each name once'),
  ],
)
def test_what_is_not_here_is_refused_before_the_plan(
  small_config, tmp_path, monkeypatch, names, message
):
  site = tmp_path / 'site'
  (site / 'wandb').mkdir(parents=True)
  (site / 'trackio.py').touch()
  monkeypatch.setattr(sys, 'path', [str(site)])
  with pytest.raises(ValueError, match=f'train.trackers.*{message}'):
    settings.check_common(small_config(train__trackers=names))
