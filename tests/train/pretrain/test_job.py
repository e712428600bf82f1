"""Pre-training runs: phases, starting parameters, and bad input."""

import os
import sys

import pytest
import runs

from train.engine import sharding, state
from train.pretrain import job
from train.run import command, metrics, settings

# Meshes have tests of their own.
pytestmark = pytest.mark.usefixtures('one_device')


def test_two_phases_equal_one_schedule(small_config, tmp_path):
  phases = ((3, 32, 16, 'continue'), (3, 64, 8, 'continue'))
  config = small_config(
    train__phases=phases, train__log_every=1, model__num_layers=1
  )
  runs.train(config, tmp_path / 'a')
  rates = {
    step: value
    for step, name, value in metrics.read_metrics(tmp_path / 'a')
    if name == 'train/learning_rate'
  }
  peak = config.optim.learning_rate
  for step in (3, 4, 5, 6):  # after two of warm-up
    assert rates[step] == pytest.approx(peak * (1 - (step - 1) / 6))


def test_parameters_of_another_run_are_a_start(
  finished, small_config, tmp_path
):
  config = small_config(init__weights=str(finished[0]))
  made = job.make(config, tmp_path)
  with sharding.scope(made.mesh, config.mesh.rules):
    created = made.create()
  assert state.digest(created.params) == finished[1]['state_sha256']
  assert created.step == 0


@pytest.mark.parametrize(
  ('overrides', 'message'),
  [
    ({'train__platform': 'tpu'}, "train.platform='tpu', but JAX found 'cpu'"),
    ({'train__global_batch': 100_000}, 'windows of 32 tokens, fewer than'),
    ({'train__phases': ((2, 128, 8, 'continue'),)}, 'model.max_length=64'),
    ({'data__folder': '/dev/null/x'}, '/dev/null'),
    ({'model__name': 'brt'}, "model.name='brt'"),
    ({'train__objective': 'brt'}, "train.objective='brt'"),
    ({'init__weights': '/nowhere'}, '/nowhere: there is no such file'),
  ],
)
def test_bad_input_is_refused_by_name(
  overrides, message, small_config, tmp_path
):
  with pytest.raises((ValueError, OSError), match=message):
    runs.train(small_config(**overrides), tmp_path / 'new')
  assert not (tmp_path / 'new' / 'results.json').exists()


def test_commands_end_in_one_line_for_bad_input_and_a_trace_for_bugs(
  capsys, monkeypatch
):
  monkeypatch.setattr(os, '_exit', sys.exit)
  with pytest.raises(SystemExit):
    command.run(lambda: settings.config_path('nothing'))
  assert capsys.readouterr().err.startswith('error: --config nothing')
  with pytest.raises(ValueError, match='invalid literal'):
    command.run(lambda: int('a bug'))
