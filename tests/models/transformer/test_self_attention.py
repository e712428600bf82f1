"""The attention module beside its formula, and the choice of its kernel."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from models import dropout, norms
from models.transformer import self_attention

identity_sum = jax.jit(norms.identity_sum)


@functools.partial(jax.jit, static_argnums=0, static_argnames='mutable')
def apply(module, params, *inputs, mutable=False):
  return module.apply({'params': params}, *inputs, mutable=mutable)


def draw(*shape):
  return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def draw_params(module, total, mask, scale=1.0):
  boxed = jax.eval_shape(module.init, jax.random.key(1), total, mask)['params']
  rng = np.random.default_rng(1)
  return jax.tree.map(
    lambda leaf: scale * rng.normal(size=leaf.shape).astype(np.float32),
    nn.meta.unbox(boxed),
  )


@pytest.mark.parametrize('null_key', [False, True])
def test_attention_is_the_formula(null_key):
  module = self_attention.SelfAttention(num_heads=2, null_key=null_key)
  x = draw(2, 5, 8)
  total = identity_sum(x)
  mask = np.arange(5) < np.array([5, 3])[:, None]
  params = draw_params(module, total, mask)
  (same, out, _), sown = jax.device_get(
    apply(module, params, total, mask, mutable=('intermediates',))
  )
  np.testing.assert_array_equal(same, x)
  unseen = apply(module, params, total, mask)[1]
  np.testing.assert_allclose(unseen, out, atol=1e-5)
  qkv, project = params['qkv'], params['out']
  for b in range(2):
    expected = np.asarray(project['bias'], np.float64)
    for n in range(2):
      query, key, value = (
        x[b] @ qkv['kernel'][:, i, n] + qkv['bias'][i, n] for i in range(3)
      )
      scores = query @ key.T / math.sqrt(4)
      highest = scores.max()
      weights = np.exp(scores - highest) * mask[b]
      summed = weights.sum(-1, keepdims=True)
      if null_key:  # its value is 0
        null = query @ params['null_key'][n] / math.sqrt(4)
        summed += np.exp(null - highest)[:, None]
      weights /= summed
      np.testing.assert_allclose(
        sown['intermediates']['attention'][0][b, n], weights, atol=1e-5
      )
      expected = expected + weights @ value @ project['kernel'][n]
    np.testing.assert_allclose(out[b], expected, atol=1e-4)


def test_a_null_key_stands_beside_cached_keys():
  module = self_attention.SelfAttention(num_heads=2, causal=True, null_key=True)
  x = draw(2, 5, 8)
  mask = np.ones((2, 5), bool)
  total = identity_sum(x)
  params = draw_params(module, total, mask, 0.1)
  _, expected, _ = apply(module, params, total, mask)
  past = np.zeros((4, 4, 5), 'f4'), np.zeros((4, 5, 4), 'f4')
  for first, last in ((0, 3), (3, 5)):
    total = identity_sum(x[:, first:last])
    seen = mask & (np.arange(5) < last)
    _, out, past = apply(module, params, total, seen, None, (*past, first))
    np.testing.assert_allclose(out, expected[:, first:last], atol=1e-5)


def test_the_kernel_has_no_null_key():
  module = self_attention.SelfAttention(2, attention='fused', null_key=True)
  with pytest.raises(ValueError, match='has no null key'):
    draw_params(module, identity_sum(draw(1, 128, 8)), np.ones((1, 128)))


def test_attention_reads_the_norm_of_its_sum():
  rng = np.random.default_rng(0)
  x = (3 + 2 * rng.normal(size=(2, 5, 8))).astype(np.float32)
  norm = norms.LayerNorm(1e-12)
  weights = {'scale': np.arange(8, dtype='f4'), 'bias': np.ones(8, 'f4')}
  total, normed = jax.jit(
    lambda x: (
      norm.apply({'params': weights}, x, method='measure'),
      norm.apply({'params': weights}, x),
    )
  )(x)
  module = self_attention.SelfAttention(num_heads=2)
  mask = np.ones((2, 5), bool)
  params = draw_params(module, total, mask, 0.02)
  for got, expected in zip(
    apply(module, params, total, mask)[:2],
    (normed, apply(module, params, identity_sum(normed), mask)[1]),
    strict=True,
  ):
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_attention_dropout_falls_on_the_probabilities():
  """With uniform attention, values of ones show which keys were dropped."""
  module = self_attention.SelfAttention(num_heads=1, dropout_rate=0.5)
  total = identity_sum(np.ones((1, 4, 2), 'f4'))
  mask = np.ones((1, 4), bool)
  params = {
    'qkv': {
      'kernel': np.zeros((2, 3, 1, 2), 'f4'),
      'bias': np.ones((3, 1, 2), 'f4'),
    },
    'out': {'kernel': np.eye(2, dtype='f4')[None], 'bias': np.zeros(2, 'f4')},
  }
  seeds = jax.jit(dropout.draw_seeds, static_argnums=1)(jax.random.key(0), (1,))
  seeds = seeds.replace(mask=2)
  _, out, _ = jax.device_get(apply(module, params, total, mask, seeds))
  # Each kept key brings 1/4 / 0.5.
  kept = out / 0.5
  np.testing.assert_allclose(kept, np.round(kept), atol=1e-6)
  assert len(np.unique(kept.round())) > 1
  np.testing.assert_array_equal(out[..., 0], out[..., 1])
  keep = jax.jit(dropout.keep_mask, static_argnums=(1, 2))
  expected = np.asarray(keep(seeds, (1, 4, 4), 0.5)).sum(axis=-1)
  np.testing.assert_allclose(kept[..., 0], expected, atol=1e-6)


@pytest.mark.parametrize('rate', [0.0, 0.1])
def test_the_backward_pass_keeps_nothing_of_the_scores_size(rate):
  """Of the shape of the scores: not even dropout's decisions."""
  B, N, H = 2, 3, 4
  module = self_attention.SelfAttention(num_heads=N, dropout_rate=rate)
  x = jax.ShapeDtypeStruct((B, 256, N * H), jnp.float32)
  total = jax.eval_shape(norms.identity_sum, x)
  mask = jax.ShapeDtypeStruct((B, 256), bool)
  rng = jax.eval_shape(lambda: jax.random.key(0))
  params = jax.eval_shape(module.init, rng, total, mask)

  def residuals(params, total, mask, rng):
    seeds = dropout.draw_seeds(rng, (B,)) if rate else None

    def apply(params, total):
      return module.apply(params, total, mask, seeds)[:2]

    return jax.vjp(apply, params, total)[1]

  kept = jax.tree.leaves(jax.eval_shape(residuals, params, total, mask, rng))
  assert not [leaf for leaf in kept if leaf.size >= B * N * 256 * 256]


def make_inputs(length=128, width=128):
  total = identity_sum(draw(2, length, width))
  return total, np.ones((2, length), bool)


@pytest.mark.parametrize('causal', [False, True])
def test_a_module_chooses_by_its_field(causal):
  total, mask = make_inputs()
  outputs = {}
  for kind in ('auto', 'plain', 'fused'):
    module = self_attention.SelfAttention(
      num_heads=2, causal=causal, attention=kind
    )
    params = draw_params(module, total, mask, 0.02)
    program = str(apply.trace(module, params, total, mask).jaxpr)
    assert ('pallas_call' in program) == (kind == 'fused')  # on a CPU
    outputs[kind] = apply(module, params, total, mask)[1]
  np.testing.assert_array_equal(outputs['auto'], outputs['plain'])
  np.testing.assert_allclose(
    outputs['fused'], outputs['plain'], rtol=1e-5, atol=1e-5
  )


@pytest.mark.parametrize(
  ('length', 'heads', 'width', 'found'),
  [
    (100, 2, 128, 'found 100 tokens, 2 heads of 64'),
    (384, 2, 128, 'found 384 tokens, 2 heads of 64'),
    (128, 3, 192, 'found 128 tokens, 3 heads of 64'),
    (128, 2, 96, 'found 128 tokens, 2 heads of 48'),
  ],
)
def test_the_kernel_is_refused_where_it_does_not_suit(
  length, heads, width, found
):
  total, mask = make_inputs(length, width)
  module = self_attention.SelfAttention(num_heads=heads, attention='fused')
  with pytest.raises(ValueError, match=found):
    draw_params(module, total, mask)


def test_probabilities_are_shown_by_the_plain_attention():
  """The kernel has none to sow."""
  total, mask = make_inputs()
  module = self_attention.SelfAttention(num_heads=2, attention='fused')
  params = draw_params(module, total, mask, 0.02)
  (_, out, _), sown = jax.device_get(
    apply(module, params, total, mask, mutable=('intermediates',))
  )
  (weights,) = sown['intermediates']['attention']
  np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
  fused = apply(module, params, total, mask)[1]
  np.testing.assert_allclose(out, fused, rtol=1e-5, atol=1e-5)
