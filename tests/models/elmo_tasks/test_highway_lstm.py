"""Highway LSTMs against AllenNLP's on PyTorch, and against a plain loop."""

import functools

import allennlp_reference as reference
import elmo_task_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from models.elmo_tasks import highway_lstm

LENGTHS = np.array([3, 7, 0, 1, 5])
(B, T, D, F, L) = (len(LENGTHS), 7, 6, 4, 3)
MASK = np.arange(T) < LENGTHS[:, None]
RATE = 0.25
RNGS = {'dropout': jax.random.key(0)}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(B, T, D)).astype('f4')
WEIGHTS = RNG.normal(size=(B, T, F)).astype('f4')  # of outputs, in losses
KEEPS = RNG.random((L, B, F)) > RATE


def make_model(**fields):
  return highway_lstm.AlternatingHighwayLstm(
    **{'num_layers': L, 'lstm_dim': F, 'dropout_rate': RATE, **fields}
  )


@functools.cache
def make_params(input_bias=True):
  """Parameters, none of them 0."""
  shapes = jax.eval_shape(
    functools.partial(make_model(input_bias=input_bias).init, train=False),
    jax.random.key(0),
    X,
    MASK,
  )['params']
  rng = np.random.default_rng(1)
  return jax.tree.map(
    lambda p: rng.normal(0, 0.5, p.shape).astype('f4'), nn.unbox(shapes)
  )


@pytest.fixture
def set_masks(monkeypatch):
  """Dropout draws `KEEPS`, a mask for each layer."""

  def keep_mask(seeds, shape, rate):
    assert rate == RATE and shape == (B, 1, F)
    return jnp.asarray(next(masks))[:, None]

  masks = iter(KEEPS)
  monkeypatch.setattr(highway_lstm.dropout, 'keep_mask', keep_mask)


def run(model, params, x=X, mask=MASK, train=False):
  """Returns outputs, and the gradients of x and of the parameters."""

  def loss(x, params):
    y = model.apply({'params': params}, x, mask, train=train, rngs=RNGS)
    return (y * WEIGHTS).sum(), y

  step = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))
  (_, y), gradients = step(x, params)
  return jax.device_get((y, *gradients))


def assert_equal(found, expected, tolerance=1e-4):
  """Checks arrays, relative to the largest number of each."""
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(
      a, b, rtol=0, atol=tolerance * max(1, np.abs(b).max())
    ),
    found,
    expected,
  )


@pytest.mark.parametrize('train', [False, True])
@pytest.mark.parametrize('input_bias', [False, True])
def test_equals_allennlp_with_its_gradient(torch, set_masks, input_bias, train):
  theirs = reference.load(
    'modules.augmented_lstm', 'modules.stacked_alternating_lstm'
  )
  real = np.argsort(-LENGTHS)[: (LENGTHS > 0).sum()]  # from the longest
  masks = iter(KEEPS[:, real] / (1 - RATE))
  theirs.augmented_lstm.get_dropout_mask = lambda rate, like: torch.tensor(
    next(masks), dtype=torch.float32
  )
  lstm = theirs.stacked_alternating_lstm.StackedAlternatingLstm(
    D, F, L, RATE, use_input_projection_bias=input_bias
  )
  reference.disturb(torch, lstm)
  x = torch.tensor(X[real], requires_grad=True)
  packed, _ = lstm.train(train)(
    torch.nn.utils.rnn.pack_padded_sequence(
      x, torch.tensor(LENGTHS[real]), batch_first=True
    )
  )
  y, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
  (y * torch.tensor(WEIGHTS[real])).sum().backward()

  model = make_model(input_bias=input_bias)
  found, by_x, by_params = run(
    model, reference.highway_lstms(lstm), train=train
  )
  assert_equal(found[real], y.detach().numpy(), 1e-5)
  assert_equal(by_x[real], x.grad.numpy())
  assert_equal(by_params, reference.highway_lstms(lstm, gradients=True))
  assert np.abs(by_x).max() > 0.1
  assert (found[~MASK] == 0).all() and (by_x[~MASK] == 0).all()


def run_plainly(xp, params, x, reads, outputs):
  """The layers, position by position, as the two programs state them.

  Hidden states are multiplied by `outputs` [L, B, F], and once more by `reads`
  before the next position reads them.
  """

  def sigmoid(x):
    return 1 / (1 + xp.exp(-x))

  below = [xp.where(MASK[:, t, None], x[:, t], 0) for t in range(T)]
  for i in range(L):
    layer = params[f'layer_{i}']
    cell = hidden = xp.zeros((B, F))
    for t in range(T) if i % 2 == 0 else reversed(range(T)):
      blocks = xp.einsum('bd,dgf->gbf', below[t], layer['input_kernel'])
      blocks = blocks + layer['bias'][:, None]
      write, forget, candidate, output, transform = blocks[:5] + xp.einsum(
        'bp,pgf->gbf', hidden * reads[i], layer['recurrent_kernel']
      )
      new_cell = sigmoid(forget + 1) * cell
      new_cell = new_cell + sigmoid(write) * xp.tanh(candidate)
      gate = sigmoid(transform)
      new_hidden = gate * sigmoid(output) * xp.tanh(new_cell)
      new_hidden = (new_hidden + (1 - gate) * blocks[5]) * outputs[i]
      cell = xp.where(MASK[:, t, None], new_cell, 0)
      hidden = xp.where(MASK[:, t, None], new_hidden, 0)
      below[t] = hidden
  return xp.stack(below, axis=1)


@jax.jit
@functools.partial(jax.grad, argnums=(0, 1))
def differentiate_plainly(x, params, reads, outputs):
  return (run_plainly(jnp, params, x, reads, outputs) * WEIGHTS).sum()


@pytest.mark.slow
@pytest.mark.parametrize('train', [False, True])
@pytest.mark.parametrize('drops_outputs', [False, True])
def test_equals_a_plain_loop_with_its_gradient(set_masks, drops_outputs, train):
  ones = np.ones(KEEPS.shape)
  if drops_outputs:
    scales = ones, KEEPS * 1.0 if train else ones * (1 - RATE)
  else:
    scales = KEEPS / (1 - RATE) if train else ones, ones
  params = make_params()
  y, *gradients = run(
    make_model(drops_outputs=drops_outputs), params, train=train
  )
  in_float64 = jax.tree.map(lambda p: p.astype('f8'), params)
  expected = run_plainly(np, in_float64, X.astype('f8'), *scales)
  assert_equal(y, expected, 1e-5)
  expected = differentiate_plainly(X, params, *(x.astype('f4') for x in scales))
  assert_equal(tuple(gradients), jax.device_get(expected), 1e-5)


def test_padding_has_no_influence():
  params = make_params()
  expected = run(make_model(), params)
  filled = np.where(MASK[:, :, None], X, np.nan)
  found = run(make_model(), params, filled)
  assert cases.is_finite(found)
  assert_equal(found, expected, 1e-6)
  # A text alone, without padding.
  (row,) = np.flatnonzero(LENGTHS == 3)
  alone = make_model().apply(
    {'params': params}, X[row : row + 1, :3], MASK[:1, :3], train=False
  )
  assert_equal(expected[0][row, :3], alone[0], 1e-6)


def test_products_in_bfloat16_keep_parameters_in_float32():
  params = make_params()
  y, by_x, by_params = run(make_model(), params)
  half = make_model(dtype=jnp.bfloat16)
  found = run(half, params)
  assert found[0].dtype == jnp.bfloat16
  assert all(p.dtype == jnp.float32 for p in jax.tree.leaves(found[2]))
  assert 1e-4 < np.abs(found[0] - y).max() < 0.05
  assert_equal(found[1:], (by_x, by_params), 0.05)


@pytest.mark.parametrize('drops_outputs', [False, True])
def test_a_mask_is_one_for_all_positions(drops_outputs):
  B, T, F = 64, 5, 128
  model = make_model(
    num_layers=2, lstm_dim=F, drops_outputs=drops_outputs, dropout_rate=RATE
  )
  x, mask = jnp.ones((B, T, 1)), jnp.ones((B, T), bool)

  @jax.jit
  def run(params, rng):
    rngs = {'dropout': rng}
    return model.apply({'params': params}, x, mask, train=True, rngs=rngs)

  # Equal units, each of which reads itself alone, unless it is dropped.
  params = {
    f'layer_{i}': {
      'input_kernel': jnp.zeros((F if i else 1, 6, F)),
      'recurrent_kernel': jnp.eye(F)[:, None].repeat(5, axis=1),
      'bias': jnp.ones((6, F)),
    }
    for i in range(2)
  }
  first, second = (run(params, jax.random.key(seed)) for seed in range(2))
  y = np.asarray(first)
  if drops_outputs:
    dropped = y[:, 0] == 0
    assert ((y == 0) == dropped[:, None]).all()
  else:
    # The second layer has read nothing yet at the last position.
    assert np.ptp(y[:, -1]) < 1e-6
    before_last = y[:, :-1]
    middle = (before_last.max(axis=(0, 2)) + before_last.min(axis=(0, 2))) / 2
    dropped = y[:, 0] < middle[0]
    assert ((before_last < middle[:, None]) == dropped[:, None]).all()
  assert abs(dropped.mean() - RATE) < 4 * np.sqrt(RATE / dropped.size)
  assert (dropped[0] != dropped[1]).any()
  assert (first != second).any()


def test_each_block_begins_orthonormal():
  model = make_model(num_layers=1, input_bias=False)
  init = jax.jit(functools.partial(model.init, train=False))
  layer = nn.unbox(init(jax.random.key(0), X, MASK))['params']['layer_0']
  assert layer['bias'].shape == (5, F) and (layer['bias'] == 0).all()
  for name, num_blocks in (('input_kernel', 6), ('recurrent_kernel', 5)):
    kernel = np.asarray(layer[name])
    assert kernel.shape[1] == num_blocks
    for block in kernel.swapaxes(0, 1):
      np.testing.assert_allclose(block.T @ block, np.eye(F), atol=1e-5)
    assert np.abs(kernel[:, 0] - kernel[:, 1]).max() > 0.1


def test_parameters_have_logical_axes():
  shapes = jax.eval_shape(
    functools.partial(make_model().init, train=False),
    jax.random.key(0),
    X,
    MASK,
  )
  axes = {
    axis
    for spec in jax.tree.leaves(nn.get_partition_spec(shapes))
    for axis in spec or ()
  }
  assert axes == {'embed', 'gates', 'mlp'}
