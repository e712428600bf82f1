"""Heads of tasks: what they read, what training changes, what padding does not."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import transfer_cases
from flax import linen as nn

from configs import base
from models import features, gpt, heads, layers, scalar_mix, transfer

close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-5)
KEY = jax.random.key(1)


def run(model, params, batch, rng=None):
  return transfer_cases.run(model, params, transfer_cases.inputs_of(batch), rng)


def boxed_params(model, batch):
  return jax.eval_shape(
    functools.partial(model.init, train=False),
    jax.random.key(0),
    *transfer_cases.inputs_of(batch),
  )['params']


@pytest.mark.parametrize('name', ['bert', 'gpt', 'gpt2'])
def test_encoder_keeps_the_places_and_values_of_its_parameters(name):
  """Beside it lie the head and what else the task adds, with known axes."""
  batch = transfer_cases.make_batch()
  inputs = transfer_cases.inputs_of(batch)
  if name == 'bert':
    encoder, alone = transfer_cases.make_bert(), inputs[:4]
  else:
    encoder = transfer_cases.make_gpt(pre_norm=name == 'gpt2')
    alone = [inputs[0], inputs[1], inputs[3]]
  model = transfer_cases.make_model(encoder, features='mix', bilstm_layers=2)
  rng = jax.random.key(0)
  boxed, expected = jax.jit(
    lambda: (
      model.init(rng, *inputs, train=False)['params'],
      encoder.init(rng, *alone, train=False)['params'],
    )
  )()
  assert set(boxed) == {*expected, 'classifier', 'bilstm', 'mix'}
  for part, tree in expected.items():
    jax.tree.map(np.testing.assert_array_equal, boxed[part], tree)
    assert nn.get_partition_spec(boxed[part]) == nn.get_partition_spec(tree)
  rules = {name for name, _ in base.get_config().mesh.rules}
  boxes = jax.tree.leaves(
    boxed, is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned)
  )
  for box in boxes:
    assert len(box.names) == box.value.ndim
    assert set(box.names) <= rules


@pytest.mark.parametrize('name', ['bert', 'gpt'])
def test_linear_layer_starts_as_in_the_release(name):
  encoder = dict(
    bert=transfer_cases.make_bert(), gpt=transfer_cases.make_gpt()
  )[name]
  model = transfer_cases.make_model(encoder, num_outputs=200)
  batch = transfer_cases.make_batch(lengths=(4,), T=4)
  params = transfer_cases.init_params(model, batch, noise=0)
  kernel = np.asarray(params['classifier']['kernel'])
  largest = {'bert': 2 * 0.02, 'gpt': 4 * 0.02}[name]
  assert (
    largest * 0.8 < np.abs(kernel).max() < {'bert': 0.04, 'gpt': 0.12}[name]
  )
  stddev = {'bert': layers.TRUNCATED_STDDEV, 'gpt': gpt.INIT_STDDEV}[name]
  assert abs(kernel.std() / stddev - 1) < 0.03
  assert (params['classifier']['bias'] == 0).all()


@pytest.mark.parametrize('name', [*heads.FEATURES, 'mix'])
def test_features_equal_those_computed_by_hand(name):
  encoder = transfer_cases.make_bert((), num_layers=5)
  model = transfer_cases.make_model(
    encoder, 'token_classifier', 5, features=name
  )
  batch = transfer_cases.make_batch()
  params = transfer_cases.init_params(model, batch)
  own = {k: v for k, v in params.items() if k in ('embeddings', 'layers')}
  found = np.asarray(
    jax.jit(functools.partial(features.hidden_layers, encoder))(
      own, *transfer_cases.inputs_of(batch)[:4]
    )
  )
  assert len(found) == 6
  expected = {
    'last': found[5],
    'first': found[0],
    'second_to_last': found[4],
    'sum_last_4': found[2] + found[3] + found[4] + found[5],
    'concat_last_4': np.concatenate(found[2:], axis=-1),
    'sum_all': found[1:].sum(axis=0),
  }.get(name)
  if name == 'mix':
    mix = params['mix']
    weights = np.asarray(jax.nn.softmax(mix[scalar_mix.WEIGHTS]))
    assert weights.shape == (6,) and np.ptp(weights) > 0.001
    expected = mix[scalar_mix.SCALE] * np.einsum('LBTD,L->BTD', found, weights)
  head = params['token_classifier']
  expected = expected @ head['kernel'] + head['bias']
  logits = run(model, params, batch)['logits']
  close(logits, expected)
  # A classifier of rows reads the same features at [CLS].
  if name != 'last':
    rows = model.clone(head='classifier')
    params['classifier'] = params.pop('token_classifier')
    close(run(rows, params, batch)['logits'], expected[:, 0])


def test_left_to_right_models_are_read_at_the_last_token():
  encoder = transfer_cases.make_gpt()
  batch = transfer_cases.make_batch()
  tokens = transfer_cases.make_model(encoder, 'token_classifier')
  params = transfer_cases.init_params(tokens, batch)
  every = run(tokens, params, batch)['logits']
  params['classifier'] = params.pop('token_classifier')
  rows = np.arange(len(batch['last']))
  for fields in ({}, {'features': 'second_to_last'}):
    every = run(
      tokens.clone(**fields),
      params | {'token_classifier': params['classifier']},
      batch,
    )['logits']
    model = transfer_cases.make_model(encoder, **fields)
    found = run(model, params, batch)['logits']
    close(found, every[rows, batch['last']])


def test_two_orders_are_added_before_the_linear_layer():
  encoder = transfer_cases.make_gpt()
  model = transfer_cases.make_model(encoder, both_orders=True, lm=True)
  batch = transfer_cases.make_batch(choices=2)
  params = transfer_cases.init_params(model, batch)
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
  params = transfer_cases.init_params(model, one, noise=0.1)
  logits = np.asarray(run(model, params, same, KEY)['logits'])
  assert logits.shape == (2, 3)
  close(logits, np.repeat(logits[:, :1], 3, axis=1), atol=1e-6)
  assert abs(logits[0, 0] - logits[1, 0]) > 0.01


@pytest.mark.parametrize('head', heads.HEADS)
def test_dropout_before_the_head_but_not_of_spans(head):
  encoder = transfer_cases.make_bert(
    dropout_rate=0.0, attention_dropout_rate=0.0
  )
  model = transfer_cases.make_model(encoder, head, 2, dropout_rate=0.5)
  batch = transfer_cases.make_batch()
  params = transfer_cases.init_params(model, batch)
  logits = run(model, params, batch)['logits']
  trained = run(model, params, batch, KEY)['logits']
  differs = np.abs(logits - trained).max() > 1e-3
  assert differs == (head != 'span_classifier')


def test_frozen_encoder_gets_no_gradient_and_no_dropout():
  batch = transfer_cases.make_batch()
  fields = dict(features='mix', bilstm_layers=1)
  model = transfer_cases.make_model(
    transfer_cases.make_bert(), frozen=True, **fields
  )
  params = transfer_cases.init_params(model, batch)
  close(
    run(model, params, batch, KEY)['logits'],
    run(model, params, batch)['logits'],
    atol=0,
  )

  @functools.partial(jax.jit, static_argnums=0)
  def gradient(model, params):
    return jax.grad(
      lambda p: transfer_cases.loss_of(
        'SequenceClassification', run(model, p, batch, KEY)['logits'], batch
      )
    )(params)

  moves = jax.tree.map(lambda g: bool((g != 0).any()), gradient(model, params))
  assert moves == transfer.trainable(params, True)
  assert not any(jax.tree.leaves(moves['layers']))
  assert all(jax.tree.leaves([moves[k] for k in ('bilstm', 'mix')]))
  free = model.clone(frozen=False)
  moves = jax.tree.map(lambda g: bool((g != 0).any()), gradient(free, params))
  expected = transfer.trainable(params, False)
  assert all(jax.tree.leaves(expected))
  # The mix stands in for the pooler.
  expected['pooler'] = {'kernel': False, 'bias': False}
  assert moves == expected


@pytest.mark.parametrize(
  'fields',
  [
    dict(head='classifier'),
    dict(head='classifier', num_outputs=1, choices=3),
    dict(head='classifier', features='mix', bilstm_layers=2),
    dict(head='token_classifier', features='sum_all', bilstm_layers=2),
    dict(head='span_classifier', num_outputs=2),
  ],
  ids=lambda fields: '-'.join(map(str, fields.values())),
)
def test_padding_has_no_influence(fields):
  choices = fields.pop('choices', None) if 'choices' in fields else None
  batch = transfer_cases.make_batch(choices=choices)
  more = {
    key: np.concatenate(
      [np.where(batch['token_mask'], value, 7)]
      + [np.full_like(value[..., :3], 3)],
      axis=-1,
    )
    for key, value in batch.items()
    if key in transfer_cases.INPUTS[:4]
  }
  more['token_mask'] = np.pad(
    batch['token_mask'], [(0, 0)] * (batch['token_mask'].ndim - 1) + [(0, 3)]
  )
  more['last'] = batch['last']
  encoders = [transfer_cases.make_bert()]
  if fields['head'] == 'classifier':
    encoders.append(transfer_cases.make_gpt())
  for encoder in encoders:
    model = transfer_cases.make_model(encoder, **fields)
    params = transfer_cases.init_params(model, batch)
    logits = run(model, params, batch)['logits']
    padded = run(model, params, more)['logits']
    if fields['head'] != 'classifier':
      logits = logits[batch['token_mask']]
      padded = padded[:, :-3][batch['token_mask']]
    close(padded, logits)


@pytest.mark.parametrize(
  'make', [transfer_cases.make_bert, transfer_cases.make_gpt]
)
def test_rows_of_nothing_but_padding_give_finite_values(make):
  model = transfer_cases.make_model(make(), features='mix', bilstm_layers=1)
  batch = transfer_cases.make_batch(lengths=(5, 0))
  batch['last'] = np.maximum(batch['last'], 0)
  params = transfer_cases.init_params(model, batch)

  @jax.jit
  def loss(params):
    return jnp.sum(run(model, params, batch, KEY)['logits'] ** 2)

  values = jax.tree.leaves(jax.value_and_grad(loss)(params))
  assert all(np.isfinite(value).all() for value in values)


def test_left_to_right_bert_sees_no_later_token():
  batch = transfer_cases.make_batch(lengths=(13, 9))
  changed = batch | {'tokens': batch['tokens'].copy()}
  changed['tokens'][:, 6] = 5 + (changed['tokens'][:, 6] + 1) % 100
  for left_to_right in (True, False):
    encoder = transfer_cases.make_bert((), left_to_right=left_to_right)
    model = transfer_cases.make_model(encoder, 'token_classifier', 5)
    params = transfer_cases.init_params(model, batch)
    one, other = (run(model, params, b)['logits'] for b in (batch, changed))
    moved = np.abs(one - other).max(axis=(0, 2))
    assert (moved[6:9] > 1e-5).all()
    assert (moved[:6] == 0).all() == left_to_right


def test_scanned_unrolled_rematerialised_and_half_precision_agree():
  batch = transfer_cases.make_batch()
  fields = dict(features='sum_all', bilstm_layers=1)

  @functools.partial(jax.jit, static_argnums=0)
  def losses_of(model, params):
    def loss(params):
      logits = run(model, params, batch, KEY)['logits']
      return transfer_cases.loss_of('SequenceClassification', logits, batch)

    return jax.value_and_grad(loss)(params)

  model = transfer_cases.make_model(transfer_cases.make_bert(), **fields)
  params = transfer_cases.init_params(model, batch)
  expected = losses_of(model, params)
  for changes in (
    {'scan_layers': False},
    {'remat': True},
    {'dtype': jnp.bfloat16},
  ):
    other = model.clone(encoder=model.encoder.clone(**changes))
    tolerance = 0.05 if 'dtype' in changes else 1e-5
    jax.tree.map(
      functools.partial(close, atol=tolerance),
      losses_of(other, params),
      expected,
    )
  logits = jax.eval_shape(lambda: run(other, params, batch)['logits'])
  assert logits.dtype == jnp.float32


@pytest.mark.parametrize('name', ['classifier', 'features'])
def test_eight_devices_equal_one(name):
  if name == 'classifier':
    encoder = transfer_cases.make_bert(num_heads=2, mlp_dim=64)
    model = transfer_cases.make_model(encoder, num_outputs=4, dropout_rate=0.1)
  else:
    encoder = transfer_cases.make_gpt(num_heads=2)
    model = transfer_cases.make_model(
      encoder,
      num_outputs=4,
      features='mix',
      bilstm_layers=2,
      both_orders=True,
      lm=True,
      dropout_rate=0.1,
    )
  choices = None if name == 'classifier' else 2
  batch = transfer_cases.make_batch(
    lengths=(13, 7, 2, 12, 9, 4, 5, 13), T=13, choices=choices
  )
  params = transfer_cases.init_params(model, batch)
  inputs = transfer_cases.inputs_of(batch)

  @jax.jit
  def step(params, inputs, labels):
    def loss(params):
      outputs = model.apply(
        {'params': params}, *inputs, train=True, rngs={'dropout': KEY}
      )
      batch = {'label': labels}
      return transfer_cases.loss_of('', outputs['logits'], batch), outputs

    return jax.value_and_grad(loss, has_aux=True)(params)

  expected = step(params, inputs, batch['label'])
  mesh = jax.sharding.Mesh(
    np.array(jax.devices()).reshape(2, 2, 2), ('data', 'fsdp', 'tensor')
  )
  rules = base.get_config().mesh.rules
  places = nn.logical_to_mesh_sharding(
    nn.get_partition_spec(boxed_params(model, batch)), mesh, rules
  )
  rows = jax.NamedSharding(mesh, jax.P(('data', 'fsdp')))
  jax.clear_caches()  # what was traced outside of the mesh has no constraints
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    sharded = jax.device_put(params, places)
    arguments = jax.device_put((inputs, batch['label']), rows)
    kernel = sharded['classifier']['kernel']
    assert kernel.sharding.shard_shape(kernel.shape)[0] == len(kernel) // 2
    found = step(sharded, *arguments)
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
    ({'lm': True}, None, 'a Bert predicts no next token'),
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
    boxed_params(model, batch)
