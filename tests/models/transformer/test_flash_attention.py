"""The GPU's attention kernels, interpreted, beside the plain attention."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from configs import base
from models import dropout, norms
from models.transformer import (
  attention,
  flash_attention,
  layout,
  self_attention,
)
from train.engine import sharding

RATE = 0.1
LENGTH, HEADS, HEAD = 48, 4, 16  # three blocks of 16
draw_seeds = jax.jit(dropout.draw_seeds, static_argnums=1)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
  monkeypatch.setattr(flash_attention, 'BLOCK', 16)


def draw(rows, rate, dtype=np.float32):
  """Returns queries, keys and values, a gradient, the mask, and the seeds."""
  rng = np.random.default_rng(0)
  qkv = rng.normal(size=(rows, LENGTH, 3, HEADS, HEAD)).astype(dtype)
  gradient = rng.normal(size=(rows, LENGTH, HEADS, HEAD)).astype(dtype)
  lengths = np.resize([LENGTH, 21, 0, 16], rows)
  mask = np.arange(LENGTH) < lengths[:, None]
  mask[0, 5] = False  # holes are masked, too
  seeds = None
  if rate:
    layer = jnp.int32(dropout.salt(np.int32(3)))
    seeds = draw_seeds(jax.random.key(1), (rows,))
    seeds = seeds.replace(layer=layer, mask=2)
  return qkv, gradient, mask, seeds


def plain(fields, qkv, mask, seeds, is_local=False):
  query, key, value = jnp.moveaxis(qkv, 2, 0)
  texts, mask = mask, mask[:, None, None] != 0
  if fields.packed:
    mask = mask & (texts[:, None, :, None] == texts[:, None, None])
  if fields.causal:
    mask = mask & attention.causal_mask(LENGTH, LENGTH, 0)
  if is_local:
    mask = mask & layout.near(LENGTH, LENGTH, 0, fields.window)
  query = query * jnp.asarray(HEAD**-0.5, query.dtype)
  return attention.attend(query, key, value, mask, seeds, fields.rate)


@functools.partial(jax.jit, static_argnums=(0, 1, 6))
def run(attend, fields, qkv, gradient, mask, seeds, is_local=False):
  """Returns the contexts, and the gradient of queries, keys and values."""
  context, back = jax.vjp(
    lambda qkv: attend(fields, qkv, mask, seeds, is_local), qkv
  )
  return context, *back(gradient)


def assert_near(found, expected, tolerance):
  for ours, theirs in zip(found, expected, strict=True):
    ours, theirs = np.float32(ours), np.float32(theirs)
    largest = np.abs(theirs).max()
    np.testing.assert_allclose(ours / largest, theirs / largest, atol=tolerance)


@pytest.mark.parametrize(('causal', 'rate'), [(False, RATE), (True, 0.0)])
def test_results_and_gradients_are_those_of_plain_attention(causal, rate):
  """With dropout, too: the masks are the same to the bit."""
  fields = flash_attention.Fields(causal, rate)
  arrays = draw(3, rate)
  found = run(flash_attention.attend, fields, *arrays)
  assert_near(found, run(plain, fields, *arrays), 1e-5)
  assert (found[0][2] == 0).all()  # no key may be looked at
  assert (found[1][2] == 0).all()


def test_causal_rows_whose_first_keys_are_masked():
  fields = flash_attention.Fields(True, RATE)
  qkv, gradient, _, seeds = draw(3, RATE)
  mask = np.arange(LENGTH) >= np.array([0, 7, 20])[:, None]
  arrays = qkv, gradient, mask, seeds
  found = run(flash_attention.attend, fields, *arrays)
  assert_near(found, run(plain, fields, *arrays), 1e-5)
  assert (found[0][2, :20] == 0).all() and (found[0][2, 20:] != 0).all()


@pytest.mark.parametrize(('causal', 'rate'), [(False, RATE), (True, 0.0)])
def test_texts_of_packed_rows_do_not_see_each_other(causal, rate):
  """Padding sees nothing, and nothing sees it."""
  fields = flash_attention.Fields(causal, rate, packed=True)
  qkv, gradient, _, seeds = draw(3, rate)
  place = np.arange(LENGTH)
  texts = np.stack([1 + place // 30, 1 + place // 7, 0 * place])
  texts[1, 40:] = 0
  arrays = qkv, gradient, texts, seeds
  found = run(flash_attention.attend, fields, *arrays)
  assert_near(found, run(plain, fields, *arrays), 1e-5)
  assert (found[0][1, 40:] == 0).all() and (found[0][2] == 0).all()
  assert (found[0][1, :40] != 0).all()


@pytest.mark.parametrize('is_local', [False, True])
@pytest.mark.parametrize(
  ('window', 'causal', 'rate', 'packed'),
  [(5, False, RATE, False), (20, False, 0.0, True), (17, True, 0.0, False)],
)
def test_windows_are_those_of_plain_attention(
  window, causal, rate, packed, is_local
):
  """Of 5 a block sees its neighbours, of 20 those behind them, too."""
  fields = flash_attention.Fields(causal, rate, packed, window)
  qkv, gradient, mask, seeds = draw(3, rate)
  if packed:
    place = np.arange(LENGTH)
    mask = np.stack([1 + place // 30, 1 + place // 7, 0 * place])
  arrays = qkv, gradient, mask, seeds
  found = run(flash_attention.attend, fields, *arrays, is_local)
  assert_near(found, run(plain, fields, *arrays, is_local), 1e-5)
  other = run(plain, fields, *arrays, not is_local)
  assert np.abs(found[0] - other[0]).max() > 1e-3


@pytest.mark.parametrize('packed', [False, True])
def test_they_become_programs_of_a_gpu(packed, monkeypatch):
  monkeypatch.setattr(flash_attention.layers, 'platform', lambda: 'gpu')
  monkeypatch.setattr(flash_attention, 'BLOCK', 64)
  fields = flash_attention.Fields(True, RATE, packed, window=64)
  qkv = jax.ShapeDtypeStruct((2, 128, 3, HEADS, 64), jnp.bfloat16)
  numbers = jax.ShapeDtypeStruct((2, 128), jnp.int32)

  @jax.jit
  def gradient(qkv, numbers):
    seeds = dropout.draw_seeds(jax.random.key(0), (2,)).replace(layer=3, mask=2)
    return jax.grad(
      lambda qkv: jnp.sum(
        flash_attention.attend(fields, qkv, numbers, seeds, numbers[0, 0] > 0),
        dtype=jnp.float32,
      )
    )(qkv)

  lowered = gradient.trace(qkv, numbers).lower(lowering_platforms=('cuda',))
  assert lowered.as_text().count('stablehlo.custom_call @__gpu') == 2


def test_bfloat16_is_near():
  fields = flash_attention.Fields(False, RATE)
  exact = run(plain, fields, *draw(2, RATE))
  found = run(flash_attention.attend, fields, *draw(2, RATE, jnp.bfloat16))
  assert {array.dtype for array in found} == {jnp.dtype(jnp.bfloat16)}
  assert_near(found, exact, 0.02)


def test_a_mesh_of_rows_and_heads_computes_the_same():
  fields = flash_attention.Fields(True, RATE)
  arrays = draw(4, RATE)
  expected = run(flash_attention.attend, fields, *arrays)
  mesh = jax.make_mesh(
    (2, 1, 2), sharding.AXES, axis_types=(AxisType.Auto,) * 3
  )
  with sharding.scope(mesh, base.get_config().mesh.rules):
    found = run(flash_attention.attend, fields, *arrays)
  for ours, theirs in zip(found, expected, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_sizes_that_the_kernels_take(monkeypatch):
  monkeypatch.setattr(flash_attention, 'BLOCK', 64)
  suits = flash_attention.suits
  assert suits(512, 12, 64, jnp.bfloat16) and suits(384, 12, 32, jnp.float16)
  assert suits(16, 2, 128, jnp.bfloat16) and suits(32, 2, 64, jnp.bfloat16)
  assert not suits(512, 12, 64, jnp.float32)
  assert not suits(500, 12, 64, jnp.bfloat16)  # not whole blocks
  assert not suits(48, 12, 64, jnp.bfloat16)  # no power of 2
  assert not suits(512, 12, 48, jnp.bfloat16)
  assert not suits(512, 12, 256, jnp.bfloat16)  # more than registers hold


def test_an_old_card_has_plain_attention(monkeypatch):
  class Card:
    compute_capability = '7.5'

  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  monkeypatch.setattr(jax, 'local_devices', lambda: [Card])
  assert not flash_attention.suits(512, 12, 64, jnp.bfloat16)
  Card.compute_capability = '12.0'
  assert flash_attention.suits(512, 12, 64, jnp.bfloat16)


def programs(fields, x, *inputs, mutable=False):
  module = self_attention.SelfAttention(num_heads=HEADS, **fields)
  params = jax.eval_shape(module.init, jax.random.key(0), x, *inputs)
  return str(
    jax.make_jaxpr(
      lambda params: module.apply(params, x, *inputs, mutable=mutable)
    )(params)
  )


def test_a_gpu_chooses_them(monkeypatch):
  monkeypatch.setattr(self_attention, 'platform', lambda: 'gpu')
  x = jnp.ones((2, LENGTH, HEADS * HEAD))
  total, mask = norms.identity_sum(x), jnp.ones((2, LENGTH), bool)
  half = {'dtype': jnp.bfloat16}
  assert 'pallas_call' in programs(half, total, mask)
  for fields in (
    {},  # float32
    half | {'attention': 'plain'},
    half | {'null_key': True},
  ):
    assert 'pallas_call' not in programs(fields, total, mask)
  sown = programs(half, total, mask, mutable=('intermediates',))
  assert 'pallas_call' not in sown
  with pytest.raises(ValueError, match="'fused' needs bfloat16.*in float32"):
    programs({'attention': 'fused'}, total, mask)


def test_the_module_is_the_same_with_them(monkeypatch):
  module = self_attention.SelfAttention(
    num_heads=HEADS, causal=True, dropout_rate=RATE, attention='fused'
  )
  monkeypatch.setattr(self_attention, 'platform', lambda: 'gpu')
  monkeypatch.setattr(flash_attention, 'DTYPES', (jnp.float32,))
  qkv, _, mask, seeds = draw(2, RATE)
  total = norms.identity_sum(qkv.reshape(2, LENGTH, -1)[..., : HEADS * HEAD])
  params = module.init(jax.random.key(0), total, mask, seeds)
  found = module.apply(params, total, mask, seeds)[1]
  expected = module.clone(attention='plain').apply(params, total, mask, seeds)
  np.testing.assert_allclose(found, expected[1], rtol=1e-5, atol=1e-5)
