import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.sharding import NamedSharding, PartitionSpec

from models import attention, layers


def test_gelus_are_the_formulas():
  x = np.linspace(-6, 6, 1001)
  phi = np.array([(1 + math.erf(v / math.sqrt(2))) / 2 for v in x])
  cubic = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
  erf = layers.get_gelu('erf')(x.astype(np.float32))
  tanh = layers.get_gelu('tanh')(x.astype(np.float32))
  np.testing.assert_allclose(erf, x * phi, atol=1e-6)
  np.testing.assert_allclose(tanh, 0.5 * x * (1 + np.tanh(cubic)), atol=1e-6)
  difference = np.abs(np.asarray(erf) - np.asarray(tanh)).max()
  assert 1e-4 < difference < 5e-4


def test_unknown_gelu_is_refused():
  with pytest.raises(ValueError, match="'relu'.*'erf', 'tanh'"):
    layers.get_gelu('relu')


@pytest.mark.parametrize('rate', [0.01, 0.1, 0.25, 0.5])
def test_dropout_keeps_its_rate_and_the_mean(rate):
  shape = (64, 128, 129)
  mask = layers.keep_mask(jax.random.key(3), shape, rate)
  size = mask.size
  dropped = size - int(mask.sum())
  # Exact probability, five standard deviations.
  exact = layers.drop_threshold(rate) / 2**16
  assert abs(exact - rate) < 1e-4 / 2
  bound = 5 * math.sqrt(size * exact * (1 - exact))
  assert abs(dropped - exact * size) < bound
  x = layers.dropout(jax.random.key(3), jnp.ones(shape), rate)
  values = np.unique(np.asarray(x))
  np.testing.assert_allclose(values, [0, 1 / (1 - exact)], rtol=1e-6)
  # Unbiased: the expectation of an element is exactly the element.
  np.testing.assert_allclose(values[1] * (1 - exact), 1, rtol=1e-6)
  np.testing.assert_array_equal(np.asarray(x) != 0, np.asarray(mask))


def test_dropout_decisions_are_independent():
  mask = np.asarray(layers.keep_mask(jax.random.key(0), (4096, 128), 0.5))
  z = 2.0 * mask - 1
  # The two decisions of one word, neighbours, rows, and another key's.
  other = 2.0 * layers.keep_mask(jax.random.key(1), z.shape, 0.5) - 1
  for a, b in (
    (z[:, :64], z[:, 64:]),
    (z[:, 1:], z[:, :-1]),
    (z[1:], z[:-1]),
    (z, np.asarray(other)),
  ):
    assert abs(np.mean(a * b)) < 5 / math.sqrt(a.size)


def test_dropout_needs_no_key_at_rate_0():
  x = jnp.ones((2, 3))
  assert layers.Dropout(0.0).apply({}, x) is x


@pytest.mark.parametrize('rate', [-0.1, 1.0, 0.999999])
def test_dropout_rate_is_checked(rate):
  with pytest.raises(ValueError, match='expected 0 <= rate < 1'):
    layers.keep_mask(jax.random.key(0), (4,), rate)


@pytest.mark.parametrize(
  'spec',
  [
    PartitionSpec('data'),
    PartitionSpec(None, 'tensor'),
    PartitionSpec('data', 'tensor'),
    PartitionSpec(None, None, None, ('data', 'tensor')),
  ],
)
def test_dropout_masks_do_not_depend_on_sharding(spec):
  shape = (8, 4, 16, 48)
  key = jax.random.key(7)
  alone = np.asarray(layers.keep_mask(key, shape, 0.1))
  devices = np.array(jax.devices()).reshape(4, 2)
  mesh = jax.sharding.Mesh(devices, ('data', 'tensor'))
  with jax.set_mesh(mesh):
    draw = jax.jit(
      lambda key: layers.keep_mask(key, shape, 0.1),
      out_shardings=NamedSharding(mesh, spec),
    )
    sharded = draw(key)
    text = draw.lower(key).compile().as_text()
  assert len(sharded.sharding.device_set) == 8
  np.testing.assert_array_equal(np.asarray(sharded), alone)
  if len(spec) < 4:  # the last axis is put together from two halves
    for collective in ('all-gather', 'all-reduce', 'collective-permute'):
      assert collective not in text


def test_layer_norm_is_the_formula_with_float32_statistics():
  rng = np.random.default_rng(0)
  # A mean of 300 leaves bfloat16 no digits for the deviations' square.
  x = (300 + 4 * rng.normal(size=(5, 768))).astype(np.float32)
  scale, bias = rng.normal(size=(2, 768)).astype(np.float32)
  for dtype, tolerance in ((jnp.float32, 2e-4), (jnp.bfloat16, 3e-2)):
    given = np.asarray(jnp.asarray(x, dtype), np.float64)
    deviations = given - given.mean(-1, keepdims=True)
    variance = (deviations**2).mean(-1, keepdims=True)
    expected = deviations / np.sqrt(variance + 1e-12) * scale + bias
    norm = layers.LayerNorm(epsilon=1e-12, dtype=dtype)
    out = norm.apply(
      {'params': {'scale': scale, 'bias': bias}}, jnp.asarray(x, dtype)
    )
    assert out.dtype == dtype
    np.testing.assert_allclose(
      np.asarray(out, np.float64), expected, atol=tolerance
    )


def test_linear_contracts_the_named_axes():
  linear = layers.Linear(
    features=(5,), in_names=('heads', 'head'), out_names=('embed',)
  )
  x = jax.random.normal(jax.random.key(0), (2, 3, 4, 6))
  params = nn.meta.unbox(linear.init(jax.random.key(1), x))
  params['params']['bias'] = jnp.arange(5.0)
  kernel = np.asarray(params['params']['kernel'])
  assert kernel.shape == (4, 6, 5)
  expected = np.asarray(x).reshape(2, 3, 24) @ kernel.reshape(24, 5)
  np.testing.assert_allclose(
    linear.apply(params, x), expected + np.arange(5.0), atol=1e-6
  )


def test_weights_start_as_bert_draws_them():
  sample = layers.truncated_normal(jax.random.key(0), (400, 400))
  assert np.abs(sample).max() <= 0.04 + 1e-6
  # A normal cut at two standard deviations has 0.8796 of its deviation.
  np.testing.assert_allclose(np.std(sample), 0.02 * 0.8796, rtol=0.01)


def test_masked_softmax_gives_zeros_where_masked_and_no_nan():
  scores = 40 * jax.random.normal(jax.random.key(0), (2, 1, 3, 5))
  mask = np.ones((2, 1, 1, 5), bool)
  mask[0, ..., 3:] = False
  mask[1] = False  # wholly masked

  def total(scores):
    return jnp.sum(attention.masked_softmax(scores, mask) ** 2)

  weights = np.asarray(attention.masked_softmax(scores, mask))
  exps = np.exp(np.asarray(scores, np.float64)[0, ..., :3])
  expected = exps / exps.sum(-1, keepdims=True)
  np.testing.assert_allclose(weights[0, ..., :3], expected, atol=1e-6)
  assert (weights[0, ..., 3:] == 0).all()
  assert (weights[1] == 0).all()
  gradient = np.asarray(jax.grad(total)(scores))
  assert np.isfinite(gradient).all()
  assert (gradient[1] == 0).all()
  assert (gradient[0] != 0).any()


def test_attention_is_the_formula():
  module = attention.SelfAttention(num_heads=2)
  x = jax.random.normal(jax.random.key(0), (2, 5, 8))
  mask = np.arange(5) < np.array([5, 3])[:, None]
  mask = mask[:, None, None, :]
  params = nn.meta.unbox(module.init(jax.random.key(1), x, mask))['params']
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), params
  )
  (out, _), sown = module.apply(
    {'params': params}, x, mask, mutable=['intermediates']
  )
  qkv, project, x = params['qkv'], params['out'], np.asarray(x)
  for b in range(2):
    expected = np.asarray(project['bias'], np.float64)
    for n in range(2):
      query, key, value = (
        x[b] @ qkv['kernel'][:, i, n] + qkv['bias'][i, n] for i in range(3)
      )
      scores = query @ key.T / math.sqrt(4)
      weights = np.exp(scores - scores.max()) * mask[b, 0]
      weights /= weights.sum(-1, keepdims=True)
      np.testing.assert_allclose(
        sown['intermediates']['attention'][0][b, n], weights, atol=1e-5
      )
      expected = expected + weights @ value @ project['kernel'][n]
    np.testing.assert_allclose(out[b], expected, atol=1e-4)


def test_attention_dropout_falls_on_the_probabilities():
  """With uniform attention, values of ones show which keys were dropped."""
  module = attention.SelfAttention(num_heads=1, dropout_rate=0.5)
  x = jnp.ones((1, 4, 2))
  mask = jnp.ones((1, 1, 1, 4), bool)
  params = {
    'qkv': {
      'kernel': jnp.zeros((2, 3, 1, 2)),
      'bias': jnp.ones((3, 1, 2)),
    },
    'out': {'kernel': jnp.eye(2)[None], 'bias': jnp.zeros(2)},
  }
  out, _ = module.apply(
    {'params': params}, x, mask, rngs={'dropout': jax.random.key(0)}
  )
  out = np.asarray(out)
  # Each kept key brings 1/4 / 0.5.
  kept = out / 0.5
  np.testing.assert_allclose(kept, np.round(kept), atol=1e-6)
  assert len(np.unique(kept.round())) > 1
  np.testing.assert_array_equal(out[..., 0], out[..., 1])
