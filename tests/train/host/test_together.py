"""Processes that must not start, or go on, do not: all end, and say why."""

import fcntl
import json
import pathlib
import re
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest
import runs
from launch import end, free_port, start

from train.engine import sharding
from train.run import metrics, settings, workdirs

# A user's command, with something changed on one process or on all.
PROGRAM = """
import json, os, signal, sys
overrides, workdir, coordinator, process = sys.argv[1:5]
process = int(process)
import runs
from train.run import command, ledger, settings
from train.host import device, processes
command.run(lambda: processes.join(
  'cpu', coordinator, 2, process, heartbeat_seconds=60))
config = settings.with_overrides(
  settings.load_config('bert_tiny'), json.loads(overrides))
{change}
command.run(lambda: runs.train(config, workdir))
"""


def run_both(config, workdir, change, stopped=()):
  """Runs the program twice; returns (exit code, error) of both processes."""
  overrides = json.dumps(settings.flatten(config))
  children = start(
    lambda coordinator, i: [
      '-c',
      PROGRAM.format(change=change),
      overrides,
      str(workdir),
      coordinator,
      str(i),
    ],
    num_processes=2,
    devices=1,
  )
  try:
    for i, child in enumerate(children):
      if i not in stopped:
        child.wait(timeout=300)
    for i in stopped:
      assert children[i].poll() is None
  finally:
    for i in stopped:
      children[i].kill()
  return [(code, error) for code, _, error in end(children, timeout=60)]


@pytest.fixture(scope='module')
def config(small_config):
  return small_config(
    model__num_layers=1,
    train__phases=((3, 32, 16, 'continue'),),
    train__log_every=1,
    train__eval_every=3,
    train__checkpoint_every=3,
  )


def test_other_configs_and_code_are_named_on_all(config, tmp_path):
  ended = run_both(
    config,
    tmp_path / 'run',
    'if process:\n'
    "  config = settings.with_overrides(config, {'train.seed': 7})\n"
    "  device.revision = lambda: 'abc'",
  )
  for code, error in ended:
    assert code == 1, error
    assert 'train.seed: 0 (process 0), 7 (process 1)' in error
    assert "'abc' (process 1)" in error
    assert 'the code: ' in error
  assert not (tmp_path / 'run').exists()


@pytest.fixture(scope='module')
def thrice(config, tmp_path_factory):
  """Two processes that three times begin a run.

  In workdirs that the other does not see, to the end, and in a workdir in which
  another process trains.

  Returns:
    The last workdir, and (exit code, error) of both.
  """
  workdir = tmp_path_factory.mktemp('together') / 'run'
  workdir.mkdir()
  change = """
from train.pretrain import job
made = job.make(config, workdir)
job.make = lambda config, workdir: made  # so that it is compiled once
try:
  runs.train(config, workdir + '-of-process-' + str(process))
except ValueError as error:
  print(error, file=sys.stderr)
command.run(lambda: runs.train(config, workdir + '-finished'))
"""
  with open(workdir / '.lock', 'a') as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    return workdir, run_both(config, workdir, change)


@pytest.mark.slow
def test_a_workdir_of_one_host_only_is_named_on_all(thrice):
  for i, (_, error) in enumerate(thrice[1]):
    assert f'-of-process-{i}: process 1 of 2 does not see' in error


@pytest.mark.slow
def test_two_processes_train_like_two_devices_of_one(thrice, config):
  workdir = pathlib.Path(f'{thrice[0]}-finished')
  rows = metrics.read_metrics(workdir)
  assert len(rows) == len({row[:2] for row in rows})  # one process wrote
  losses = [value for _, name, value in rows if name == 'train/loss']
  alone = runs.losses_on(
    config, sharding.make_mesh(config.mesh, jax.devices()[:2])
  )
  np.testing.assert_allclose(losses[0], alone[0], rtol=1e-6)
  np.testing.assert_allclose(losses, alone, rtol=1e-4)
  assert json.loads((workdir / 'results.json').read_text())['steps'] == 3


def test_what_process_0_refuses_ends_all(thrice):
  workdir, ended = thrice
  for code, error in ended:
    assert code == 1, error
    assert f'another process trains in {workdir}' in error
  assert 'told by process 0' in ended[1][1]


def test_a_workdir_that_cannot_be_written_is_named(tmp_path):
  (tmp_path / 'run').write_text('a file')
  with (
    pytest.raises(OSError, match=f'--workdir {tmp_path}/run cannot be written'),
    workdirs.sole_writer(tmp_path / 'run'),
  ):
    pass


@pytest.mark.slow
def test_a_process_beside_a_stopped_one_shows_its_stacks_and_ends(
  config, tmp_path
):
  """The first step is compiled in more seconds perhaps than the limit."""
  (code, error), (stopped, _) = run_both(
    config,
    tmp_path / 'run',
    """
config = settings.with_overrides(
  config, {'train.hang_minutes': 1 / 6, 'train.log_every': 3})
count = ledger.Ledger.count
def stop(self, step, *rest):
  if process == 1 and step == 2:
    os.kill(os.getpid(), signal.SIGSTOP)
  count(self, step, *rest)
ledger.Ledger.count = stop
""",
    stopped=[1],
  )
  assert stopped == -signal.SIGKILL
  assert code == 1, error
  assert 'Timeout' in error
  assert 'training.py' in error
  assert not metrics.read_metrics(tmp_path / 'run')


JOIN = """
import sys
from train.run import command
from train.host import processes
coordinator, process, start_seconds = sys.argv[1:4]
command.run(lambda: processes.join(
  'cpu', coordinator, 2, int(process),
  start_seconds=int(start_seconds), heartbeat_seconds=10))
"""


@pytest.mark.slow
def test_processes_that_listen_without_a_pause_end_as_they_say():
  program = (
    'from train.host import processes; processes._LISTEN_SECONDS = 0'
    + JOIN
    + 'import jax; jax.device_count()\n'  # waits for the other
    + 'sys.exit(75)'
  )
  for _ in range(3):
    children = start(
      lambda coordinator, i: ['-c', program, coordinator, str(i), '60'],
      num_processes=2,
      devices=1,
    )
    ended = end(children)
    assert [code for code, *_ in ended] == [75, 75], ended


def test_a_process_that_never_comes_is_told():
  children = [
    subprocess.Popen(
      [sys.executable, '-c', JOIN, f'localhost:{free_port()}', process, '2'],
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for process in '01'
  ]
  for process, (code, _, error) in enumerate(end(children, timeout=120)):
    assert code == 1
    assert f'error: process {process} waited 2 s' in error
    assert 'Traceback' not in error


@pytest.mark.slow
def test_a_survivor_that_waits_for_nothing_ends():
  """One that computes meets the loss in its next exchange."""
  pairs = []
  for killed in (0, 1):
    program = JOIN + (
      f'if int(process) == {killed}: import os; os.kill(os.getpid(), 9)\n'
      'import time; time.sleep(300)'
    )
    pairs += start(
      lambda coordinator, i, program=program: [
        '-c',
        program,
        coordinator,
        str(i),
        '120',
      ],
      num_processes=2,
      devices=1,
    )
  ended = end(pairs, timeout=250)
  codes = [code for code, *_ in ended]
  assert codes[0] == codes[3] == -signal.SIGKILL
  assert codes[1] not in (0, -signal.SIGKILL)  # JAX aborts it
  code, _, error = ended[2]
  assert code == 1
  assert error.startswith('error: process 1 of 2 has died, or its host'), error
  assert len(error.splitlines()) == 1


@pytest.mark.slow
def test_a_partner_that_dies_in_a_step_is_told_in_one_line(config, tmp_path):
  (code, error), (killed, _) = run_both(
    config,
    tmp_path / 'run',
    """
count = ledger.Ledger.count
def die(self, step, *rest):
  if process == 1 and step == 2:
    os.kill(os.getpid(), signal.SIGKILL)
  count(self, step, *rest)
ledger.Ledger.count = die
""",
  )
  assert (code, killed) == (1, -signal.SIGKILL), error
  last = error.splitlines()[-1]
  assert re.match(r'error: (another process|process 1 of 2) has died', last)
  assert 'same command on all hosts continues' in last
  assert 'Traceback' not in error and 'stack trace' not in error
