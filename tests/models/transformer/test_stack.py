"""Layers: in a loop, unrolled and rematerialised they compute the same."""

import functools

import bert_cases
import gpt_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import variants
from models.transformer import stack

MODERN = {
  key.removeprefix('model.'): value
  for key, value in variants.MODERN.items()
  if key.startswith('model.') and 'dropout' not in key
} | {'num_token_types': 0, 'window': 4}
KEY, OTHER_KEY = jax.random.key(5), jax.random.key(6)


def make_bert(**fields):
  """A BERT of layers alone: heads see nothing but what these return."""
  return bert_cases.make_model(heads=(), **fields)


def draw_params(model):
  ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)
  inputs = dict.fromkeys(names_of(model), ids)
  initial = functools.partial(model.init, train=False)
  boxed = jax.eval_shape(initial, KEY, **inputs)['params']
  return bert_cases.draw_params(boxed)


def names_of(model):
  names = ('tokens', 'token_mask', 'token_types', 'positions')
  return gpt_cases.INPUTS if hasattr(model, 'pre_norm') else names


def inputs_of(model):
  batch = bert_cases.make_batch()
  return [batch[name] for name in names_of(model)]


def run(model, params, rng=None):
  return jax.device_get(
    bert_cases.run_layers(model, params, inputs_of(model), rng)
  )


def assert_same(found, expected):
  bert_cases.assert_close(found[0], expected[0], 5e-6)
  bert_cases.assert_close(found[1], expected[1], 5e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
  'fields',
  [
    dict(remat=True),
    dict(remat=True, scan_layers=False),
    dict(scan_layers=False),
  ],
)
def test_layers_scanned_unrolled_and_rematerialised_agree(fields):
  """With dropout on: the same masks, forwards and backwards."""
  plain = make_bert()
  params = draw_params(plain)
  expected = run(plain, params, KEY)
  assert_same(run(make_bert(**fields), params, KEY), expected)
  assert np.abs(run(plain, params, OTHER_KEY)[0] - expected[0]).max() > 1e-2


def test_unrolling_leaves_no_loop_and_the_same_parameters():
  texts, shapes = {}, {}
  for scan_layers in (True, False):
    model = bert_cases.make_model(scan_layers=scan_layers)
    batch = bert_cases.make_batch()
    inputs = [batch[k] for k in bert_cases.INPUTS]
    initial = functools.partial(model.init, train=False)
    shapes[scan_layers] = jax.eval_shape(initial, KEY, *inputs)
    texts[scan_layers] = (
      bert_cases.run_layers.lower(
        make_bert(scan_layers=scan_layers),
        draw_params(make_bert()),
        inputs_of(model),
      )
    ).as_text()
  assert 'stablehlo.while' in texts[True]
  assert 'stablehlo.while' not in texts[False]
  assert shapes[True] == shapes[False]


@pytest.mark.slow
@pytest.mark.parametrize(
  'pre_norm, fields',
  [
    (False, dict(remat=True)),
    (True, dict(scan_layers=False)),
  ],
)
def test_layers_of_gpt_agree_too(pre_norm, fields):
  """With dropout on: the same masks, forwards and backwards."""
  plain = gpt_cases.make_model(pre_norm=pre_norm)
  params = draw_params(plain)
  expected = run(plain, params, KEY)
  assert_same(run(plain.clone(**fields), params, KEY), expected)
  assert np.abs(run(plain, params, OTHER_KEY)[0] - expected[0]).max() > 1e-2


def split(params, unrolled, joined=False):
  """Returns parameters as a step reads them that unrolls the last layers."""

  def one(leaf):
    count = len(leaf) - unrolled
    if joined and leaf.ndim == 2:
      leaf = leaf[:, None]  # a row for each layer
    return stack.Split(leaf[:count], tuple(leaf[count:]))

  return params | {'layers': jax.tree.map(one, params['layers'])}


def join(params):
  """Returns parameters, or gradients, of layers that `split` has split."""

  def one(leaf):
    layers = np.concatenate([leaf.loop, np.stack(leaf.last)])
    return layers[:, 0] if layers.shape[1] == 1 else layers

  layers = jax.tree.map(
    one, params['layers'], is_leaf=lambda leaf: isinstance(leaf, stack.Split)
  )
  return params | {'layers': layers}


@pytest.mark.slow
@pytest.mark.parametrize(
  ('unrolled', 'joined', 'rng'),
  [(1, False, KEY), (2, True, KEY), (2, False, None), (1, True, None)],
)
def test_layers_of_bert_that_follow_the_loop_agree(unrolled, joined, rng):
  model = make_bert(num_layers=3)
  params = draw_params(model)
  expected = run(model, params, rng)
  parts = split(params, unrolled, joined)
  hidden, gradient = run(model, parts, rng)
  assert_same((hidden, join(gradient)), expected)
  text = bert_cases.run_layers.lower(
    model, parts, inputs_of(model), rng
  ).as_text()
  assert 'stablehlo.while' in text


def test_layers_of_modernbert_that_follow_the_loop_agree():
  model = make_bert(num_layers=4, **MODERN)
  params = draw_params(model)
  expected = run(model, params, KEY)
  hidden, gradient = run(model, split(params, 2), KEY)
  assert_same((hidden, join(gradient)), expected)


@pytest.mark.parametrize('pre_norm', [False, True])
def test_layers_of_gpt_that_follow_the_loop_agree(pre_norm):
  model = gpt_cases.make_model(pre_norm=pre_norm)
  params = draw_params(model)
  expected = run(model, params, KEY)
  hidden, gradient = run(model, split(params, 1), KEY)
  assert_same((hidden, join(gradient)), expected)


@pytest.mark.parametrize(
  ('fields', 'count'),
  [
    (dict(unrolled_layers=0), 0),
    (dict(unrolled_layers=1), 1),
    (dict(unrolled_layers=9), 3),  # one is left to the loop
    (dict(unrolled_layers=2, remat=True), 0),
    (dict(unrolled_layers=2, scan_layers=False), 0),
  ],
)
def test_how_many_layers_follow_the_loop(fields, count):
  assert stack.count_unrolled(make_bert(num_layers=4, **fields)) == count


def test_masks_differ_from_layer_to_layer():
  """The same parameters in all layers; only their masks tell them apart."""
  model = make_bert(attention_dropout_rate=0.0, dropout_rate=0.5)
  params = draw_params(model)
  same = jax.tree.map(np.zeros_like, params['layers'])
  # Sub-layers give ones, before their norms only.
  same['mlp']['out']['bias'] += 1.0
  same['mlp_norm']['scale'] += 1.0
  apply = jax.jit(
    functools.partial(model.apply, train=True, mutable=['intermediates'])
  )
  _, sown = apply(
    {'params': params | {'layers': same}},
    *inputs_of(model),
    rngs={'dropout': KEY},
  )
  (hidden,) = sown['intermediates']['layers']['hidden']
  first, second = np.asarray(hidden) > 0
  share = np.mean(first == second)
  assert 0.45 < share < 0.55


def test_a_forced_kernel_is_for_training_alone():
  """Samples of a run have other lengths than its training."""
  model = make_bert(attention='fused')
  assert stack.block_fields(model, train=True)['attention'] == 'fused'
  assert stack.block_fields(model, train=False)['attention'] == 'suited'
  params = draw_params(model)
  found, plain = (
    jax.jit(functools.partial(each.apply, train=False))(
      {'params': params}, *inputs_of(each)
    )
    for each in (model, make_bert(attention='plain'))
  )
  np.testing.assert_array_equal(found['hidden'], plain['hidden'])


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_all_layers_are_given_where_some_follow_the_loop(dtype):
  model = make_bert(num_layers=3, dtype=dtype)
  params = draw_params(model)
  run = jax.jit(
    functools.partial(model.apply, train=False, all_layers=True),
  )
  layers, found = (
    np.asarray(run({'params': each}, *inputs_of(model))['layers'])
    for each in (params, split(params, 2))
  )
  assert found.shape[0] == 4 and found.dtype == dtype
  tolerance = 5e-6 if dtype == jnp.float32 else 0.05
  np.testing.assert_allclose(
    found.astype(np.float32), layers.astype(np.float32), atol=tolerance
  )


def test_split_parameters_sow_nothing():
  model = make_bert()
  params = split(draw_params(model), 1)
  apply = functools.partial(model.apply, train=False, mutable=['intermediates'])
  with pytest.raises(ValueError, match='split for a training step'):
    jax.eval_shape(apply, {'params': params}, *inputs_of(model))
