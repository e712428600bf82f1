"""Heads of tasks: what they read, and what has no influence on them."""

import functools

import elmo_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import transfer_cases
from flax import linen as nn

from configs import base
from models import features, gpt, layers, lstm_lm, scalar_mix, task_model
from models.dropout import Dropout

close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-5)
KEY = jax.random.key(1)


def run(model, params, batch, rng=None):
  return transfer_cases.run(model, params, transfer_cases.inputs_of(batch), rng)


@pytest.mark.parametrize('name', ['bert', 'gpt', 'gpt2'])
def test_encoder_keeps_the_places_of_its_parameters(name):
  """Beside it lie the head and what else the task adds, with known axes."""
  batch = transfer_cases.make_batch()
  inputs = transfer_cases.inputs_of(batch)
  if name == 'bert':
    encoder, alone = transfer_cases.make_bert(), inputs[:4]
  else:
    encoder = transfer_cases.make_gpt(pre_norm=name == 'gpt2')
    alone = [inputs[0], inputs[1], inputs[3]]
  model = transfer_cases.make_model(encoder, features='mix', bilstm_layers=2)
  boxed = transfer_cases.boxed_params(model, batch)
  expected = jax.eval_shape(
    functools.partial(encoder.init, train=False), jax.random.key(0), *alone
  )['params']
  assert set(boxed) == {*expected, 'classifier', 'bilstm', 'mix'}
  for part, tree in expected.items():
    assert boxed[part] == tree
  assert boxed['layers']['mlp']['in']['kernel'].names[0] == 'layers'
  rules = {name for name, _ in base.get_config().mesh.rules}
  boxes = jax.tree.leaves(
    boxed, is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned)
  )
  for box in boxes:
    assert len(box.names) == len(box.value.shape)
    assert set(box.names) <= rules


@pytest.mark.parametrize('name', ['bert', 'gpt'])
def test_parameters_start_as_in_the_release(name):
  """The encoder's as when it is alone; the linear layer's by its own rule."""
  batch = transfer_cases.make_batch(lengths=(4,), T=4)
  inputs = transfer_cases.inputs_of(batch)
  if name == 'bert':
    encoder, alone = transfer_cases.make_bert(), inputs[:4]
  else:
    encoder = transfer_cases.make_gpt()
    alone = [inputs[0], inputs[1], inputs[3]]
  model = transfer_cases.make_model(encoder, num_outputs=200)

  @jax.jit
  def draw(rng):
    ours = nn.meta.unbox(model.init(rng, *inputs, train=False)['params'])
    theirs = nn.meta.unbox(encoder.init(rng, *alone, train=False)['params'])
    return ours['classifier'], [
      tree['layers']['mlp']['in']['kernel'] for tree in (ours, theirs)
    ]

  head, kernels = draw(jax.random.key(0))
  np.testing.assert_array_equal(*kernels)
  kernel = np.asarray(head['kernel'])
  low, high = {'bert': (0.038, 0.04), 'gpt': (0.06, 0.12)}[name]
  assert low < np.abs(kernel).max() <= high
  stddev = {'bert': layers.TRUNCATED_STDDEV, 'gpt': gpt.INIT_STDDEV}[name]
  assert abs(kernel.std() / stddev - 1) < 0.03
  assert (head['bias'] == 0).all()


@functools.cache
def five_layers():
  """Inputs, a BERT, its parameters, and its hidden states [6, B, T, D]."""
  encoder = transfer_cases.make_bert((), num_layers=5)
  batch = transfer_cases.make_batch()
  model = transfer_cases.make_model(
    encoder, 'token_classifier', 5, features='mix'
  )
  params = transfer_cases.draw_params(model, batch)
  own = {k: v for k, v in params.items() if k in ('embeddings', 'layers')}
  found = jax.jit(functools.partial(features.hidden_layers, encoder))(
    own, *transfer_cases.inputs_of(batch)[:4]
  )
  return batch, model, params, np.asarray(found)


@pytest.mark.parametrize('name', [*features.FEATURES, 'mix'])
def test_features_equal_those_computed_by_hand(name):
  batch, model, params, found = five_layers()
  expected = {
    'last': found[5],
    'first': found[0],
    'second_to_last': found[4],
    'sum_last_4': found[2] + found[3] + found[4] + found[5],
    'concat_last_4': np.concatenate(found[2:], axis=-1),
    'sum_all': found[1:].sum(axis=0),
  }.get(name)
  head = params['token_classifier']
  if name == 'mix':
    mix = params['mix']
    weights = np.asarray(jax.nn.softmax(mix[scalar_mix.WEIGHTS]))
    assert weights.shape == (6,) and np.ptp(weights) > 0.001
    expected = mix[scalar_mix.SCALE] * np.einsum('LBTD,L->BTD', found, weights)
  elif name == 'concat_last_4':
    kernel = np.random.default_rng(1).normal(0, 0.1, (4 * found.shape[-1], 5))
    head = head | {'kernel': kernel.astype('f4')}
  params = params | {'token_classifier': head}
  expected = expected @ head['kernel'] + head['bias']
  model = model.clone(features=name)
  close(run(model, params, batch)['logits'], expected)
  if name == 'sum_all':  # a classifier reads the same features at [CLS]
    params = params | {'classifier': head}
    rows = model.clone(head='classifier')
    close(run(rows, params, batch)['logits'], expected[:, 0])


@pytest.mark.parametrize('name', ['last', 'second_to_last'])
def test_left_to_right_models_are_read_at_the_last_token(name):
  encoder = transfer_cases.make_gpt()
  batch = transfer_cases.make_batch()
  model = transfer_cases.make_model(encoder, features=name)
  params = transfer_cases.draw_params(model, batch)
  found = run(model, params, batch)['logits']
  every = run(
    model.clone(head='token_classifier'),
    params | {'token_classifier': params['classifier']},
    batch,
  )['logits']
  close(found, every[np.arange(len(found)), batch['last']])


def test_two_orders_are_added_before_the_linear_layer():
  encoder = transfer_cases.make_gpt()
  model = transfer_cases.make_model(encoder, both_orders=True, lm=True)
  batch = transfer_cases.make_batch(choices=2)
  params = transfer_cases.draw_params(model, batch)
  outputs = run(model, params, batch)
  assert outputs['logits'].shape == (6, 3)
  assert outputs['lm_logits'].shape == (6, 2, 13, 256)
  single = transfer_cases.make_model(encoder)
  first, second = (
    run(
      single,
      params,
      {k: v[:, i] for k, v in batch.items() if k != 'label' and k != 'score'},
    )['logits']
    for i in range(2)
  )
  close(outputs['logits'], first + second - params['classifier']['bias'])


def test_choices_share_their_dropout_and_examples_do_not():
  encoder = transfer_cases.make_gpt(
    dropout_rate=0.0, attention_dropout_rate=0.0
  )
  model = transfer_cases.make_model(encoder, num_outputs=1, dropout_rate=0.5)
  one = transfer_cases.make_batch(lengths=(9, 9), choices=3)
  same = {
    k: np.broadcast_to(v[:1, :1], v.shape)
    for k, v in one.items()
    if k in transfer_cases.INPUTS
  }
  params = transfer_cases.draw_params(model, one)
  logits = np.asarray(run(model, params, same, KEY)['logits'])
  assert logits.shape == (2, 3)
  close(logits, np.repeat(logits[:, :1], 3, axis=1), atol=1e-6)
  assert abs(logits[0, 0] - logits[1, 0]) > 0.01


class DroppedEmbeddings(nn.Module):
  """A left-to-right encoder with a module that has no name of its own."""

  dtype: jnp.dtype = jnp.float32

  @nn.compact
  def __call__(self, tokens, token_mask, positions, *, train):
    x_BTD = layers.TokenTable(131, 8, name='tokens')(tokens)
    return {'hidden': Dropout(0.5 if train else 0.0)(x_BTD)}


def test_any_encoder_that_is_called_as_a_gpt():
  batch = transfer_cases.make_batch()
  model = transfer_cases.make_model(DroppedEmbeddings(), dropout_rate=0.5)
  boxed = transfer_cases.boxed_params(model, batch)
  assert set(boxed) == {'tokens', 'classifier'}
  params = jax.tree.map(lambda leaf: jnp.ones(leaf.shape), nn.meta.unbox(boxed))
  logits = jax.eval_shape(lambda: run(model, params, batch, KEY)['logits'])
  assert logits.shape == (6, 3)


@pytest.mark.parametrize('head', features.HEADS)
def test_dropout_before_the_head_but_not_of_spans(head):
  encoder = transfer_cases.make_bert(
    dropout_rate=0.0, attention_dropout_rate=0.0
  )
  model = transfer_cases.make_model(encoder, head, 2, dropout_rate=0.5)
  batch = transfer_cases.make_batch()
  params = transfer_cases.draw_params(model, batch)
  logits = run(model, params, batch)['logits']
  trained = run(model, params, batch, KEY)['logits']
  differs = np.abs(logits - trained).max() > 1e-3
  assert differs == (head != 'span_classifier')


def gradient_of(model, params, batch):
  """Returns the gradient of training, and the logits."""
  return jax.device_get(differentiate(model, params, batch))


@functools.partial(jax.jit, static_argnums=0)
def differentiate(model, params, batch):

  def loss(params):
    logits = run(model, params, batch, KEY)['logits']
    return transfer_cases.loss_of('', logits, batch), logits

  return jax.grad(loss, has_aux=True)(params)


def moves(gradient):
  return jax.tree.map(lambda g: bool((g != 0).any()), gradient)


def make_batch_with_empty_row():
  """As padding examples are: none of its tokens is real."""
  batch = transfer_cases.make_batch(lengths=(5, 0, 7))
  batch['last'] = np.maximum(batch['last'], 0)
  return batch


def test_frozen_encoder_gets_no_gradient_and_no_dropout():
  batch = make_batch_with_empty_row()
  model = transfer_cases.make_model(
    transfer_cases.make_bert(), frozen=True, features='mix', bilstm_layers=1
  )
  params = transfer_cases.draw_params(model, batch)
  gradient, logits = gradient_of(model, params, batch)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves((gradient, logits)))
  close(logits, run(model, params, batch)['logits'], atol=1e-6)
  moving = moves(gradient)
  assert moving == task_model.trainable(params, True)
  assert not any(jax.tree.leaves(moving['layers']))
  assert all(jax.tree.leaves([moving[k] for k in ('bilstm', 'mix')]))


@pytest.mark.slow
def test_whole_model_is_trained_however_it_runs():
  """Computed again in the backward pass; unrolled, in half precision."""
  batch = make_batch_with_empty_row()
  model = transfer_cases.make_model(transfer_cases.make_bert(), features='mix')
  params = transfer_cases.draw_params(model, batch)
  gradient, logits = gradient_of(model, params, batch)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves((gradient, logits)))
  expected = task_model.trainable(params, False)
  assert all(jax.tree.leaves(expected))
  expected['pooler'] = {'kernel': False, 'bias': False}  # the mix is read
  assert moves(gradient) == expected

  other = model.clone(backbone=model.backbone.clone(remat=True))
  jax.tree.map(close, gradient_of(other, params, batch), (gradient, logits))
  half = model.clone(
    backbone=model.backbone.clone(dtype=jnp.bfloat16, scan_layers=False)
  )
  half_logits = run(half, params, batch, KEY)['logits']
  assert half_logits.dtype == jnp.float32
  close(half_logits, logits, atol=0.05)


@pytest.mark.parametrize(
  'name, fields',
  [
    ('bert', dict(head='classifier')),
    ('gpt', dict(num_outputs=1)),
    ('bert', dict(features='mix', bilstm_layers=2)),
    ('bert', dict(head='span_classifier', num_outputs=2, bilstm_layers=1)),
  ],
)
def test_padding_has_no_influence(name, fields):
  choices = 3 if name == 'gpt' else None
  batch = transfer_cases.make_batch(lengths=(12, 7, 0, 2), choices=choices)
  batch['last'] = np.maximum(batch['last'], 0)
  other = batch | {
    key: np.where(batch['token_mask'], batch[key], value)
    for key, value in (('tokens', 7), ('token_types', 1), ('positions', 3))
  }
  encoder = dict(
    bert=transfer_cases.make_bert(), gpt=transfer_cases.make_gpt()
  )[name]
  model = transfer_cases.make_model(encoder, **fields)
  params = transfer_cases.draw_params(model, batch)
  one, two = (run(model, params, b)['logits'] for b in (batch, other))
  assert np.isfinite(one).all() and np.isfinite(two).all()
  real = batch['token_mask']
  if model.head == 'classifier':
    real = real.any(axis=-1)
  close(one[real], two[real], atol=1e-6)


def test_left_to_right_bert_sees_no_later_token():
  batch = transfer_cases.make_batch(lengths=(13, 9))
  changed = batch | {'tokens': batch['tokens'].copy()}
  changed['tokens'][:, 6] = 5 + (changed['tokens'][:, 6] + 1) % 100
  for left_to_right in (True, False):
    encoder = transfer_cases.make_bert((), left_to_right=left_to_right)
    model = transfer_cases.make_model(encoder, 'token_classifier', 5)
    params = transfer_cases.draw_params(model, batch)
    one, other = (run(model, params, b)['logits'] for b in (batch, changed))
    moved = np.abs(one - other).max(axis=(0, 2))
    assert (moved[6:9] > 1e-5).all()
    assert (moved[:6] == 0).all() == left_to_right


def test_eight_devices_equal_one():
  model = transfer_cases.make_model(
    transfer_cases.make_gpt(num_heads=2),
    num_outputs=4,
    features='mix',
    bilstm_layers=1,
    both_orders=True,
    dropout_rate=0.1,
    frozen=True,  # its own sharding is tested without a head
  )
  batch = transfer_cases.make_batch(
    lengths=(13, 7, 2, 12, 9, 4, 5, 13), choices=2
  )
  params = transfer_cases.draw_params(model, batch)
  expected = gradient_of(model, params, batch)
  mesh = jax.sharding.Mesh(
    np.array(jax.devices()).reshape(2, 2, 2), ('data', 'fsdp', 'tensor')
  )
  rules = base.get_config().mesh.rules
  boxed = transfer_cases.boxed_params(model, batch)
  places = nn.logical_to_mesh_sharding(
    nn.get_partition_spec(boxed), mesh, rules
  )
  rows = jax.NamedSharding(mesh, jax.P(('data', 'fsdp')))
  jax.clear_caches()  # what was traced outside of the mesh has no constraints
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    sharded = jax.device_put(params, places)
    for kernel, axis in (
      (sharded['classifier']['kernel'], 0),
      (sharded['bilstm']['layer_0']['input_kernel'], 1),
      (sharded['bilstm']['layer_0']['input_kernel'], 3),
    ):
      part = kernel.sharding.shard_shape(kernel.shape)
      assert part[axis] == kernel.shape[axis] // 2
    found = gradient_of(model, sharded, jax.device_put(batch, rows))
  jax.clear_caches()
  jax.tree.map(close, found, expected)


@pytest.mark.parametrize(
  'fields, choices, message',
  [
    ({'head': 'clasifier'}, None, "head is 'clasifier', expected one of clas"),
    ({'features': 'top'}, None, "features is 'top', expected one of last"),
    (
      {'features': 'concat_last_4'},
      None,
      'last 4 layers, but the encoder has 2',
    ),
    ({'num_outputs': 3}, 4, 'num_outputs is 3, expected 1: each of 4 choices'),
    ({'head': 'span_classifier'}, None, 'num_outputs is 3, expected 2'),
    ({'head': 'token_classifier'}, 4, r'expected \[B, T\], or of a classifier'),
    ({'both_orders': True}, 3, r'expected \[B, 2, T\]'),
    (
      {'encoder': lstm_lm.LstmLm(9, 8, 16), 'features': 'mix'},
      None,
      'LstmLm returns no other',
    ),
    (
      {'encoder': elmo_cases.make_model()},
      None,
      'an Elmo must be frozen: set frozen=True',
    ),
    (
      {'encoder': elmo_cases.make_model(), 'frozen': True},
      None,
      'bilstm_layers is 0, expected 1 or more',
    ),
    ({'lm': True}, None, 'a Bert predicts no token'),
    (
      {'encoder': transfer_cases.make_bert(())},
      None,
      "expected 'pooler' among",
    ),
  ],
  ids=lambda value: None if isinstance(value, str) else str(value)[:20],
)
def test_what_does_not_fit_is_refused(fields, choices, message):
  model = transfer_cases.make_model(
    **{'encoder': transfer_cases.make_bert()} | fields
  )
  batch = transfer_cases.make_batch(choices=choices)
  with pytest.raises(ValueError, match=message):
    transfer_cases.boxed_params(model, batch)
