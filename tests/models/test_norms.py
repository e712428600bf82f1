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
  x, gradient = (array.astype(dtype) for array in arrays)
  return x, np.float32(scale), np.float32(bias), gradient


def run(x, scale, bias, gradient):
  """Returns the norm's output and its gradients."""
  module = norms.LayerNorm(EPSILON, x.dtype)

  def apply(x, scale, bias):
    return module.apply({'params': {'scale': scale, 'bias': bias}}, x)

  @jax.jit
  def compute(gradient, *arrays):
    y, back = jax.vjp(apply, *arrays)
    return y, back(gradient)

  y, gradients = jax.device_get(compute(gradient, x, scale, bias))
  assert y.dtype == x.dtype
  return y, gradients


def test_layer_norm_is_the_formula_with_float32_statistics():
  rng = np.random.default_rng(0)
  # A mean of 300 leaves bfloat16 no digits for the deviations' square.
  x = (300 + 4 * rng.normal(size=(5, 768))).astype(np.float32)
  scale, bias = rng.normal(size=(2, 768)).astype(np.float32)
  for dtype, tolerance in ((jnp.float32, 2e-4), (jnp.bfloat16, 3e-2)):
    given = x.astype(dtype).astype(np.float64)
    expected = textbook(given, scale, bias)
    norm = norms.LayerNorm(epsilon=EPSILON, dtype=dtype)
    out = jax.jit(norm.apply)(
      {'params': {'scale': scale, 'bias': bias}}, x.astype(dtype)
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
  x = np.array([[1, 1, 1, 1], [0.1, -0.1, 0.1, -0.1]], np.float32)
  module = norms.LayerNorm(epsilon=0.01)
  y, _ = jax.jit(module.init_with_output)(jax.random.key(0), x)
  y = np.asarray(y)
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

  @jax.jit
  def compute(params, x, gradient):
    total = module.apply(params, x, method='measure')
    standard = norms.standardize(total)
    by_total = norms.standardize_backward(standard, gradient)
    return later(params, x), module.apply(params, x), standard, by_total

  found, expected, standard, by_total = jax.device_get(
    compute(params, x, gradient)
  )
  np.testing.assert_array_equal(found, expected)
  np.testing.assert_allclose(standard.x.mean(-1), 0, atol=1e-6)
  np.testing.assert_allclose(np.square(standard.x).mean(-1), 1, rtol=1e-5)
  expected = textbook(x, scale, bias, gradient)
  for got, exact in zip(
    (by_total.x, by_total.scale[0], by_total.bias[0]), expected, strict=True
  ):
    assert relative_error(got, exact) < 1e-6


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_a_sum_identity_sum_has_the_identity_as_value_and_gradient(dtype):
  x, _, _, gradient = draw(dtype)

  @jax.jit
  def compute(x, gradient):
    y, back = jax.vjp(
      lambda x: norms.normalize(norms.identity_sum(x), dtype), x
    )
    return y, *back(gradient)

  y, by_x = compute(x, gradient)
  np.testing.assert_array_equal(y, x)
  np.testing.assert_array_equal(by_x, gradient)


def test_the_backward_pass_keeps_the_standardised_sum_alone():
  x, scale, bias, _ = draw(jnp.bfloat16)
  module = norms.LayerNorm(EPSILON)
  total = jax.eval_shape(
    lambda x: module.apply(
      {'params': {'scale': scale, 'bias': bias}}, x, method='measure'
    ),
    x,
  )
  back = jax.eval_shape(
    lambda total: jax.vjp(
      lambda total: norms.normalize(total, jnp.bfloat16), total
    )[1],
    total,
  )
  large = [leaf for leaf in jax.tree.leaves(back) if leaf.size >= x.size]
  assert [leaf.dtype for leaf in large] == [jnp.bfloat16]
