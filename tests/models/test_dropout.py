"""Dropout masks: their rate, their independence, and their backward pass."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from models import dropout

LAYERS, HEADS = 48, 25  # GPT-2's largest
MASKS = 2 + HEADS  # of a layer


keep_mask = jax.jit(dropout.keep_mask, static_argnums=(1, 2))
draw_seeds = jax.jit(dropout.draw_seeds, static_argnums=1)


def draw_mask(key, shape, rate):
  seeds = draw_seeds(jax.random.key(key), shape[:-2])
  return np.asarray(keep_mask(seeds, shape, rate))


def standardized(keep, rate):
  """Decisions at the mean 0 and variance 1 that they shall have."""
  share = dropout.kept_share(rate)
  return (np.float32(keep) - share) / math.sqrt(share * (1 - share))


@pytest.mark.parametrize('rate', [0.01, 0.1, 0.25, 0.5])
def test_dropout_keeps_its_rate_and_the_mean(rate):
  shape = (64, 128, 129)
  mask = draw_mask(3, shape, rate)
  size = mask.size
  dropped = size - int(mask.sum())
  # Exact probability, five standard deviations.
  exact = dropout.threshold(rate) / 2**32
  assert abs(exact - rate) < 1e-9
  bound = 5 * math.sqrt(size * exact * (1 - exact))
  assert abs(dropped - exact * size) < bound
  apply = jax.jit(dropout.apply, static_argnums=2)
  x = np.asarray(apply(jax.random.key(3), np.ones(shape, 'f4'), rate))
  values = np.unique(x)
  np.testing.assert_allclose(values, [0, 1 / (1 - exact)], rtol=1e-6)
  # Unbiased: the expectation of an element is exactly the element.
  np.testing.assert_allclose(values[1] * (1 - exact), 1, rtol=1e-6)
  np.testing.assert_array_equal(x != 0, mask)


def test_dropout_decisions_are_independent():
  z = 2.0 * draw_mask(0, (4096, 128), 0.5) - 1
  # Halves, neighbours, rows, and another key's.
  other = 2.0 * draw_mask(1, z.shape, 0.5) - 1
  for a, b in (
    (z[:, :64], z[:, 64:]),
    (z[:, 1:], z[:, :-1]),
    (z[1:], z[:-1]),
    (z, other),
  ):
    assert abs(np.mean(a * b)) < 5 / math.sqrt(a.size)


@pytest.mark.parametrize('rate', [0.1, 0.5])
@pytest.mark.parametrize('length', [128, 512, 1024])
def test_elements_do_not_tell_of_others_at_any_distance(length, rate):
  """All distances at once: the autocorrelation of attention's masks."""
  draws = 4
  sums = 0
  for keep in draw_mask(9, (draws, length, length), rate):
    z = standardized(keep, rate)
    spectrum = np.fft.rfft2(z, (2 * length, 2 * length))
    sums += np.fft.irfft2(np.square(np.abs(spectrum)))
  pairs = length - np.abs(np.arange(length * 2) - length)  # of rows at a lag
  pairs = np.roll(pairs, -length)
  pairs = np.outer(pairs, pairs)
  # Half of the lags: the others are the same pairs. Few pairs say little.
  far = pairs > length**2 / 16
  far[length:] = far[0, length:] = far[0, 0] = False
  scores = sums[far] / np.sqrt(draws * pairs[far])
  # The largest of a million normal ones lies above 6.5 once in 12,000 times.
  assert np.abs(scores).max() < 6.5
  assert abs(np.mean(scores**2) - 1) < 0.03


@functools.partial(jax.jit, static_argnums=(1, 2))
def keep_all(seeds, shape, rate):
  return [
    dropout.keep_mask(seeds.replace(mask=mask), shape, rate)
    for mask in range(MASKS)
  ]


@pytest.mark.parametrize('rate', [0.1, 0.5])
def test_masks_of_all_layers_and_heads_are_independent(rate):
  """The largest GPT-2's: every pair of its 48 x 27 masks."""
  width = 1024
  seeds = jax.device_get(draw_seeds(jax.random.key(4), (LAYERS,)))
  layers = dropout.salt(np.arange(LAYERS, dtype=np.int32))
  seeds = seeds.replace(  # of one row
    first=np.broadcast_to(seeds.first[:1], LAYERS),
    second=np.broadcast_to(seeds.second[:1], LAYERS),
    layer=layers[:, None, None],
  )
  shape = (LAYERS, 16, width)
  z = np.concatenate(
    [standardized(keep, rate) for keep in keep_all(seeds, shape, rate)]
  ).reshape(LAYERS * MASKS, -1)
  scores = z @ z.T / math.sqrt(z.shape[1])
  scores = scores[np.triu_indices(len(scores), 1)]
  # 840,000 pairs: above 6.5 once in 15,000 times.
  assert np.abs(scores).max() < 6.5
  assert abs(np.mean(scores**2) - 1) < 0.02
  assert abs(np.mean(scores)) < 0.01
  # The share that each mask keeps.
  assert np.abs(z.sum(axis=1) / math.sqrt(z.shape[1])).max() < 5.5


def test_masks_of_a_layer_never_read_the_same_place():
  """Nor do two rows of a mask; they have 4,096 columns at most."""
  rows = np.arange(MASKS * dropout.ROWS, dtype=np.int32)
  salts = dropout.salt(rows).astype(np.int64)
  gaps = np.diff(np.sort(np.append(salts, salts.min() + 2**32)))
  assert gaps.min() > 4096


@pytest.mark.parametrize('rate', [0.1, 0.5])
def test_rows_are_independent(rate):
  z = standardized(draw_mask(5, (512, 64, 128), rate), rate).reshape(512, -1)
  scores = z @ z.T / math.sqrt(z.shape[1])
  scores = scores[np.triu_indices(len(scores), 1)]
  assert np.abs(scores).max() < 6
  assert abs(np.mean(scores**2) - 1) < 0.03


def test_dropout_needs_no_key_at_rate_0():
  x = jnp.ones((2, 3))
  assert dropout.Dropout(0.0).apply({}, x) is x


def test_a_module_draws_by_its_stream():
  x = jnp.ones((4, 8, 16))
  module = dropout.Dropout(0.5)
  apply = jax.jit(lambda x, key: module.apply({}, x, rngs={'dropout': key}))
  first, again, other = (apply(x, jax.random.key(key)) for key in (0, 0, 1))
  np.testing.assert_array_equal(first, again)
  assert (np.asarray(first) != np.asarray(other)).any()
  assert set(np.unique(first)) == {0, 2}


@pytest.mark.parametrize('rate', [-0.1, 1.0, 1 - 1e-11])
def test_dropout_rate_is_checked(rate):
  with pytest.raises(ValueError, match='expected 0 <= rate < 1'):
    draw_mask(0, (4, 4), rate)


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_the_backward_pass_drops_the_same_elements(dtype):
  x = np.random.default_rng(0).normal(size=(4, 8, 32)).astype(dtype)
  seeds = draw_seeds(jax.random.key(2), (4,))
  seeds = seeds.replace(layer=dropout.salt(np.int32(3)), mask=1)
  keep = keep_mask(seeds, x.shape, 0.25)
  y, back = jax.jit(
    lambda x: jax.vjp(lambda x: dropout.drop(x, seeds, 0.25), x)
  )(x)
  np.testing.assert_array_equal(np.asarray(y) != 0, keep)
  gradient = np.ones_like(x)
  (by_x,) = jax.jit(back)(gradient)
  assert by_x.dtype == dtype
  np.testing.assert_array_equal(
    np.asarray(by_x, np.float32),
    np.where(keep, np.float32(np.array(4 / 3, dtype)), 0),
  )
  # It keeps the seeds alone.
  assert max(leaf.size for leaf in jax.tree.leaves(back)) == 4


@pytest.mark.parametrize(
  'spec',
  [
    PartitionSpec('data'),
    PartitionSpec(None, 'tensor'),
    PartitionSpec('data', 'tensor'),
    PartitionSpec(None, None, None, ('data', 'tensor')),
  ],
)
def test_dropout_masks_do_not_depend_on_sharding(spec):
  shape = (8, 4, 16, 48)
  key = jax.random.key(7)

  def keep_mask(key):
    return dropout.keep_mask(
      dropout.draw_seeds(key, shape[:2]).replace(mask=5), shape, 0.1
    )

  alone = np.asarray(jax.jit(keep_mask)(key))
  devices = np.array(jax.devices()).reshape(4, 2)
  mesh = jax.sharding.Mesh(devices, ('data', 'tensor'))
  with jax.set_mesh(mesh):
    draw = jax.jit(keep_mask, out_shardings=NamedSharding(mesh, spec))
    program = draw.lower(key).compile()
    sharded, text = program(key), program.as_text()
  assert len(sharded.sharding.device_set) == 8
  np.testing.assert_array_equal(np.asarray(sharded), alone)
  for collective in ('all-gather', 'all-reduce', 'collective-permute'):
    assert collective not in text


def test_lengths_beyond_the_rows_of_a_mask_are_refused():
  dropout.check_length(4096)
  with pytest.raises(ValueError, match='4097 tokens long, expected at most'):
    dropout.check_length(4097)
