"""metrics.csv reads as if the run had never stopped."""

import os

import pytest

from train.run import metrics


def test_rows_beyond_the_restored_step_are_dropped(tmp_path):
  writer = metrics.MetricsWriter(tmp_path, step=0)
  for step in (10, 20, 30):
    writer.write(step, {'train/loss': step / 7, 'time/seconds': float(step)})
  writer.close()
  whole = metrics.read_metrics(tmp_path)
  assert len(whole) == 6

  again = metrics.MetricsWriter(tmp_path, step=20)
  assert metrics.read_metrics(tmp_path) == whole[:4]
  again.write(30, {'train/loss': 30 / 7, 'time/seconds': 30.0})
  again.close()
  assert metrics.read_metrics(tmp_path) == whole
  assert metrics.last_value(tmp_path, 'time/seconds', 25) == 20.0
  assert not list(tmp_path.glob('.*.new'))


def test_a_line_cut_by_a_kill_does_not_count(tmp_path):
  writer = metrics.MetricsWriter(tmp_path, step=0)
  writer.write(1, {'train/loss': 0.1})
  writer.close()
  path = tmp_path / 'metrics.csv'
  path.write_text(path.read_text() + '2,train/lo')
  assert metrics.read_metrics(tmp_path) == [(1, 'train/loss', 0.1)]
  metrics.MetricsWriter(tmp_path, step=5).close()
  assert path.read_text() == 'step,metric,value\n1,train/loss,0.1\n'


def test_values_survive_the_round_trip_to_the_bit(tmp_path):
  writer = metrics.MetricsWriter(tmp_path, step=0)
  writer.write(1, {'eval/mlm_loss': 0.1 + 0.2})
  writer.close()
  assert metrics.read_metrics(tmp_path)[0][2] == 0.1 + 0.2


def test_figures_of_an_evaluation_are_all_there_or_none(tmp_path, monkeypatch):
  writer = metrics.MetricsWriter(tmp_path, step=0)
  writer.write(1, {'train/loss': 0.1})
  replace = os.replace
  with monkeypatch.context() as patch:  # killed before it has its name
    patch.setattr(os, 'replace', lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
      writer.write(1, {'eval/a': 1.0, 'eval/b': 2.0}, whole=True)
  assert os.replace is replace
  assert not metrics.is_scored(tmp_path, 1)
  assert metrics.read_metrics(tmp_path) == [(1, 'train/loss', 0.1)]

  writer = metrics.MetricsWriter(tmp_path, step=1)
  writer.write(1, {'eval/a': 1.0, 'eval/b': 2.0}, whole=True)
  writer.write(2, {'train/loss': 0.2})
  assert metrics.is_scored(tmp_path, 1) and not metrics.is_scored(tmp_path, 2)
  assert [row[1] for row in metrics.read_metrics(tmp_path)] == [
    'train/loss',
    'eval/a',
    'eval/b',
    'train/loss',
  ]
