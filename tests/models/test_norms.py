"""Layer norms beside the textbook formula in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import norms

EPSILON = 1e-12


def textbook(x, scale, bias, gradient=None, epsilon=EPSILON):
  """The layer norm, or its gradients (x, scale, bias), in float64."""
  x, scale, bias = (np.asarray(a, np.float64) for a in (x, scale, bias))
  deviations = x - x.mean(-1, keepdims=True)
  factor = 1 / np.sqrt((deviations**2).mean(-1, keepdims=True) + epsilon)
  y = deviations * factor
  if gradient is None:
    return y * scale + bias
  gradient = np.asarray(gradient, np.float64)
  scaled = gradient * scale
  by_x = factor * (
    scaled
    - scaled.mean(-1, keepdims=True)
    - y * (scaled * y).mean(-1, keepdims=True)
  )
  rows = tuple(range(x.ndim - 1))
  return by_x, (gradient * y).sum(rows), gradient.sum(rows)


def relative_error(ours, exact):
  """By Euclidean norms."""
  ours = np.asarray(ours, np.float64)
  return np.linalg.norm(ours - exact) / np.linalg.norm(exact)


def draw(dtype=jnp.float32, shape=(3, 5, 768)):
  rng = np.random.default_rng(0)
  scale, bias = rng.normal(size=(2, shape[-1]))
  arrays = (0.3 + 2 * rng.normal(size=shape), rng.normal(size=shape))
  x, gradient = (jnp.asarray(array, dtype) for array in arrays)
  return x, jnp.float32(scale), jnp.float32(bias), gradient


def run(x, scale, bias, gradient):
  """Returns the norm's output and its gradients."""
  module = norms.LayerNorm(EPSILON, x.dtype)

  def apply(x, scale, bias):
    return module.apply({'params': {'scale': scale, 'bias': bias}}, x)

  y, back = jax.vjp(apply, x, scale, bias)
  assert y.dtype == x.dtype
  return y, back(gradient)


def test_layer_norm_is_the_formula_with_float32_statistics():
  rng = np.random.default_rng(0)
  # A mean of 300 leaves bfloat16 no digits for the deviations' square.
  x = (300 + 4 * rng.normal(size=(5, 768))).astype(np.float32)
  scale, bias = rng.normal(size=(2, 768)).astype(np.float32)
  for dtype, tolerance in ((jnp.float32, 2e-4), (jnp.bfloat16, 3e-2)):
    given = np.asarray(jnp.asarray(x, dtype), np.float64)
    expected = textbook(given, scale, bias)
    norm = norms.LayerNorm(epsilon=EPSILON, dtype=dtype)
    out = norm.apply(
      {'params': {'scale': scale, 'bias': bias}}, jnp.asarray(x, dtype)
    )
    assert out.dtype == dtype
    np.testing.assert_allclose(
      np.asarray(out, np.float64), expected, atol=tolerance
    )


@pytest.mark.parametrize('shape', [(3, 5, 768), (2, 96), (4, 2, 3, 1024)])
def test_values_and_gradients_are_the_textbooks(shape):
  arrays = draw(shape=shape)
  y, gradients = run(*arrays)
  assert relative_error(y, textbook(*arrays[:3])) < 1e-6
  expected = textbook(*arrays)
  for got, exact in zip(gradients, expected, strict=True):
    assert got.shape == exact.shape
    assert relative_error(got, exact) < 1e-6


def test_bfloat16_is_near():
  arrays = draw(jnp.bfloat16)
  y, (by_x, by_scale, by_bias) = run(*arrays)
  assert relative_error(np.float32(y), textbook(*arrays[:3])) < 5e-3
  expected = textbook(*arrays)
  assert by_x.dtype == jnp.bfloat16
  assert by_scale.dtype == by_bias.dtype == jnp.float32
  for got, exact in zip((by_x, by_scale, by_bias), expected, strict=True):
    assert relative_error(np.float32(got), exact) < 5e-3


def test_epsilon_stands_beside_the_variance():
  x = jnp.asarray([[1.0, 1.0, 1.0, 1.0], [0.1, -0.1, 0.1, -0.1]])
  module = norms.LayerNorm(epsilon=0.01)
  params = module.init(jax.random.key(0), x)
  y = module.apply(params, x)
  np.testing.assert_allclose(y[0], 0, atol=1e-6)
  np.testing.assert_allclose(y[1], np.sqrt([0.5] * 4) * [1, -1, 1, -1], 1e-6)


def test_what_is_measured_and_read_later_is_the_norm():
  """A block measures its sum, the next one passes the norm."""
  x, scale, bias, gradient = draw()
  module = norms.LayerNorm(EPSILON)
  params = {'params': {'scale': scale, 'bias': bias}}

  def later(params, x):
    total = module.apply(params, x, method='measure')
    assert total.scale.shape == total.bias.shape == (1, 768)
    return norms.rescale(norms.standardize(total), jnp.float32)

  np.testing.assert_array_equal(later(params, x), module.apply(params, x))
  total = module.apply(params, x, method='measure')
  standard = norms.standardize(total)
  np.testing.assert_allclose(standard.x.mean(-1), 0, atol=1e-6)
  np.testing.assert_allclose(np.square(standard.x).mean(-1), 1, rtol=1e-5)
  by_total = norms.standardize_backward(standard, gradient)
  expected = textbook(x, scale, bias, gradient)
  for got, exact in zip(
    (by_total.x, by_total.scale[0], by_total.bias[0]), expected, strict=True
  ):
    assert relative_error(got, exact) < 1e-6


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_a_sum_identity_sum_has_the_identity_as_value_and_gradient(dtype):
  x, _, _, gradient = draw(dtype)
  y, back = jax.vjp(lambda x: norms.normalize(norms.identity_sum(x), dtype), x)
  np.testing.assert_array_equal(y, x)
  np.testing.assert_array_equal(back(gradient)[0], gradient)


def test_the_backward_pass_keeps_the_standardised_sum_alone():
  x, scale, bias, _ = draw(jnp.bfloat16)
  total = norms.LayerNorm(EPSILON).apply(
    {'params': {'scale': scale, 'bias': bias}}, x, method='measure'
  )
  back = jax.eval_shape(
    lambda total: jax.vjp(
      lambda total: norms.normalize(total, jnp.bfloat16), total
    )[1],
    total,
  )
  large = [leaf for leaf in jax.tree.leaves(back) if leaf.size >= x.size]
  assert [leaf.dtype for leaf in large] == [jnp.bfloat16]
