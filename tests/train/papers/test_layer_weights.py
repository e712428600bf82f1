"""Learned weights of layers are read from runs and sweeps alone."""

import json

import jax
import pytest
from mix_runs import SST, write_run, write_runs

from train.papers import layer_weights
from train.run import checkpoint


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A folder of finished runs, see `write_runs`."""
  folder = tmp_path_factory.mktemp('runs')
  write_runs(folder)
  return folder


def test_a_sweep_stands_for_its_best_settings(folder):
  runs = layer_weights.find_runs([f'SST={folder / "sweep"}'])
  names = ['rate=1,seed=0', 'rate=1,seed=1']
  assert runs == {'SST': [folder / 'sweep' / name for name in names]}
  row = layer_weights.read_row('SST', runs['SST'])
  assert len(row.mixes['input']) == len(row.mixes['output']) == 2
  # A path with an equals sign, and no name.
  path = folder / 'sweep/rate=2,seed=0'
  assert layer_weights.find_runs([str(path)]) == {path.name: [path]}


def test_a_model_kept_of_other_settings_is_taken(folder, tmp_path):
  summary = json.loads((folder / 'sweep/summary.json').read_text())
  best = write_run(tmp_path / 'rate=2,seed=0', SST)
  (tmp_path / 'summary.json').write_text(json.dumps(summary))
  assert layer_weights.find_runs([f'SST={tmp_path}']) == {'SST': [best]}


def test_no_other_parameter_is_read(folder, monkeypatch):
  asked = []
  restore = checkpoint.restore_params

  def spy(workdir, shapes):
    asked.append(jax.tree.map(lambda leaf: leaf.shape, shapes))
    return restore(workdir, shapes)

  monkeypatch.setattr(checkpoint, 'restore_params', spy)
  layer_weights.read_row('NER', [folder / 'ner'])
  assert asked == [{'mix': {'mix_weights': (5,), 'mix_scale': ()}}]
