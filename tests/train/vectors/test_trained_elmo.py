"""Workdirs and released weights of an ELMo, to embed sentences with."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from small_elmo import SIZES, random_params, small_elmo

from models import elmo
from models.pretrained import elmo as pretrained
from train.params import opened
from train.run import checkpoint
from train.vectors.trained_model import TrainedModel


@pytest.fixture(scope='module')
def small():
  return small_elmo()


@pytest.fixture
def weights(small, tmp_path):
  """A folder of released weights, to be spoilt."""
  pretrained.write_folder(tmp_path / 'weights', *small)
  return tmp_path / 'weights'


def test_weights_come_without_their_softmax(tmp_path):
  model = elmo.Elmo(vocab_size=33, **SIZES)
  params = random_params(model)
  pretrained.write_folder(tmp_path, model, params)
  found = TrainedModel(tmp_path)
  assert found.model == model.clone(vocab_size=0)
  assert found.params.keys() == params.keys() - {'softmax'}


def test_inputs_are_those_of_the_module(weights):
  model = TrainedModel(weights)
  texts = ['A man eats.', 'Stocks fell', '']
  ids_BTC, lengths_B = model.inputs(texts)
  assert ids_BTC.shape == (3, 6, 50) and lengths_B.tolist() == [6, 4, 2]
  vectors_LBTD, _ = model.model.apply(
    {'params': model.params}, ids_BTC, lengths_B
  )
  words = [['A', 'man', 'eats', '.'], ['Stocks', 'fell'], []]
  for number, expected in model.words(words):
    rows = vectors_LBTD[:, number, 1 : len(words[number]) + 1]
    np.testing.assert_allclose(rows, expected.array, rtol=0, atol=1e-5)


def test_weights_that_cannot_be_used_are_named(small, weights, tmp_path):
  file = weights / 'lm_weights.hdf5'
  data = file.read_bytes()
  file.write_bytes(data[: len(data) // 2])
  with pytest.raises(ValueError, match='lm_weights.hdf5 is damaged or no HDF5'):
    TrainedModel(weights)
  model, params = small
  spoilt = {**params, 'layers_1': dict(params['layers_1'])}
  spoilt['layers_1']['bias'] = params['layers_1']['bias'] * np.float32(np.nan)
  pretrained.write_folder(weights, model, spoilt)
  with pytest.raises(ValueError, match='LSTMCell/B holds numbers that'):
    _ = TrainedModel(weights).params
  options = weights / 'options.json'
  pretrained.write_folder(weights, *small)
  options.write_text(options.read_text().replace('"dim": 11', '"dim": 12'))
  with pytest.raises(ValueError, match='lstm.dim is 12, the weights have 11'):
    TrainedModel(weights)
  with pytest.raises(
    FileNotFoundError, match='neither a workdir of train.main'
  ):
    TrainedModel(tmp_path)


def test_words_that_nobody_tells_are_refused(tmp_path):
  model = elmo.Elmo(
    vocab_size=0, num_words=9, lstm_dim=11, projection_dim=6, filters=()
  )
  shapes = jax.eval_shape(
    model.init, jax.random.key(0), jnp.zeros((1, 1), int), jnp.ones(1, int)
  )
  params = jax.tree.map(
    lambda leaf: np.ones(leaf.shape, np.float32), nn.unbox(shapes['params'])
  )
  pretrained.write_folder(tmp_path, model, params)
  with pytest.raises(ValueError, match='has a table of 9 words in place of'):
    TrainedModel(tmp_path)


def test_workdirs(tmp_path, monkeypatch):
  """Of a run that has a softmax, of which nothing is read."""
  model = elmo.Elmo(vocab_size=33, dropout_rate=0.5, **SIZES)
  params = random_params(model)
  (tmp_path / 'config.json').write_text('{"model": {"name": "elmo"}}')
  with checkpoint.Checkpoints(tmp_path, keep=1) as checkpoints:
    checkpoints.save(3, {'params': jax.device_put(params), 'step': np.int32(3)})

  def build_model(config, vocab_size):
    assert config.name == 'elmo'
    return model.clone(vocab_size=vocab_size)

  monkeypatch.setattr(
    opened.families,
    'build_model',
    lambda config, size: build_model(config.model, size),
  )
  monkeypatch.setattr(
    opened.tokenization,
    'load',
    lambda folder: types.SimpleNamespace(
      vocab_size=33,
      softmax_size=33,
      split='marks',
      whole_words=True,
      pieces=[''] * 33,
      continuations=lambda: None,
      **dict.fromkeys(('pad_id', 'cls_id', 'sep_id', 'mask_id', 'unk_id'), 2),
    ),
  )
  found = TrainedModel(tmp_path)
  assert found.model == model.clone(vocab_size=0)
  assert found.tokenizer.split == 'marks'
  expected = {key: leaf for key, leaf in params.items() if key != 'softmax'}
  jax.tree.map(np.testing.assert_array_equal, found.params, expected)
  ((_, vectors),) = found.words([['a', 'cat']])
  assert vectors.array.shape == (3, 2, 12)


def test_a_file_that_is_no_config_is_named(tmp_path):
  (tmp_path / 'config.json').write_text('{"optim": {}}')
  with pytest.raises(ValueError, match='config.json: not the config of a run'):
    TrainedModel(tmp_path)
