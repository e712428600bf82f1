"""The softmax over sampled words, and what it stands for: the whole one."""

import functools
import math

import bert_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from flax import linen as nn

from configs import base
from models import sampled_softmax
from train.slices import hlo

V, P = 100, 6  # 28 rows of padding
PADDED = 128
SHAPE = (2, 3, 4)  # K, B, T
MODULE = sampled_softmax.Softmax(V, P)


def shares(vocab_size):
  """The probability of each word, float64."""
  words = np.arange(vocab_size)
  return np.log((words + 2) / (words + 1)) / np.log(vocab_size + 1)


@functools.cache
def make_case():
  """Parameters with zeros for padding, hidden states, targets."""
  rng = np.random.default_rng(0)
  kernel = rng.normal(0, 0.5, (PADDED, P)).astype(np.float32)
  bias = rng.normal(0, 0.5, PADDED).astype(np.float32)
  kernel[V:], bias[V:] = 0, 0
  hidden = rng.normal(size=(*SHAPE, P)).astype(np.float32)
  # From the most frequent word to the rarest.
  targets = rng.choice(np.array([0, 1, 2, 20, 60, 99]), SHAPE)
  return {'kernel': kernel, 'bias': bias}, hidden, targets


draw_words = jax.jit(sampled_softmax.draw_words, static_argnums=(1, 2))


@functools.partial(jax.jit, static_argnums=0)
def logits_of(module, params, hidden):
  return module.apply({'params': params}, hidden)


def evaluate(*arguments):
  return jax.device_get(compute(*arguments))


@functools.partial(jax.jit, static_argnums=(0, 1))
def compute(module, method, params, hidden, *rest):
  """Losses, and the gradient of a weighted sum of them."""

  def total(params, hidden):
    losses = module.apply({'params': params}, hidden, *rest, method=method)
    weights = jnp.cos(jnp.arange(losses.size)).reshape(losses.shape)
    return (losses * weights).sum(), losses

  (_, losses), gradient = jax.value_and_grad(total, (0, 1), has_aux=True)(
    params, hidden
  )
  return losses, gradient


# What is drawn


def test_words_are_drawn_close_to_zipfs_law():
  V, count = 50, 200_000
  drawn = draw_words(jax.random.key(0), (2, count // 2), V)
  assert drawn.shape == (2, count // 2) and drawn.dtype == jnp.int32
  found = np.bincount(np.ravel(drawn), minlength=V)
  assert found.shape == (V,)
  expected = count * shares(V)
  # 49 degrees of freedom: of 49 on average, above 95 once in 10,000.
  assert ((found - expected) ** 2 / expected).sum() < 95
  towers = np.asarray(drawn)
  assert (towers[0] != towers[1]).mean() > 0.5


def test_no_word_of_a_million_is_out_of_reach():
  """A single float32 would leave out a quarter of the rarest words."""
  V, count = 793_471, 2**21
  drawn = np.ravel(draw_words(jax.random.key(1), (count,), V))
  assert 0 <= drawn.min() and drawn.max() < V
  low = 200_000
  rare = drawn[drawn >= low]
  share = shares(V)[low:]
  assert abs(len(rare) - count * share.sum()) < 5 * math.sqrt(len(rare))
  expected = (1 - (1 - share) ** count).sum()
  assert abs(len(np.unique(rare)) - expected) < 5 * math.sqrt(expected)
  odd = (rare % 2).sum()
  assert abs(odd - len(rare) / 2) < 5 * math.sqrt(len(rare) / 4)


def test_the_rarest_words_are_alike(monkeypatch):
  V, count, low = 793_471, 3_000_000, 793_471 - 2000
  rng = np.random.default_rng(0)
  # Only what leads to the rarest words.
  lowest = int(math.log(low) / math.log(V + 1) * 2**11) * 2**12
  bits = np.stack(
    [rng.integers(lowest, 2**23, count), rng.integers(2**23, size=count)]
  )

  @jax.jit
  def draw(uniform):
    monkeypatch.setattr(jax.random, 'uniform', lambda rng, shape: uniform)
    return sampled_softmax.draw_words(None, (count,), V)

  drawn = np.asarray(draw((bits / 2**23).astype(np.float32)))
  found = np.bincount(drawn[drawn >= low] - low)
  expected = shares(V)[low:] * count / (1 - lowest / 2**23)
  assert found.shape == expected.shape
  ratio = found / expected
  # But for the very last one, where the exponential errs by half a word.
  assert abs(ratio[:-1] - 1).max() < 5 / math.sqrt(expected.min())
  assert 0.2 < ratio[-1] < 1.8


@pytest.mark.parametrize('V, S', [(50, 20), (793_471, 8192)])
def test_chances_are_those_of_the_draws(V, S):
  words = np.unique(np.geomspace(1, V, 500).astype(int)) - 1
  find = jax.jit(sampled_softmax.inclusion_log_probs, static_argnums=(1, 2))
  found = find(words.astype(np.int32), S, V)
  assert found.dtype == jnp.float32
  expected = np.log(-np.expm1(S * np.log1p(-shares(V)[words])))
  np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)
  # So many different words are drawn.
  chances = -np.expm1(S * np.log1p(-shares(V)))
  spread = math.sqrt((chances * (1 - chances)).sum())
  drawn = draw_words(jax.random.key(2), (S,), V)
  assert abs(len(np.unique(drawn)) - chances.sum()) < 5 * spread


# What is computed of it


def test_sampled_losses_are_those_of_a_plain_loop():
  params, hidden, targets = make_case()
  rng = np.random.default_rng(1)
  samples = rng.integers(0, V, (2, 12))
  samples[0, :4] = [7, targets[0, 0, 0], 7, targets[0, 0, 0]]
  samples[1, 5:8] = targets[1, 2, 3]
  losses, _ = evaluate(
    MODULE, 'sampled_losses', params, hidden, targets, samples
  )
  assert losses.shape == SHAPE and losses.dtype == jnp.float32
  kernel, bias = (np.float64(params[name]) for name in ('kernel', 'bias'))
  scores = np.einsum('kbtp,vp->kbtv', np.float64(hidden), kernel[:V])
  scores += bias[:V] - np.log(1 - (1 - shares(V)) ** 12)
  for k, b, t in np.ndindex(SHAPE):
    target = targets[k, b, t]
    total = 0.0
    for word in {target, *samples[k]}:
      total += math.exp(scores[k, b, t, word])
    expected = math.log(total) - scores[k, b, t, target]
    np.testing.assert_allclose(losses[k, b, t], expected, rtol=1e-5)


def test_with_nothing_but_the_target_sampled_the_loss_is_0():
  params, hidden, targets = make_case()
  alone = np.full((2, 5), 3)
  losses, gradient = evaluate(
    MODULE, 'sampled_losses', params, hidden, np.full(SHAPE, 3), alone
  )
  assert (losses == 0).all()
  assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient))


def test_more_samples_come_closer_to_the_whole_softmax():
  """The losses and both gradients, of frequent words and of rare ones."""
  params, hidden, targets = make_case()
  whole = evaluate(MODULE, 'losses', params, hidden, targets)
  errors = []
  for num_samples in (64, 1024, 16_384):
    several = [
      evaluate(
        MODULE,
        'sampled_losses',
        params,
        hidden,
        targets,
        draw_words(jax.random.key(seed), (2, num_samples), V),
      )
      for seed in range(4)
    ]
    mean = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *several)
    errors.append(
      jax.tree.leaves(
        jax.tree.map(lambda a, b: np.abs(a - np.asarray(b)).max(), mean, whole)
      )
    )
  few, more, most = np.array(errors)
  assert (few > 0.05).all()
  assert (more < 0.5 * few).all()
  # Every word is among the samples.
  assert (most < 1e-5).all()


@pytest.mark.parametrize('word', [0, 60])
def test_the_least_loss_is_at_the_true_probabilities(word):
  """Whether words are drawn often or hardly ever."""
  truth = np.full(V, 0.4 / (V - 1))
  truth[word] = 0.6
  # One position a word, each of its probability.
  hidden = np.ones((1, 1, V, 1), np.float32)
  targets = np.arange(V)[None, None]
  module = sampled_softmax.Softmax(V, 1)
  params = {
    'kernel': np.zeros((PADDED, 1), np.float32),
    'bias': np.pad(np.log(truth), (0, PADDED - V)).astype(np.float32),
  }

  @jax.jit
  def gradient(rng):
    samples = sampled_softmax.draw_words(rng, (1, 200), V)

    def total(params):
      losses = module.apply(
        {'params': params}, hidden, targets, samples, method='sampled_losses'
      )
      return (losses * truth).sum()

    return jax.grad(total)(params)['bias'][:V]

  draws = jax.lax.map(gradient, jax.random.split(jax.random.key(0), 500))
  mean = np.mean(draws, axis=0)
  error = np.std(draws, axis=0) / math.sqrt(len(draws))
  assert np.all(np.abs(mean) < 5 * error + 2e-3)


def test_losses_are_those_of_the_logits():
  params, hidden, targets = make_case()
  logits = np.asarray(logits_of(MODULE, params, hidden))
  assert logits.shape == (*SHAPE, PADDED)
  scores = scipy.special.log_softmax(logits, axis=-1)
  expected = -np.take_along_axis(scores, targets[..., None], -1)
  losses, _ = evaluate(MODULE, 'losses', params, hidden, targets)
  assert losses.shape == SHAPE and losses.dtype == jnp.float32
  np.testing.assert_allclose(losses, expected[..., 0], atol=1e-5)


@pytest.mark.parametrize('method', ['losses', 'sampled_losses'])
def test_padding_gets_no_probability_and_no_gradient(method):
  params, hidden, targets = make_case()
  rest = [targets]
  if method == 'sampled_losses':
    rest.append(draw_words(jax.random.key(0), (2, 500), V))
  losses, (gradient, _) = evaluate(MODULE, method, params, hidden, *rest)
  for name, leaf in gradient.items():
    assert (leaf[V:] == 0).all(), name
    assert (np.asarray(leaf[:V]) != 0).mean() > 0.9, name
  # Whatever stood there.
  full = jax.tree.map(np.copy, params)
  for leaf in full.values():
    leaf[V:] = 9
  again, _ = evaluate(MODULE, method, full, hidden, *rest)
  np.testing.assert_array_equal(again, losses)
  probabilities = scipy.special.softmax(
    logits_of(MODULE, full, hidden), axis=-1
  )
  assert (probabilities[..., V:] == 0).all()


def test_rows_and_their_derivative_are_those_of_indexing():
  params, *_ = make_case()
  ids = np.array([3, 99, 3, 0, 3, 17])
  weights = np.random.default_rng(2).normal(size=(6, P)).astype(np.float32)
  for table, w in (
    (params['kernel'], weights),
    (params['bias'], weights[:, 0]),
  ):

    @jax.jit
    def both(table, w):
      rows, pull = jax.vjp(lambda t: sampled_softmax.take_rows(t, ids), table)
      expected, plain_pull = jax.vjp(lambda t: t[ids], table)
      return (rows, *pull(w)), (expected, *plain_pull(w))

    (rows, by_table), (expected, by_plain) = jax.device_get(both(table, w))
    np.testing.assert_array_equal(rows, expected)
    bert_cases.assert_close(by_table, by_plain, 1e-6)
    assert (by_table[3] != 0).all()


# Over several devices


def test_on_eight_devices_the_table_stays_in_its_shards():
  params, hidden, targets = make_case()
  hidden = np.concatenate([hidden, hidden[:, :1] - 1], axis=1)  # 4 rows
  targets = np.concatenate([targets, targets[:, 1:2]], axis=1)
  samples = draw_words(jax.random.key(0), (2, 20), V)
  args = (hidden, targets, samples)
  expected = evaluate(MODULE, 'sampled_losses', params, *args)
  whole = evaluate(MODULE, 'losses', params, *args[:2])

  devices = np.array(jax.devices()).reshape(2, 2, 2)
  mesh = jax.sharding.Mesh(devices, ('data', 'fsdp', 'tensor'))
  rules = base.get_config().mesh.rules
  specs = nn.get_partition_spec(
    jax.eval_shape(
      functools.partial(MODULE.init, method='create'), jax.random.key(0)
    )['params']
  )
  places = nn.logical_to_mesh_sharding(specs, mesh, rules)
  jax.clear_caches()  # what was traced outside of the mesh has no constraints
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    sharded = jax.device_put(params, places)
    assert sharded['kernel'].sharding.shard_shape((PADDED, P)) == (32, P)
    program = compute.lower(MODULE, 'sampled_losses', sharded, *args).compile()
    found = program(sharded, *args)
    found_whole = compute(MODULE, 'losses', sharded, *args[:2])
  jax.clear_caches()
  bert_cases.assert_close(found, expected, 1e-5)
  bert_cases.assert_close(found_whole, whole, 1e-5)
  for place, leaf in zip(
    jax.tree.leaves(places), jax.tree.leaves(found[1][0]), strict=True
  ):
    assert leaf.sharding.is_equivalent_to(place, leaf.ndim)
  travelling = hlo.collectives(program.as_text(), 8)
  rows = targets.size + samples.size
  assert rows < PADDED
  assert any((rows, P) in [s for _, s in c.shapes] for c in travelling)
  for collective in travelling:
    for _, shape in collective.shapes:
      assert not {PADDED, PADDED // 2} & set(shape), collective
