"""Layers: in a loop, unrolled and rematerialised they compute the same."""

import functools

import bert_cases
import gpt_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from models.transformer import stack


@pytest.mark.parametrize('scan_layers', [True, False])
def test_layers_scanned_unrolled_and_rematerialised_agree(scan_layers):
  """With dropout on: the same masks, forwards and backwards."""
  batch, rng = bert_cases.make_batch(), jax.random.key(5)
  plain = bert_cases.make_model()
  params = bert_cases.init_params()
  _, _, losses, gradient = bert_cases.run(plain, params, batch, rng)
  others = [bert_cases.make_model(remat=True, scan_layers=scan_layers)]
  if not scan_layers:
    others.append(bert_cases.make_model(scan_layers=False))
  for model in others:
    _, _, losses_o, gradient_o = bert_cases.run(model, params, batch, rng)
    bert_cases.assert_close(losses_o, losses, 2e-6)
    bert_cases.assert_close(gradient_o, gradient, 5e-6)
  _, _, losses_e, _ = bert_cases.run(plain, params, batch)
  assert abs(losses_e['mlm'] - losses['mlm']) > 1e-3  # there was dropout
  _, _, losses_d, _ = bert_cases.run(plain, params, batch, jax.random.key(6))
  assert abs(losses_d['mlm'] - losses['mlm']) > 1e-3


def test_unrolling_leaves_no_loop_and_the_same_parameters():
  batch = bert_cases.make_batch()
  texts, shapes = {}, {}
  for scan_layers in (True, False):
    model = bert_cases.make_model(scan_layers=scan_layers)
    initial = functools.partial(model.init, train=False)
    args = [batch[k] for k in bert_cases.INPUTS]
    shapes[scan_layers] = jax.eval_shape(initial, jax.random.key(0), *args)
    texts[scan_layers] = bert_cases.run.lower(
      model, nn.meta.unbox(shapes[scan_layers]['params']), batch
    ).as_text()
  assert 'stablehlo.while' in texts[True]
  assert 'stablehlo.while' not in texts[False]
  assert shapes[True] == shapes[False]


@pytest.mark.parametrize(
  'pre_norm, fields',
  [
    (False, dict(remat=True)),
    (True, dict(scan_layers=False)),
  ],
)
def test_layers_of_gpt_agree_too(pre_norm, fields):
  """With dropout on: the same masks, forwards and backwards."""
  batch, rng = gpt_cases.make_batch(), jax.random.key(5)
  params = gpt_cases.init_params(pre_norm)
  plain = gpt_cases.make_model(pre_norm=pre_norm)
  _, _, loss, gradient = gpt_cases.run(plain, params, batch, rng)
  model = plain.clone(**fields)
  _, _, loss_o, gradient_o = gpt_cases.run(model, params, batch, rng)
  assert abs(loss_o - loss) < 2e-6
  bert_cases.assert_close(gradient_o, gradient, 5e-6)
  _, _, loss_e, _ = gpt_cases.run(plain, params, batch)
  assert abs(loss_e - loss) > 1e-3  # there was dropout


def deepen(params):
  """Returns parameters of 4 layers from those of 2, all different."""
  layers = jax.tree.map(
    lambda leaf: jnp.concatenate([leaf, 1.05 * leaf[::-1]]), params['layers']
  )
  return params | {'layers': layers}


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
    layers = jnp.concatenate([leaf.loop, jnp.stack(leaf.last)])
    return layers[:, 0] if layers.shape[1] == 1 else layers

  layers = jax.tree.map(
    one, params['layers'], is_leaf=lambda leaf: isinstance(leaf, stack.Split)
  )
  return params | {'layers': layers}


@pytest.mark.parametrize('dropout', [True, False])
@pytest.mark.parametrize(
  ('unrolled', 'joined'), [(1, False), (3, False), (2, True)]
)
def test_layers_of_bert_that_follow_the_loop_agree(unrolled, joined, dropout):
  batch = bert_cases.make_batch()
  rng = jax.random.key(5) if dropout else None
  model = bert_cases.make_model(num_layers=4)
  params = deepen(bert_cases.init_params())
  outputs, _, losses, gradient = bert_cases.run(model, params, batch, rng)
  parts = split(params, unrolled, joined)
  outputs_s, _, losses_s, gradient_s = bert_cases.run(model, parts, batch, rng)
  bert_cases.assert_close(outputs_s, outputs, 5e-6)
  bert_cases.assert_close(losses_s, losses, 2e-6)
  bert_cases.assert_close(join(gradient_s), gradient, 5e-6)
  text = bert_cases.run.lower(model, parts, batch, rng).as_text()
  assert 'stablehlo.while' in text


@pytest.mark.parametrize('pre_norm', [False, True])
def test_layers_of_gpt_that_follow_the_loop_agree(pre_norm):
  batch, rng = gpt_cases.make_batch(), jax.random.key(5)
  model = gpt_cases.make_model(pre_norm=pre_norm, num_layers=4)
  params = deepen(gpt_cases.init_params(pre_norm))
  _, _, loss, gradient = gpt_cases.run(model, params, batch, rng)
  _, _, loss_s, gradient_s = gpt_cases.run(model, split(params, 2), batch, rng)
  assert abs(loss_s - loss) < 2e-6
  bert_cases.assert_close(join(gradient_s), gradient, 5e-6)
  _, _, loss_e, _ = gpt_cases.run(model, split(params, 2), batch)
  assert abs(loss_e - loss) > 1e-3  # there was dropout


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
  assert (
    stack.count_unrolled(bert_cases.make_model(num_layers=4, **fields)) == count
  )


def test_masks_differ_from_layer_to_layer():
  """The same parameters in all layers; only their masks tell them apart."""
  batch, rng = bert_cases.make_batch(), jax.random.key(5)
  params = bert_cases.init_params()
  same = jax.tree.map(lambda leaf: 0 * leaf, params['layers'])
  # Sub-layers give ones, before their norms only.
  same['mlp']['out']['bias'] += 1.0
  same['mlp_norm']['scale'] += 1.0
  model = bert_cases.make_model(attention_dropout_rate=0.0, dropout_rate=0.5)
  _, sown, _, _ = bert_cases.run(
    model, params | {'layers': same}, batch, rng, sow=True
  )
  (hidden,) = sown['layers']['hidden']
  first, second = hidden > 0
  share = jnp.mean(first == second)
  assert 0.45 < share < 0.55


def test_a_forced_kernel_is_for_training_alone():
  """Samples of a run have other lengths than its training."""
  model = bert_cases.make_model(attention='fused')
  assert stack.block_fields(model, train=True)['attention'] == 'fused'
  assert stack.block_fields(model, train=False)['attention'] == 'suited'
  batch = bert_cases.make_batch()
  params = bert_cases.init_params()
  inputs = [batch[name] for name in bert_cases.INPUTS]
  found, plain = (
    each.apply({'params': params}, *inputs, train=False)
    for each in (model, bert_cases.make_model(attention='plain'))
  )
  np.testing.assert_array_equal(found['hidden'], plain['hidden'])


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_all_layers_are_given_where_some_follow_the_loop(dtype):
  batch = bert_cases.make_batch()
  inputs = [batch[name] for name in bert_cases.INPUTS]
  model = bert_cases.make_model(num_layers=4, dtype=dtype)
  params = deepen(bert_cases.init_params())
  run = jax.jit(
    functools.partial(model.apply, train=False, all_layers=True),
  )
  layers = run({'params': params}, *inputs)['layers']
  found = run({'params': split(params, 2)}, *inputs)['layers']
  assert found.shape[0] == 5 and found.dtype == dtype
  tolerance = 5e-6 if dtype == jnp.float32 else 0.05
  np.testing.assert_allclose(
    found.astype(jnp.float32), layers.astype(jnp.float32), atol=tolerance
  )


def test_split_parameters_sow_nothing():
  batch = bert_cases.make_batch()
  inputs = [batch[name] for name in bert_cases.INPUTS]
  model = bert_cases.make_model(num_layers=4)
  params = split(deepen(bert_cases.init_params()), 2)
  with pytest.raises(ValueError, match='split for a training step'):
    model.apply(
      {'params': params}, *inputs, train=False, mutable=['intermediates']
    )
