"""Runs in a bucket whose answers fail: they end in the same bits."""

import pytest
import runs

from train.benches.loopback import Fault
from train.run import metrics

ALWAYS = 10**9
FAULTS = {
  'none': [],
  'unavailable': [Fault('.', status=503, share=0.3, times=ALWAYS)],
  'too many requests': [Fault('.', status=429, share=0.3, times=ALWAYS)],
  'cut connections': [Fault('.', cut=True, share=0.2, times=ALWAYS)],
  'lost answers': [
    Fault('^(POST|PUT|DELETE)', lost=503, share=0.3, times=ALWAYS)
  ],
  'stalls': [Fault('.', delay=1.0, share=0.05, times=ALWAYS)],
}


@pytest.fixture(scope='module')
def reference(small_config, tmp_path_factory):
  """The results and rows of a run in a local folder."""
  workdir = tmp_path_factory.mktemp('local') / 'run'
  results = runs.train(small_config(), workdir)
  return results, rows_of(workdir)


def rows_of(workdir):
  return [row for row in metrics.read_metrics(workdir) if 'time/' not in row[1]]


@pytest.mark.parametrize('fault', FAULTS)
def test_faults_change_no_bit(
  fault, gs, loopback, reference, small_config, capsys
):
  loopback.faults += FAULTS[fault]
  results = runs.train(small_config(), f'{gs}/run')
  loopback.faults.clear()
  print(capsys.readouterr().err[-3000:], len(loopback.requests))
  for digest in ('state_sha256', 'optimizer_sha256'):
    assert results[digest] == reference[0][digest]
  assert rows_of(f'{gs}/run') == reference[1]
