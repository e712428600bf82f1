"""The LSTM in GPT's place, against PyTorch's and against itself."""

import functools
import warnings

import bert_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import linen as nn

from configs import base
from configs.sections import gpt as gpt_section
from models import layers, lstm_lm

V, D, F, T = 100, 16, 24, 11


def make_model(**fields):
  sizes = dict(vocab_size=V, embed_dim=D, lstm_dim=F, num_layers=2)
  return lstm_lm.LstmLm(**sizes | dict(max_length=32) | fields)


def make_batch(lengths=(11, 4, 7), seed=0):
  rng = np.random.default_rng(seed)
  mask = np.arange(T) < np.array(lengths)[:, None]
  tokens = rng.integers(0, V, mask.shape).astype(np.int32)
  return np.where(mask, tokens, 0), mask


def place(tokens):
  return np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)


@functools.cache
def init_params(num_layers=2):
  tokens, mask = make_batch()
  model = make_model(num_layers=num_layers)
  variables = jax.jit(functools.partial(model.init, train=False))(
    jax.random.key(0), tokens, mask, place(tokens)
  )
  return jax.tree.map(
    lambda leaf: 3 * leaf + np.float32(0.01),
    jax.device_get(nn.unbox(variables)['params']),
  )


def run(*arguments):
  """Loss of what follows, outputs, and the loss's gradient."""
  return jax.device_get(compute(*arguments))


@functools.partial(jax.jit, static_argnums=0)
def compute(model, params, tokens, mask, rng=None):

  def loss(params):
    outputs = model.apply(
      {'params': params},
      tokens,
      mask,
      place(tokens),
      train=rng is not None,
      rngs=None if rng is None else {'dropout': rng},
    )
    log_probs = jax.nn.log_softmax(outputs['lm_logits'][:, :-1])
    values = jnp.take_along_axis(log_probs, tokens[:, 1:, None], axis=-1)
    return -jnp.sum(values[..., 0] * mask[:, 1:]), outputs

  (value, outputs), gradient = jax.value_and_grad(loss, has_aux=True)(params)
  return value, outputs, gradient


def test_it_is_pytorchs():
  """nn.LSTM has a projection; its gates are i, f, j, o, its bias has the 1."""
  tokens, mask = make_batch()
  params = init_params()
  _, outputs, _ = run(make_model(), params, tokens, mask)
  theirs = torch.nn.LSTM(D, F, 2, batch_first=True, proj_size=D)
  state = {}
  for i in range(2):
    layer = jax.tree.map(
      lambda x: np.array(x[0]), params[f'layers_{i}']['lstm']
    )
    order = [0, 2, 1, 3]
    for name, kernel in (('ih', 'input_kernel'), ('hh', 'recurrent_kernel')):
      matrix = layer[kernel][:, order].reshape(D, 4 * F).T
      state[f'weight_{name}_l{i}'] = torch.tensor(matrix)
    bias = layer['bias'] + np.array([0, 0, 1, 0])[:, None]
    state[f'bias_ih_l{i}'] = torch.tensor(bias[order].ravel()).float()
    state[f'bias_hh_l{i}'] = torch.zeros(4 * F)
    state[f'weight_hr_l{i}'] = torch.tensor(layer['projection_kernel'].T)
  theirs.load_state_dict(state)
  table = np.array(params['tokens']['embedding'])
  with torch.no_grad(), warnings.catch_warnings():
    warnings.filterwarnings('ignore', message='LSTM with projections is not')
    hidden, _ = theirs(torch.tensor(table[tokens]))
  expected = hidden.numpy()
  bert_cases.assert_close(outputs['hidden'][mask], expected[mask], 1e-5)
  logits = np.asarray(outputs['lm_logits'])
  bert_cases.assert_close(
    logits[mask][:, :V], (expected @ table.T)[mask][:, :V], 1e-4
  )
  assert (logits[..., V:] == np.finfo(np.float32).min).all()


def test_no_position_sees_what_follows():
  tokens, mask = make_batch()
  params = init_params()
  logits = run(make_model(), params, tokens, mask)[1]['lm_logits']
  changed, t = tokens.copy(), 5
  changed[0, t] = (changed[0, t] + 1) % V
  logits_c = run(make_model(), params, changed, mask)[1]['lm_logits']
  np.testing.assert_array_equal(logits_c[0, :t], logits[0, :t])
  np.testing.assert_array_equal(logits_c[1:], logits[1:])
  assert (np.abs(logits_c[0, t:] - logits[0, t:]).max(-1) > 1e-4).all()


def test_padding_changes_nothing():
  tokens, mask = make_batch()
  params = init_params()
  loss, outputs, gradient = run(make_model(), params, tokens, mask)
  for sides in ((0, 6), (6, 0)):
    pads = ((0, 0), sides)
    tokens_p = np.pad(tokens, pads, constant_values=9)
    mask_p = np.pad(mask, pads)
    _, outputs_p, _ = run(make_model(), params, tokens_p, mask_p)
    for name in ('hidden', 'lm_logits'):
      bert_cases.assert_close(
        outputs_p[name][mask_p], outputs[name][mask], 1e-5
      )
  right = [np.pad(x, ((0, 0), (0, 6))) for x in (tokens, mask)]
  loss_p, _, gradient_p = run(make_model(), params, *right)
  np.testing.assert_allclose(loss_p, loss, rtol=1e-6)
  bert_cases.assert_close(gradient_p, gradient, 1e-4)


def test_dropout_is_of_training_alone():
  tokens, mask = make_batch()
  params = init_params()
  model = make_model()  # at a rate of 0.1
  plain = run(model, params, tokens, mask)[0]
  drawn = [
    run(model, params, tokens, mask, jax.random.key(i))[0] for i in (1, 1, 2)
  ]
  assert drawn[0] == drawn[1] != drawn[2]
  assert abs(drawn[0] - plain) > 1e-3


def test_bfloat16_stays_near_float32():
  tokens, mask = make_batch()
  params = init_params()
  _, outputs, _ = run(make_model(), params, tokens, mask)
  half = make_model(dtype=jnp.bfloat16)
  _, outputs_h, _ = run(half, params, tokens, mask)
  assert outputs_h['hidden'].dtype == jnp.bfloat16
  assert outputs_h['lm_logits'].dtype == jnp.float32
  bert_cases.assert_close(
    outputs_h['hidden'][mask].astype(np.float32), outputs['hidden'][mask], 0.03
  )


def test_too_long_a_text_is_refused():
  tokens, mask = make_batch()
  with pytest.raises(ValueError, match='11 tokens long.*at most 8'):
    run(make_model(max_length=8), init_params(), tokens, mask)


def test_parameter_count_names_and_flops():
  """With GPT's vocabulary: 40,478 symbols and three for tasks."""
  sizes = gpt_section.get_lstm_config().model
  model = lstm_lm.LstmLm(
    vocab_size=40_481,
    embed_dim=sizes.embed_dim,
    lstm_dim=sizes.lstm_dim,
    num_layers=sizes.num_layers,
  )
  ids = jax.ShapeDtypeStruct((2, 8), jnp.int32)
  mask = jax.ShapeDtypeStruct((2, 8), bool)
  params = jax.eval_shape(
    functools.partial(model.init, train=False),
    jax.random.key(0),
    ids,
    mask,
    ids,
  )['params']
  rules = dict(base.get_config().mesh.rules)
  boxes = jax.tree.leaves(
    params, is_leaf=lambda x: isinstance(x, nn.Partitioned)
  )
  for box in boxes:
    assert len(box.names) == len(box.value.shape)
    assert set(box.names) <= set(rules)
  embedding = 40_481 * 768
  layer = (768 + 768) * 4 * 2048 + 4 * 2048 + 2048 * 768
  count = layers.num_parameters(nn.unbox(params), 40_481)
  assert count == embedding + layer == 45_253_376
