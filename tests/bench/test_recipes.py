"""That recipes are compared by the runs that `train.main` makes."""

import argparse
import json

import jax
import numpy as np
import pytest
import recipes

from train.engine import sharding
from train.run import settings, training
from train.transfer import finetune

SIZES = {'rte': 16, 'stsb': 16}


@pytest.fixture
def small(monkeypatch):
  """Runs of two steps on two tasks."""
  monkeypatch.setattr(recipes, 'LENGTHS', (64,))
  few = {'train.num_epochs': 1.0, 'data.eval_limit': 8}
  monkeypatch.setattr(recipes, 'SHARED', recipes.SHARED | few)


@pytest.mark.slow  # compiles
def test_the_rate_as_an_argument_is_that_of_the_config(
  small, small_bert, sesame_data, tmp_path, monkeypatch
):
  monkeypatch.setitem(recipes.SHARED, 'train.num_epochs', 10.0)  # warms up
  config = recipes.config_of(
    'rte', small_bert, str(sesame_data), 1, 'adamw', 16, 8
  )
  given = {'optim.schedule': 'linear', 'optim.warmup_fraction': 0.1}
  plain = settings.with_overrides(
    config, given | {'optim.learning_rate': 1e-3, 'train.plateau': None}
  ).lock()
  found = []
  for each in (config, plain):
    job = finetune.plan(
      each, training.find_devices(each), splits=recipes.SPLITS
    )
    job = job.of_run(each, tmp_path, of_several=True)
    schedule = recipes.schedule_of(job.total_steps, 1e-3)
    with sharding.scope(job.mesh, each.mesh.rules):
      state = job.create()
      for step in range(job.total_steps):
        arguments = job.arguments(())
        if each is config:
          arguments = arguments[0], np.float32(schedule(step))
        batch = sharding.put_batch(job.batch(step, whole=True), job.mesh)
        state, _ = job.steps['train'](state, batch, *arguments)
    found.append(jax.device_get(state.params))
  assert job.total_steps == 20
  jax.tree.map(
    lambda ours, theirs: np.testing.assert_allclose(ours, theirs, atol=1e-6),
    *found,
  )


@pytest.mark.slow  # compiles
def test_a_recipe_is_run_once_and_summed(
  small, small_bert, sesame_data, tmp_path, monkeypatch
):
  arguments = argparse.Namespace(
    weights=str(small_bert),
    data=str(sesame_data),
    layers=[1],
    tasks=SIZES,
    seeds=2,
    recipes=['bert 5e-5'],
    batch=8,
    output=tmp_path / 'out.json',
  )
  recipes.learn(arguments)
  written = json.loads(arguments.output.read_text())
  assert len(written['runs']) == 4
  assert {entry['steps'] for entry in written['runs']} == {2}
  setting = '1 layers, 16 examples, batch 8'
  found = written['summary'][setting]['bert 5e-5']['stsb']
  values = [
    entry['metrics']['spearman']
    for entry in written['runs']
    if entry['task'] == 'stsb'
  ]
  assert found == pytest.approx(
    {
      'mean': np.mean(values),
      'deviation': np.std(values, ddof=1),
      'runs': 2,
      'no_better': 0,
    }
  )
  monkeypatch.setattr(recipes.Programs, 'run', None)
  recipes.learn(arguments)
  monkeypatch.setattr(recipes, 'LENGTHS', (32, 64))
  with pytest.raises(ValueError, match='its runs had settings'):
    recipes.learn(arguments)


def test_a_cut_vocabulary_reads_the_same(
  small, small_bert, sesame_data, tmp_path
):
  recipes.cut_vocabulary(small_bert, str(sesame_data), SIZES, tmp_path)
  before, after = (
    (folder / 'vocab.txt').read_text().split('\n')
    for folder in (small_bert, tmp_path)
  )
  assert len(after) < len(before)
  ours, theirs = (
    recipes.read('rte', folder, str(sesame_data), 16)
    for folder in (tmp_path, small_bert)
  )
  for row, same in zip(ours, theirs, strict=True):
    assert [after[i] for i in row] == [before[i] for i in same]
