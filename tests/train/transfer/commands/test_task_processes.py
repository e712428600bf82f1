"""Fine-tuning by two processes, as on two hosts, is that by one."""

import functools
import json

import jax
import pytest
import runs
from launch import end, start

from train.engine import sharding
from train.run import metrics, settings


def run(config_path, workdir):
  """Returns what each of two processes of the command wrote to its errors."""
  ended = end(
    start(
      lambda coordinator, i: [
        '-m',
        'train.main',
        '--config',
        str(config_path),
        '--workdir',
        str(workdir),
        '--coordinator',
        coordinator,
        '--num_processes',
        '2',
        '--process_id',
        str(i),
      ],
      num_processes=2,
      devices=1,
    )
  )
  # One that dies takes the other with it: the errors of both are shown.
  said = '\n'.join(error[-3000:] for *_, error in ended)
  assert not any(code for code, *_ in ended), said
  return [error for *_, error in ended]


@pytest.mark.slow
def test_two_processes_find_what_one_finds(
  config_of, write_config, tmp_path, monkeypatch
):
  config = settings.with_overrides(
    config_of('own tags'), {'mesh.data': 2, 'train.log_every': 1}
  ).lock()
  first, second = run(write_config(config), tmp_path / 'two')
  assert 'First step after' in first
  assert 'First step after' not in second

  monkeypatch.setattr(
    sharding,
    'make_mesh',
    functools.partial(sharding.make_mesh, devices=jax.devices()[:2]),
  )
  runs.train(config, tmp_path / 'one')
  results, figures = {}, {}
  for name in ('one', 'two'):
    results[name] = json.loads((tmp_path / name / 'results.json').read_text())
    rows = metrics.read_metrics(tmp_path / name)
    assert len(rows) == len({row[:2] for row in rows})  # one process wrote
    figures[name] = {
      (step, metric): value
      for step, metric, value in rows
      if metric.startswith(('train/', 'eval/'))
    }
  assert figures['two'] == pytest.approx(figures['one'], rel=1e-4)
  assert results['two']['best_step'] == results['one']['best_step']
  answers = [
    sorted(
      (path.relative_to(tmp_path / name), path.read_bytes())
      for path in (tmp_path / name / 'predictions').rglob('*')
      if path.is_file()
    )
    for name in ('one', 'two')
  ]
  assert answers[0] and answers[0] == answers[1]
