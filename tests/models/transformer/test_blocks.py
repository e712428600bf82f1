"""The MLP and a block, values and gradients, beside their formulas."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from models import dropout, norms
from models.layers import get_gelu
from models.transformer import blocks

B, T, D, F, N = 2, 7, 32, 64, 4
EPSILON = 1e-12
RATE = 0.25


def draw(seed, shape, scale=1.0):
  rng = np.random.default_rng(seed)
  return (scale * rng.normal(size=shape)).astype(np.float32)


def draw_params(module, *inputs):
  """Returns parameters of which none is at 0 or 1."""
  boxed = jax.eval_shape(module.init, jax.random.key(1), *inputs)['params']
  leaves, tree = jax.tree.flatten(nn.meta.unbox(boxed))
  return tree.unflatten(
    [
      draw(i, leaf.shape, leaf.shape[0] ** -0.5)
      for i, leaf in enumerate(leaves)
    ]
  )


def plain_norm(x, params):
  deviations = x - x.mean(-1, keepdims=True)
  variance = jnp.square(deviations).mean(-1, keepdims=True)
  y = deviations / jnp.sqrt(variance + EPSILON)
  return y * params['scale'] + params['bias']


def plain_mlp(gelu, x, params):
  hidden = x @ params['in']['kernel'] + params['in']['bias']
  return (
    get_gelu(gelu)(hidden) @ params['out']['kernel'] + params['out']['bias']
  )


def plain_attention(x, params, mask, causal, seeds):
  weights = params['qkv']['kernel']
  qkv = jnp.einsum('BTD,DQNH->QBTNH', x, weights)
  query, key, value = qkv + params['qkv']['bias'][:, None, None]
  scores = jnp.einsum('BTNH,BSNH->BNTS', query, key) * (D // N) ** -0.5
  seen = jnp.broadcast_to(mask[:, None, None], scores.shape)
  if causal:
    seen = seen & np.tri(T, dtype=bool)
  scores = jax.nn.softmax(jnp.where(seen, scores, -1e9))
  keep = jnp.stack([plain_keep(seeds, 2 + n, (B, T, T)) for n in range(N)], 1)
  context = jnp.einsum('BNTS,BSNH->BTNH', scores * keep, value)
  out = params['out']
  return jnp.einsum('BTNH,NHD->BTD', context, out['kernel']) + out['bias']


def plain_keep(seeds, number, shape):
  """Returns what dropout multiplies by."""
  keep = dropout.keep_mask(seeds.replace(mask=number), shape, RATE)
  return keep / dropout.kept_share(RATE)


def plain_block(kind, params, x, mask, causal, seeds):
  """Returns hidden states by the formulas of BERT, or of GPT-2."""
  first, second = (plain_keep(seeds, i, (B, T, D)) for i in range(2))
  attend = functools.partial(
    plain_attention,
    params=params['attention'],
    mask=mask,
    causal=causal,
    seeds=seeds,
  )
  mlp = functools.partial(plain_mlp, 'tanh', params=params['mlp'])
  attention_norm, mlp_norm = params['attention_norm'], params['mlp_norm']
  if kind is blocks.PostNormBlock:
    x = plain_norm(x + first * attend(x), attention_norm)
    return plain_norm(x + second * mlp(x), mlp_norm)
  x = x + first * attend(plain_norm(x, attention_norm))
  return x + second * mlp(plain_norm(x, mlp_norm))


def assert_same_gradients(ours, formula, *arguments):
  """Compares what functions return beside a sum, and the sum's gradients."""

  @jax.jit
  def compute(*arguments):
    return [
      jax.grad(function, argnums=(0, 1), has_aux=True)(*arguments)
      for function in (ours, formula)
    ]

  results = jax.device_get(compute(*arguments))
  for got, expected in zip(*map(jax.tree.leaves, results), strict=True):
    largest = np.abs(expected).max()
    np.testing.assert_allclose(
      got / largest, expected / largest, rtol=0, atol=1e-5
    )


@pytest.mark.parametrize('causal', [False, True])
@pytest.mark.parametrize('kind', [blocks.PostNormBlock, blocks.PreNormBlock])
def test_a_block_and_its_gradients_are_the_formulas(kind, causal):
  block = kind(
    num_heads=N,
    mlp_dim=F,
    dropout_rate=RATE,
    attention_dropout_rate=RATE,
    causal=causal,
  )
  x, wanted = draw(0, (B, T, D)), draw(1, (B, T, D))
  mask = np.arange(T) < np.array([T, 4])[:, None]
  seeds = jax.jit(dropout.draw_seeds, static_argnums=1)(jax.random.key(0), (B,))
  seeds = seeds.replace(layer=dropout.salt(np.int32(7)))
  entered = jax.eval_shape(kind.enter, x)
  params = draw_params(block, entered, mask, seeds)

  def ours(params, x):
    result, (present, hidden) = block.apply(
      {'params': params}, kind.enter(x), mask, seeds
    )
    assert present is None and hidden is None
    y = kind.leave(result, jnp.float32)
    return jnp.sum(y * wanted), y

  def formula(params, x):
    y = plain_block(kind, params, x, mask, causal, seeds)
    return jnp.sum(y * wanted), y

  assert_same_gradients(ours, formula, params, x)


@pytest.mark.parametrize('gelu', ['erf', 'tanh', 'relu'])
def test_gradients_of_the_mlp_are_those_of_the_formula(gelu):
  """Also where norm and MLP are both read, as by a residual sum."""
  mlp, norm = blocks.Mlp(mlp_dim=F, gelu=gelu), norms.LayerNorm(EPSILON)
  x = draw(0, (B, T, D))
  params = {
    'norm': draw_params(norm, x),
    'mlp': draw_params(mlp, jax.eval_shape(norms.identity_sum, x)),
  }
  by_norm, by_mlp = draw(1, (B, T, D)), draw(2, (B, T, D))

  def ours(params, x):
    total = norm.apply({'params': params['norm']}, x, method='measure')
    normed, y = mlp.apply({'params': params['mlp']}, total)
    return jnp.sum(normed * by_norm + y * by_mlp), (normed, y)

  def formula(params, x):
    normed = plain_norm(x, params['norm'])
    y = plain_mlp(gelu, normed, params['mlp'])
    return jnp.sum(normed * by_norm + y * by_mlp), (normed, y)

  assert_same_gradients(ours, formula, params, x)


def test_the_mlp_keeps_one_array_of_its_width():
  """The first layer's result, and beside it the standardised sum [B, T, D]."""
  mlp = blocks.Mlp(mlp_dim=F)
  norm = norms.LayerNorm(EPSILON)
  weights = {'scale': np.ones(D, 'f4'), 'bias': np.ones(D, 'f4')}
  total = jax.eval_shape(
    lambda x: norm.apply({'params': weights}, x, method='measure'),
    draw(0, (B, T, D)),
  )
  params = jax.eval_shape(mlp.init, jax.random.key(0), total)
  back = jax.eval_shape(
    lambda params, total: jax.vjp(mlp.apply, params, total)[1], params, total
  )
  shapes = [leaf.shape for leaf in jax.tree.leaves(back)]
  assert shapes.count((B, T, F)) == 1
  assert shapes.count((B, T, D)) == 1
