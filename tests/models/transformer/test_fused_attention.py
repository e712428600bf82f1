"""The attention kernel, interpreted, beside the plain attention."""

import functools
import re

import bert_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.sharding import AxisType

from configs import base
from models import dropout, norms
from models.transformer import (
  attention,
  fused_attention,
  kernels,
  self_attention,
)
from models.transformer import layout as layouts
from train.engine import sharding

RATE = 0.1
EPSILON = 1e-12
draw_seeds = jax.jit(dropout.draw_seeds, static_argnums=1)
NAMES = ('x', 'scale', 'bias', 'kernel', 'qkv_bias', 'out')


def make_arrays(length, heads, head, rate, rows=3):
  """Returns the arguments that have gradients, the mask, and the seeds."""
  rng = np.random.default_rng(0)
  D = heads * head

  def normal(*shape, scale=1.0):
    return (rng.normal(size=shape) * scale).astype(np.float32)

  mask = np.arange(length) < np.array([length, 70, 0])[:rows, None]
  seeds = None
  if rate:
    layer = jnp.int32(dropout.salt(np.int32(3)))
    seeds = draw_seeds(jax.random.key(1), (rows,))
    seeds = seeds.replace(layer=layer, mask=2)
  arrays = (
    normal(rows, length, D),
    normal(1, D),
    normal(1, D),
    normal(D, 3 * D, scale=D**-0.5),
    normal(1, 3 * D),
    normal(D, D, scale=D**-0.5),
  )
  return arrays, mask, seeds


def fused(form, arrays, mask, seeds, layout):
  x, scale, bias, kernel, qkv_bias, out = arrays
  weights = {'scale': scale[0], 'bias': bias[0]}
  total = norms.LayerNorm(EPSILON).apply(
    {'params': weights}, x, method='measure'
  )
  turns = fused_attention.turns_of(layout)
  return fused_attention.attend(
    (form, jnp.float32), total, kernel, qkv_bias, out, mask, seeds, turns
  )


def plain(form, arrays, mask, seeds, layout):
  """The formulas; only attention and rotations are the product's."""
  x, scale, bias, kernel, qkv_bias, out = arrays
  heads = form.N
  B, T, D = x.shape
  mean = x.mean(-1, keepdims=True)
  variance = jnp.square(x - mean).mean(-1, keepdims=True)
  x = (x - mean) / jnp.sqrt(variance + EPSILON) * scale + bias
  qkv = (x @ kernel + qkv_bias).reshape(B, T, 3, heads, D // heads)
  query, key, value = (qkv[:, :, i] for i in range(3))
  texts, mask = mask, mask[:, None, None, :] != 0
  if layout is not None and layout.cos is not None:
    query, key = (layouts.rotate(part, layout) for part in (query, key))
  if form.packed:
    mask = mask & (texts[:, None, :, None] == texts[:, None, None, :])
  if form.causal:
    mask = mask & attention.causal_mask(T, T, 0)
  if form.window:
    is_near = layouts.near(T, T, 0, form.window)
    mask = mask & (is_near | ~layout.is_local)
  context = attention.attend(
    query * (D // heads) ** -0.5, key, value, mask, seeds, form.rate
  )
  return x, context.reshape(B, T, D) @ out


def run(attend, form, *arguments):
  """Returns norm and result, and gradients that flow through both."""
  return jax.device_get(compute(attend, form, kernels.BLOCK, *arguments))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def compute(attend, form, block, arrays, mask, seeds, layout=None):
  """The same, traced anew for each `block`, which tests change."""
  del block

  def total(*arrays):
    x, y = attend(form, arrays, mask, seeds, layout)
    return jnp.sum(jnp.sin(y) * y) + jnp.sum(jnp.cos(x) * x), (x, y)

  grads, outputs = jax.grad(total, argnums=range(6), has_aux=True)(*arrays)
  return outputs, dict(zip(NAMES, grads, strict=True))


def assert_same(got, expected):
  outputs, grads = got
  expected_outputs, expected_grads = expected
  for ours, wanted in zip(outputs, expected_outputs, strict=True):
    np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-5)
  for name, wanted in expected_grads.items():
    largest = np.abs(wanted).max()
    assert largest > 0, name
    np.testing.assert_allclose(
      grads[name] / largest, wanted / largest, atol=1e-4, err_msg=name
    )


@pytest.mark.parametrize(
  ('length', 'heads', 'head', 'block', 'causal', 'rate'),
  [
    (128, 2, 64, 256, False, RATE),  # a block of 128
    (128, 2, 64, 256, True, 0.0),
    (256, 4, 32, 128, False, RATE),  # two blocks of 128
    (256, 4, 32, 128, True, RATE),
    (256, 4, 32, 128, True, 0.0),
    (256, 1, 128, 256, False, 0.0),  # a block of 256
    (256, 1, 128, 256, True, RATE),
  ],
)
def test_outputs_and_gradients_are_those_of_plain_attention(
  length, heads, head, block, causal, rate, monkeypatch
):
  monkeypatch.setattr(kernels, 'BLOCK', block)
  arguments = make_arrays(length, heads, head, rate)
  form = kernels.KernelForm(heads, causal, rate, False)
  got = run(fused, form, *arguments)
  assert_same(got, run(plain, form, *arguments))
  assert (got[0][1][2] == 0).all()  # no key may be looked at


def test_rows_of_which_the_first_keys_are_masked(monkeypatch):
  """A causal query before the first real token: it may look at nothing."""
  arrays, _, seeds = make_arrays(256, 4, 32, RATE)
  monkeypatch.setattr(kernels, 'BLOCK', 128)
  mask = np.arange(256) >= np.array([0, 40, 200])[:, None]
  form = kernels.KernelForm(4, True, RATE)
  got = run(fused, form, arrays, mask, seeds)
  assert_same(got, run(plain, form, arrays, mask, seeds))
  y = got[0][1]
  assert (y[1, :40] == 0).all() and (y[2, :200] == 0).all()
  assert (y[1, 40:] != 0).all()


@pytest.mark.parametrize(
  ('length', 'heads', 'head', 'block', 'causal', 'rate'),
  [
    (128, 2, 64, 256, False, RATE),
    (256, 4, 32, 128, False, 0.0),
    (256, 4, 32, 128, True, RATE),
  ],
)
def test_texts_of_packed_rows_do_not_see_each_other(
  length, heads, head, block, causal, rate, monkeypatch
):
  """Padding sees nothing, and nothing sees it."""
  monkeypatch.setattr(kernels, 'BLOCK', block)
  arrays, _, seeds = make_arrays(length, heads, head, rate)
  place = np.arange(length)
  texts = np.stack([1 + place // 100, 1 + place // 7, 0 * place])
  texts[1, 90:] = 0
  form = kernels.KernelForm(heads, causal, rate, True)
  got = run(fused, form, arrays, texts, seeds)
  assert_same(got, run(plain, form, arrays, texts, seeds))
  y = got[0][1]
  assert (y[1, 90:] == 0).all() and (y[2] == 0).all() and (y[1, :90] != 0).all()


@pytest.mark.parametrize('is_local', [False, True])
@pytest.mark.parametrize(
  ('length', 'head', 'block', 'window', 'causal', 'rate', 'packed'),
  [
    (128, 64, 256, 20, False, RATE, False),  # a block, which holds the window
    (128, 32, 256, 20, False, 0.0, True),
    (128, 128, 256, 0, False, 0.0, False),  # rotations alone
    (512, 64, 128, 64, False, RATE, True),  # blocks that begin behind the first
    (512, 64, 128, 150, True, 0.0, False),
  ],
)
def test_windows_and_rotations_are_those_of_plain_attention(
  is_local, length, head, block, window, causal, rate, packed, monkeypatch
):
  """Tables of local layers differ from those of global ones."""
  monkeypatch.setattr(kernels, 'BLOCK', block)
  arrays, mask, seeds = make_arrays(length, 128 // head, head, rate)
  place = np.arange(length)
  positions = np.stack([place, place, place[::-1]])
  if packed:
    mask = np.stack([1 + place // 100, 1 + place // 7, 0 * place])
    positions = positions % 100
  layout = layouts.make(
    3,
    positions,
    head,
    (1e4, 100.0),
    max_length=512,
    window=window,
    global_every=3,
  )
  layout = layout._replace(is_first=False, is_local=np.bool_(is_local))
  form = kernels.KernelForm(128 // head, causal, rate, packed, window)
  arguments = arrays, mask, seeds, layout
  got = run(fused, form, *arguments)
  assert_same(got, run(plain, form, *arguments))
  other = layout._replace(is_local=np.bool_(not is_local))
  of_other = run(plain, form, *arguments[:3], other)
  assert np.abs(got[0][1] - of_other[0][1]).max() > 1e-3


def test_a_window_without_rotations():
  arrays, mask, seeds = make_arrays(128, 2, 64, 0.0)
  layout = layouts.Layout(np.bool_(False), np.bool_(True))
  form = kernels.KernelForm(2, False, 0.0, window=5)
  got = run(fused, form, arrays, mask, seeds, layout)
  assert_same(got, run(plain, form, arrays, mask, seeds, layout))


def test_local_layers_have_fewer_weights():
  form = kernels.KernelForm(12, False, 0.0, window=64, global_every=3)
  whole = kernels.count_weights(form._replace(window=0), 1024, 256)
  assert whole == 1024**2
  local = 256 * (384 + 512 + 512 + 384)
  assert kernels.count_weights(form, 1024, 256) == pytest.approx(
    whole / 3 + local * 2 / 3
  )


@functools.partial(jax.jit, static_argnums=(0, 1))
def mask_shown_by(heads, length, mask, seeds):
  """Returns how the kernel drops, as it shows without scores.

  The identity is the norm, its projection to values, and the result: a head
  shows the slots that its own columns hold.
  """
  D = length
  eye = jnp.eye(D)
  rows = len(mask)
  total = norms.identity_sum(jnp.broadcast_to(eye, (rows, D, D)))
  kernel = jnp.concatenate([jnp.zeros((D, 2 * D)), eye], axis=1)
  form = kernels.KernelForm(heads, False, RATE)
  _, y = fused_attention.attend(
    (form, jnp.float32), total, kernel, jnp.zeros((1, 3 * D)), eye, mask, seeds
  )
  return y * length * dropout.kept_share(RATE)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def masks_by_number(heads, length, rows, seeds):
  """Returns the same of the masks by their numbers."""
  masks = [
    dropout.keep_mask(
      seeds.replace(mask=seeds.mask + n), (rows, length, length), RATE
    )
    for n in range(heads)
  ]
  own = np.arange(length) // (length // heads)
  return jnp.stack(masks)[own, :, :, np.arange(length)].transpose(1, 2, 0)


@pytest.mark.parametrize('heads', [1, 2, 4])
def test_masks_of_heads_are_those_of_their_numbers(heads):
  _, mask, seeds = make_arrays(128, heads, 128 // heads, RATE)
  shown = mask_shown_by(heads, 128, np.ones_like(mask), seeds)
  expected = np.asarray(masks_by_number(heads, 128, 3, seeds))
  np.testing.assert_allclose(shown, expected, rtol=1e-5, atol=1e-6)
  assert 0.88 < expected.mean() < 0.92


def test_bfloat16_is_near():
  arrays, mask, seeds = make_arrays(128, 2, 64, RATE)
  form = kernels.KernelForm(2, False, RATE)
  (_, exact), exact_grads = run(plain, form, arrays, mask, seeds)

  def rounded(form, arrays, mask, seeds, _):
    x, scale, bias, *weights = arrays
    weights = [array.astype(jnp.bfloat16) for array in weights]
    total = norms.LayerNorm(EPSILON).apply(
      {'params': {'scale': scale[0], 'bias': bias[0]}},
      x.astype(jnp.bfloat16),
      method='measure',
    )
    fields = form, jnp.bfloat16
    x, y = fused_attention.attend(fields, total, *weights, mask, seeds)
    assert x.dtype == y.dtype == jnp.bfloat16
    return x.astype(jnp.float32), y.astype(jnp.float32)

  (_, y), grads = run(rounded, form, arrays, mask, seeds)
  np.testing.assert_allclose(y, exact, atol=0.06)
  for name, exact_grad in exact_grads.items():
    error = np.linalg.norm(grads[name] - exact_grad)
    assert error < 0.03 * np.linalg.norm(exact_grad), name


def test_sizes_that_the_kernel_takes():
  suits = fused_attention.suits
  assert (
    suits(128, 12, 64, jnp.bfloat16)
    and suits(512, 16, 64, jnp.bfloat16)
    and suits(1024, 12, 64, jnp.bfloat16)
  )
  assert suits(256, 4, 32, jnp.bfloat16) and suits(128, 1, 128, jnp.bfloat16)
  assert not suits(100, 12, 64, jnp.bfloat16)  # not whole registers of keys
  assert not suits(384, 12, 64, jnp.bfloat16)  # not whole blocks of queries
  assert not suits(128, 25, 64, jnp.bfloat16)  # half a register is left
  assert not suits(128, 2, 48, jnp.bfloat16)  # heads do not fill a register


@pytest.mark.parametrize('kind', ['post', 'windows', 'causal', 'mesh'])
def test_short_texts_share_a_row_of_the_kernel(kind):
  form = {
    'post': {},
    'windows': {'window': 8, 'global_every': 2},
    'causal': {'causal': True},
    'mesh': {},
  }[kind]
  rng = np.random.default_rng(0)
  rows, length, heads, head = 16, 32, 4, 64
  x = rng.normal(size=(rows, length, heads * head)).astype(np.float32)
  lengths = np.tile([32, 7, 1, 20, 32, 3, 31, 16], 2)
  mask = np.arange(length) < lengths[:, None]
  layout = None
  if kind == 'windows':
    places = np.broadcast_to(np.arange(length), (rows, length))
    layout = layouts.make(
      2, places, head, (1e4, 1e2), max_length=length, window=8, global_every=2
    )._replace(is_first=False, is_local=jnp.bool_(True))

  def run(attention, params=None):
    module = self_attention.SelfAttention(heads, attention=attention, **form)
    total = norms.identity_sum(jnp.asarray(x))
    if params is None:
      params = nn.unbox(
        module.init(jax.random.key(0), total, mask, None, None, layout)
      )

    def loss(params, total):
      _, y, _ = module.apply(params, total, mask, None, None, layout)
      y = jnp.where(mask[..., None], y, 0)
      return jnp.sum(jnp.sin(y) * y), y

    program = jax.jit(jax.value_and_grad(loss, has_aux=True))
    if kind != 'mesh':
      traced = str(program.trace(params, total).jaxpr)
      return params, program(params, total), traced
    rules = base.get_config().mesh.rules
    with sharding.scope(make_mesh((2, 2, 2)), rules):
      traced = str(program.trace(params, total).jaxpr)
      return params, jax.device_get(program(params, total)), traced

  params, ((_, expected), wanted), _ = run('plain')
  _, ((_, found), got), program = run('fused', params)
  assert 'attention_forward' in program
  assert re.search(r'f32\[4,128,(768|3,4,64)\]', program)
  np.testing.assert_allclose(found, expected, atol=1e-6)
  for ours, theirs in zip(*map(jax.tree.leaves, (got, wanted)), strict=True):
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_rows_that_texts_do_not_fill_stay_alone():
  assert fused_attention.texts_a_row(8, 16) == 8
  assert fused_attention.texts_a_row(6, 64) == 2
  for rows, length in ((7, 64), (8, 48), (8, 128), (8, 256), (4, 16)):
    assert fused_attention.texts_a_row(rows, length) == 1
  rules = base.get_config().mesh.rules
  with sharding.scope(make_mesh((4, 1, 2)), rules):
    assert fused_attention.batch_parts() == 4
    assert fused_attention.texts_a_row(8, 64) == 2
    assert fused_attention.texts_a_row(6, 64) == 1


def make_mesh(sizes):
  return jax.make_mesh(
    sizes, sharding.AXES, axis_types=(AxisType.Auto,) * len(sizes)
  )


def test_sizes_are_those_of_a_device():
  """Where a mesh splits the heads, each part must fill registers."""
  rules = base.get_config().mesh.rules
  with sharding.scope(make_mesh((4, 1, 2)), rules):
    assert fused_attention.suits(128, 12, 64, jnp.bfloat16)
    assert not fused_attention.suits(128, 2, 64, jnp.bfloat16)
  with sharding.scope(make_mesh((8, 1, 1)), rules):
    assert fused_attention.suits(128, 2, 64, jnp.bfloat16)


def make_rows():
  """Returns arguments of `run` of which a mesh can split rows and heads."""
  rows, heads = 8, 4
  (x, *arrays), _, _ = make_arrays(128, heads, 64, 0.0)
  mask = np.ones((rows, 128), bool)
  mask[3, 50:] = False
  seeds = draw_seeds(jax.random.key(2), (rows,)).replace(mask=2)
  return (np.concatenate([x] * 3)[:rows], *arrays), mask, seeds


FORM = kernels.KernelForm(4, True, RATE)  # of these rows


@functools.cache
def expect_on_one_device():
  arguments = make_rows()
  shown = mask_shown_by(2, 256, np.ones((8, 256), bool), arguments[-1])
  return run(fused, FORM, *arguments), np.asarray(shown)


@pytest.mark.parametrize('sizes', [(8, 1, 1), (2, 2, 2)])
def test_every_mesh_computes_the_same(sizes):
  expected, shown = expect_on_one_device()
  arrays, mask, seeds = make_rows()
  mesh = make_mesh(sizes)
  by_row = jax.NamedSharding(mesh, sharding.BATCH)
  jax.clear_caches()
  with sharding.scope(mesh, base.get_config().mesh.rules):
    arrays = (jax.device_put(arrays[0], by_row), *arrays[1:])
    got = compute(fused, FORM, kernels.BLOCK, arrays, mask, seeds)
    shown_there = mask_shown_by(2, 256, np.ones((8, 256), bool), seeds)
  jax.clear_caches()
  assert len(got[0][1].sharding.device_set) == 8
  assert_same(jax.device_get(got), expected)
  np.testing.assert_allclose(shown_there, shown, rtol=1e-6, atol=1e-6)


def test_a_mesh_splits_rotations_with_their_rows():
  arrays, mask, seeds = make_rows()
  positions = np.arange(8)[:, None] + np.arange(128)
  layout = layouts.make(
    2, positions, 64, (1e4, 100.0), max_length=135, window=9, global_every=2
  )
  layout = layout._replace(is_first=False, is_local=np.bool_(True))
  form = kernels.KernelForm(4, False, RATE, window=9)
  expected = run(fused, form, arrays, mask, seeds, layout)
  mesh = make_mesh((2, 2, 2))
  jax.clear_caches()
  with sharding.scope(mesh, base.get_config().mesh.rules):
    arrays = (
      jax.device_put(arrays[0], jax.NamedSharding(mesh, sharding.BATCH)),
      *arrays[1:],
    )
    got = compute(fused, form, kernels.BLOCK, arrays, mask, seeds, layout)
  jax.clear_caches()
  assert_same(jax.device_get(got), expected)


@pytest.mark.slow
@pytest.mark.parametrize('train', [False, True])
def test_results_of_a_model_do_not_depend_on_the_kernel(train):
  batch = bert_cases.make_batch(lengths=(128, 70, 5, 36), T=128)
  inputs = [batch[name] for name in bert_cases.INPUTS[:4]]
  rng = jax.random.key(5) if train else None
  sizes = dict(heads=(), max_length=128)
  models = {
    kind: bert_cases.make_model(attention=kind, **sizes)
    for kind in ('plain', 'fused', 'auto')
  }
  params = bert_cases.draw_params(
    bert_cases.abstract_params(
      vocab_size=bert_cases.VOCAB_SIZE, **bert_cases.TINY, **sizes
    )
  )
  results = {
    kind: jax.device_get(bert_cases.run_layers(model, params, inputs, rng))
    for kind, model in models.items()
  }
  program = str(
    jax.make_jaxpr(bert_cases.run_layers, static_argnums=0)(
      models['fused'], params, inputs, rng
    )
  )
  assert 'attention_forward' in program and 'attention_backward' in program
  jax.tree.map(np.testing.assert_array_equal, results['auto'], results['plain'])
  bert_cases.assert_close(results['fused'], results['plain'], 5e-6)
