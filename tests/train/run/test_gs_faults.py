"""Runs in a bucket whose answers fail: they go on, or end and go on later."""

import time

import pytest
import runs

from data import storage
from train.benches.loopback import Fault
from train.run import lease, metrics, mirror

ALWAYS = 10**9
# All at once: what passes is tried again until it does.
PASSING = [
  Fault('.', status=503, share=0.1, times=2),
  Fault('.', status=429, share=0.1, times=2, seed=1),
  Fault('.', cut=True, share=0.1, times=2, seed=2),
  Fault('.', delay=0.5, share=0.1, times=2, seed=3),
  Fault('^(POST|PUT|DELETE)', lost=503, share=0.1, times=2, seed=4),
]


pytestmark = pytest.mark.usefixtures('one_device')


@pytest.fixture(scope='module')
def reference(finished):
  """The results and rows of a run in a local folder."""
  workdir, results = finished
  return results, rows_of(workdir)


def rows_of(workdir):
  return [row for row in metrics.read_metrics(workdir) if 'time/' not in row[1]]


def assert_equal(reference, results, workdir):
  for digest in ('state_sha256', 'optimizer_sha256', 'metrics'):
    assert results[digest] == reference[0][digest]
  assert rows_of(workdir) == reference[1]


@pytest.mark.slow
def test_what_passes_changes_no_bit(gs, loopback, reference, small_config):
  loopback.faults += PASSING
  results = runs.train(small_config(), f'{gs}/run')
  assert not any(fault.left for fault in loopback.faults)
  loopback.faults.clear()
  assert_equal(reference, results, f'{gs}/run')


@pytest.mark.slow
def test_old_checkpoints_are_removed_whatever_is_lost(
  gs, loopback, reference, small_config
):
  loopback.faults.append(Fault('^DELETE', lost=503, share=0.3, times=6))
  config = small_config(train__keep_checkpoints=1)
  results = runs.train(config, f'{gs}/run')
  loopback.faults.clear()
  assert results['state_sha256'] == reference[0]['state_sha256']
  names = loopback.storage.buckets[gs[5:]]
  steps = {n.split('/')[2] for n in names if n.startswith('run/checkpoints/1')}
  assert steps == {'12'}
  assert not [
    n for n in names if n.startswith(('run/checkpoints/4', 'run/checkpoints/8'))
  ]


@pytest.mark.parametrize(
  'fault',
  [
    dict(pattern='.', status=401),  # a token that has expired
    # The bucket is gone.
    pytest.param(dict(pattern='.', status=404), marks=pytest.mark.slow),
    dict(pattern='checkpoints', status=403),  # somebody took the role away
  ],
  ids=lambda fault: fault['status'],
)
def test_what_does_not_pass_ends_it_with_a_complete_checkpoint(
  fault, gs, loopback, reference, small_config, monkeypatch
):
  monkeypatch.setattr(storage, 'PATIENCE', 1.0)
  # The lock stays, and its holder, the test's process, lives on.
  monkeypatch.setattr(lease, 'EXPIRY_SECONDS', 2.0)
  saved = loopback.storage.buckets[gs[5:]]
  write = metrics.MetricsWriter.write

  def break_after_step_8(self, step, values, **more):
    write(self, step, values, **more)
    if step == 8 and not loopback.faults:
      # The checkpoint of step 4 is complete, that of 8 has not begun.
      while 'run/checkpoints/4/commit_success.txt' not in saved:
        time.sleep(0.01)
      loopback.faults.append(Fault(**fault, times=ALWAYS))

  with monkeypatch.context() as patched:
    patched.setattr(metrics.MetricsWriter, 'write', break_after_step_8)
    with pytest.raises(OSError) as raised:
      runs.train(small_config(), f'{gs}/run')
  assert 'a checkpoint in gs://' in str(raised.value)
  loopback.faults.clear()
  assert 'run/checkpoints/4/commit_success.txt' in saved
  # As if a kill had ended a save that nobody makes again.
  loopback.storage.put(gs[5:], 'run/checkpoints/9/default/half', b'')
  results = runs.train(small_config(), f'{gs}/run')
  assert_equal(reference, results, f'{gs}/run')
  assert not [name for name in saved if 'half' in name]


@pytest.mark.slow
def test_late_copies_do_not_end_a_run(
  gs, loopback, reference, small_config, monkeypatch, capsys
):
  monkeypatch.setattr(storage, 'PATIENCE', 1e-6)  # no try is made twice
  open_them = mirror.Mirror.fetch

  def break_copies(self, tails):
    open_them(self, tails)
    # Two tries: the second comes with the next checkpoint.
    late = 'POST .*uploadType=multipart$'
    loopback.faults.append(Fault(late, status=503, times=2))

  monkeypatch.setattr(mirror.Mirror, 'fetch', break_copies)
  results = runs.train(small_config(), f'{gs}/run')
  assert not loopback.faults[0].left
  said = capsys.readouterr().err
  assert said.count('are not copied to') == said.count('again.') == 1
  assert_equal(reference, results, f'{gs}/run')
