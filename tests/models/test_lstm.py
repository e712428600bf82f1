"""LSTMs of both directions, against PyTorch's on packed sequences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from models import dropout, initial, layers, lstm

LENGTHS = np.array([7, 1, 0, 5])
T, D, F = 7, 6, 5
MASK = np.arange(T) < LENGTHS[:, None]
MODEL = lstm.BiLstm(num_layers=2, lstm_dim=F)


@functools.cache
def drawn():
  """Features and parameters, none at 0."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(len(LENGTHS), T, D)).astype('f4')
  boxed = jax.eval_shape(MODEL.init, jax.random.key(0), x, MASK)['params']
  params = jax.tree.map(
    lambda p: rng.normal(0, 0.4, p.shape).astype('f4'), nn.meta.unbox(boxed)
  )
  return x, params


def run(*arguments):
  return jax.device_get(apply(*arguments))


@functools.partial(jax.jit, static_argnums=0)
def apply(model, params, x, mask):
  return model.apply({'params': params}, x, mask)


def to_torch(torch, params):
  """PyTorch's gates are in the order i, f, g, o; here i, g, f (+ 1), o."""
  lstm = torch.nn.LSTM(D, F, num_layers=2, bidirectional=True, batch_first=True)

  def order(gates):  # [..., G, F] -> [4 F, ...]
    gates = np.take(np.asarray(gates), [0, 2, 1, 3], axis=-2)
    return torch.tensor(gates.reshape(*gates.shape[:-2], -1).T.copy())

  with torch.no_grad():
    for i in range(2):
      layer = params[f'layer_{i}']
      for k, suffix in enumerate(('', '_reverse')):
        bias = layer['bias'][k] + np.array([0, 0, 1, 0], 'f4')[:, None]
        for name, value in (
          ('weight_ih', layer['input_kernel'][k]),
          ('weight_hh', layer['recurrent_kernel'][k]),
          ('bias_ih', bias),
          ('bias_hh', np.zeros_like(bias)),
        ):
          getattr(lstm, f'{name}_l{i}{suffix}').copy_(order(value))
  return lstm


def test_equals_pytorch_with_its_gradient(torch):
  x, params = drawn()
  rng = np.random.default_rng(1)
  y_weights = rng.normal(size=(len(LENGTHS), T, 2 * F)).astype('f4')
  y_weights *= MASK[:, :, None]
  last_weights = rng.normal(size=(len(LENGTHS), 2 * F)).astype('f4')

  def loss(x, params):
    y, last = MODEL.apply({'params': params}, x, MASK)
    return (y * y_weights).sum() + (last * last_weights).sum(), (y, last)

  step = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))
  (ours, (y, last)), (x_gradient, gradient) = jax.device_get(step(x, params))

  real = LENGTHS > 0  # PyTorch packs no empty sequences
  lstm = to_torch(torch, params)
  given = torch.tensor(x[real], requires_grad=True)
  packed, (hidden, _) = lstm(
    torch.nn.utils.rnn.pack_padded_sequence(
      given, torch.tensor(LENGTHS[real]), True, enforce_sorted=False
    )
  )
  y_theirs, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, True)
  last_theirs = torch.cat([hidden[-2], hidden[-1]], dim=-1)
  theirs = (y_theirs * torch.tensor(y_weights[real])).sum()
  theirs = theirs + (last_theirs * torch.tensor(last_weights[real])).sum()
  theirs.backward()

  close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-5)
  close(y[real], y_theirs.detach().numpy())
  close(last[real], last_theirs.detach().numpy())
  close(x_gradient[real], given.grad.numpy(), atol=3e-5)
  assert (y[~MASK] == 0).all() and (last[~real] == 0).all()
  assert (x_gradient[~MASK] == 0).all()
  assert abs(float(ours) - theirs.item()) < 1e-4
  for i in range(2):
    for k, suffix in enumerate(('', '_reverse')):
      found = gradient[f'layer_{i}']['recurrent_kernel'][k]
      expected = getattr(lstm, f'weight_hh_l{i}{suffix}').grad.numpy().T
      expected = expected.reshape(F, 4, F)[:, [0, 2, 1, 3]]
      close(found, expected, atol=3e-5)


@pytest.mark.parametrize('filler', [3.0, np.nan])
def test_padding_has_no_influence(filler):
  x, params = drawn()
  y, last = run(MODEL, params, x, MASK)
  filled = np.where(MASK[:, :, None], x, filler)
  filled = np.pad(filled, ((0, 0), (0, 2), (0, 0)), constant_values=filler)
  mask = np.pad(MASK, ((0, 0), (0, 2)))
  y_filled, last_filled = run(MODEL, params, filled, mask)
  np.testing.assert_allclose(y_filled[:, :T], y, rtol=0, atol=1e-6)
  np.testing.assert_allclose(last_filled, last, rtol=0, atol=1e-6)


def test_matrices_in_bfloat16_states_in_float32():
  x, params = drawn()
  y, last = run(MODEL, params, x, MASK)
  model = MODEL.clone(dtype=jnp.bfloat16)
  y_half, last_half = run(model, params, x, MASK)
  assert y_half.dtype == last_half.dtype == jnp.bfloat16
  np.testing.assert_allclose(y_half.astype('f4'), y, rtol=0, atol=0.03)
  np.testing.assert_allclose(last_half.astype('f4'), last, rtol=0, atol=0.03)


def test_biases_gradients_are_sums_by_products_on_a_tpu(monkeypatch):
  rng = np.random.default_rng(0)
  gradient = rng.normal(size=(2, 3, 4, 4, 8)).astype(jnp.bfloat16)
  bias = np.zeros((2, 4, 8), jnp.bfloat16)
  expected = np.asarray(gradient, np.float32).sum(axis=(1, 2))
  monkeypatch.setattr(layers, 'platform', lambda: 'tpu')
  by_gates, by_bias = jax.device_get(
    jax.jit(lambda x: jax.vjp(lstm._add_bias, x, bias)[1](x))(gradient)
  )
  np.testing.assert_array_equal(by_gates, gradient)
  np.testing.assert_allclose(
    by_bias.astype(np.float32), expected, rtol=2**-8, atol=1e-6
  )


def test_drops_between_layers_in_training_only():
  x, params = drawn()
  rate = 0.4
  seen = {}

  def record(call, args, kwargs, context):
    outputs = call(*args, **kwargs)
    if isinstance(context.module, lstm.ProjectedLstm):
      seen[context.module.name] = args[0], outputs[0]
    return outputs

  model = MODEL.clone(dropout_rate=rate)

  @jax.jit
  def train(params):
    with nn.intercept_methods(record):
      y, _ = model.apply(
        {'params': params},
        x,
        MASK,
        train=True,
        rngs={'dropout': jax.random.key(0)},
      )
    return y, seen

  y, seen = jax.device_get(train(params))
  first_input, first_TKBF = seen['layer_0']
  second_input, second_TKBF = seen['layer_1']
  # Only the second layer's inputs have been dropped, and scaled.
  np.testing.assert_array_equal(
    first_input[:, 0], np.where(MASK[:, :, None], x, 0).swapaxes(0, 1)
  )
  np.testing.assert_array_equal(y[..., :F], second_TKBF[:, 0].swapaxes(0, 1))
  forward = second_input[:, 0, ..., :F]
  kept = forward != 0
  np.testing.assert_allclose(
    forward[kept],
    first_TKBF[:, 0][kept] / dropout.kept_share(rate),
    rtol=1e-5,
  )
  share = kept.sum() / (first_TKBF[:, 0] != 0).sum()
  assert abs(share - (1 - rate)) < 0.25

  # Scored, or with one layer, it needs no key.
  y_scored, _ = run(model, params, x, MASK)
  np.testing.assert_array_equal(y_scored, run(MODEL, params, x, MASK)[0])
  single = lstm.BiLstm(1, F, dropout_rate=rate)
  jax.eval_shape(lambda: single.apply({'params': params}, x, MASK, train=True))


@pytest.mark.parametrize('start', ['tensorflow', 'torch', 'orthogonal'])
def test_initial_values_are_those_of_the_programs(torch, start):
  inputs, F = 30, 50
  inits = initial.LSTMS[start](inputs, F, F)
  shapes = ((2, inputs, 4, F), (2, F, 4, F), (2, 4, F))
  ours = [
    np.array(jax.jit(init, static_argnums=1)(jax.random.key(i), shape))
    for i, (init, shape) in enumerate(zip(inits, shapes, strict=True))
  ]
  if start == 'tensorflow':
    limit = np.sqrt(6 / (inputs + F + 4 * F))
    for kernel in ours[:2]:
      np.testing.assert_allclose(np.abs(kernel).max(), limit, rtol=1e-3)
      np.testing.assert_allclose(kernel.std(), limit / np.sqrt(3), rtol=0.03)
    assert (ours[2] == 0).all()
    return

  torch.manual_seed(0)
  theirs = torch.nn.LSTM(inputs, F)
  bias = torch.stack([theirs.bias_ih_l0, theirs.bias_hh_l0])
  if start == 'orthogonal':
    torch.nn.init.xavier_uniform_(theirs.weight_ih_l0)
    torch.nn.init.orthogonal_(theirs.weight_hh_l0)
    bias = torch.zeros_like(bias)
    bias[1, F : 2 * F] = 1  # PyTorch's second gate forgets
    kernel = theirs.weight_hh_l0
    np.testing.assert_allclose(
      (kernel.T @ kernel).detach(), np.eye(F), rtol=0, atol=1e-5
    )
    for tower in ours[1].reshape(2, F, 4 * F):
      np.testing.assert_allclose(tower @ tower.T, np.eye(F), rtol=0, atol=1e-5)
    assert np.abs(ours[1][0] - ours[1][1]).max() > 0.05
  expected = [theirs.weight_ih_l0, theirs.weight_hh_l0, bias.sum(dim=0)]
  expected = [array.detach().numpy() for array in expected]
  for found, array in zip(ours[:2], expected[:2], strict=True):
    np.testing.assert_allclose(found.std(), array.std(), rtol=0.03)
    np.testing.assert_allclose(
      np.abs(found).max(), np.abs(array).max(), rtol=0.3
    )
  # What the cell adds at run time is not stored.
  biases = ours[2].swapaxes(0, 1).reshape(4, -1)
  biases[initial.FORGET_GATE] += initial.FORGET_BIAS
  array = expected[2].reshape(4, F)[[0, 2, 1, 3]]
  limit = 5 * array.std(axis=1).max() / np.sqrt(F) + 1e-6
  np.testing.assert_allclose(
    biases.mean(axis=1), array.mean(axis=1), rtol=0, atol=limit
  )
  np.testing.assert_allclose(
    biases.std(axis=1), array.std(axis=1), rtol=0.4, atol=1e-6
  )
