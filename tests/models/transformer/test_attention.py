"""Attention beside its formula, whole and in blocks of query positions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import dropout
from models.transformer import attention

B, T, N, H = 2, 12, 3, 4
RATE = 0.25
draw_seeds = jax.jit(dropout.draw_seeds, static_argnums=1)


def keep_masks(seeds, heads, length):
  """Every head's dropout mask, by the mask's number."""
  return jnp.stack(
    [
      dropout.keep_mask(
        seeds.replace(mask=seeds.mask + head),
        (len(seeds.first), length, length),
        RATE,
      )
      for head in range(heads)
    ],
    axis=1,
  )


def plain(query, key, value, mask, seeds):
  """The formula, all of it kept for the backward pass."""
  weights = attention.masked_softmax(attention.score(query, key), mask)
  if seeds is not None:
    keep = keep_masks(seeds, query.shape[2], query.shape[1])
    weights = jnp.where(keep, weights / dropout.kept_share(RATE), 0)
  return jnp.einsum('BNTS,BSNH->BTNH', weights, value)


def make_arrays(kind):
  rng = np.random.default_rng(0)
  query, key, value = rng.normal(size=(3, B, T, N, H)).astype(np.float32)
  mask = np.arange(T) < np.array([T, 0])[:, None]  # the second: wholly masked
  mask = mask[:, None, None]
  if kind == 'causal':
    mask = mask & np.tri(T, dtype=bool)
  seeds = None
  if kind != 'kept':
    layer = dropout.salt(np.int32(5))
    seeds = draw_seeds(jax.random.key(0), (B,))
    seeds = seeds.replace(layer=layer, mask=2)
  return query, key, value, mask, seeds


@pytest.mark.parametrize('block', [128, 6, 5])
@pytest.mark.parametrize('kind', ['causal', 'padded', 'kept'])
def test_outputs_and_gradients_are_those_of_the_formula(
  kind, block, monkeypatch
):
  monkeypatch.setattr(attention, 'QUERY_BLOCK', block)
  *arrays, mask, seeds = make_arrays(kind)
  if block == 5:  # 4 is the largest divisor of 12
    assert '3,2,4,3,4' in str(
      jax.make_jaxpr(functools.partial(attention.attend, rate=RATE))(
        *arrays, mask=mask, seeds=seeds
      )
    )

  def total(attend, *arrays):
    context = attend(*arrays)
    return jnp.sum(jnp.sin(context) * context), context

  def ours(*arrays):
    return attention.attend(*arrays, mask, seeds, RATE if seeds else 0.0)

  def formula(*arrays):
    return plain(*arrays, mask, seeds)

  @jax.jit
  def compute(*arrays):
    return [
      jax.grad(total, argnums=(1, 2, 3), has_aux=True)(attend, *arrays)
      for attend in (ours, formula)
    ]

  results = jax.device_get(compute(*arrays))
  for got, expected in zip(*map(jax.tree.leaves, results), strict=True):
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
  assert (results[0][1][1] == 0).all()


def test_bfloat16_is_near():
  *arrays, mask, seeds = make_arrays('causal')
  exact = jax.jit(plain)(*arrays, mask, seeds)
  low = [array.astype(jnp.bfloat16) for array in arrays]
  attend = jax.jit(attention.attend, static_argnums=5)
  rounded = attend(*low, mask, seeds, RATE)
  assert rounded.dtype == jnp.bfloat16
  np.testing.assert_allclose(rounded, exact, atol=0.06)


def test_a_length_of_odd_factors_is_one_block():
  query = np.ones((1, 131, 1, 2), np.float32)
  program = str(
    jax.make_jaxpr(attention.attend, static_argnums=(4, 5))(
      query, query, query, np.ones((1, 1, 1, 131), bool), None, 0.0
    )
  )
  assert 'scan' not in program


def test_masked_softmax_gives_zeros_where_masked_and_no_nan():
  rng = np.random.default_rng(0)
  scores = 40 * rng.normal(size=(2, 1, 3, 5)).astype(np.float32)
  mask = np.ones((2, 1, 1, 5), bool)
  mask[0, ..., 3:] = False
  mask[1] = False  # wholly masked

  def total(scores):
    weights = attention.masked_softmax(scores, mask)
    return jnp.sum(weights**2), weights

  compute = jax.jit(jax.grad(total, has_aux=True))
  gradient, weights = jax.device_get(compute(scores))
  exps = np.exp(scores.astype(np.float64)[0, ..., :3])
  expected = exps / exps.sum(-1, keepdims=True)
  np.testing.assert_allclose(weights[0, ..., :3], expected, atol=1e-6)
  assert (weights[0, ..., 3:] == 0).all()
  assert (weights[1] == 0).all()
  assert np.isfinite(gradient).all()
  assert (gradient[1] == 0).all()
  assert (gradient[0] != 0).any()


def test_masks_of_heads_are_those_of_their_numbers(monkeypatch):
  """Without scores, one-hot values show each head's mask."""
  monkeypatch.setattr(attention, 'QUERY_BLOCK', 8)
  rows, length, heads = 3, 32, 4
  seeds = draw_seeds(jax.random.key(3), (rows,)).replace(mask=2)
  zeros = np.zeros((rows, length, heads, length), np.float32)
  values = np.broadcast_to(
    np.eye(length, dtype=np.float32)[:, None], zeros.shape
  )
  mask = np.ones((1, length), bool)

  @jax.jit
  def compute(seeds):
    context = attention.attend(zeros, zeros, values, mask, seeds, RATE)
    return context, keep_masks(seeds, heads, length)

  context, expected = jax.device_get(compute(seeds))
  shown = context.swapaxes(1, 2) * length * (1 - RATE)
  np.testing.assert_allclose(shown, expected, rtol=1e-6)
  assert 0.7 < expected.mean() < 0.8
