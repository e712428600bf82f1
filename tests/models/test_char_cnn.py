"""Words that are encoded once, however often they stand in a batch."""

import functools

import bert_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from configs import base
from models import char_cnn

ENCODER = char_cnn.CharacterEncoder(
  char_embed_dim=3, filters=((1, 4), (4, 12)), num_highway=1, projection_dim=6
)
WIDEST = 4
WORDS = {  # numbers of words, the sizes of the parts rounded up or not
  'all distinct': np.random.default_rng(0).permutation(32),
  'all equal': np.full(32, 7),
  'a few': np.random.default_rng(0).integers(0, 5, 32) * 1000,
  'not divisible by 8': np.random.default_rng(0).integers(0, 20, 29),
  'fewer than parts': np.array([4, 4, 1]),
  'one': np.array([3]),
}


@functools.cache
def make_params():
  shapes = jax.eval_shape(
    ENCODER.init, jax.random.key(0), jnp.zeros((1, 50), jnp.int32)
  )['params']
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda p: rng.normal(0, 0.4, p.shape).astype(np.float32), nn.unbox(shapes)
  )


def spell(words, *, short=False):
  """Characters [N, 50] that tell words apart; every other word may be short."""
  spellings = np.random.default_rng(1).integers(0, 261, (5000, 50))
  if short:
    spellings[::2, char_cnn.SHORT - WIDEST :] = 260
  return spellings[words].astype(np.int16)


def encode(params, characters):
  return ENCODER.apply({'params': params}, characters)


def encode_once(params, characters, words):
  vectors_KBTP = char_cnn.encode_once(
    encode, WIDEST, params, characters[None, :, None], words[None, :, None]
  )
  return vectors_KBTP[0, :, 0]


def assert_close(found, expected):
  bert_cases.assert_close(found[0], expected[0], 1e-5)
  # Sums over all places of padding, in another order.
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5),
    found[1],
    expected[1],
  )


@functools.partial(jax.jit, static_argnums=0)
def evaluate(function, params, *rest):
  """Vectors, and the gradient of a weighted sum of them."""

  def total(params):
    vectors = function(params, *rest)
    weights = jnp.cos(jnp.arange(vectors.size)).reshape(vectors.shape)
    return (vectors * weights).sum(), vectors

  (_, vectors), gradient = jax.value_and_grad(total, has_aux=True)(params)
  return vectors, gradient


@pytest.mark.parametrize('short', [False, True])
@pytest.mark.parametrize('name', WORDS)
def test_vectors_and_gradients_are_those_of_every_word(name, short):
  words = WORDS[name]
  params, characters = make_params(), spell(words, short=short)
  found = evaluate(encode_once, params, characters, words)
  expected = evaluate(encode, params, characters)
  assert found[0].shape == (len(words), 6)
  assert np.abs(found[0]).max() > 0.1
  assert_close(found, expected)


@pytest.mark.parametrize('count', [32, 40])  # in parts of 4 and 5
def test_on_eight_devices(count):
  words = np.random.default_rng(0).integers(0, count // 2, count)
  params, characters = make_params(), spell(words, short=True)
  expected = evaluate(encode, params, characters)
  mesh = jax.sharding.Mesh(
    np.array(jax.devices()).reshape(2, 2, 2), ('data', 'fsdp', 'tensor')
  )
  rules = base.get_config().mesh.rules
  places = nn.logical_to_mesh_sharding(
    nn.get_partition_spec(
      jax.eval_shape(ENCODER.init, jax.random.key(0), characters)['params']
    ),
    mesh,
    rules,
  )
  jax.clear_caches()  # what was traced outside of the mesh has no constraints
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    sharded = jax.device_put(params, places)
    found = evaluate(encode_once, sharded, characters, words)
  jax.clear_caches()
  assert_close(found, expected)


seen = []


@jax.jit
def sum_watched(params, characters, words):
  """A sum of vectors; what is encoded for it is appended to `seen`."""

  def watched(params, characters):
    jax.debug.callback(lambda rows: seen.append(np.array(rows)), characters)
    return encode(params, characters)

  return char_cnn.encode_once(
    watched, WIDEST, params, characters[None, :, None], words[None, :, None]
  ).sum()


differentiate = jax.jit(jax.grad(sum_watched))


@pytest.mark.parametrize(
  'distinct, parts', [(1, 1), (4, 1), (5, 2), (16, 4), (32, 8)]
)
def test_each_distinct_word_is_encoded_once(distinct, parts):
  """In as many of 8 parts as hold some, forwards and backwards."""
  words = np.arange(32) % distinct
  arguments = make_params(), spell(words), words
  seen.clear()
  sum_watched(*arguments)
  jax.effects_barrier()
  assert [rows.shape for rows in seen] == [(4, 50)] * parts
  encoded = np.concatenate(seen)
  assert len(np.unique(encoded, axis=0)) == distinct
  # What fills the last part up repeats a word.
  assert len(encoded) < distinct + 4
  seen.clear()
  differentiate(*arguments)
  jax.effects_barrier()
  assert len(seen) == 2 * parts


def test_short_words_are_looked_at_no_further():
  """Only where all are short: their padding tells nothing."""
  characters = spell(np.arange(6), short=True)
  short = char_cnn.are_short(jnp.asarray(characters), WIDEST)
  assert short.tolist() == [True, False] * 3
  # One more character in sight of the filters that SHORT cuts off.
  longer = characters.copy()
  longer[0, char_cnn.SHORT - WIDEST] = 5
  assert not char_cnn.are_short(jnp.asarray(longer), WIDEST)[0]
  shapes = []

  def run(characters):
    shapes.append(characters.shape)
    return encode(make_params(), characters)

  for rows in (characters[::2], characters):
    found, expected = jax.jit(
      lambda rows: (
        char_cnn.without_padding(run, rows, WIDEST),
        encode(make_params(), rows),
      )
    )(rows)
    np.testing.assert_allclose(found, expected, atol=1e-6)
  assert {shape[1] for shape in shapes} == {char_cnn.SHORT, 50}


@pytest.mark.parametrize('widest', [char_cnn.SHORT, 21, 50])
def test_wide_filters_look_at_all_of_every_word(widest):
  characters = jnp.asarray(spell(np.arange(6), short=True))
  assert not char_cnn.are_short(characters, widest).any()
  found = char_cnn.without_padding(lambda rows: rows, characters, widest)
  np.testing.assert_array_equal(found, characters)


def test_parts_are_larger_on_a_tpu(monkeypatch):
  """(Number of parts, words of a part); all words have room in them."""
  assert char_cnn._divide(960) == (8, 120)
  assert char_cnn._divide(3) == (3, 1)
  monkeypatch.setattr(char_cnn.layers, 'platform', lambda: 'tpu')
  assert char_cnn._divide(960) == (2, 576)
  assert char_cnn._divide(100) == (1, 576)
  assert char_cnn._divide(9600) == (8, 1200)
