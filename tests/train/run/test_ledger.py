"""Every second is in one bucket, also of a run that was killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import runs
import watch
from launch import environment

from data.examples import pipeline
from train import report
from train.engine import sharding
from train.run import ledger, reports, settings

SLOW = 2  # seconds
# Trains, and dies as soon as the row of step 10 is written.
PROGRAM = """
import json, os, signal, sys
from train.run import ledger, settings
import runs
write = ledger.Ledger.write
def write_and_die(self):
  write(self)
  if self._step == 10:
    os.kill(os.getpid(), signal.SIGKILL)
ledger.Ledger.write = write_and_die
overrides, workdir, began = sys.argv[1:]
config = settings.with_overrides(
  settings.load_config('bert_tiny'), json.loads(overrides)
)
runs.train(config, workdir, began=float(began))
"""


@pytest.fixture(scope='module')
def killed(small_config, tmp_path_factory):
  """A run killed and continued: (workdir, killed copy, began, ended)."""
  workdir = tmp_path_factory.mktemp('runs') / 'killed'
  config = small_config(train__log_every=2, mesh__data=1)
  began = time.time()
  done = subprocess.run(
    [
      sys.executable,
      '-c',
      PROGRAM,
      json.dumps(settings.flatten(config)),
      str(workdir),
      str(began),
    ],
    env=environment(),
    stderr=subprocess.PIPE,
    text=True,
    timeout=240,
  )
  assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
  path = workdir / ledger.FILE
  path.write_text(path.read_text() + '1,1234')  # a torn row does not count
  copy = workdir.with_name('copy')
  shutil.copytree(workdir, copy)
  config = small_config(train__log_every=2)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sharding, 'make_mesh', _one_device)
    patch.setattr(pipeline, 'plain_batches', _slowly_opened)
    runs.train(config, workdir)
  return workdir, copy, began, time.time()


def _slowly_opened(*arguments, open_batches=pipeline.plain_batches):
  time.sleep(SLOW)
  return open_batches(*arguments)


def _one_device(mesh_config, make_mesh=sharding.make_mesh):
  import jax

  return make_mesh(mesh_config, jax.devices()[:1])


def test_buckets_of_all_attempts_are_the_time_from_first_to_last(killed):
  workdir, _, began, ended = killed
  rows = ledger.read(workdir)
  assert {row.attempt for row in rows} == {1, 2}
  totals = ledger.add_up(ledger.with_losses(rows))
  assert sum(totals.seconds.values()) == pytest.approx(
    sum(sum(row.seconds.values()) for row in rows)
  )
  assert totals.down > 0
  covered = sum(totals.seconds.values()) + totals.down
  # The last row follows the results; only freeing memory follows that row.
  finished = (workdir / 'results.json').stat().st_mtime
  rounding = 0.01
  assert finished - rounding <= began + covered <= ended + rounding
  for attempt in (1, 2):
    own = [row for row in rows if row.attempt == attempt]
    assert sum(sum(row.seconds.values()) for row in own) == pytest.approx(
      own[-1].time - own[0].began, rel=0.01
    )


def test_what_a_restart_does_again_is_lost(killed):
  workdir = killed[0]
  rows = ledger.read(workdir)
  first = [row for row in rows if row.attempt == 1]
  second = [row for row in rows if row.attempt == 2]
  assert (first[0].step, first[-1].step, second[-1].step) == (0, 10, 12)
  assert {row.total_steps for row in rows} == {12}
  resumed = second[0].step
  assert resumed in (4, 8)
  settled = ledger.with_losses(rows)
  for row, after in zip(rows, settled, strict=True):
    again = row.attempt == 1 and row.step > resumed
    assert (after.seconds[ledger.LOST] > 0) == again
    assert sum(after.seconds.values()) == pytest.approx(
      sum(row.seconds.values())
    )
  for attempt in (first, second):
    seconds = ledger.add_up(ledger.with_losses(attempt)).seconds
    assert all(seconds[b] > 0 for b in ('start', 'compile', 'train', 'save'))
    assert (seconds['restore'] > 0) == (attempt is second)
  # Opening the batches, with which TensorFlow is imported, is no training.
  assert seconds['train'] < SLOW < seconds['start']


def test_losses_of_many_restarts():
  def row(attempt, time, step, **seconds):
    return ledger.LedgerRow(
      attempt, time, step, 100, dict.fromkeys(ledger.BUCKETS, 0.0) | seconds
    )

  rows = [
    row(1, 110.0, 0, start=10.0),
    row(1, 120.0, 10, train=9.0, data=1.0),
    row(1, 130.0, 20, train=8.0, eval=1.0, save=1.0),
    row(2, 145.0, 10, start=5.0),  # down for 10 s
    row(2, 155.0, 20, train=10.0),
    row(2, 165.0, 30, train=7.0, compile=3.0),
    row(3, 170.0, 20, start=3.0, restore=2.0),
    row(3, 180.0, 30, train=10.0),
  ]
  settled = ledger.with_losses(rows)
  assert [r.seconds[ledger.LOST] for r in settled] == [0, 0, 9, 0, 0, 7, 0, 0]
  totals = ledger.add_up(settled)
  assert totals.seconds['train'] == 9 + 10 + 10
  assert totals.seconds['save'] == 1
  assert totals.seconds['compile'] == 3
  assert sum(totals.seconds.values()) == 70
  assert (totals.down, totals.attempts, totals.restarting) == (10, 3, 13)
  assert totals.training_share == 29 / 70
  assert ledger.sentence(rows).startswith(
    '41.4% of 70 s went into training steps; starting up 25.7%, steps done'
    ' again 22.9%'
  )


def test_first_executions_are_compiling_and_no_steps(monkeypatch):
  now = [0.0]
  monkeypatch.setattr(ledger.time, 'perf_counter', lambda: now[0])

  def spend(seconds):
    now[0] += seconds

  clock = ledger.Ledger()
  spend(5)
  step = clock.compiled(watch.jitted(lambda seconds, batch: spend(seconds)))
  score = clock.compiled(watch.jitted(lambda seconds, batch: spend(seconds)))
  short, long = ({'x': np.zeros(size)} for size in (2, 3))
  clock.begin_training(100.0)
  for batch, seconds, tokens in ((short, 20, 1), (short, 2, 10), (long, 30, 1)):
    with clock.measure('data'):
      spend(1)
    step(seconds, batch)
    clock.count(1, tokens, 1.0)
  with clock.measure('eval'):
    score(20, short)
    score(25, short)
  row = clock.row(None, 1)
  assert row['time/seconds'] == 100 + 20 + 2 + 30 + 3 + 45
  # Ten tokens in the one step that compiled nothing, and three waits.
  assert row['time/tokens_per_second'] == 10 / (2 + 3)
  assert row['time/eval_share'] == 25 / 100
  assert row['time/data_share'] == 3 / 100
  assert clock.elapsed() == 105
  step(20, {'x': np.zeros(4)})
  clock.count(2, 1, 1.0)
  assert np.isnan(clock.row(None, 1)['time/tokens_per_second'])


@pytest.mark.slow
def test_report_of_a_killed_and_of_a_finished_run(killed, tmp_path, capsys):
  workdir, copy, *_ = killed
  # Killed before it was continued: nothing in the workdir but the figures.
  found = reports.run(copy)
  assert not found['finished']
  assert (found['steps_done'], found['steps_in_all']) == (10, 12)
  assert found['seconds_left'] > 0
  assert found['time']['restarts'] == 0
  assert found['held_out']['eval/mlm_loss']['last_step'] == 6
  for name in ('curves.png', 'ledger.png'):
    assert (copy / name).read_bytes().startswith(b'\x89PNG')
  reports.print_report(found)
  text = capsys.readouterr().out
  for words in ('10 of 12 (83.3%)', 'time left', 'tokens/s', 'restarts', 'MFU'):
    assert words in text, words

  with pytest.MonkeyPatch.context() as patch:
    argv = ['report', str(workdir), '--json', '--out', str(tmp_path / 'new')]
    patch.setattr(sys, 'argv', argv)
    report.main()
  found = json.loads(capsys.readouterr().out)
  assert found['finished'] and found['seconds_left'] == 0
  spent = found['time']
  assert spent['restarts'] == 1 and spent['lost_seconds'] > 0
  assert sum(spent['bucket_shares'].values()) == pytest.approx(1)
  accuracy = found['held_out']['eval/mlm_accuracy']
  assert accuracy['last_step'] == 12
  assert accuracy['best'] >= accuracy['last']
  assert {p.name for p in (tmp_path / 'new').iterdir()} == {
    'curves.png',
    'ledger.png',
  }


def test_report_of_a_workdir_just_made(killed, tmp_path):
  shutil.copy(killed[0] / 'config.json', tmp_path)
  found = reports.run(tmp_path)
  reports.print_report(found)
  assert found['steps_done'] == 0 and found['seconds_left'] is None
  assert not (tmp_path / 'ledger.png').exists()


def test_a_folder_that_is_no_workdir_is_named(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(sys, 'argv', ['report', str(tmp_path)])
  monkeypatch.setattr(os, '_exit', sys.exit)
  with pytest.raises(SystemExit):
    report.main()
  assert 'holds no config.json' in capsys.readouterr().err
  assert not list(tmp_path.iterdir())
