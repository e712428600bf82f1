"""Several processes of one run, as on several hosts; gloo between them."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import drawn
import jax
import ml_collections
import numpy as np
import pytest
import runs
import watch
from launch import end, start

from train.engine import sharding
from train.host import chips, processes
from train.run import failure, ledger, metrics, settings

LAYOUTS = {'1x8': (1, 8), '2x4': (2, 4), '4x2': (4, 2)}

# Prints what `drawn` returns, and trains.
PROGRAM = """
import json, sys
config_path, workdir, coordinator, n, i = sys.argv[1:6]
from train.run import command, settings
from train.host import processes
processes.join('cpu', coordinator, int(n), int(i))
import drawn, runs
config = settings.load_config(config_path)
print(json.dumps(drawn.digest(config)))
command.run(lambda: runs.train(config, workdir))
"""


def run(config_path, workdir, num_processes, devices, capsys):
  """Runs the program; returns what the processes found and said."""
  if num_processes == 1:  # as this one
    config = settings.load_config(str(config_path))
    found = [drawn.digest(config)]
    runs.train(config, workdir)
    return found, [''.join(capsys.readouterr())]

  def arguments(coordinator, i):
    return [
      '-c',
      PROGRAM,
      str(config_path),
      str(workdir),
      coordinator,
      str(num_processes),
      str(i),
    ]

  ended = end(start(arguments, num_processes, devices))
  for code, _, error in ended:
    assert code == 0, error[-3000:]
  # Gloo prints, too.
  digests = [out[out.index('{') : out.rindex('}') + 1] for _, out, _ in ended]
  return list(map(json.loads, digests)), [
    out + error for _, out, error in ended
  ]


@pytest.fixture
def config(small_config):
  return small_config(
    mesh__data=-1,
    mesh__fsdp=2,
    mesh__tensor=2,
    model__num_layers=1,
    train__log_every=1,
    train__phases=((6, 32, 16, 'continue'),),
  )


@pytest.mark.slow
def test_any_number_of_processes_trains_the_same(
  config, write_config, tmp_path, capsys
):
  path = write_config(config)
  printed, losses, results = {}, {}, {}

  def train(name, layout):
    workdir = tmp_path / name
    printed[layout], errors = run(path, workdir, *LAYOUTS[layout], capsys)
    results[name] = json.loads((workdir / 'results.json').read_text())
    rows = metrics.read_metrics(workdir)
    assert len(rows) == len({row[:2] for row in rows})  # one process wrote
    losses[name] = [v for _, metric, v in rows if metric == 'train/loss']
    assert len(losses[name]) == 6
    assert 'Held-out text after 6 steps' in errors[0]
    assert not any('Held-out' in error for error in errors[1:])

  def resume(name, source, layout, last):
    workdir = tmp_path / name
    shutil.copytree(tmp_path / source, workdir)
    (workdir / 'results.json').unlink()
    for step in (workdir / 'checkpoints').iterdir():
      if step.name.isdigit() and int(step.name) > last:
        shutil.rmtree(step)
    train(name, layout)

  for layout in ('1x8', '4x2'):
    train(layout, layout)
    assert len(list((tmp_path / layout / 'tensorboard').glob('events*'))) == 1
  np.testing.assert_allclose(losses['4x2'][0], losses['1x8'][0], rtol=1e-6)
  # What one layout saved, another restores to the bit, and goes on with.
  resume('restored', '4x2', '1x8', 6)
  for digest in ('state_sha256', 'optimizer_sha256'):
    assert results['restored'][digest] == results['4x2'][digest]
  resume('gone-on', '1x8', '2x4', 4)
  for name in ('4x2', 'gone-on'):
    np.testing.assert_allclose(losses[name], losses['1x8'], rtol=1e-4)
    for metric, value in results['1x8']['metrics'].items():
      if metric.startswith('eval/'):
        other = results[name]['metrics'][metric]
        assert other == pytest.approx(value, rel=1e-3), metric
  assert len({p['digest'] for each in printed.values() for p in each}) == 1
  # 2 x 2 x 2 devices: a batch in four parts, each on a pair of devices.
  assert {k: v[0]['rows'] for k, v in printed.items()} == {
    '1x8': 16,
    '2x4': 8,
    '4x2': 4,
  }


def test_rows_of_a_process_are_those_of_its_devices():
  for sizes in ((8, 1, 1), (2, 2, 2), (1, 2, 4)):
    mesh = sharding.make_mesh(
      ml_collections.ConfigDict(
        dict(zip(('data', 'fsdp', 'tensor'), sizes, strict=True))
      )
    )
    rows = sharding.local_rows(mesh, 24)
    assert rows.tolist() == list(range(24))


def test_a_run_on_a_cpu_looks_for_no_accelerator(monkeypatch):
  chosen = {}
  monkeypatch.setattr(jax.config, 'update', chosen.__setitem__)
  monkeypatch.setattr(chips, 'of_tpu', list)
  processes.join('gpu')
  processes.join('auto')
  assert not chosen
  processes.join('cpu')
  assert chosen == {'jax_platforms': 'cpu'}


def test_contexts_notice_signals_together_and_a_second_ctrl_c_ends():
  before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
  with processes.Preemption() as around:
    with processes.Preemption() as first:
      assert not first.is_due()
    with processes.Preemption() as second:
      os.kill(os.getpid(), signal.SIGINT)
      assert second.is_due()
      with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    assert around.is_due() and not first.is_due()
  after = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
  assert after == before


def test_flags_of_processes_are_checked():
  for arguments in (('localhost:1', 2, None), ('localhost:1', 2, 2)):
    with pytest.raises(ValueError, match='give all three'):
      processes.join('cpu', *arguments)
  assert jax.process_count() == 1


def python(program):
  """Runs a program in a process of its own."""
  return subprocess.run(
    [sys.executable, '-c', program],
    capture_output=True,
    text=True,
    timeout=60,
    cwd=pathlib.Path(__file__).parents[3],
  )


@pytest.mark.parametrize('platform', ['tpu', 'auto'])
def test_a_process_beside_no_slice_stays_alone(platform):
  done = python(
    'from train.host import chips, processes;'
    'chips.of_tpu = lambda: ["/dev/accel0"];'
    f'processes.join("{platform}");'
    'import jax; print(jax.config.jax_enable_recoverability,'
    ' jax.process_count())'
  )
  assert done.stdout == 'True 1\n', done.stderr  # it has looked for one


def test_a_stuck_process_shows_its_stacks_and_ends():
  done = python(
    'import time; from train.run import failure\n'
    'with failure.Watchdog(1 / 600): time.sleep(30)'
  )
  assert done.returncode == 1
  assert 'Timeout' in done.stderr and '<string>' in done.stderr


def test_what_is_compiled_has_longer_than_a_step(monkeypatch):
  seen = watch.install(monkeypatch)
  clock, watchdog = ledger.Ledger(), failure.Watchdog(1.0)
  step = clock.compiled(
    watch.jitted(lambda seconds, batch: seen.spend(seconds)),
    watchdog.compiling,
  )
  batch = {'x': np.zeros(2)}
  step(10**6, {'x': np.zeros(3)})  # nobody watches
  assert not seen.limits
  with watchdog:
    step(59 * 60, batch)
    step(59, batch)
    step(0, {'x': np.zeros(4)})
    assert seen.limits == [60, 3600, 60, 3600, 60]
    with pytest.raises(AssertionError, match='watchdog'):
      step(61, batch)
  with failure.Watchdog(90.0) as patient, patient.compiling():
    assert seen.limits[-1] == 4 * 90 * 60
  seen.spend(10**6)
