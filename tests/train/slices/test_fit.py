"""The TPU compiler's word on our configs, without a TPU."""

import json
import pathlib
import re
import subprocess
import sys
import types

import jax
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
  name, tpu = 'bert_mini', 'v5e-8'
  half = '--config.model.dtype=bfloat16'
  done = run('--config', name, half, '--topology', tpu, '--json')
  assert done.returncode == 0, done.stderr
  row, committed = json.loads(done.stdout), table[f'{name} {tpu}']
  assert 'Verdict: fits v5e-8' in done.stderr
  assert row['mfu'] is None
  for key in ('chips', 'hosts', 'mesh', 'parameters', 'parameter_bytes'):
    assert row[key] == committed[key]
  whole = 4 * row['parameters']
  for phase, before in zip(row['phases'], committed['phases'], strict=True):
    assert phase['model_flops'] == before['model_flops']
    assert phase['memory']['total'] == pytest.approx(
      before['memory']['total'], rel=0.02
    )
    travelling = phase['collective_bytes']
    assert sum(travelling.values()) == pytest.approx(
      sum(before['collective_bytes'].values()), rel=0.02
    )
    # Parameters and gradients once, and little else.
    assert travelling.pop('all-gather') < whole
    assert travelling.pop('all-reduce') < 2 * whole
    assert sum(travelling.values()) < 0.05 * whole


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
    '--config',
    'bert_tiny',
    '--topology',
    'v5e-4',
    '--json',
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
    2,
    4,
    8,
    True,
    8,
    256,
  ]
  assert len(fit.remedies(config, 8)) == 5


# Preflight with each list of arguments, in one process; how each ended, and
# how often the compiler was called.
REFUSED = """
from train.slices import without_hardware
without_hardware.prepare()
import contextlib, io, json, os, sys
from unittest import mock
from train import preflight
from train.slices import fit

def end(code):
  raise SystemExit(code)

os._exit = end
for arguments in json.load(sys.stdin):
  out, error, code = io.StringIO(), io.StringIO(), None
  sys.argv[1:] = arguments
  with (
    contextlib.redirect_stdout(out),
    contextlib.redirect_stderr(error),
    mock.patch.object(fit, '_compile') as compile,
  ):
    try:
      preflight.main()
    except SystemExit as ended:
      code = ended.code
  texts = out.getvalue(), error.getvalue()
  print(json.dumps([code, *texts, compile.call_count]))
"""


def test_bad_input_is_refused_before_anything_is_compiled():
  cases = (
    (('--topology', 'v5e-17'), 'did you mean v5e-1 or v5e-16 or '),
    (
      ('--topology', 'v5e-16,v4-8', '--config.mesh.tensor=3'),
      'does not multiply to the 16 devices',
    ),
    (
      ('--topology', 'v5e-256', '--config.eval.global_batch=128'),
      'eval.global_batch=128: expected a multiple of 256',
    ),
  )
  done = subprocess.run(
    [sys.executable, '-c', REFUSED],
    input=json.dumps([['--config', 'bert_base', *case] for case, _ in cases]),
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert done.returncode == 0, done.stderr
  ended = map(json.loads, done.stdout.splitlines())
  for (_, message), (code, out, error, compiled) in zip(
    cases, ended, strict=True
  ):
    assert code == 1
    assert not out and not compiled
    assert message in error.splitlines()[-1], error


def test_steps_count_where_a_config_counts_epochs():
  """A preflight reads no text, so it cannot count them."""
  config = settings.load_config('word2vec_novels')
  machine = types.SimpleNamespace(devices=jax.devices())
  with pytest.raises(ValueError, match='say how many with train.steps'):
    fit.plan_parts(config, machine)
  config = settings.with_overrides(config, {'train.steps': 7})
  parts = fit.plan_parts(config, machine)
  assert [phase.steps for phase in parts.phases] == [7]
