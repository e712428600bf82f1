"""LSTMs of both directions, against PyTorch's on packed sequences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from models import layers, lstm

LENGTHS = np.array([7, 1, 0, 5])
T, D, F = 7, 6, 5
MASK = np.arange(T) < LENGTHS[:, None]
MODEL = lstm.BiLstm(num_layers=2, lstm_dim=F)


@functools.cache
def drawn():
  """Features and parameters, none at 0."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(len(LENGTHS), T, D)).astype('f4')
  params = jax.jit(MODEL.init)(jax.random.key(0), x, MASK)['params']
  params = jax.tree.map(
    lambda p: p + 0.3 * rng.normal(size=p.shape).astype('f4'),
    nn.meta.unbox(params),
  )
  return x, params


@functools.partial(jax.jit, static_argnums=0)
def run(model, params, x, mask):
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
        bias = layer['bias'][k].at[2].add(1.0)
        for name, value in (
          ('weight_ih', layer['input_kernel'][k]),
          ('weight_hh', layer['recurrent_kernel'][k]),
          ('bias_ih', bias),
          ('bias_hh', jnp.zeros_like(bias)),
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

  (ours, (y, last)), (x_gradient, gradient) = jax.jit(
    jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
  )(x, params)

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
  gradient = jnp.asarray(rng.normal(size=(2, 3, 4, 4, 8)), jnp.bfloat16)
  bias = jnp.zeros((2, 4, 8), jnp.bfloat16)
  expected = np.asarray(gradient, np.float32).sum(axis=(1, 2))
  monkeypatch.setattr(layers, 'platform', lambda: 'tpu')
  _, back = jax.vjp(lstm._add_bias, gradient, bias)
  by_gates, by_bias = back(gradient)
  np.testing.assert_array_equal(by_gates, gradient)
  np.testing.assert_allclose(
    by_bias.astype(jnp.float32), expected, rtol=2**-8, atol=1e-6
  )
