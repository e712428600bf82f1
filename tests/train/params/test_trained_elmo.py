"""Workdirs and released weights of an ELMo, to embed sentences with."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_published
from flax import linen as nn
from small_elmo import SIZES, random_params, small_elmo

from data.vocabulary import tokenization
from models import elmo
from models.pretrained import elmo as pretrained
from train.params import convert, opened, trained
from train.run import checkpoint
from train.vectors import elmo_vectors


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
  found, found_params, _ = trained.load_elmo(tmp_path)
  assert found == model.clone(vocab_size=0)
  assert found_params.keys() == params.keys() - {'softmax'}


def test_weights_that_cannot_be_used_are_named(small, weights, tmp_path):
  file = weights / 'lm_weights.hdf5'
  data = file.read_bytes()
  file.write_bytes(data[: len(data) // 2])
  with pytest.raises(ValueError, match='lm_weights.hdf5 is damaged or no HDF5'):
    trained.load_elmo(weights)
  model, params = small
  spoilt = {**params, 'layers_1': dict(params['layers_1'])}
  spoilt['layers_1']['bias'] = params['layers_1']['bias'] * np.float32(np.nan)
  pretrained.write_folder(weights, model, spoilt)
  with pytest.raises(ValueError, match='LSTMCell/B holds numbers that'):
    trained.load_elmo(weights)
  options = weights / 'options.json'
  pretrained.write_folder(weights, *small)
  options.write_text(options.read_text().replace('"dim": 11', '"dim": 12'))
  with pytest.raises(ValueError, match='lstm.dim is 12, the weights have 11'):
    trained.load_elmo(weights)
  with pytest.raises(
    FileNotFoundError, match='neither a workdir of train.main'
  ):
    trained.load_elmo(tmp_path)


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
    trained.load_elmo(tmp_path)


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
      softmax_size=33,
      split='marks',
      pieces=[''] * 33,
      continuations=lambda: None,
      **dict.fromkeys(('pad_id', 'cls_id', 'sep_id', 'mask_id', 'unk_id'), 2),
    ),
  )
  found, found_params, split = trained.load_elmo(tmp_path)
  assert found == model.clone(vocab_size=0) and split == 'marks'
  expected = {key: leaf for key, leaf in params.items() if key != 'softmax'}
  jax.tree.map(np.testing.assert_array_equal, found_params, expected)
  (vectors,) = elmo_vectors.embed_sentences(found, found_params, [['a', 'cat']])
  assert vectors.shape == (3, 2, 12)


def test_other_models_are_refused(tmp_path):
  tokenizer = tokenization.train(
    ['a word or two'] * 9, tokenization.parse_training('train:wordpiece:50')
  )
  small_published.write_bert(tmp_path / 'bert', tokenizer)
  convert.import_(tmp_path / 'bert', tmp_path / 'workdir')
  for folder in ('bert', 'workdir'):
    with pytest.raises(
      ValueError, match='holds a bert, expected the workdir of an elmo'
    ):
      trained.load_elmo(tmp_path / folder)
  (tmp_path / 'config.json').write_text('{"optim": {}}')
  with pytest.raises(ValueError, match='config.json: not the config of a run'):
    trained.load_elmo(tmp_path)
