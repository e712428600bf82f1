"""A run that starts from the weights of a released ELMo."""

import json

import jax
import numpy as np
import pytest
import small_elmo
from elmo_store import (
  build_words,
  make_job,
  restore_params,
  small_elmo_config,
  write_topics,
)

from models.pretrained import elmo as pretrained_elmo
from models.pretrained import strict
from train import initial, loop


@pytest.fixture(scope='module')
def config(tmp_path_factory):
  folder = tmp_path_factory.mktemp('initial')
  store = build_words(write_topics(folder, 0, 12), folder / 'store')
  return small_elmo_config(
    store,
    optim__learning_rate=0.0,
    train__steps=1,
    train__global_batch=8,
    eval__global_batch=8,
  )


@pytest.fixture(scope='module')
def job(config):
  return make_job(config)[1]


@pytest.fixture(scope='module')
def released(job, tmp_path_factory):
  """A folder of options and weights of the config's sizes, and the weights."""
  model = job.model.clone(vocab_size=0)
  params = small_elmo.random_params(model)
  folder = tmp_path_factory.mktemp('released')
  pretrained_elmo.write_folder(folder, model, params)
  return folder, params


def test_all_but_the_softmax_is_the_released_weights(
  config, job, released, tmp_path
):
  folder, params = released
  workdir = tmp_path / 'workdir'
  with config.copy_and_resolve_references().unlocked() as changed:
    changed.init.weights = str(folder)
  loop.train(changed.lock(), workdir)  # a step of rate 0
  found = strict.flatten(restore_params(workdir, config))
  expected = strict.flatten(params)
  for name, leaf in found.items():
    if name.startswith('softmax/'):
      assert name not in expected
    else:
      np.testing.assert_array_equal(leaf, expected.pop(name), err_msg=name)
  assert not expected
  kernel = found['softmax/kernel'][: job.model.vocab_size]
  assert abs(np.std(kernel) * job.model.projection_dim**0.5 - 1) < 0.1


def fresh_params(job):
  return jax.tree.map(
    lambda leaf: np.zeros(leaf.shape, leaf.dtype), job.shapes.params
  )


def test_other_sizes_and_settings_are_refused_together(job, released):
  folder, _ = released
  model = job.model.clone(cell_clip=2.0)
  fresh = fresh_params(job)
  del fresh['layers_1']['bias']
  fresh['layers_0']['bias'] = np.zeros((2, 4, 7), np.float32)
  with pytest.raises(ValueError, match='does not fit the config') as error:
    initial.load(folder, model, fresh)
  for part in (
    'not known: layers_1/bias (2, 4, 24)',
    'layers_0/bias is (2, 4, 24), expected (2, 4, 7)',
    'cell_clip is 3.0 there, 2.0 in the config',
  ):
    assert part in str(error.value)


def test_damage_and_other_models_are_refused(job, released, tmp_path):
  folder, _ = released
  with pytest.raises(ValueError, match='is an ELMo, but the model is a object'):
    initial.load(folder, object(), fresh_params(job))
  for file in folder.iterdir():
    (tmp_path / file.name).write_bytes(file.read_bytes())
  options = json.loads((tmp_path / 'options.json').read_text())
  options['lstm']['dim'] = 25
  (tmp_path / 'options.json').write_text(json.dumps(options))
  with pytest.raises(ValueError, match='do not fit'):
    initial.load(tmp_path, job.model, fresh_params(job))
  (weights,) = tmp_path.glob('*.hdf5')
  weights.write_bytes(weights.read_bytes()[:500])
  with pytest.raises(ValueError, match='is damaged or no HDF5 file'):
    initial.load(tmp_path, job.model, fresh_params(job))


def test_nothing_there_is_said(job, tmp_path):
  with pytest.raises(FileNotFoundError, match='no complete checkpoint'):
    initial.check(tmp_path, None)
