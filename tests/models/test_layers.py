import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from flax import linen as nn

from models import layers


def test_gelus_are_the_formulas():
  x = np.linspace(-6, 6, 1001)
  phi = np.array([(1 + math.erf(v / math.sqrt(2))) / 2 for v in x])
  cubic = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
  erf, tanh = (
    np.asarray(jax.jit(layers.get_gelu(name))(x.astype(np.float32)))
    for name in ('erf', 'tanh')
  )
  np.testing.assert_allclose(erf, x * phi, atol=1e-6)
  np.testing.assert_allclose(tanh, 0.5 * x * (1 + np.tanh(cubic)), atol=1e-6)
  difference = np.abs(erf - tanh).max()
  assert 1e-4 < difference < 5e-4


@pytest.mark.parametrize('name', ['erf', 'tanh'])
def test_gelu_keeps_its_input_alone(name):
  gelu = layers.get_gelu(name)
  x = np.linspace(-5, 5, 101, dtype=np.float32)
  kept = jax.tree.leaves(jax.eval_shape(lambda x: jax.vjp(gelu, x)[1], x))
  assert [leaf.shape for leaf in kept] == [x.shape]
  exact = np.asarray(x, np.float64)
  if name == 'erf':
    density = np.exp(-(exact**2) / 2) / math.sqrt(2 * math.pi)
    expected = scipy.special.ndtr(exact) + exact * density
  else:
    scale = math.sqrt(2 / math.pi)
    tanh = np.tanh(scale * (exact + 0.044715 * exact**3))
    slope = scale * (1 + 3 * 0.044715 * exact**2)
    expected = (1 + tanh) / 2 + exact / 2 * (1 - tanh**2) * slope
  np.testing.assert_allclose(
    jax.jit(jax.grad(lambda x: gelu(x).sum()))(x), expected, atol=2e-6
  )


def test_a_gelu_near_that_of_erf():
  """Twelve times as near as the tanh approximation, its gradient seven."""
  x = np.linspace(-12, 12, 4_801)
  value = x * scipy.special.ndtr(x)
  slope = scipy.special.ndtr(x) + x * np.exp(-x * x / 2) / math.sqrt(
    2 * math.pi
  )
  wide = jnp.asarray(x, jnp.float32)
  gelu = layers.near_erf_gelu
  np.testing.assert_allclose(gelu(wide), value, atol=4e-5)
  found = jax.vmap(jax.grad(gelu))(wide)
  np.testing.assert_allclose(found, slope, atol=1.3e-4)
  half = gelu(wide.astype(jnp.bfloat16))
  assert half.dtype == jnp.bfloat16
  np.testing.assert_allclose(
    half.astype(jnp.float32), value, atol=0.011, rtol=2**-8
  )


@pytest.mark.parametrize(
  ('platform', 'dtype', 'is_near'),
  [
    ('tpu', jnp.bfloat16, True),
    ('tpu', jnp.float32, False),
    ('cpu', jnp.bfloat16, False),
  ],
)
def test_a_tpu_has_it_in_bfloat16(platform, dtype, is_near, monkeypatch):
  monkeypatch.setattr(layers, 'platform', lambda: platform)
  jax.clear_caches()  # of another platform's trace
  x = jnp.ones(3, dtype)
  program = str(jax.make_jaxpr(layers.get_gelu('erf'))(x))
  assert ('logistic' in program) == is_near


def test_unknown_gelu_is_refused():
  with pytest.raises(ValueError, match="'elu'.*'erf', 'relu', 'tanh'"):
    layers.get_gelu('elu')


@functools.partial(jax.jit, static_argnums=0)
def apply(module, params, x):
  return module.apply({'params': params}, x)


def draw(*shape):
  return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def draw_params(module, x):
  boxed = jax.eval_shape(module.init, jax.random.key(0), x)['params']
  rng = np.random.default_rng(1)
  return jax.tree.map(
    lambda leaf: rng.normal(0, 0.1, leaf.shape).astype(np.float32),
    nn.meta.unbox(boxed),
  )


def test_linear_contracts_the_named_axes():
  linear = layers.Linear(
    features=(5,), in_names=('heads', 'head'), out_names=('embed',)
  )
  x = draw(2, 3, 4, 6)
  params = draw_params(linear, x)
  params['bias'] = np.arange(5, dtype='f4')
  kernel = params['kernel']
  assert kernel.shape == (4, 6, 5)
  expected = x.reshape(2, 3, 24) @ kernel.reshape(24, 5)
  np.testing.assert_allclose(
    apply(linear, params, x), expected + np.arange(5.0), atol=1e-6
  )


def test_weights_start_as_bert_draws_them():
  draw = jax.jit(layers.truncated_normal, static_argnums=1)
  sample = draw(jax.random.key(0), (400, 400))
  assert np.abs(sample).max() <= 0.04 + 1e-6
  # A normal cut at two standard deviations has 0.8796 of its deviation.
  np.testing.assert_allclose(np.std(sample), 0.02 * 0.8796, rtol=0.01)


def test_linear_gives_its_weights_as_one_matrix():
  linear = layers.Linear(
    features=(3, 2, 4),
    in_names=('embed',),
    out_names=('qkv', 'heads', 'head'),
    dtype=jnp.bfloat16,
  )
  x = draw(2, 8)
  params = draw_params(linear, x)
  params['bias'] = np.arange(24, dtype='f4').reshape(3, 2, 4)
  kernel, bias = jax.jit(
    lambda params: linear.apply({'params': params}, (8,), method='weights')
  )(params)
  assert kernel.shape == (8, 24) and bias.shape == (1, 24)
  assert kernel.dtype == bias.dtype == jnp.bfloat16
  np.testing.assert_array_equal(
    kernel,
    params['kernel'].reshape(8, 24).astype(jnp.bfloat16),
  )
  np.testing.assert_array_equal(bias[0], np.arange(24.0))
  # A step hands over parameters whose axes it has joined.
  joined = {
    'kernel': params['kernel'].reshape(8, 24),
    'bias': params['bias'].reshape(1, 24),
  }
  np.testing.assert_array_equal(
    apply(linear, joined, x), apply(linear, params, x)
  )


def test_gradients_of_linear_are_those_of_the_formula():
  linear = layers.Linear(
    features=(5,), in_names=('heads', 'head'), out_names=('embed',)
  )
  x, wanted = draw(2, 3, 4, 6), draw(2, 3, 5)
  params = draw_params(linear, x)

  def ours(params, x):
    return jnp.sum(linear.apply({'params': params}, x) * wanted)

  def formula(params, x):
    y = jnp.einsum('BTNH,NHD->BTD', x, params['kernel']) + params['bias']
    return jnp.sum(y * wanted)

  results = [
    jax.jit(jax.grad(f, argnums=(0, 1)))(params, x) for f in (ours, formula)
  ]
  for got, expected in zip(*map(jax.tree.leaves, results), strict=True):
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def plain_scores(x, table, bias):
  return jnp.einsum('BPD,VD->BPV', x, table) + bias


@pytest.mark.parametrize('platform', ['cpu', 'tpu'])
@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_gradients_of_scores_are_those_of_the_plain_einsum(
  dtype, platform, monkeypatch
):
  monkeypatch.setattr(layers, 'platform', lambda: platform)
  rng = np.random.default_rng(0)
  x = rng.normal(size=(2, 3, 16)).astype(dtype)
  table = rng.normal(size=(128, 16)).astype(np.float32)
  bias = rng.normal(size=128).astype(np.float32)
  targets = rng.integers(0, 128, (2, 3))

  def loss(score, *arrays):
    logits = score(*arrays)
    assert logits.dtype == jnp.float32
    chosen = jnp.take_along_axis(
      jax.nn.log_softmax(logits), targets[..., None], axis=-1
    )
    return -chosen.sum(), logits

  (grads, logits), (expected_grads, expected) = (
    jax.jit(
      jax.grad(functools.partial(loss, score), argnums=(0, 1, 2), has_aux=True)
    )(*arrays)
    for score, arrays in (
      (layers.score_rows, (x, table, bias)),
      (plain_scores, (x.astype(np.float32), table, bias)),
    )
  )
  tolerance = 1e-5 if dtype == jnp.float32 else 0.05
  np.testing.assert_allclose(logits, expected, rtol=tolerance, atol=tolerance)
  for got, wanted, array in zip(
    grads, expected_grads, (x, table, bias), strict=True
  ):
    assert got.dtype == array.dtype and got.shape == array.shape
    np.testing.assert_allclose(
      np.float32(got), wanted, rtol=tolerance, atol=tolerance
    )


def test_padding_of_the_vocabulary_has_the_lowest_logit_and_no_gradient():
  table = layers.TokenTable(vocab_size=100, embed_dim=16)
  tokens = np.array([[1, 99, 5]])
  params = nn.meta.unbox(jax.jit(table.init)(jax.random.key(0), tokens))
  params = jax.tree.map(np.array, params['params'])
  assert (params['embedding'][100:] == 0).all()
  # Even where padding is not zero.
  params['embedding'][100:] = 1.0
  bias = np.ones(128, 'f4')
  x = draw(1, 3, 16)

  def loss(params, bias, x):
    logits = table.apply({'params': params}, x, bias, method='attend')
    return -jax.nn.log_softmax(logits)[..., 7].sum(), logits

  (by_params, by_bias, by_x), logits = jax.device_get(
    jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(params, bias, x)
  )
  assert logits.shape == (1, 3, 128)
  assert (logits[..., 100:] == np.finfo(np.float32).min).all()
  by_table = np.asarray(by_params['embedding'])
  assert (by_table[100:] == 0).all() and (by_table[:100] != 0).all()
  assert (np.asarray(by_bias)[100:] == 0).all()
  assert np.isfinite(by_x).all() and (np.asarray(by_x) != 0).all()


def test_dropout_of_a_table_has_one_mask_for_both_of_its_uses():
  class Both(nn.Module):
    """Looks tokens up, and scores unit vectors."""

    @nn.compact
    def __call__(self, tokens):
      table = layers.TokenTable(128, 8, dropout_rate=0.5, name='table')
      return table(tokens), table.attend(jnp.eye(8)[None])

  params = {'table': {'embedding': np.ones((128, 8), 'f4')}}
  found, scores = jax.device_get(
    jax.jit(Both().apply)(
      {'params': params},
      np.arange(128)[None],
      rngs={'dropout': jax.random.key(0)},
    )
  )
  assert set(np.unique(found)) == {0, 2}
  np.testing.assert_array_equal(found[0].T, scores[0])


def test_sums_by_products_are_the_sums(monkeypatch):
  x = draw(3, 5, 16).astype(jnp.bfloat16)
  plain = jax.jit(lambda x: layers.sum_rows(x.astype(jnp.float32)))(x)
  monkeypatch.setattr(layers, 'platform', lambda: 'tpu')
  assert layers.sums_by_products(x)
  sums = jax.jit(lambda x: layers.sum_rows(x))(x)
  assert sums.shape == (1, 16) and sums.dtype == jnp.bfloat16
  np.testing.assert_allclose(
    np.asarray(sums, np.float32), plain, rtol=2**-8, atol=1e-6
  )


def test_parameters_may_have_joined_axes_and_no_others():
  linear = layers.Linear((2, 3), ('embed',), ('heads', 'head'))
  x = np.ones((1, 4), 'f4')
  params = draw_params(linear, x)
  expected = apply(linear, params, x)
  joined = {'kernel': params['kernel'].reshape(4, 6), 'bias': params['bias']}
  np.testing.assert_array_equal(apply(linear, joined, x), expected)
  turned = joined | {'kernel': joined['kernel'].T}
  with pytest.raises(ValueError, match=r'kernel is \(6, 4\), expected \(4, 2'):
    apply(linear, turned, x)
