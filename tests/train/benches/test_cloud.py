"""Figures of runs in a bucket, from what runs would leave there."""

import json

import pytest

from train.benches import cloud
from train.run import ledger


def test_figures_of_what_runs_leave(monkeypatch):
  header = ','.join(ledger._HEADER)
  # start, restore, compile, data, train, eval, save, other
  rows = [
    '1,10.0,0,1000,4,0,1,0,0,0,0,0',
    '1,30.0,450,1000,0,0,0,1,18,0,1,0',
    '1,40.0,1000,1000,0,0,0,0,9,0,0,1',
  ]
  commands = []

  def train(served, folder, config, *flags):
    del folder, flags
    commands.append((config, served.delay))
    objects = served.answer.__self__.buckets[cloud._BUCKET]
    steps = (51, 52) if config == 'bert_base' else (450, 900, 1000)
    if config == 'bert_tiny':
      served.requests += ['GET a/checkpoints/b', 'POST c', 'POST d']
    else:
      # Undone between the runs; the old checkpoints stay.
      assert 'bert_base/results.json' not in objects
      assert not any('/52/' in name for name in objects)
    storage = served.answer.__self__
    for step in steps:
      name = f'{config}/checkpoints/{step}/commit_success.txt'
      storage.put(cloud._BUCKET, name, b'')
    for name, text in (
      ('ledger.csv', '\n'.join([header, *rows, ''])),
      ('results.json', json.dumps({})),
    ):
      storage.put(cloud._BUCKET, f'{config}/{name}', text.encode())
    if len(commands) == 4:
      assert len(cloud._steps(objects, 'bert_base')) == cloud.OLD + 2
    return f'First step after {10 + 60 * served.delay} s.'

  monkeypatch.setattr(cloud, '_train', train)
  figures = cloud.bench_storage()
  assert [delay for _, delay in commands] == [0.05, 0.0, 0.0, 0.05]
  assert figures['requests_besides'] == 2
  assert figures['requests_of_checkpoints'] == 1
  assert figures['checkpoints'] == 3
  assert figures['save_seconds'] == 1
  assert figures['save_share'] == pytest.approx(1 / 20)
  assert figures['restart_storage_seconds'] == pytest.approx(3.0)
