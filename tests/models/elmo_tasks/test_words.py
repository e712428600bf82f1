"""The vectors of words below ELMo's task models."""

import functools

import jax
import numpy as np
import pytest
from flax import linen as nn

from models import char_cnn
from models.elmo_tasks import words

MASK = np.array([[True, True, False]])
LAYERS = np.random.default_rng(0).normal(size=(1, 3, 2, 4)).astype('f4')


def draw(model, *inputs, **arguments):
  init = jax.jit(functools.partial(model.init, **arguments))
  return jax.device_get(nn.unbox(init(jax.random.key(0), *inputs)['params']))


@functools.partial(jax.jit, static_argnums=0, static_argnames='train')
def apply(model, params, *inputs, rngs=None, **arguments):
  return model.apply({'params': params}, *inputs, rngs=rngs, **arguments)


@pytest.mark.parametrize('fixed', [False, True])
def test_a_table_is_read_and_perhaps_trained(fixed):
  rows = np.array([[3, 0, 3]])
  model = words.WordTable(5, 4, fixed=fixed)
  params = draw(model, rows)
  limit = np.sqrt(6 / 9)
  assert 0.7 * limit < np.abs(params['table']).max() < limit
  found, gradient = jax.jit(
    jax.value_and_grad(lambda params: apply(model, params, rows).sum())
  )(params)
  np.testing.assert_allclose(found, params['table'][rows].sum(), rtol=1e-5)
  expected = np.zeros((5, 4))
  if not fixed:
    expected[[0, 3]] = [[1], [2]]
  np.testing.assert_array_equal(gradient['table'], expected)


def test_characters_as_pytorchs_convolution(torch):
  characters = np.random.default_rng(0).integers(0, 256, (2, 3, 9))
  characters[..., 7:] = char_cnn.NO_CHARACTER
  model = words.CharacterWords(4, ((2, 3), (3, 5)))
  params = draw(model, characters)
  for i, width in enumerate((2, 3)):
    drawn = params[f'filters_{i}']
    limit = 1 / np.sqrt(4 * width)
    assert 0.5 * limit < np.abs(drawn['kernel']).max() <= limit
    assert 0 < np.abs(drawn['bias']).max() <= limit
  table = np.vstack([params['characters'], np.zeros((1, 4))]).astype('f4')
  embedded = torch.tensor(table[characters.reshape(6, 9)]).transpose(1, 2)
  expected = []
  for i in range(2):
    kernel, bias = (
      torch.tensor(np.array(params[f'filters_{i}'][name]))
      for name in ('kernel', 'bias')
    )
    scores = torch.nn.functional.conv1d(embedded, kernel.permute(2, 1, 0), bias)
    expected.append(scores.relu().max(dim=2).values)
  np.testing.assert_allclose(
    apply(model, params, characters),
    torch.cat(expected, 1).numpy().reshape(2, 3, 8),
    atol=1e-6,
  )


@pytest.mark.parametrize('rates', [(0.5, 0.0), (0.0, 0.5)])
def test_characters_are_dropped_below_or_above_the_filters(rates):
  """Wide rows: some maxima survive dropped characters, changed."""
  rng = np.random.default_rng(3)
  characters = rng.integers(1, 200, (2, 40, 9))
  model = words.CharacterWords(4, ((2, 6),), dropout_rates=rates)
  params = draw(model, characters)
  whole, again, dropped = (
    np.array(
      apply(
        model,
        params,
        characters,
        train=train,
        rngs={'dropout': jax.random.key(1)},
      )
    )
    for train in (False, False, True)
  )
  np.testing.assert_array_equal(whole, again)
  changed = np.abs(dropped - whole) > 1e-6
  doubled = np.isclose(dropped, 2 * whole, rtol=1e-5) | (dropped == 0)
  assert changed.mean() > 0.3
  assert doubled.all() == (rates[1] > 0)


def test_features_of_a_language_model():
  found, params = {}, {}
  for name in words.FEATURES:
    model = words.ContextualWords(2, features=name)
    params[name] = draw(model, LAYERS, MASK, train=False)['mix']
    found[name] = apply(
      model,
      {'mix': params[name] | {'mix_scale': np.float32(2)}},
      LAYERS,
      MASK,
      train=False,
    )
  # Only the mix has weights, and starts as the average; all have a scale.
  assert params['mix'].keys() == {'mix_weights', 'mix_scale'}
  assert params['last'].keys() == params['average'].keys() == {'mix_scale'}
  mean = 2 * LAYERS.mean(axis=2)
  np.testing.assert_allclose(found['mix'], mean, rtol=1e-5)
  np.testing.assert_allclose(found['average'], mean, rtol=1e-5)
  np.testing.assert_allclose(found['last'], 2 * LAYERS[:, :, 1], rtol=1e-6)


def test_dropout_and_layer_norm():
  model = words.ContextualWords(2, layer_norm=True, dropout_rate=0.5)
  layers = 5 + 3 * LAYERS
  params = draw(model, layers, MASK, train=False)
  whole = np.asarray(apply(model, params, layers, MASK, train=False))
  assert abs(whole[MASK].mean()) < 1e-5
  rngs = {'dropout': jax.random.key(1)}
  dropped = np.asarray(
    apply(model, params, layers, MASK, train=True, rngs=rngs)
  )
  kept = dropped != 0
  assert 0 < kept.mean() < 1
  np.testing.assert_allclose(dropped[kept], 2 * whole[kept], rtol=1e-5)


def test_unknown_features_are_refused():
  with pytest.raises(ValueError, match="features is 'first', expected one of"):
    words.ContextualWords(2, features='first').init(
      jax.random.key(0), LAYERS, MASK, train=False
    )
