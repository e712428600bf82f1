import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs import base
from models import bert
from train import optim


def make_config(**changes):
  config = base.get_config().optim
  config.update(changes)
  return config


def bert_rates(peak, warmup_steps, total, steps):
  """The release's rate, re-derived: warm-up replaces, never multiplies."""
  rates = np.empty(len(steps))
  for i, step in enumerate(steps):
    remaining = max(total - int(step), 0)
    rates[i] = peak * remaining / total
    if warmup_steps and step < warmup_steps:
      rates[i] = peak * int(step) / warmup_steps
  return rates


@pytest.mark.parametrize(
  'peak, warmup_steps, total',
  [
    (1e-4, 10_000, 1_000_000),  # the paper's
    (5e-4, 100, 1_000),
    (2e-5, 0, 77),
    (1e-3, 50, 20),  # warm-up longer than the run
  ],
)
def test_schedule_is_the_released_one(peak, warmup_steps, total):
  config = make_config(learning_rate=peak, warmup_steps=warmup_steps)
  schedule = optim.make_schedule(config, ((total, 128, 32, 'continue'),))
  edges = [0, 1, warmup_steps - 1, warmup_steps, warmup_steps + 1, total // 2]
  edges += [total - 2, total - 1, total, total + 5]
  steps = np.unique(
    np.clip(np.concatenate([edges, np.linspace(0, total, 500)]), 0, None)
  ).astype(np.int32)
  rates = jax.jit(jax.vmap(schedule))(steps)
  assert rates.dtype == jnp.float32
  expected = bert_rates(peak, warmup_steps, total, steps)
  np.testing.assert_allclose(rates, expected, rtol=1e-5, atol=peak * 1e-7)
  if warmup_steps:
    assert rates[0] == 0
  # Published points, by hand: in the release the rate after warm-up is that
  # of a decay which began at 0.
  if total == 1_000_000:
    by_hand = {5_000: 5e-5, 9_999: 9.999e-5, 10_000: 9.9e-5, 500_000: 5e-5}
    for step, rate in by_hand.items():
      np.testing.assert_allclose(schedule(step), rate, rtol=1e-5)


def test_phases_continue_or_restart():
  config = make_config(learning_rate=1.0, warmup_steps=10)
  two = ((90, 128, 32, 'continue'), (10, 512, 8, 'continue'))
  schedule = optim.make_schedule(config, two)
  steps = np.arange(101)
  np.testing.assert_allclose(
    schedule_values(schedule, steps), bert_rates(1.0, 10, 100, steps), rtol=1e-5
  )
  restarted = optim.make_schedule(
    config, (*two, (50, 512, 8, 'restart'), (30, 512, 8, 'continue'))
  )
  values = schedule_values(restarted, np.arange(181))
  expected = np.concatenate(
    [
      bert_rates(1.0, 10, 100, np.arange(100)),
      bert_rates(1.0, 10, 80, np.arange(81)),
    ]
  )
  np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-7)
  assert values[100] == 0 < values[99]
  # What the first phase is marked makes no difference.
  again = optim.make_schedule(config, ((90, 128, 32, 'restart'), two[1]))
  assert (
    schedule_values(again, steps) == schedule_values(schedule, steps)
  ).all()


def schedule_values(schedule, steps):
  return np.asarray(jax.jit(jax.vmap(schedule))(steps))


@pytest.mark.parametrize(
  'changes, phases, message',
  [
    ({'learning_rate': -1e-4}, ((9, 8, 4, 'continue'),), 'learning_rate'),
    ({'warmup_steps': -1}, ((9, 8, 4, 'continue'),), 'warmup_steps is -1'),
    ({}, ((0, 8, 4, 'continue'),), r'phases\[0\] has 0 steps'),
    ({}, ((9, 8, 4, 'continue'), (-3, 8, 4, 'restart')), r'\[1\] has -3'),
    ({}, ((9, 8, 4, 'contniue'),), "ends in 'contniue', expected 'continue'"),
    ({}, (), 'phases is empty'),
  ],
)
def test_nonsense_is_refused(changes, phases, message):
  with pytest.raises(ValueError, match=message):
    optim.make_schedule(make_config(**changes), phases)


def test_clip_norm_must_be_positive():
  with pytest.raises(ValueError, match='clip_norm is 0'):
    optim.make_optimizer(make_config(clip_norm=0.0), lambda step: 0.1)


def numpy_adam(params, gradients, rates, config):
  """Independent re-derivation, one array at a time, in float64."""
  c = config
  params = {k: np.float64(v) for k, v in params.items()}
  m = {k: 0.0 for k in params}
  v = {k: 0.0 for k in params}
  for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
    norm = math.sqrt(sum((np.float64(g) ** 2).sum() for g in gradient.values()))
    for k in params:
      g = gradient[k] * min(1.0, c.clip_norm / norm)
      m[k] = c.beta1 * m[k] + (1 - c.beta1) * g
      v[k] = c.beta2 * v[k] + (1 - c.beta2) * g**2
      m_hat, v_hat = m[k], v[k]
      if c.bias_correction:
        m_hat = m[k] / (1 - c.beta1**t)
        v_hat = v[k] / (1 - c.beta2**t)
      update = m_hat / (np.sqrt(v_hat) + c.epsilon)
      if k == 'kernel':
        update = update + c.weight_decay * params[k]
      params[k] = params[k] - rate * update
  return params


@pytest.mark.parametrize('bias_correction', [False, True])
def test_adam_against_numpy(bias_correction):
  # Decay and epsilon large enough to see where they enter.
  config = make_config(
    learning_rate=0.01,
    warmup_steps=3,
    bias_correction=bias_correction,
    weight_decay=0.3,
    epsilon=1e-3,
  )
  rng = np.random.default_rng(0)
  shapes = {'kernel': (7, 5), 'bias': (5,), 'scale': (5,)}

  def draw(size):
    return {
      k: (size * rng.normal(size=s)).astype(np.float32)
      for k, s in shapes.items()
    }

  params = draw(1.0)
  # Some above the clipping norm of 1, some below.
  gradients = [draw(size) for size in (3.0, 0.01, 1.0, 0.001, 0.1, 0.02)]
  schedule = optim.make_schedule(config, ((6, 8, 4, 'continue'),))
  tx = optim.make_optimizer(config, schedule)
  ours = jax.tree.map(jnp.asarray, params)
  state = tx.init(ours)
  update = jax.jit(tx.update)
  for gradient in gradients:
    updates, state = update(gradient, state, ours)
    ours = optax.apply_updates(ours, updates)
  rates = bert_rates(0.01, 3, 6, range(6))
  expected = numpy_adam(params, gradients, rates, config)
  for k in shapes:
    np.testing.assert_allclose(ours[k], expected[k], rtol=0, atol=1e-6)
    assert np.abs(expected[k] - params[k]).max() > 1e-3


def test_uncorrected_first_step():
  """(1 - b1) / sqrt(1 - b2): 3.16 times the rate, as in BERT's release."""
  tx = optim.scale_by_uncorrected_adam(0.9, 0.999, 0.0)
  params = {'kernel': jnp.ones(3)}
  updates, state = tx.update(
    {'kernel': jnp.array([1.0, -2.0, 1e-3])}, tx.init(params)
  )
  np.testing.assert_allclose(
    updates['kernel'], math.sqrt(10) * np.array([1, -1, 1]), rtol=1e-5
  )
  assert state.count == 1


def test_decay_spares_norms_and_biases_of_bert():
  model = bert.Bert(
    vocab_size=10, num_layers=1, embed_dim=8, num_heads=2, mlp_dim=16
  )
  ids = jnp.zeros((1, 4), jnp.int32)
  params = jax.eval_shape(
    lambda: model.init(
      jax.random.key(0), ids, ids > 0, ids, ids, ids, train=False
    )
  )['params']
  # Boxed or not, the names are the same; boxes are what the state drops.
  params = jax.tree.map(
    lambda box: box.value, params, is_leaf=lambda x: hasattr(x, 'names')
  )
  decayed = {
    jax.tree_util.keystr(path, simple=True, separator='/')
    for path, leaf in jax.tree_util.tree_leaves_with_path(
      optim.decay_mask(params)
    )
    if leaf
  }
  assert decayed == {
    'embeddings/tokens/embedding',
    'embeddings/positions',
    'embeddings/token_types',
    'layers/attention/qkv/kernel',
    'layers/attention/out/kernel',
    'layers/mlp/in/kernel',
    'layers/mlp/out/kernel',
    'mlm/dense/kernel',
    'nsp/kernel',
    'pooler/kernel',
  }
