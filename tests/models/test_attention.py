"""Attention beside its formula, whole and in blocks of query positions."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from models import attention, layers

B, T, N, H = 2, 12, 3, 4
SHARE = 0.75


def plain(query, key, value, mask, keep):
  """The formula, all of it kept for the backward pass."""
  weights = attention.masked_softmax(attention.score(query, key), mask)
  if keep is not None:
    weights = jnp.where(keep, weights / SHARE, 0)
  return jnp.einsum('BNTS,BSNH->BTNH', weights, value)


def make_arrays(kind):
  rng = np.random.default_rng(0)
  query, key, value = rng.normal(size=(3, B, T, N, H)).astype(np.float32)
  mask = np.arange(T) < np.array([T, 0])[:, None]  # the second: wholly masked
  mask = mask[:, None, None]
  if kind == 'causal':
    mask = mask & attention.causal_mask(T, T, 0)
  keep = None
  if kind != 'kept':
    keep = rng.random((B, N, T, T)) < SHARE
  return query, key, value, mask, keep


@pytest.mark.parametrize('block', [128, 6, 5])
@pytest.mark.parametrize('kind', ['causal', 'padded', 'kept'])
def test_outputs_and_gradients_are_those_of_the_formula(
  kind, block, monkeypatch
):
  monkeypatch.setattr(attention, 'QUERY_BLOCK', block)
  *arrays, mask, keep = make_arrays(kind)
  if block == 5:  # 4 is the largest divisor of 12
    assert '3,2,4,3,4' in str(
      jax.make_jaxpr(functools.partial(attention.attend, share_kept=SHARE))(
        *arrays, mask=mask, keep_BNTS=keep
      )
    )

  def total(attend, *arrays):
    context = attend(*arrays)
    return jnp.sum(jnp.sin(context) * context), context

  def ours(*arrays):
    return attention.attend(*arrays, mask, keep, 1.0 if keep is None else SHARE)

  def formula(*arrays):
    return plain(*arrays, mask, keep)

  results = [
    jax.grad(total, argnums=(1, 2, 3), has_aux=True)(attend, *arrays)
    for attend in (ours, formula)
  ]
  for got, expected in zip(*map(jax.tree.leaves, results), strict=True):
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
  assert (np.asarray(results[0][1])[1] == 0).all()


def test_bfloat16_is_near():
  *arrays, mask, keep = make_arrays('causal')
  exact = plain(*arrays, mask, keep)
  low = [jnp.asarray(array, jnp.bfloat16) for array in arrays]
  rounded = attention.attend(*low, mask, keep, SHARE)
  assert rounded.dtype == jnp.bfloat16
  np.testing.assert_allclose(rounded, exact, atol=0.06)


def test_a_length_of_odd_factors_is_one_block():
  query = jnp.ones((1, 131, 1, 2))
  program = str(
    jax.make_jaxpr(attention.attend, static_argnums=(4, 5))(
      query, query, query, jnp.ones((1, 1, 1, 131), bool), None, 1.0
    )
  )
  assert 'scan' not in program


@pytest.mark.parametrize('rate', [0.0, 0.1])
def test_the_backward_pass_keeps_bytes_of_scores(rate):
  """Of the shape of the scores, nothing but dropout's decisions."""
  module = attention.SelfAttention(num_heads=N, dropout_rate=rate)
  x = jax.ShapeDtypeStruct((B, 256, N * H), jnp.float32)
  mask = jax.ShapeDtypeStruct((B, 1, 1, 256), bool)
  rng = jax.eval_shape(lambda: jax.random.key(0))
  params = jax.eval_shape(module.init, {'params': rng, 'dropout': rng}, x, mask)

  def residuals(params, x, mask, rng):
    def apply(params, x):
      return module.apply(params, x, mask, rngs={'dropout': rng})[0]

    return jax.vjp(apply, params, x)[1]

  kept = jax.tree.leaves(jax.eval_shape(residuals, params, x, mask, rng))
  large = [leaf for leaf in kept if leaf.size >= B * N * 256 * 256]
  assert all(leaf.dtype == bool for leaf in large)
  assert len(large) == (rate > 0)


@pytest.mark.parametrize('name', ['erf', 'tanh'])
def test_gelu_keeps_its_input_alone(name):
  gelu = layers.get_gelu(name)
  x = jnp.linspace(-5, 5, 101)
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
    jax.grad(lambda x: gelu(x).sum())(x), expected, atol=2e-6
  )
