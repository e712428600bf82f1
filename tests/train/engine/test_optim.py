import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import linen as nn

from configs import base
from models import bert, scalar_mix
from train.engine import optim, sharding, state
from train.run import settings


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


def test_cosine_is_gpts():
  config = make_config(
    learning_rate=2.5e-4, warmup_steps=2_000, schedule='cosine'
  )
  schedule = optim.make_schedule(config, ((100_000, 512, 64, 'continue'),))
  steps = np.array([0, 1, 1_999, 2_000, 2_001, 25_000, 50_000, 99_999, 100_000])
  # By hand: the cosine runs from step 0, not from the end of the warm-up.
  expected = [
    2.5e-4 * step / 2_000
    if step <= 2_000  # as warmup_cosine of the release, opt.py
    else 2.5e-4 * 0.5 * (1 + math.cos(math.pi * step / 100_000))
    for step in steps
  ]
  np.testing.assert_allclose(
    schedule_values(schedule, steps), expected, rtol=1e-5, atol=1e-11
  )
  # Where the warm-up ends, in few steps, the difference is large.
  short = make_config(learning_rate=1.0, warmup_steps=2, schedule='cosine')
  rates = optim.make_schedule(short, ((4, 8, 4, 'continue'),))
  np.testing.assert_allclose(
    schedule_values(rates, np.arange(4)), [0, 0.5, 1, 0.146447], rtol=1e-5
  )
  short.warmup_steps = 0
  assert optim.make_schedule(short, ((4, 8, 4, 'continue'),))(0) == 1
  with pytest.raises(ValueError, match="optim.schedule is 'sine'"):
    optim.make_schedule(make_config(schedule='sine'), ((9, 8, 4, 'continue'),))


def test_wsd_stays_and_falls_by_the_root():
  config = make_config(
    learning_rate=0.4, warmup_steps=10, schedule='wsd', decay_share=0.25
  )
  schedule = optim.make_schedule(config, ((100, 8, 4, 'continue'),))
  steps = np.arange(103)
  expected = np.full(103, 0.4)
  expected[:10] = 0.04 * steps[:10]
  expected[75:101] = 0.4 * (1 - np.sqrt((steps[75:101] - 75) / 25))
  expected[101:] = 0
  np.testing.assert_allclose(
    schedule_values(schedule, steps), expected, rtol=1e-5, atol=1e-7
  )
  # More steps change no rate before the fall.
  longer = optim.make_schedule(config, ((200, 8, 4, 'continue'),))
  np.testing.assert_array_equal(
    schedule_values(longer, steps[:76]), schedule_values(schedule, steps[:76])
  )


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


def test_the_two_phases_of_lamb():
  """Golden values of bert_large_lamb, by hand."""
  config = settings.load_config('bert_large_lamb')
  schedule = optim.make_schedule(config.optim, config.train.phases)
  by_hand = {
    0: 0.0,
    1_000: 3e-3,
    1_999: 5.997e-3,
    2_000: 6e-3 * 5_037 / 7_037,
    7_036: 6e-3 / 7_037,
    7_037: 0.0,
    7_137: 2e-3,
    7_237: 4e-3 * 1_362 / 1_562,
    8_598: 4e-3 / 1_562,
  }
  rates = schedule_values(schedule, np.array(list(by_hand)))
  np.testing.assert_allclose(rates, list(by_hand.values()), rtol=1e-5)
  # A phase without restarts of its own warms up to the same peak again.
  config.optim.restarts = ()
  again = optim.make_schedule(config.optim, config.train.phases)
  np.testing.assert_allclose(again(7_137), 6e-3 * 100 / 2_000, rtol=1e-5)


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
    (
      {'restarts': ((1e-3, 5), (1e-4, 2))},
      ((9, 8, 4, 'restart'), (9, 8, 4, 'restart')),
      "has 2 entries, but train.phases has 1 'restart' after the first",
    ),
    ({'restarts': ((1e-3, 5),)}, ((9, 8, 4, 'continue'),), 'has 1 .* has 0'),
    (
      {'restarts': (1e-3,)},
      ((9, 8, 4, 'continue'), (9, 8, 4, 'restart')),
      r'restarts\[0\] is 0.001, expected \(learning_rate, warmup_steps\)',
    ),
    (
      {'restarts': ((1e-3, -5),)},
      ((9, 8, 4, 'continue'), (9, 8, 4, 'restart')),
      r'restarts\[0\]: warmup_steps is -5',
    ),
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
      if c.name == 'adamw':
        m_hat = m[k] / (1 - c.beta1**t)
        v_hat = v[k] / (1 - c.beta2**t)
      if c.name == 'gpt_adam':  # the correction is a part of the rate
        factor = math.sqrt(1 - c.beta2**t) / (1 - c.beta1**t)
      else:
        factor = 1
      update = m_hat / (np.sqrt(v_hat) + c.epsilon)
      if k == 'kernel':
        update = update + c.weight_decay * params[k]
      params[k] = params[k] - rate * factor * update
  return params


@pytest.mark.parametrize('name', ['bert_adam', 'gpt_adam', 'adamw'])
def test_adam_against_numpy(name):
  # Decay and epsilon large enough to see where they enter.
  config = make_config(
    learning_rate=0.01,
    warmup_steps=3,
    name=name,
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


VOCAB_SIZE, NUM_LAYERS, EMBED_DIM = 130, 2, 128


@pytest.fixture(scope='module')
def small_bert():
  """(parameters, 5 gradients, axis names) of a Bert that factors.

  Scales differ from layer to layer and among query, key and value, so that
  whatever mixes them shows; the vocabulary is padded with zeros.
  """
  model = bert.Bert(
    vocab_size=VOCAB_SIZE,
    num_layers=NUM_LAYERS,
    embed_dim=EMBED_DIM,
    num_heads=2,
    mlp_dim=256,
    max_length=8,
  )
  ids = jnp.zeros((1, 4), jnp.int32)
  boxed = state.abstract_params(model, (ids, ids > 0, ids, ids, ids))
  rng = np.random.default_rng(0)

  def draw(path, leaf, size):
    array = size * rng.normal(size=leaf.shape) * rng.uniform(0.5, 2)
    names = [key.key for key in path]
    if 'layers' in names:
      array = (array.T * [1, 5]).T
    if 'qkv' in names:
      array = array * np.array([1, 3, 0.3])[:, None, None]
    if names[-1] == 'embedding' or names == ['mlm', 'bias']:
      array[VOCAB_SIZE:] = 0
    return array.astype(np.float32)

  def draw_all(size):
    return jax.tree_util.tree_map_with_path(
      lambda path, leaf: draw(path, leaf, size), nn.meta.unbox(boxed)
    )

  gradients = [draw_all(size) for size in (1e-3, 1e-2, 3e-3, 1e-4, 1e-3)]
  return draw_all(0.02), gradients, sharding.axis_names(boxed)


def publish(params):
  """Takes a Bert apart, by hand: {name: published matrix or vector}."""
  apart = {}
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    where = jax.tree_util.keystr(path, simple=True, separator='/')
    leaf = np.asarray(leaf)
    if not where.startswith('layers/'):
      padded = where in ('embeddings/tokens/embedding', 'mlm/bias')
      apart[where] = leaf[:VOCAB_SIZE] if padded else leaf
      continue
    for i in range(NUM_LAYERS):
      if where == 'layers/attention/qkv/kernel':
        for j in range(3):
          matrix = leaf[i][:, j].reshape(EMBED_DIM, EMBED_DIM)
          apart[f'{i}/{j}/{where}'] = matrix
      elif where == 'layers/attention/qkv/bias':
        for j in range(3):
          apart[f'{i}/{j}/{where}'] = leaf[i, j].reshape(EMBED_DIM)
      elif where == 'layers/attention/out/kernel':
        apart[f'{i}/{where}'] = leaf[i].reshape(EMBED_DIM, EMBED_DIM)
      else:
        apart[f'{i}/{where}'] = leaf[i]
  return apart


def is_decayed(name):
  return name.split('/')[-1] not in ('bias', 'scale')


def run(tx, params, gradients):
  """Returns the parameters after the gradients, and the last state."""
  params = jax.tree.map(jnp.asarray, params)
  opt_state, update = tx.init(params), jax.jit(tx.update)
  for gradient in gradients:
    updates, opt_state = update(gradient, opt_state, params)
    params = optax.apply_updates(params, updates)
  return params, opt_state


def numpy_lamb(params, gradients, rates, config):
  """You et al. 2020, algorithm 2, one published matrix at a time."""
  c = config
  params = {k: np.float64(v) for k, v in params.items()}
  m = {k: 0.0 for k in params}
  v = {k: 0.0 for k in params}
  for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
    norm = math.sqrt(sum((np.float64(g) ** 2).sum() for g in gradient.values()))
    for k, x in params.items():
      g = gradient[k] * min(1.0, c.clip_norm / norm)
      m[k] = c.beta1 * m[k] + (1 - c.beta1) * g
      v[k] = c.beta2 * v[k] + (1 - c.beta2) * g**2
      m_hat, v_hat = m[k] / (1 - c.beta1**t), v[k] / (1 - c.beta2**t)
      r = m_hat / (np.sqrt(v_hat) + c.epsilon)
      if is_decayed(k):
        r = r + c.weight_decay * x
        r = r * np.linalg.norm(x) / np.linalg.norm(r)
      params[k] = x - rate * r
  return params


def test_lamb_against_numpy(small_bert):
  params, gradients, axes = small_bert
  config = make_config(
    name='lamb', learning_rate=0.05, warmup_steps=2, weight_decay=0.1
  )
  schedule = optim.make_schedule(config, ((5, 8, 4, 'continue'),))
  tx = optim.make_optimizer(config, schedule, axes, VOCAB_SIZE)
  ours, _ = run(tx, params, gradients)
  rates = bert_rates(0.05, 2, 5, range(5))
  expected = numpy_lamb(
    publish(params), [publish(g) for g in gradients], rates, config
  )
  apart = publish(ours)
  assert apart.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_allclose(apart[name], value, 0, 1e-6, err_msg=name)
  assert_padding_is_zero(ours)
  assert float(optax.tree.norm(gradients[1])) > config.clip_norm
  # One ratio for a whole stack would be far off.
  stacks = [
    {'q': tree['layers']['attention']['qkv']['kernel']}
    for tree in (params, *gradients)
  ]
  mixed = numpy_lamb(stacks[0], stacks[1:], rates, config)['q'][0, :, 0]
  apart = expected['0/0/layers/attention/qkv/kernel']
  assert np.abs(mixed.reshape(apart.shape) - apart).max() > 1e-3


def numpy_stable_adamw(params, gradients, rates, config):
  """Wortsman et al. 2023, algorithm 2; also the factors of the steps."""
  c = config
  params = {k: np.float64(v) for k, v in params.items()}
  m, v = ({k: 0.0 for k in params} for _ in range(2))
  shares = []
  for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
    norm = math.sqrt(sum((np.float64(g) ** 2).sum() for g in gradient.values()))
    for k, p in params.items():
      g = gradient[k] * min(1.0, c.clip_norm / norm)
      b1, b2 = (b * (1 - b ** (t - 1)) / (1 - b**t) for b in (c.beta1, c.beta2))
      m[k] = b1 * m[k] + (1 - b1) * g
      v[k] = b2 * v[k] + (1 - b2) * g**2
      rms = np.sqrt(np.mean(g**2 / np.maximum(v[k], c.epsilon**2)))
      shares.append(1 / max(1, rms))
      step = m[k] / (np.sqrt(v[k]) + c.epsilon)
      step = step + c.weight_decay * is_decayed(k) * p
      params[k] = p - rate * shares[-1] * step
  return params, np.array(shares)


def test_stable_adamw_against_numpy(small_bert):
  params, gradients, axes = small_bert
  config = make_config(
    name='stable_adamw', learning_rate=0.05, warmup_steps=2, weight_decay=0.1
  )
  schedule = optim.make_schedule(config, ((5, 8, 4, 'continue'),))
  tx = optim.make_optimizer(config, schedule, axes, VOCAB_SIZE)
  ours, _ = run(tx, params, gradients)
  rates = bert_rates(0.05, 2, 5, range(5))
  expected, shares = numpy_stable_adamw(
    publish(params), [publish(g) for g in gradients], rates, config
  )
  assert shares.min() < 0.7 and (shares == 1).any()
  apart = publish(ours)
  for name, value in expected.items():
    np.testing.assert_allclose(apart[name], value, 0, 2e-6, err_msg=name)
  assert_padding_is_zero(ours)


def numpy_muon(params, gradients, rates, config):
  """Jordan et al. 2024 on matrices of layers one by one, else AdamW.

  optax's means have a correction of their own: the mean of the step to come.
  """
  c, decay = config, 0.95
  params = {k: np.float64(v) for k, v in params.items()}
  m, v = ({k: 0.0 for k in params} for _ in range(2))
  for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
    norm = math.sqrt(sum((np.float64(g) ** 2).sum() for g in gradient.values()))
    for k, p in params.items():
      g = gradient[k] * min(1.0, c.clip_norm / norm)
      if '/layers/' in k and k.endswith('kernel'):
        m[k] = decay * m[k] + (1 - decay) * g
        x = decay * m[k] / (1 - decay ** (t + 1))
        x = x + (1 - decay) * g / (1 - decay**t)
        wide = len(x) < len(x.T)
        x = x if wide else x.T
        x = x / (np.linalg.norm(x) + 1e-8)
        for _ in range(5):
          square = x @ x.T
          x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
        r = (x if wide else x.T) * 0.2 * math.sqrt(max(p.shape))
      else:
        m[k] = c.beta1 * m[k] + (1 - c.beta1) * g
        v[k] = c.beta2 * v[k] + (1 - c.beta2) * g**2
        m_hat, v_hat = m[k] / (1 - c.beta1**t), v[k] / (1 - c.beta2**t)
        r = m_hat / (np.sqrt(v_hat) + c.epsilon)
      if is_decayed(k):
        r = r + c.weight_decay * p
      params[k] = p - rate * r
  return params


def test_muon_against_numpy(small_bert):
  params, gradients, axes = small_bert
  config = make_config(
    name='muon', learning_rate=0.05, warmup_steps=2, weight_decay=0.1
  )
  schedule = optim.make_schedule(config, ((5, 8, 4, 'continue'),))
  tx = optim.make_optimizer(config, schedule, axes, VOCAB_SIZE)
  ours, opt_state = run(tx, params, gradients)
  expected = numpy_muon(
    publish(params),
    [publish(g) for g in gradients],
    bert_rates(0.05, 2, 5, range(5)),
    config,
  )
  apart = publish(ours)
  for name, value in expected.items():
    np.testing.assert_allclose(apart[name], value, 0, 2e-5, err_msg=name)
  assert_padding_is_zero(ours)
  # A matrix has one moment, which lies as the parameter does; a table has two.
  muon = opt_state[1].inner_states['muon'].inner_state[0]
  kernel = muon.mu['layers']['attention']['qkv']['kernel']
  assert kernel.shape == params['layers']['attention']['qkv']['kernel'].shape
  assert len(jax.tree.leaves(muon.mu)) == 4


def test_a_mesh_spreads_the_matrices_of_muon(small_bert):
  """Padding fills the devices that are left over."""
  params, (gradient, *_), axes = small_bert
  tx = optim.scale_by_muon(axes, optax.scale_by_adam())

  @jax.jit
  def turn(gradient):
    return tx.update(gradient, tx.init(params), params)[0]

  expected = jax.device_get(turn(gradient))
  config = base.get_config()
  config.mesh.update(data=2, fsdp=2, tensor=2)
  mesh = sharding.make_mesh(config.mesh, jax.devices())

  def split(leaf):
    """Splits the last axes that can be, as fsdp and tensor do."""
    names = iter(('tensor', 'fsdp'))
    spec = [
      next(names, None) if size % 2 == 0 else None for size in leaf.shape[::-1]
    ]
    place = jax.sharding.PartitionSpec(*spec[::-1])
    return jax.device_put(leaf, jax.NamedSharding(mesh, place))

  jax.clear_caches()
  with sharding.scope(mesh, config.mesh.rules):
    gradient = jax.tree.map(split, gradient)
    program = turn.lower(gradient).compile().as_text()
    found = jax.device_get(turn(gradient))
  jax.clear_caches()
  assert 'all-' in program
  jax.tree.map(
    lambda ours, wanted: np.testing.assert_allclose(ours, wanted, atol=2e-5),
    found,
    expected,
  )


def test_muon_turns_each_half_of_a_gated_mlp():
  rng = np.random.default_rng(0)
  both = jnp.asarray(rng.normal(size=(3, 8, 2, 6)), jnp.float32)

  def turn(kernel, names):
    params = {'layers': {'mlp': {'in': {'kernel': kernel}}}}
    axes = {'layers/mlp/in/kernel': names}
    tx = optim.scale_by_muon(axes, optax.scale_by_adam())
    update, _ = jax.jit(tx.update)(params, tx.init(params), params)
    return update['layers']['mlp']['in']['kernel']

  found = turn(both, ('layers', 'embed', 'gates', 'mlp'))
  for half in range(2):
    alone = turn(both[:, :, half], ('layers', 'embed', 'mlp'))
    np.testing.assert_allclose(found[:, :, half], alone, atol=1e-6)


def assert_padding_is_zero(params):
  assert (params['embeddings']['tokens']['embedding'][VOCAB_SIZE:] == 0).all()
  assert (params['mlm']['bias'][VOCAB_SIZE:] == 0).all()


def test_lamb_is_that_of_optax_where_nothing_is_stacked():
  rng = np.random.default_rng(0)
  shapes = {'kernel': (7, 5), 'embedding': (3, 4)}
  draw = lambda: {k: rng.normal(size=s) for k, s in shapes.items()}  # noqa: E731
  params, gradients = draw(), [draw() for _ in range(5)]
  c = make_config(name='lamb', clip_norm=1e9)
  tx = optim.make_optimizer(c, lambda step: 0.1, dict.fromkeys(shapes, 'ab'))
  theirs = optax.lamb(
    0.1, b1=c.beta1, b2=c.beta2, eps=c.epsilon, weight_decay=c.weight_decay
  )
  ours, _ = run(tx, params, gradients)
  expected, _ = run(theirs, params, gradients)
  for name in shapes:
    np.testing.assert_allclose(ours[name], expected[name], rtol=1e-6)


def test_adafactor_is_that_of_optax_on_matrices_apart(small_bert):
  params, gradients, axes = small_bert
  config = make_config(
    name='adafactor',
    learning_rate=0.1,
    warmup_steps=2,
    weight_decay=0.1,
    clip_norm=1e9,
  )
  schedule = optim.make_schedule(config, ((5, 8, 4, 'continue'),))
  tx = optim.make_optimizer(config, schedule, axes, VOCAB_SIZE)
  theirs = optax.adafactor(
    schedule,
    weight_decay_rate=lambda step: config.weight_decay * schedule(step),
    weight_decay_mask=lambda tree: {name: is_decayed(name) for name in tree},
  )
  ours, opt_state = run(tx, params, gradients)
  expected, their_state = run(
    theirs, publish(params), [publish(g) for g in gradients]
  )
  for name, value in publish(ours).items():
    np.testing.assert_allclose(value, expected[name], 0, 1e-6, err_msg=name)
    assert np.abs(value - publish(params)[name]).max() > 1e-3
  assert_padding_is_zero(ours)
  # Two vectors in place of a matrix, and nothing as large as one.
  qkv = opt_state[1]['layers']['attention']['qkv']['kernel'].state[0]
  assert qkv.v_row.shape == qkv.v_col.shape == (3 * NUM_LAYERS, EMBED_DIM)
  assert qkv.v.shape == (3 * NUM_LAYERS, 1)


def test_matrices_need_axis_names():
  tx = optim.make_optimizer(make_config(name='adafactor'), lambda step: 0.1)
  with pytest.raises(ValueError, match='mlp/kernel has no logical axis names'):
    tx.init({'mlp': {'kernel': jnp.ones((3, 2))}})


def test_inverse_counts_the_tokens_read():
  """Bengio et al. 2003, section 2.1: rate / (1 + 1e-8 t)."""
  config = make_config(learning_rate=2.0, warmup_steps=0, schedule='inverse')
  phases = ((100, 64, 1_000, 'continue'), (50, 128, 2_000, 'continue'))
  schedule = optim.make_schedule(config, phases)
  read = {0: 0, 1: 64_000, 100: 6_400_000, 120: 6_400_000 + 20 * 256_000}
  for step, tokens in read.items():
    expected = 2.0 / (1 + 1e-8 * tokens)
    assert float(schedule(step)) == pytest.approx(expected, rel=1e-6)


def test_sgd_is_torchs():
  config = make_config(name='sgd', weight_decay=0.1, clip_norm=1e9)
  tx = optim.make_optimizer(config, lambda step: 0.5)
  params = {'kernel': jnp.array([1.0, -2.0]), 'bias': jnp.array([3.0])}
  state = tx.init(params)
  kernel, bias = (
    torch.nn.Parameter(torch.tensor(np.array(params[name])))
    for name in ('kernel', 'bias')
  )
  theirs = torch.optim.SGD(
    [{'params': [kernel], 'weight_decay': 0.1}, {'params': [bias]}], lr=0.5
  )
  for _ in range(3):
    gradients = jax.tree.map(jnp.sin, params)
    updates, state = tx.update(gradients, state, params)
    params = optax.apply_updates(params, updates)
    for parameter in (kernel, bias):
      parameter.grad = torch.sin(parameter.detach())
    theirs.step()
  np.testing.assert_allclose(params['kernel'], kernel.detach(), rtol=1e-6)
  np.testing.assert_allclose(params['bias'], bias.detach(), rtol=1e-6)


def test_unknown_optimizer_is_named():
  with pytest.raises(ValueError, match="'lion', expected one of .*'lamb'"):
    optim.make_optimizer(make_config(name='lion'), lambda step: 0.1)


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


@pytest.mark.parametrize(
  ('name', 'rate', 'epsilon', 'make'),
  [
    ('adamw', 1e-2, 1e-8, torch.optim.Adam),
    *(
      ('adadelta', 1.0, eps, functools.partial(torch.optim.Adadelta, rho=0.95))
      for eps in (1e-6, 1e-5)
    ),
  ],
)
def test_the_optimisers_of_allennlps_task_models_are_those_of_torch(
  name, rate, epsilon, make
):
  """By keys alone: no decay, no warm-up, gradients clipped by their norm."""
  config = make_config(
    name=name,
    learning_rate=rate,
    schedule='constant',
    warmup_steps=0,
    epsilon=epsilon,
    weight_decay=0.0,
    clip_norm=5.0,
  )
  rng = np.random.default_rng(0)
  shapes = {'kernel': (7, 5), 'bias': (5,)}

  def draw(size):
    return {
      k: (size * rng.normal(size=s)).astype(np.float32)
      for k, s in shapes.items()
    }

  params = draw(1.0)
  gradients = [draw(size) for size in (3.0, 0.1, 1e-3, 0.5, 9.0, 0.0, 0.2)]
  schedule = optim.make_schedule(config, ((7, 8, 4, 'continue'),))
  ours, _ = run(optim.make_optimizer(config, schedule), params, gradients)
  theirs = {
    k: torch.tensor(v, dtype=torch.float64, requires_grad=True)
    for k, v in params.items()
  }
  optimizer = make(theirs.values(), rate, eps=epsilon)
  clipped = 0
  for gradient in gradients:
    norm = math.sqrt(sum((np.float64(g) ** 2).sum() for g in gradient.values()))
    clipped += norm > 5.0
    for k, param in theirs.items():
      factor = 5.0 / max(5.0, norm)
      param.grad = factor * torch.tensor(gradient[k], dtype=torch.float64)
    optimizer.step()
  assert 0 < clipped < len(gradients)
  for k in shapes:
    expected = theirs[k].detach().numpy()
    np.testing.assert_allclose(ours[k], expected, rtol=0, atol=1e-6)
    assert np.abs(expected - params[k]).max() > 1e-3


def test_the_averages_of_layers_do_not_decay():
  assert {scalar_mix.WEIGHTS, scalar_mix.SCALE} <= {*optim.UNDECAYED}
