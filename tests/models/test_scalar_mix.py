"""The mix beside its formula in float64, over every model's layers."""

import functools

import bert_cases
import elmo_cases
import gpt_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from configs import base
from models import features, scalar_mix

L, B, T, D = 3, 4, 6, 10
MASK = np.arange(T) < np.array([[6], [2], [0], [5]])


def make_layers(seed=0):
  """Float32 layers of different means and sizes, padding far off."""
  rng = np.random.default_rng(seed)
  scales = np.array([0.5, 1.0, 4.0])[:, None, None, None]
  layers = scales * rng.normal(0.7, 1, (L, B, T, D))
  return np.where(MASK[:, :, None], layers, 9.0).astype(np.float32)


def make_params(seed=1):
  rng = np.random.default_rng(seed)
  return {
    'mix_weights': rng.normal(0, 1, L).astype(np.float32),
    'mix_scale': np.float32(1.7),
  }


def formula(params, layers, mask, layer_norm):
  """Equation 1 as bilm-tf's weight_layers computes it, in float64."""
  weights = np.asarray(params['mix_weights'], np.float64)
  shares = np.exp(weights) / np.exp(weights).sum()
  layers = np.asarray(layers, np.float64)
  result = np.zeros(layers.shape[1:])
  for share, layer in zip(shares, layers, strict=True):
    if layer_norm:
      real = layer[mask]
      layer = (layer - real.mean()) / np.sqrt(real.var() + 1e-12)
    result += share * layer
  return np.float64(params['mix_scale']) * result


@functools.partial(jax.jit, static_argnums=0)
def apply(mix, params, layers, mask=MASK):
  return mix.apply({'params': params}, layers, mask)


@pytest.mark.parametrize('layer_norm', [False, True])
def test_is_equation_1(layer_norm):
  mix = scalar_mix.ScalarMix(L, layer_norm=layer_norm)
  params, layers = make_params(), make_layers()
  expected = formula(params, layers, MASK, layer_norm)
  mixed = apply(mix, params, layers)
  assert mixed.dtype == jnp.float32
  # At masked positions too: nothing is made zero there.
  assert np.abs(expected[~MASK]).min() > 0.1
  np.testing.assert_allclose(mixed, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize('layer_norm', [False, True])
def test_only_the_dtype_of_the_result_is_the_layers(layer_norm):
  mix = scalar_mix.ScalarMix(L, layer_norm=layer_norm)
  params, layers = make_params(), make_layers().astype(jnp.bfloat16)
  mixed = apply(mix, params, layers)
  assert mixed.dtype == jnp.bfloat16
  expected = formula(params, layers, MASK, layer_norm)
  # One rounding, at the end.
  np.testing.assert_allclose(
    np.asarray(mixed, np.float64), expected, rtol=2**-8, atol=1e-5
  )


@pytest.mark.parametrize('layer_norm', [False, True])
def test_gradient_equals_differences_of_the_formula(layer_norm):
  mix = scalar_mix.ScalarMix(L, layer_norm=layer_norm)
  params, layers = make_params(), make_layers()
  target = np.random.default_rng(2).normal(size=(B, T, D))
  gradient = jax.jit(
    jax.grad(lambda params: jnp.vdot(apply(mix, params, layers), target))
  )(params)

  def difference(name, step):
    below, above = (
      np.vdot(
        formula(
          {**params, name: np.float64(params[name]) + sign * step},
          layers,
          MASK,
          layer_norm,
        ),
        target,
      )
      for sign in (-1, 1)
    )
    return (above - below) / 2e-5

  steps = 1e-5 * np.eye(L)
  weights = [difference('mix_weights', step) for step in steps]
  np.testing.assert_allclose(gradient['mix_weights'], weights, atol=1e-3)
  assert np.abs(weights).min() > 0.1
  scale = difference('mix_scale', 1e-5)
  np.testing.assert_allclose(gradient['mix_scale'], scale, atol=1e-3)


def test_starts_as_the_plain_mean_with_a_rule_for_each_axis():
  mix = scalar_mix.ScalarMix(L)
  layers = make_layers()
  boxed = jax.jit(mix.init)(jax.random.key(0), layers, MASK)['params']
  rules = dict(base.get_config().mesh.rules)
  for box in boxed.values():
    assert box.value.dtype == jnp.float32
    assert len(box.names) == box.value.ndim
    assert set(box.names) <= set(rules)
  params = nn.meta.unbox(boxed)
  assert jax.tree.map(jnp.shape, params) == {
    'mix_weights': (L,),
    'mix_scale': (),
  }
  assert (params['mix_weights'] == 0).all() and params['mix_scale'] == 1
  np.testing.assert_allclose(
    apply(mix, params, layers), layers.mean(0), atol=1e-5
  )


@pytest.mark.parametrize('layer_norm', [False, True])
def test_masked_positions_do_not_reach_the_others(layer_norm):
  mix = scalar_mix.ScalarMix(L, layer_norm=layer_norm)
  params, layers = make_params(), make_layers()
  other = np.where(MASK[:, :, None], layers, np.float32(np.inf))
  np.testing.assert_array_equal(
    np.asarray(apply(mix, params, layers))[MASK],
    np.asarray(apply(mix, params, other))[MASK],
  )


def test_norm_is_of_the_whole_batch():
  """One mean and variance a layer, of unmasked entries: not one a position."""
  mix = scalar_mix.ScalarMix(1, layer_norm=True)
  params = {'mix_weights': np.zeros(1), 'mix_scale': np.float32(1)}
  mixed = np.asarray(apply(mix, params, make_layers()[2:]))
  assert abs(mixed[MASK].mean()) < 1e-6
  assert abs(mixed[MASK].std() - 1) < 1e-6
  assert np.abs(mixed[MASK].mean(-1)).max() > 0.1


def test_a_batch_of_padding_is_finite():
  mix = scalar_mix.ScalarMix(L, layer_norm=True)
  layers = np.zeros((L, B, T, D), np.float32)
  value, gradient = jax.jit(
    jax.value_and_grad(
      lambda params: apply(mix, params, layers, np.zeros_like(MASK)).sum()
    )
  )(make_params())
  assert value == 0
  assert all(np.isfinite(leaf).all() for leaf in gradient.values())


def test_top_only():
  mix = scalar_mix.ScalarMix(L, layer_norm=True, use_top_only=True)
  layers = make_layers()
  params = nn.meta.unbox(
    jax.jit(mix.init)(jax.random.key(0), layers, MASK)['params']
  )
  assert list(params) == ['mix_scale']
  np.testing.assert_array_equal(apply(mix, params, layers), layers[-1])
  params = {'mix_scale': np.float32(3)}
  np.testing.assert_array_equal(apply(mix, params, layers), 3 * layers[-1])
  assert scalar_mix.regularisation(params, 0.1) == 0


# Over the models' layers


def mixed_and_expected(layers, mask):
  mix = scalar_mix.ScalarMix(len(layers), layer_norm=True)
  weights = np.linspace(-1, 1, len(layers), dtype=np.float32)
  params = {'mix_weights': weights, 'mix_scale': np.float32(0.8)}
  mixed = np.asarray(apply(mix, params, layers, mask))
  return mixed, formula(params, layers, np.asarray(mask), True)


def test_over_elmo():
  model = elmo_cases.make_model()
  params = elmo_cases.init_params(model)
  ids, lengths = elmo_cases.make_ids()
  layers, _ = elmo_cases.embed(model, params, ids, lengths)
  mask = np.arange(ids.shape[1]) < lengths[:, None]
  mixed, expected = mixed_and_expected(layers, mask)
  assert mixed.shape == (*mask.shape, 2 * model.projection_dim)
  np.testing.assert_allclose(mixed, expected, atol=1e-5)


@pytest.mark.parametrize('name', ['bert', 'gpt'])
def test_over_transformers(name):
  if name == 'bert':
    cases, params = bert_cases, bert_cases.init_params()
  else:
    cases, params = gpt_cases, gpt_cases.init_params(False)
  model, batch = cases.make_model(), cases.make_batch()
  layers = jax.jit(
    lambda params, *inputs: features.hidden_layers(model, params, *inputs)
  )(params, *[batch[key] for key in cases.INPUTS])
  mixed, expected = mixed_and_expected(layers, batch['token_mask'])
  assert mixed.shape == layers.shape[1:]
  np.testing.assert_allclose(mixed, expected, atol=1e-5)


# Several mixes, and their penalty


class Task(nn.Module):
  """Adds a layer to one mix and puts another beside it."""

  @nn.compact
  def __call__(self, layers_LBTD, mask_BT):
    x = scalar_mix.ScalarMix(L, name='input_mix')(layers_LBTD, mask_BT)
    x = nn.Dense(D, name='dense')(x)
    y = scalar_mix.ScalarMix(L, name='output_mix')(layers_LBTD, mask_BT)
    return jnp.concatenate([x, y], axis=-1)


def make_task():
  task, layers = Task(), make_layers()
  boxed = jax.jit(task.init)(jax.random.key(0), layers, MASK)['params']
  return task, layers, boxed


def test_two_mixes_are_independent():
  task, layers, boxed = make_task()
  params = nn.meta.unbox(boxed)
  assert set(params) == {'input_mix', 'dense', 'output_mix'}
  changed = params | {'output_mix': make_params()}
  before, after = (
    np.asarray(apply(task, each, layers)) for each in (params, changed)
  )
  np.testing.assert_array_equal(before[..., :D], after[..., :D])
  assert np.abs(before[..., D:] - after[..., D:]).min() > 0


def test_penalty_is_of_the_weights_of_every_mix():
  task, layers, boxed = make_task()
  assert scalar_mix.regularisation(boxed, 0.5) == 0
  params = nn.meta.unbox(boxed)
  first, second = make_params(3), make_params(4)
  params |= {'input_mix': first, 'output_mix': second}
  expected = 0.25 * sum(
    np.square(mix['mix_weights'], dtype=np.float64).sum()
    for mix in (first, second)
  )
  penalty, gradient = jax.device_get(
    jax.jit(jax.value_and_grad(scalar_mix.regularisation))(params, 0.25)
  )
  assert penalty.dtype == jnp.float32
  np.testing.assert_allclose(penalty, expected, rtol=1e-6)
  for name, mix in (('input_mix', first), ('output_mix', second)):
    np.testing.assert_allclose(
      gradient[name]['mix_weights'], 0.5 * mix['mix_weights'], rtol=1e-6
    )
    assert gradient[name]['mix_scale'] == 0
  assert (gradient['dense']['kernel'] == 0).all()
  # The task's own loss reaches both as well.
  gradient = jax.device_get(
    jax.jit(
      jax.grad(lambda params: jnp.square(apply(task, params, layers)).sum())
    )(params)
  )
  for name in ('input_mix', 'output_mix'):
    assert (gradient[name]['mix_weights'] != 0).all()


def test_refusals():
  layers = make_layers()
  with pytest.raises(ValueError, match=r'expected \[4, B, T, D\]'):
    scalar_mix.ScalarMix(4).init(jax.random.key(0), layers, MASK)
  with pytest.raises(ValueError, match=r'the mask is \(6, 4\)'):
    scalar_mix.ScalarMix(L).init(jax.random.key(0), layers, MASK.T)
  with pytest.raises(ValueError, match='no ScalarMix among these 1 parameters'):
    scalar_mix.regularisation({'dense': {'kernel': layers}}, 0.1)
