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

pytestmark = pytest.mark.usefixtures('one_device')
SMALL = {'train.global_batch': 4, 'data.eval_limit': 8}


@pytest.fixture
def small(monkeypatch):
  """Runs of two steps on two tasks."""
  monkeypatch.setattr(recipes, 'SIZES', {'rte': 8, 'stsb': 8})
  monkeypatch.setattr(recipes, 'LENGTHS', (64,))
  monkeypatch.setattr(
    recipes, 'SHARED', recipes.SHARED | SMALL | {'train.num_epochs': 1.0}
  )


@pytest.mark.slow  # compiles
@pytest.mark.parametrize('optimizer', ['bert_adam', 'adamw'])
def test_the_rate_as_an_argument_is_that_of_the_config(
  optimizer, small, small_bert, sesame_data, tmp_path, monkeypatch
):
  monkeypatch.setitem(recipes.SHARED, 'train.num_epochs', 10.0)  # warms up
  config = recipes.config_of('rte', small_bert, str(sesame_data), 1, optimizer)
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
    tasks=['rte', 'stsb'],
    seeds=2,
    recipes=['bert 5e-5', 'corrected 5e-5'],
    output=tmp_path / 'out.json',
  )
  recipes.learn(arguments)
  written = json.loads(arguments.output.read_text())
  assert len(written['runs']) == 8
  assert {entry['steps'] for entry in written['runs']} == {2}
  found = written['summary']['1 layers']['bert 5e-5']
  values = [
    entry['metrics'][metric]
    for metric in ('accuracy', 'spearman')
    for entry in written['runs']
    if entry['recipe'] == 'bert 5e-5' and metric in entry['metrics']
  ]
  assert found['all']['mean'] == pytest.approx(np.mean(values))
  means = np.reshape(values, (2, 2)).mean(axis=0)
  assert found['all']['deviation'] == pytest.approx(np.std(means, ddof=1))
  assert found['rte']['mean'] == pytest.approx(np.mean(values[:2]))
  monkeypatch.setattr(recipes.Programs, 'run', None)
  recipes.learn(arguments)
  monkeypatch.setitem(recipes.SIZES, 'rte', 4)
  with pytest.raises(ValueError, match='its runs had train_limits'):
    recipes.learn(arguments)


def test_a_cut_vocabulary_reads_the_same(
  small, small_bert, sesame_data, tmp_path
):
  recipes.cut_vocabulary(small_bert, str(sesame_data), tmp_path)
  before, after = (
    (folder / 'vocab.txt').read_text().split('\n')
    for folder in (small_bert, tmp_path)
  )
  assert len(after) < len(before)
  ours, theirs = (
    recipes.read('rte', folder, str(sesame_data))
    for folder in (tmp_path, small_bert)
  )
  for row, same in zip(ours, theirs, strict=True):
    assert [after[i] for i in row] == [before[i] for i in same]
