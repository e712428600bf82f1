"""A call of the two kernels, interpreted, on one device."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import dropout, layers
from models.transformer import attention, kernels

B, N, H = 2, 2, 64
RATE = 0.1


def draw(length, dtype=jnp.float32):
  rng = np.random.default_rng(0)
  qkv = rng.normal(size=(B, length, 3 * N * H)).astype(dtype)
  gradient = rng.normal(size=(B, length, N * H)).astype(dtype)
  mask = np.arange(length) < np.array([length, 70])[:, None]
  seeds = jax.jit(dropout.draw_seeds, static_argnums=1)(jax.random.key(0), (B,))
  return qkv, gradient, mask, seeds


def call(which, mask, seeds, *arrays):
  """Runs a kernel as for the first head of a layer without salt."""
  zero = jnp.zeros(1, jnp.int32)
  return kernels.call(
    which,
    (mask.astype(jnp.int32)[:, None], *arrays),
    (seeds.first, seeds.second, zero, zero, zero),
    kernels.KernelForm(N, causal=True, rate=RATE),
  )


def plain(qkv, mask, seeds):
  length = qkv.shape[1]
  query, key, value = jnp.moveaxis(qkv.reshape(B, length, 3, N, H), 2, 0)
  mask = mask[:, None, None] & attention.causal_mask(length, length, 0)
  context = attention.attend(query * H**-0.5, key, value, mask, seeds, RATE)
  return context.reshape(B, length, -1)


@pytest.mark.parametrize(('length', 'block'), [(128, 256), (256, 128)])
def test_both_kernels_are_plain_attention(length, block, monkeypatch):
  monkeypatch.setattr(kernels, 'BLOCK', block)
  qkv, gradient, mask, seeds = draw(length)

  @jax.jit
  def both(qkv, gradient):
    expected, back = jax.vjp(lambda qkv: plain(qkv, mask, seeds), qkv)
    return (
      (expected, *back(gradient)),
      call('forward', mask, seeds, qkv),
      call('backward', mask, seeds, qkv, gradient),
    )

  (expected, by_plain), (context,), (by_qkv, again) = jax.device_get(
    both(qkv, gradient)
  )
  np.testing.assert_allclose(context, expected, rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(again, expected, rtol=1e-5, atol=1e-5)
  largest = np.abs(by_plain).max()
  np.testing.assert_allclose(by_qkv / largest, by_plain / largest, atol=1e-5)


def test_results_have_the_dtype_of_the_arguments():
  qkv, gradient, mask, seeds = draw(128, jnp.bfloat16)
  results = jax.eval_shape(
    lambda *arrays: (
      *call('forward', mask, seeds, arrays[0]),
      *call('backward', mask, seeds, *arrays),
    ),
    qkv,
    gradient,
  )
  assert {result.dtype for result in results} == {jnp.dtype(jnp.bfloat16)}
  assert [result.shape[-1] for result in results] == [128, 384, 128]


@pytest.mark.parametrize(
  ('generation', 'mebibytes', 'length', 'block'),
  [
    (5, 128, 128, 128),
    (5, 128, 512, 256),
    (4, 16, 512, 128),  # a v4: less memory of its own, so shorter blocks
    (4, 16, 1024, None),
    (3, 16, 128, None),  # multiplies no bfloat16 as it is
  ],
)
def test_blocks_suit_the_chip(
  generation, mebibytes, length, block, monkeypatch
):
  chip = types.SimpleNamespace(
    generation=generation, vmem_capacity_bytes=mebibytes * 2**20
  )
  monkeypatch.setattr(layers, 'platform', lambda: 'tpu')
  monkeypatch.setattr(kernels.pltpu, 'get_tpu_info', lambda: chip)
  assert kernels.find_block(length, 768, 2) == block


def test_a_chip_that_jax_does_not_know_has_no_kernel(monkeypatch):
  def unknown():
    raise ValueError('Unsupported TPU device kind: TPU v99')

  monkeypatch.setattr(layers, 'platform', lambda: 'tpu')
  monkeypatch.setattr(kernels.pltpu, 'get_tpu_info', unknown)
  assert kernels.find_block(128, 768, 2) is None
