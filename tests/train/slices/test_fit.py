"""The TPU compiler's word on our configs, without a TPU."""

import itertools
import json
import pathlib
import re
import subprocess
import sys

import pytest

from train.run import settings
from train.slices import fit

RESULTS = pathlib.Path(__file__).parents[3] / 'results'


def run(*arguments, timeout=900):
  return subprocess.run(
    [sys.executable, '-m', 'train.preflight', *arguments],
    capture_output=True,
    text=True,
    timeout=timeout,
  )


@pytest.fixture(scope='module')
def table():
  return json.loads((RESULTS / 'preflight.json').read_text())


@pytest.mark.slow
def test_a_committed_row_compiles_to_the_same_again(table):
  name, tpu = 'gpt', 'v5e-8'
  done = run('--config', name, '--topology', tpu, '--json')
  assert done.returncode == 0, done.stderr
  row, committed = json.loads(done.stdout), table[f'{name} {tpu}']
  assert 'Verdict: fits v5e-8' in done.stderr
  assert row['mfu'] is None
  for key in ('chips', 'hosts', 'mesh', 'parameters', 'parameter_bytes'):
    assert row[key] == committed[key]
  for phase, before in zip(row['phases'], committed['phases'], strict=True):
    assert phase['model_flops'] == before['model_flops']
    assert phase['memory']['total'] == pytest.approx(
      before['memory']['total'], rel=0.02
    )
    assert sum(phase['collective_bytes'].values()) == pytest.approx(
      sum(before['collective_bytes'].values()), rel=0.02
    )


def test_every_shipped_config_fits_the_slice_it_names(table):
  named = {}
  for name in settings.shipped_names():
    config = settings.load_config(name)
    if 'task' in config:  # small, and of weights that are not there yet
      continue
    text = settings.config_path(name).read_text()
    slices = re.findall(r'--topology (\S+)', text)
    if config.train.platform == 'tpu':
      assert slices, f'{name} names no slice'
    named |= {f'{name} {tpu}': table[f'{name} {tpu}'] for tpu in slices}
  assert len(named) >= 2
  assert all(row['fits'] for row in named.values())


def test_parameters_and_gradients_travel_once_and_little_else(table):
  for row in table.values():
    whole = 4 * row['parameters']
    for phase in row['phases']:
      if phase['fits'] and row['mesh']['fsdp'] == 1:
        # Their bytes do not grow with the slice; nor do activations travel.
        travelling = dict(phase['collective_bytes'])
        if row['devices'] == 1:
          assert not travelling
          continue
        assert travelling.pop('all-gather') < whole
        # Every micro-batch's gradients are reduced by themselves.
        reduced = travelling.pop('all-reduce')
        assert reduced < 2 * whole * phase['micro_batches']
        assert sum(travelling.values()) < 0.05 * whole


def test_chips_do_the_same_on_larger_slices():
  """The per-chip batch is fixed: 8, 64 and 256 chips."""
  rows = json.loads((RESULTS / 'preflight_scaling.json').read_text())
  phases = {row['chips']: row['phases'][0] for row in rows.values()}
  assert sorted(phases) == [8, 64, 256]
  assert len({phase['rows_a_chip'] for phase in phases.values()}) == 1
  for phase in phases.values():
    cycles = phases[8]['estimate']['cycles']
    assert phase['estimate']['cycles'] == pytest.approx(cycles, rel=0.03)
  for fewer, more in itertools.pairwise(phases[n] for n in (8, 64, 256)):
    assert more['memory']['total'] < fewer['memory']['total']
    optimiser = [p['estimate']['by_kind']['optimiser'] for p in (fewer, more)]
    assert optimiser[1] < optimiser[0]
  sent = [sum(phases[n]['collective_bytes'].values()) for n in (64, 256)]
  assert sent[1] == pytest.approx(sent[0], rel=0.02)


def test_hours_are_of_the_estimate_or_of_a_measured_mfu(table):
  phase = table['bert_base v5e-16']['phases'][0]
  phase = phase | {'steps': 3600, 'best_mfu': 0.9}
  phase['estimate'] = {'seconds': 0.02, 'links_seconds': 0.005}
  assert fit.count_hours([phase, phase], None) == pytest.approx(2 * 0.025)
  compute, best = phase['least_seconds']['compute'], phase['best_mfu']
  assert fit.count_hours([phase], 0.2) == pytest.approx(compute / 0.2)
  assert fit.count_hours([phase], 0.99) == pytest.approx(compute / best)
  phase['estimate'] = {'missing': 'a kernel without one'}
  assert fit.count_hours([phase], None) is None
  assert fit.count_hours([phase], 0.2) == pytest.approx(compute / 0.2)


@pytest.mark.slow
def test_a_config_that_does_not_fit_gets_a_remedy():
  # Of the remedies only fsdp divides this batch.
  rows = 4 * 36_001
  done = run(
    *('--config', 'bert_tiny', '--topology', 'v5e-4', '--json'),
    f"--config.train.phases=((1000, 128, {rows}, 'continue'),)",
    '--config.eval.global_batch=8',
    '--config.model.remat=True',
    '--config.model.scan_layers=True',
    '--config.model.num_layers=1',
    '--config.data.tokenizer=train:wordpiece:500',
  )
  assert done.returncode == 1, done.stderr
  report = json.loads(done.stdout)
  assert not report['fits']
  assert [tried['override'] for tried in report['remedies']] == [
    {'mesh.data': -1, 'mesh.fsdp': 4},
  ]
  (phase,) = report['phases']
  assert phase['memory']['total'] > phase['memory']['usable']
  assert 'does NOT fit v5e-4' in done.stderr


def test_at_most_six_remedies_the_cheapest_first():
  config = settings.load_config('bert_base')
  tried = fit.remedies(config, 256)
  assert [list(override.values())[-1] for override in tried] == [
    *(2, 4, 8),
    True,
    *(8, 256),
  ]
  assert len(fit.remedies(config, 8)) == 5


def test_bad_input_is_refused_before_anything_is_compiled():
  for arguments, message in (
    (('--topology', 'v5e-17'), 'did you mean v5e-1 or v5e-16 or '),
    (
      ('--topology', 'v5e-16,v4-8', '--config.mesh.tensor=3'),
      'does not multiply to the 16 devices',
    ),
    (
      ('--topology', 'v5e-256', '--config.eval.global_batch=128'),
      'eval.global_batch=128: expected a multiple of 256',
    ),
  ):
    done = run('--config', 'bert_base', *arguments)
    assert done.returncode == 1
    assert done.stdout == ''
    assert message in done.stderr.splitlines()[-1], done.stderr
