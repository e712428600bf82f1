"""ELMo reading on in two texts a row, as it is trained."""

import functools

import bert_cases
import elmo_cases
import jax
import numpy as np
import pytest

from models import elmo

B, T = 3, 10


def make_batch(model):
  """Words, characters, targets, cell, hidden; words come again."""
  rng = np.random.default_rng(0)
  words = rng.integers(0, 12, (2, B, T))
  spellings, _ = elmo_cases.make_ids((12,), 12)
  characters = None if model.num_words else spellings[0][words]
  targets = rng.integers(0, elmo_cases.VOCAB_SIZE, (2, B, T))
  state = elmo_cases.make_state(model, B)
  cell, hidden = (np.moveaxis(array, 2, 0) for array in state)
  return words, characters, targets, cell, hidden


@functools.partial(jax.jit, static_argnums=0)
def read_on(model, params, batch, rngs=None):
  return model.apply(
    {'params': params},
    *batch,
    train=rngs is not None,
    rngs=rngs,
    method='read_on',
  )


@functools.partial(jax.jit, static_argnums=0)
def gradient(model, params, batch):
  return jax.grad(
    lambda params: read_on(model, params, batch)['losses'].mean()
  )(params)


def keys(dropout=0, samples=0):
  return {
    'dropout': jax.random.key(dropout),
    'samples': jax.random.key(samples),
  }


@pytest.mark.slow
def test_losses_and_gradients_are_those_of_all_words_one_by_one():
  model = elmo_cases.make_model()
  params = elmo_cases.init_params(model)
  batch = make_batch(model)
  _, characters, targets, cell, hidden = batch
  found = read_on(model, params, batch)
  state = elmo.State(np.moveaxis(cell, 0, 2), np.moveaxis(hidden, 0, 2))
  _, (_, after, logits), expected = elmo_cases.run(
    model, params, characters, targets, state
  )
  scores = np.asarray(jax.nn.log_softmax(logits))
  losses = -np.take_along_axis(scores, targets[..., None], axis=-1)[..., 0]
  assert found['losses'].shape == (2, B, T)
  np.testing.assert_allclose(found['losses'], losses, atol=1e-5)
  for name, array in after._asdict().items():
    np.testing.assert_allclose(
      found[name], np.moveaxis(array, 2, 0), atol=1e-6, err_msg=name
    )
  bert_cases.assert_close(gradient(model, params, batch), expected, 1e-5)


def test_two_halves_are_one_reading():
  model = elmo_cases.make_model()
  params = elmo_cases.init_params(model)
  *text, cell, hidden = make_batch(model)
  whole = read_on(model, params, (*text, cell, hidden))
  half = [array[:, :, : T // 2] for array in text]
  rest = [array[:, :, T // 2 :] for array in text]
  first = read_on(model, params, (*half, cell, hidden))
  second = read_on(model, params, (*rest, first['cell'], first['hidden']))
  losses = np.concatenate([first['losses'], second['losses']], axis=-1)
  np.testing.assert_allclose(losses, whole['losses'], atol=1e-5)
  for name in ('cell', 'hidden'):
    np.testing.assert_allclose(second[name], whole[name], atol=1e-6)
  # What was read before matters.
  forgetful = read_on(model, params, (*rest, cell, hidden))
  assert np.abs(forgetful['losses'] - second['losses']).max() > 0.01


def test_a_row_depends_on_itself_alone():
  model = elmo_cases.make_model()
  params = elmo_cases.init_params(model)
  batch = make_batch(model)
  L, F, P = model.num_layers, model.lstm_dim, model.projection_dim
  found = read_on(model, params, batch)
  assert found['cell'].shape == (B, L, 2, F)
  assert found['hidden'].shape == (B, L, 2, P)
  words, characters, targets, cell, hidden = batch
  for row in range(B):
    others = np.arange(B) != row
    for changed in (
      # Another word, that stands nowhere else.
      (
        _changed(words, (slice(None), row, 3), 50),
        _changed(characters, (slice(None), row, 3), 65),
        targets,
        cell,
        hidden,
      ),
      (words, characters, targets, _changed(cell, row, 0.1), hidden),
      (words, characters, targets, cell, _changed(hidden, row, 0.1)),
    ):
      other = read_on(model, params, changed)
      differs = np.abs(other['losses'] - found['losses'])
      assert differs[:, others].max() < 1e-6
      assert (differs[:, row].max(axis=-1) > 1e-4).all()  # in both directions
      for name in ('cell', 'hidden'):
        differs = np.abs(other[name] - found[name])
        assert differs[others].max() < 1e-6
        assert (differs[row].max(axis=-1) > 1e-6).all()


def _changed(array, where, value):
  array = array.copy()
  array[where] = value
  return array


def test_words_are_looked_up_without_characters():
  model = elmo_cases.make_model(num_words=elmo_cases.VOCAB_SIZE)
  params = elmo_cases.init_params(model)
  batch = make_batch(model)
  words, characters, targets, cell, hidden = batch
  assert characters is None
  found = read_on(model, params, batch)
  state = elmo.State(np.moveaxis(cell, 0, 2), np.moveaxis(hidden, 0, 2))
  x = params['encoder']['embedding'][words]
  top, _ = elmo_cases.run_streams(model, params, x, state)
  softmax = params['softmax']
  logits = top @ softmax['kernel'].T + softmax['bias']
  scores = np.asarray(jax.nn.log_softmax(logits[..., : elmo_cases.VOCAB_SIZE]))
  losses = -np.take_along_axis(scores, targets[..., None], axis=-1)[..., 0]
  np.testing.assert_allclose(found['losses'], losses, atol=1e-5)


def test_keys_draw_samples_and_dropout():
  model = elmo_cases.make_model(num_words=elmo_cases.VOCAB_SIZE, num_samples=20)
  params = elmo_cases.init_params(model)
  batch = make_batch(model)
  whole = read_on(model, params, batch)
  found = read_on(model, params, batch, keys())
  again = read_on(model, params, batch, keys())
  jax.tree.map(np.testing.assert_array_equal, found, again)
  others = read_on(model, params, batch, keys(samples=1))
  dropped = read_on(model, params, batch, keys(dropout=1))
  for other in (others, dropped, whole):
    assert (np.abs(other['losses'] - found['losses']) > 1e-4).mean() > 0.9
  # Samples are of the loss alone.
  np.testing.assert_array_equal(others['cell'], found['cell'])
  assert np.abs(dropped['cell'] - found['cell']).max() > 0.01


def test_each_direction_has_its_own_samples():
  model = elmo_cases.make_model(
    num_words=elmo_cases.VOCAB_SIZE, num_samples=20, dropout_rate=0.0
  )
  # Both towers the same, on the same text.
  params = dict(elmo_cases.init_params(model))
  for i in range(model.num_layers):
    params[f'layers_{i}'] = {
      name: np.stack([array[0]] * 2)
      for name, array in params[f'layers_{i}'].items()
    }
  words, characters, targets, cell, hidden = make_batch(model)
  batch = (
    np.stack([words[0]] * 2),
    characters,
    np.stack([targets[0]] * 2),
    np.stack([cell[:, :, 0]] * 2, axis=2),
    np.stack([hidden[:, :, 0]] * 2, axis=2),
  )
  forward, backward = read_on(model, params, batch)['losses']
  np.testing.assert_allclose(forward, backward, atol=1e-6)
  forward, backward = read_on(model, params, batch, keys())['losses']
  assert (np.abs(forward - backward) > 1e-3).mean() > 0.9


def test_without_samples_training_scores_all_words():
  model = elmo_cases.make_model(
    num_words=elmo_cases.VOCAB_SIZE, dropout_rate=0.0
  )
  params = elmo_cases.init_params(model)
  batch = make_batch(model)
  bert_cases.assert_close(
    read_on(model, params, batch, keys()), read_on(model, params, batch), 1e-6
  )
