"""Killed and restarted equals uninterrupted, bit for bit, dropout on."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from train import metrics

STEPS = 240


def command(config_path, workdir) -> list[str]:
  """Returns the command line of a run of the written-out config."""
  return [
    sys.executable,
    '-m',
    'train.main',
    '--config',
    str(config_path),
    '--workdir',
    str(workdir),
  ]


@pytest.fixture(scope='module')
def environment():
  """One device in the child processes."""
  return os.environ | {'XLA_FLAGS': ''}


@pytest.fixture
def config_file(small_config, write_config):
  """The config of a run long enough to be killed in."""
  config = small_config(
    train__phases=((STEPS, 32, 16, 'continue'),),
    train__log_every=20,
    train__eval_every=60,
    train__checkpoint_every=40,
    eval__max_windows=256,
    data__loader='tf',
  )
  return write_config(config)


def results_of(workdir: pathlib.Path) -> dict:
  """Returns what must be equal between two runs."""
  results = json.loads((workdir / 'results.json').read_text())
  rows = [
    row
    for row in metrics.read_metrics(workdir)
    if not row[1].startswith('time/')
  ]
  del results['seconds']
  return results | {'rows': rows}


def run_and_kill(arguments, environment, should_kill) -> bool:
  """Runs until `should_kill()`; returns whether the end was not reached."""
  process = subprocess.Popen(
    arguments, env=environment, stderr=subprocess.DEVNULL
  )
  try:
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
      if should_kill():
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
      time.sleep(0.002)
    assert process.poll() == 0
    return False
  finally:
    if process.poll() is None:
      process.kill()
      process.wait()


@pytest.mark.slow
def test_killed_runs_end_like_the_uninterrupted_one(
  config_file, environment, tmp_path
):
  whole = tmp_path / 'whole'
  subprocess.run(
    command(config_file, 'whole'),  # relative, as the default is
    cwd=tmp_path,
    env=environment,
    check=True,
    timeout=180,
  )

  def logged(workdir, step, name='train/loss'):
    rows = metrics.read_metrics(workdir)
    return any(row[0] >= step and row[1] == name for row in rows)

  drawn = random.SystemRandom().randrange(20, 110)
  torn = tmp_path / 'torn'
  kills = {
    f'at a drawn time, about step {drawn}': lambda: logged(torn, drawn),
    'during an evaluation': lambda: (
      logged(torn, 120) and not logged(torn, 120, 'eval/mlm_loss')
    ),
    'during a save': lambda: (
      logged(torn, 160)
      and bool(list((torn / 'checkpoints').glob('*.orbax-checkpoint-tmp*')))
    ),
  }
  happened = {
    name: run_and_kill(command(config_file, torn), environment, should_kill)
    for name, should_kill in kills.items()
  }
  subprocess.run(
    command(config_file, torn), env=environment, check=True, timeout=180
  )
  assert results_of(torn) == results_of(whole), happened
  assert any(happened.values())
  assert not list((torn / 'checkpoints').glob('*tmp*'))

  # A finished run prints its results and changes nothing.
  before = (torn / 'results.json').read_bytes()
  again = subprocess.run(
    command(config_file, torn),
    env=environment,
    check=True,
    timeout=120,
    capture_output=True,
    text=True,
  )
  assert 'finished run' in again.stderr
  assert 'mlm_perplexity' in again.stderr
  assert (torn / 'results.json').read_bytes() == before
