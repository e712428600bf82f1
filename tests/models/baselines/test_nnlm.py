"""Bengio et al. 2003's network, against a copy in PyTorch."""

import functools

import bert_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import linen as nn

from configs import base
from configs.sections import gpt as gpt_section
from models import layers
from models.baselines import nnlm

V, M, H, N, T = 100, 6, 9, 4, 11


def make_model(**fields):
  sizes = dict(vocab_size=V, embed_dim=M, hidden_dim=H, order=N, max_length=32)
  return nnlm.Nnlm(**sizes | fields)


def make_batch(lengths=(11, 4, 7), seed=0):
  rng = np.random.default_rng(seed)
  mask = np.arange(T) < np.array(lengths)[:, None]
  tokens = rng.integers(0, V, (2, *mask.shape)).astype(np.int32)
  return *np.where(mask, tokens, 0), mask


@functools.cache
def init_params(direct=True, hidden=H):
  tokens, _, mask = make_batch()
  model = make_model(direct=direct, hidden_dim=hidden)
  variables = jax.jit(functools.partial(model.init, train=False))(
    jax.random.key(0), tokens, mask, tokens
  )
  params = jax.device_get(nn.unbox(variables)['params'])
  return jax.tree.map(lambda leaf: 2 * leaf + np.float32(0.01), params)


def run(*arguments):
  """Logits, the summed loss of both ways, and its gradient."""
  return jax.device_get(compute(*arguments))


@functools.partial(jax.jit, static_argnums=0)
def compute(model, params, tokens, targets, mask):

  def loss(params):
    outputs = model.apply({'params': params}, tokens, mask, tokens, train=False)
    found = model.apply(
      {'params': params}, tokens, mask, targets, train=False, method='score'
    )
    return (found['losses'] * mask).sum(), outputs['lm_logits']

  (value, logits), gradient = jax.value_and_grad(loss, has_aux=True)(params)
  return logits, value, gradient


class Theirs(torch.nn.Module):
  """The equations as in the paper: y = b + W x + U tanh(d + H x)."""

  def __init__(self, params, direct, hidden):
    super().__init__()

    def leaf(array):
      return torch.nn.Parameter(torch.tensor(np.array(array)))

    kernel = np.array(params['softmax']['kernel'])[:V]
    self.C = leaf(params['tokens']['embedding'][:V])
    self.U = None
    if hidden:
      self.H = leaf(params['hidden']['kernel'].T)
      self.d = leaf(params['hidden']['bias'])
      self.U = leaf(kernel[:, :hidden])
    self.W = leaf(kernel[:, hidden:]) if direct else None
    self.b = leaf(params['softmax']['bias'][:V])

  def forward(self, row):
    found = []
    for t in range(len(row)):
      before = [row[i] for i in range(t, t - N + 1, -1)]
      x = torch.cat(
        [self.C[i] if at >= 0 else torch.zeros(M) for at, i in before]
      )
      y = self.b
      if self.U is not None:
        y = y + self.U @ torch.tanh(self.d + self.H @ x)
      found.append(y if self.W is None else y + self.W @ x)
    return torch.stack(found)


@pytest.mark.parametrize(
  ('direct', 'hidden'), [(True, H), (False, H), (True, 0)]
)
def test_logits_loss_and_gradients_are_those_of_torch(direct, hidden):
  tokens, targets, mask = make_batch()
  params = init_params(direct, hidden)
  model = make_model(direct=direct, hidden_dim=hidden)
  logits, value, gradient = run(model, params, tokens, targets, mask)
  theirs, total = Theirs(params, direct, hidden), 0
  for row, length in enumerate(mask.sum(1)):
    history = {-i: (-i, 0) for i in range(1, N)}
    history |= {i: (i, int(tokens[row, i])) for i in range(length)}
    expected = theirs(_Row(history, length))
    bert_cases.assert_close(
      logits[row, :length, :V], expected.detach().numpy(), 1e-5
    )
    total += torch.nn.functional.cross_entropy(
      expected, torch.tensor(targets[row, :length]).long(), reduction='sum'
    )
  total.backward()
  np.testing.assert_allclose(value, total.item(), rtol=1e-5)
  kernel = gradient['softmax']['kernel']
  pairs = [
    (gradient['tokens']['embedding'][:V], theirs.C),
    (gradient['softmax']['bias'][:V], theirs.b),
  ]
  if hidden:
    pairs += [
      (gradient['hidden']['kernel'].T, theirs.H),
      (gradient['hidden']['bias'], theirs.d),
      (kernel[:V, :hidden], theirs.U),
    ]
  if direct:
    pairs.append((kernel[:V, hidden:], theirs.W))
  for ours, parameter in pairs:
    bert_cases.assert_close(ours, parameter.grad.numpy(), 1e-5)
  assert not np.any(kernel[V:])
  assert (np.asarray(logits)[..., V:] == layers.LOWEST).all()


class _Row:
  """(place, token) by place, also before the row's beginning."""

  def __init__(self, table, length):
    self.table, self.length = table, length

  def __getitem__(self, place):
    return self.table[place]

  def __len__(self):
    return self.length


def test_only_n_minus_1_words_count():
  tokens, targets, mask = make_batch()
  params = init_params()
  logits = run(make_model(), params, tokens, targets, mask)[0]
  changed, t = tokens.copy(), 3
  changed[0, t] = (changed[0, t] + 1) % V
  found = run(make_model(), params, changed, targets, mask)[0]
  same = [*range(t), *range(t + N - 1, T)]
  np.testing.assert_array_equal(found[0, same], logits[0, same])
  moved = np.abs(found[0, t : t + N - 1] - logits[0, t : t + N - 1]).max(-1)
  assert (moved > 1e-4).all()


def test_a_sampled_loss_is_near_the_whole_one():
  tokens, targets, mask = make_batch()
  params, model = init_params(), make_model(num_samples=4096)
  score = jax.jit(functools.partial(model.apply, train=True, method='score'))
  losses = score(
    {'params': params},
    tokens,
    mask,
    targets,
    rngs={'samples': jax.random.key(1)},
  )['losses']
  losses = np.asarray(losses)
  value = run(model, params, tokens, targets, mask)[1]
  assert float((losses * mask).sum()) == pytest.approx(float(value), rel=0.02)


def test_too_long_a_text_is_refused():
  tokens, targets, mask = make_batch()
  with pytest.raises(ValueError, match='11 tokens long.*at most 8'):
    run(make_model(max_length=8), init_params(), tokens, targets, mask)


def test_number_of_parameters():
  """Bengio et al. 2003, section 2: |V| (1 + n m + h) + h (1 + (n - 1) m)."""
  sizes = gpt_section.get_nnlm_config().model
  n, m, h = sizes.order, sizes.embed_dim, sizes.hidden_dim
  model = nnlm.Nnlm(vocab_size=16_383, embed_dim=m, hidden_dim=h, order=n)
  ids, mask = (jax.ShapeDtypeStruct((2, 8), d) for d in (jnp.int32, bool))
  params = jax.eval_shape(
    functools.partial(model.init, train=False),
    jax.random.key(0),
    ids,
    mask,
    ids,
  )['params']
  rules = dict(base.get_config().mesh.rules)
  for box in jax.tree.leaves(
    params, is_leaf=lambda x: isinstance(x, nn.Partitioned)
  ):
    assert set(box.names) <= set(rules)
  count = layers.num_parameters(nn.unbox(params), 16_383)
  assert count == 16_383 * (1 + n * m + h) + h * (1 + (n - 1) * m)


def test_dropout_is_of_training_alone():
  model, plain = make_model(dropout_rate=0.5), make_model()
  tokens, targets, mask = make_batch()
  variables = {'params': init_params()}

  @functools.partial(jax.jit, static_argnums=0)
  def read(model, key):
    rngs = {} if key is None else {'dropout': key}
    outputs = model.apply(
      variables, tokens, mask, tokens, train=key is not None, rngs=rngs
    )
    return outputs['lm_logits'][..., :V]

  np.testing.assert_array_equal(read(model, None), read(plain, None))
  drawn = [read(model, jax.random.key(seed)) for seed in (0, 0, 1)]
  np.testing.assert_array_equal(drawn[0], drawn[1])
  assert np.abs(drawn[0] - drawn[2])[mask].max() > 1e-3
  assert np.abs(drawn[0] - read(plain, None))[mask].max() > 1e-3
