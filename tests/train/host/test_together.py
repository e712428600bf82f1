"""Processes that must not start, or go on, do not: all end, and say why."""

import fcntl
import signal
import subprocess
import sys

import pytest
from launch import end, free_port, start

from train.run import metrics

# A user's command, with something changed on one process or on all.
PROGRAM = """
import os, signal, sys
config_path, workdir, coordinator, process = sys.argv[1:5]
process = int(process)
import runs
from train.run import command, ledger, settings
from train.host import device, processes
command.run(lambda: processes.join(
  'cpu', coordinator, 2, process, heartbeat_seconds=60))
config = settings.load_config(config_path)
{change}
command.run(lambda: runs.train(config, workdir))
"""


@pytest.fixture
def run(small_config, write_config, tmp_path):
  """Returns a function change -> (exit code, error) of both processes."""
  path = write_config(small_config())

  def run_both(change, stopped=()):
    children = start(
      lambda coordinator, i: [
        *('-c', PROGRAM.format(change=change), str(path)),
        *(str(tmp_path / 'run'), coordinator, str(i)),
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

  run_both.workdir = tmp_path / 'run'
  return run_both


def test_other_configs_and_code_are_named_on_all(run):
  ended = run(
    'if process:\n'
    "  config = settings.with_overrides(config, {'train.seed': 7})\n"
    "  device.revision = lambda: 'abc'"
  )
  for code, error in ended:
    assert code == 1, error
    assert 'train.seed: 0 (process 0), 7 (process 1)' in error
    assert "'abc' (process 1)" in error
    assert 'the code: ' in error
  assert not run.workdir.exists()


def test_a_workdir_of_one_host_only_is_named_on_all(run):
  ended = run("workdir += '-of-process-' + str(process)")
  for i, (code, error) in enumerate(ended):
    assert code == 1, error
    assert f'-of-process-{i}: process 1 of 2 does not see' in error


def test_what_process_0_refuses_ends_all(run):
  run.workdir.mkdir()
  with open(run.workdir / '.lock', 'a') as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    ended = run('')
  for code, error in ended:
    assert code == 1, error
    assert f'another process trains in {run.workdir}' in error
  assert 'told by process 0' in ended[1][1]


def test_a_workdir_that_cannot_be_written_ends_all(run):
  run.workdir.write_text('a file')
  for code, error in run(''):
    assert code == 1, error
    assert f'--workdir {run.workdir} cannot be written' in error


@pytest.mark.slow
def test_a_process_beside_a_stopped_one_shows_its_stacks_and_ends(run):
  """The first step is compiled in more seconds perhaps than the limit."""
  (code, error), (stopped, _) = run(
    """
config = settings.with_overrides(config, {'train.hang_minutes': 1 / 6})
count = ledger.Ledger.count
def stop(self, step, *rest):
  if process == 1 and step == 3:
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
  assert not metrics.read_metrics(run.workdir)


JOIN = """
import sys
from train.run import command
from train.host import processes
coordinator, process, start_seconds = sys.argv[1:4]
command.run(lambda: processes.join(
  'cpu', coordinator, 2, int(process),
  start_seconds=int(start_seconds), heartbeat_seconds=10))
"""


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


@pytest.mark.parametrize('process', ['0', '1'])
def test_a_process_that_never_comes_is_told(process):
  done = subprocess.run(
    [sys.executable, '-c', JOIN, f'localhost:{free_port()}', process, '3'],
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert done.returncode == 1
  assert f'error: process {process} waited 3 s' in done.stderr
  assert 'Traceback' not in done.stderr


@pytest.mark.parametrize('killed', [0, 1])
def test_a_survivor_that_waits_for_nothing_ends(killed):
  """One that computes meets the loss in its next exchange."""
  program = JOIN + (
    f'if int(process) == {killed}: import os; os.kill(os.getpid(), 9)\n'
    'import time; time.sleep(300)'
  )
  children = start(
    lambda coordinator, i: ['-c', program, coordinator, str(i), '120'],
    num_processes=2,
    devices=1,
  )
  codes = [code for code, *_ in end(children, timeout=250)]
  assert codes[killed] == -signal.SIGKILL
  assert codes[1 - killed] not in (0, -signal.SIGKILL)
