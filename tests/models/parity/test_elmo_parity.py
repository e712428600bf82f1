"""The biLM against PyTorch and a plain loop in NumPy."""

import functools

import elmo_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import char_cnn, lstm

# PyTorch's i, f, g, o from our i, j, f, o.
TORCH_GATES = [0, 2, 1, 3]


def torch_lstm(torch, model, params, tower):
  """The stack of one tower, with PyTorch's gates."""
  F, P = model.lstm_dim, model.projection_dim
  stack = torch.nn.LSTM(P, F, model.num_layers, proj_size=P, batch_first=True)
  for i in range(model.num_layers):
    ours = {k: np.array(v[tower]) for k, v in params[f'layers_{i}'].items()}
    bias = ours['bias'][TORCH_GATES]
    bias[1] += 1  # the forget gate
    theirs = {
      'weight_ih': ours['input_kernel'][:, TORCH_GATES].reshape(P, 4 * F).T,
      'weight_hh': ours['recurrent_kernel'][:, TORCH_GATES].reshape(P, 4 * F).T,
      'bias_ih': bias.reshape(-1),
      'bias_hh': np.zeros(4 * F),
      'weight_hr': ours['projection_kernel'].T,
    }
    for name, array in theirs.items():
      getattr(stack, f'{name}_l{i}').data = torch.tensor(
        array, dtype=torch.float32
      )
  return stack


@pytest.mark.filterwarnings(
  # Which of its two ways PyTorch goes, once a process.
  'ignore:LSTM with projections is not supported with oneDNN:UserWarning'
)
def test_lstm_and_its_gradients_are_pytorchs(torch):
  model = elmo_cases.make_model(
    use_skip_connections=False, cell_clip=None, projection_clip=None
  )
  params = elmo_cases.init_params(model)
  B, T, P = 3, 8, model.projection_dim
  rng = np.random.default_rng(0)
  x = rng.normal(size=(2, B, T, P)).astype(np.float32)
  state = elmo_cases.make_state(model, B)
  weights = jax.tree.map(
    lambda y: rng.normal(size=y.shape).astype(np.float32), (x, state)
  )

  @jax.jit
  def both(params, x, state):
    def loss(params, x, state):
      outputs = elmo_cases.run_streams(model, params, x, state)
      parts = jax.tree.map(lambda y, w: (y * w).sum(), outputs, weights)
      return sum(jax.tree.leaves(parts)), outputs

    return jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(params, x, state)

  (_, (top, after)), (d_params, d_x, d_state) = both(params, x, state)
  for tower in range(2):
    stack = torch_lstm(torch, model, params, tower)

    def tensor(array):
      return torch.tensor(np.asarray(array), requires_grad=True)

    x_t = tensor(x[tower])
    h_t, c_t = tensor(state.hidden[:, tower]), tensor(state.cell[:, tower])
    y_t, (h_after, c_after) = stack(x_t, (h_t, c_t))
    loss = (y_t * torch.tensor(weights[0][tower])).sum()
    loss += (h_after * torch.tensor(weights[1].hidden[:, tower])).sum()
    loss += (c_after * torch.tensor(weights[1].cell[:, tower])).sum()
    loss.backward()
    for ours, theirs in (
      (top[tower], y_t),
      (after.hidden[:, tower], h_after),
      (after.cell[:, tower], c_after),
    ):
      np.testing.assert_allclose(ours, theirs.detach(), atol=1e-5)
    pairs = [
      (d_x[tower], x_t.grad),
      (d_state.hidden[:, tower], h_t.grad),
      (d_state.cell[:, tower], c_t.grad),
    ]
    for i in range(model.num_layers):
      ours = {k: np.array(v[tower]) for k, v in d_params[f'layers_{i}'].items()}
      grad = {
        name.removesuffix(f'_l{i}'): p.grad.numpy()
        for name, p in stack.named_parameters()
        if name.endswith(f'_l{i}')
      }
      P, F = model.projection_dim, model.lstm_dim
      pairs += [
        (ours['projection_kernel'], grad['weight_hr'].T),
        (ours['bias'][TORCH_GATES], grad['bias_ih'].reshape(4, F)),
      ] + [
        (ours[a][:, TORCH_GATES], grad[b].T.reshape(P, 4, F))
        for a, b in (
          ('input_kernel', 'weight_ih'),
          ('recurrent_kernel', 'weight_hh'),
        )
      ]
    for ours, theirs in pairs:
      theirs = np.asarray(theirs)
      assert np.abs(theirs).max() > 1e-3
      np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_encoder_and_its_gradients_are_pytorchs(torch):
  model = elmo_cases.make_model()
  params = elmo_cases.init_params(model)
  ids, _ = elmo_cases.make_ids()
  assert (ids == char_cnn.NO_CHARACTER).any()
  rng = np.random.default_rng(0)
  weights = rng.normal(size=(*ids.shape[:2], 6)).astype(np.float32)
  ours = elmo_cases.encode(model, params, ids)
  gradient = jax.grad(
    lambda p: (elmo_cases.encode(model, p, ids) * weights).sum()
  )(params)['encoder']

  leaves = jax.tree.map(
    lambda p: torch.tensor(np.asarray(p), requires_grad=True), params['encoder']
  )
  F = torch.nn.functional
  # A row of zeros after the 261.
  table = torch.cat([leaves['characters'], torch.zeros(1, 3)])
  x_NEC = table[torch.tensor(ids.reshape(-1, 50), dtype=torch.long)].mT
  parts = []
  for i in range(2):
    kernel = leaves[f'filters_{i}']['kernel'].permute(2, 1, 0)
    answers = F.conv1d(x_NEC, kernel, leaves[f'filters_{i}']['bias'])
    parts.append(torch.relu(answers.amax(-1)))
  x = torch.cat(parts, -1)
  for i in range(2):
    kernel, bias = (leaves[f'highway_{i}'][k] for k in ('kernel', 'bias'))
    gate = torch.sigmoid(x @ kernel[:, 1] + bias[1])
    x = gate * torch.relu(x @ kernel[:, 0] + bias[0]) + (1 - gate) * x
  x = x @ leaves['projection']['kernel'] + leaves['projection']['bias']
  theirs = x.reshape(*ids.shape[:2], -1)
  np.testing.assert_allclose(ours, theirs.detach(), atol=1e-5)
  (theirs * torch.tensor(weights)).sum().backward()
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b.grad, rtol=1e-4, atol=1e-5),
    gradient,
    leaves,
  )


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def numpy_tower(model, layers, x_TP, cell_LF, hidden_LP):
  """One tower on one sentence, a position and a layer at a time.

  Returns the layers' outputs [L, T, P], the state, and how often each clip
  acted.
  """
  cell_LF, hidden_LP = cell_LF.copy(), hidden_LP.copy()
  outputs, clipped = [], np.zeros(2, int)
  for x in x_TP:
    outputs.append([])
    for i, layer in enumerate(layers):
      gates = np.einsum('p,pgf->gf', x, layer['input_kernel'])
      gates += np.einsum('p,pgf->gf', hidden_LP[i], layer['recurrent_kernel'])
      write, candidate, forget, read = gates + layer['bias']
      cell = sigmoid(forget + 1) * cell_LF[i]
      cell += sigmoid(write) * np.tanh(candidate)
      clipped[0] += (np.abs(cell) > model.cell_clip).sum()
      cell_LF[i] = np.clip(cell, -model.cell_clip, model.cell_clip)
      projected = sigmoid(read) * np.tanh(cell_LF[i])
      projected = projected @ layer['projection_kernel']
      clipped[1] += (np.abs(projected) > model.projection_clip).sum()
      hidden_LP[i] = np.clip(
        projected, -model.projection_clip, model.projection_clip
      )
      x = hidden_LP[i] + (x if i and model.use_skip_connections else 0)
      outputs[-1].append(x)
  return np.swapaxes(outputs, 0, 1), cell_LF, hidden_LP, clipped


@pytest.mark.parametrize('skip', [True, False])
def test_clipped_layers_are_those_of_a_plain_loop(skip):
  """Of ragged sentences, from a state, in float64."""
  model = elmo_cases.make_model(
    num_layers=3, cell_clip=0.7, projection_clip=0.4, use_skip_connections=skip
  )
  params = elmo_cases.init_params(model)
  ids, lengths = elmo_cases.make_ids()
  state = elmo_cases.make_state(model, len(lengths))
  found, after = elmo_cases.embed(model, params, ids, lengths, state)
  x = np.asarray(elmo_cases.encode(model, params, ids), np.float64)
  clipped, frees = np.zeros(2, int), np.zeros(2, int)
  for b, length in enumerate(lengths):
    expected = [np.concatenate([x[b, :length]] * 2, axis=-1)]
    halves = []
    for tower in range(2):
      stack = [
        {k: np.asarray(v[tower], np.float64) for k, v in layer.items()}
        for layer in (params[f'layers_{i}'] for i in range(3))
      ]
      x_TP = x[b, :length][:: 1 - 2 * tower]
      outputs, cell, hidden, count = numpy_tower(
        model, stack, x_TP, *(array[:, tower, b] for array in state)
      )
      halves.append(outputs[:, :: 1 - 2 * tower])
      np.testing.assert_allclose(after.cell[:, tower, b], cell, atol=1e-5)
      np.testing.assert_allclose(after.hidden[:, tower, b], hidden, atol=1e-5)
      clipped += count
      frees += length * 3 * np.array([22, 6]) - count
    expected.extend(np.concatenate(halves, axis=-1))
    np.testing.assert_allclose(found[:, b, :length], expected, atol=1e-5)
  assert (clipped > 50).all() and (frees > 50).all()  # both ways were gone


@pytest.mark.parametrize('ragged', [True, False])
def test_written_out_derivative_is_the_loops_own(ragged):
  """Where clips act and rows end: every argument's gradient."""
  rng = np.random.default_rng(0)
  T, K, B, F, P = 6, 2, 4, 9, 5

  def draw(*shape):
    return rng.normal(size=shape).astype(np.float32)

  arguments = [
    draw(K, T, B, 4, F),
    draw(K, P, 4, F),
    draw(K, F, P),
    draw(K, B, F),
    draw(K, B, P),
  ]
  mask = np.arange(T)[:, None] < np.array([6, 3, 0, 5]) if ragged else None
  weights = draw(T, K, B, P), draw(K, B, F)
  fields = (0.8, 0.6, jnp.float32)

  def loss(recur, arguments):
    outputs = recur(fields, *arguments, mask)
    return sum((y * w).sum() for y, w in zip(outputs, weights, strict=True))

  plain = functools.partial(lstm._run, save=False)
  ours, theirs = jax.jit(
    lambda arguments: (
      jax.grad(functools.partial(loss, lstm._recur))(arguments),
      jax.grad(functools.partial(loss, lambda *a: plain(*a)[0]))(arguments),
    )
  )(arguments)
  for found, expected in zip(ours, theirs, strict=True):
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
