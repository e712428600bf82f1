"""The bidirectional GRU against PyTorch's, which computes as cuDNN does."""

import elmo_task_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from models.elmo_tasks import gru

B, T, D, F = 5, 7, 3, 4
LENGTHS = np.array([7, 1, 4, 0, 6])
MASK = np.arange(T) < LENGTHS[:, None]
REAL = LENGTHS > 0  # PyTorch packs no empty text


def make_theirs(torch):
  torch.manual_seed(0)
  model = torch.nn.GRU(D, F, bidirectional=True, batch_first=True)
  with torch.no_grad():
    for parameter in model.parameters():
      parameter += 0.4 * torch.randn_like(parameter)
  return model


def params_of(model, gradients=False):
  """Gates are reset, update and candidate in both."""

  def read(name):
    both = []
    for suffix in ('', '_reverse'):
      tensor = getattr(model, f'{name}_l0{suffix}')
      tensor = tensor.grad if gradients else tensor
      both.append(tensor.detach().numpy().reshape(3, F, -1).transpose(2, 0, 1))
    return np.stack(both)

  bias, recurrent_bias = read('bias_ih')[:, 0], read('bias_hh')[:, 0]
  if not gradients:
    bias = bias + recurrent_bias * np.array([1, 1, 0])[:, None]
  return {
    'input_kernel': read('weight_ih'),
    'recurrent_kernel': read('weight_hh'),
    'bias': bias,
    'recurrent_bias': recurrent_bias[:, 2],
  }


def test_equals_pytorch_with_its_gradient(torch):
  rng = np.random.default_rng(0)
  x = rng.normal(size=(B, T, D)).astype('f4')
  weights = rng.normal(size=(B, T, 2 * F)).astype('f4')
  theirs = make_theirs(torch)
  x_theirs = torch.tensor(x, requires_grad=True)
  packed = torch.nn.utils.rnn.pack_padded_sequence(
    x_theirs[REAL], LENGTHS[REAL], batch_first=True, enforce_sorted=False
  )
  expected, _ = torch.nn.utils.rnn.pad_packed_sequence(
    theirs(packed)[0], batch_first=True, total_length=T
  )
  (expected * torch.tensor(weights[REAL])).sum().backward()

  def compute(params, x):
    outputs = gru.BiGru(F).apply({'params': params}, x, MASK)
    return (outputs * weights).sum(), outputs

  step = jax.jit(jax.value_and_grad(compute, argnums=(0, 1), has_aux=True))
  # Padding takes no part, whatever it holds.
  (_, outputs), (by_params, by_x) = jax.device_get(
    step(params_of(theirs), np.where(MASK[..., None], x, np.nan))
  )
  np.testing.assert_allclose(
    outputs[REAL], expected.detach().numpy(), rtol=0, atol=1e-6
  )
  assert not outputs[~MASK].any()
  cases.assert_equal_trees(by_params, params_of(theirs, gradients=True), 1e-5)
  np.testing.assert_allclose(by_x, x_theirs.grad.numpy(), rtol=0, atol=1e-5)
  assert np.abs(by_x).max() > 0.1


def test_half_precision_keeps_the_state_exact():
  rng = np.random.default_rng(0)
  x = rng.normal(size=(B, T, D)).astype('f4')
  model = gru.BiGru(F)
  params = nn.unbox(jax.jit(model.init)(jax.random.key(0), x, MASK))

  @jax.jit
  def run(params):
    def total(params, dtype):
      outputs = gru.BiGru(F, dtype).apply(params, x, MASK)
      assert outputs.dtype == dtype
      return outputs.astype(jnp.float32).sum()

    return [
      jax.grad(total)(params, dtype) for dtype in (jnp.float32, jnp.bfloat16)
    ]

  exact, rough = jax.device_get(run(params))
  for a, b in zip(*map(jax.tree.leaves, (exact, rough)), strict=True):
    assert b.dtype == jnp.float32
    np.testing.assert_allclose(b, a, rtol=0, atol=0.02 * np.abs(a).max())


def test_initial_values_are_document_qas():
  model = gru.BiGru(90)
  shapes = jax.eval_shape(
    model.init, jax.random.key(0), np.zeros((1, 2, 50)), np.ones((1, 2), bool)
  )
  assert {
    name: leaf.shape for name, leaf in nn.unbox(shapes)['params'].items()
  } == {
    'input_kernel': (2, 50, 3, 90),
    'recurrent_kernel': (2, 90, 3, 90),
    'bias': (2, 3, 90),
    'recurrent_bias': (2, 90),
  }
  draw = jax.jit(gru.truncated_normal, static_argnums=1)
  drawn = np.asarray(draw(jax.random.key(0), (100, 300)))
  assert np.abs(drawn).max() < 0.1  # two standard deviations
  assert abs(drawn.std() - 0.8796 * 0.05) < 3e-4
  params = nn.unbox(
    jax.jit(gru.BiGru(F).init)(
      jax.random.key(0), np.zeros((1, 1, D), 'f4'), np.ones((1, 1), bool)
    )
  )['params']
  for name, leaf in params.items():
    assert ('bias' in name) == (not np.any(leaf))
