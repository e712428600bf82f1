"""What may and may not matter to the biLM."""

import functools

import bert_cases
import elmo_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from flax import linen as nn

from configs import variants
from models import char_cnn, elmo
from models.layers import num_parameters


def run(*arguments, **options):
  return jax.device_get(elmo_cases.run(*arguments, **options))


# What may and may not matter


def test_a_word_reaches_what_follows_and_what_comes_before():
  """In the forward tower and in the backward one, and nobody else."""
  model = elmo_cases.make_model()
  params = elmo_cases.init_params(model)
  ids, lengths = elmo_cases.make_ids()
  layers, state = elmo_cases.embed(model, params, ids, lengths)
  P = model.projection_dim
  for b, t in ((0, 4), (1, 2), (3, 6)):
    changed = ids.copy()
    changed[b, t] = (changed[b, t] + 7) % 256
    layers_c, state_c = elmo_cases.embed(model, params, changed, lengths)
    differs = np.abs(np.asarray(layers_c) - layers)
    forward = differs[..., :P].max(-1)
    backward = differs[..., P:].max(-1)
    others = np.arange(len(lengths)) != b
    assert differs[:, others].max() == 0
    assert forward[0, b, t] > 0 and np.delete(forward[0, b], t).max() == 0
    assert (forward[1:, b, :t] == 0).all()
    assert (forward[1:, b, t : lengths[b]] > 0).all()
    assert (backward[1:, b, t + 1 :] == 0).all()
    assert (backward[1:, b, : t + 1] > 0).all()
    for before, after in zip(state, state_c, strict=True):
      same = (np.asarray(before) == after).all(axis=(0, 1, 3))
      np.testing.assert_array_equal(same, others)


def test_a_ragged_batch_is_each_sentence_alone():
  model = elmo_cases.make_model()
  params = elmo_cases.init_params(model)
  ids, lengths = elmo_cases.make_ids()
  state = elmo_cases.make_state(model, len(lengths))
  layers, after = jax.device_get(
    elmo_cases.embed(model, params, ids, lengths, state)
  )
  for b, length in list(enumerate(lengths))[1:3]:
    row = jax.tree.map(lambda x, b=b: x[:, :, b : b + 1], (state, after))
    alone, after_alone = elmo_cases.embed(
      model, params, ids[b : b + 1, :length], lengths[b : b + 1], row[0]
    )
    np.testing.assert_allclose(layers[:, b, :length], alone[:, 0], atol=1e-6)
    bert_cases.assert_close(row[1], after_alone, 1e-6)
    assert (layers[:, b, length:] == 0).all()
    assert (layers[:, b, :length] != 0).any(-1).all()


def test_padding_has_no_influence():
  model = elmo_cases.make_model()
  params = elmo_cases.init_params(model)
  ids, lengths = elmo_cases.make_ids((9, 4, 0, 7))
  state = elmo_cases.make_state(model, len(lengths))
  outputs = elmo_cases.embed(model, params, ids, lengths, state)
  other, _ = elmo_cases.make_ids((9,) * 4, seed=9)
  mask = np.arange(9) < lengths[:, None]
  other = np.where(mask[:, :, None], ids, other)
  assert (other[1, 5] != ids[1, 5]).any()
  jax.tree.map(
    np.testing.assert_array_equal,
    elmo_cases.embed(model, params, other, lengths, state),
    outputs,
  )
  for before, after in zip(state, outputs[1], strict=True):
    # Nothing was read: nothing is forgotten.
    np.testing.assert_array_equal(before[:, :, 2], after[:, :, 2])
    assert (before[:, :, 0] != after[:, :, 0]).any()


def test_state_carried_over_two_halves_is_one_pass():
  model = elmo_cases.make_model()
  params = elmo_cases.init_params(model)
  x = np.asarray(elmo_cases.encode(model, params, elmo_cases.make_streams()))
  top, after = elmo_cases.run_streams(model, params, x)
  empty = elmo.empty_state(model, 3)
  first, state = elmo_cases.run_streams(model, params, x[:, :, :4], empty)
  second, state = elmo_cases.run_streams(model, params, x[:, :, 4:], state)
  np.testing.assert_allclose(np.concatenate([first, second], 2), top, atol=1e-6)
  bert_cases.assert_close(state, after, 1e-6)
  fresh, _ = elmo_cases.run_streams(model, params, x[:, :, 4:], empty)
  assert np.abs(np.asarray(fresh) - second).max() > 0.01


def test_streams_and_sentences_are_read_alike():
  """The backward tower reads its stream as it reads a sentence, reversed."""
  model = elmo_cases.make_model()
  params = elmo_cases.init_params(model)
  ids, lengths = elmo_cases.make_ids((9, 9))
  x = np.asarray(elmo_cases.encode(model, params, ids))
  layers, state = elmo_cases.embed_vectors(model, params, x, lengths)
  top, after = jax.device_get(
    elmo_cases.run_streams(model, params, np.stack([x, x[:, ::-1]]))
  )
  found = np.concatenate([top[0], top[1][:, ::-1]], axis=-1)
  np.testing.assert_allclose(found, layers[-1], atol=1e-6)
  bert_cases.assert_close(state, after, 1e-6)


def test_streams_do_not_see_each_other():
  model = elmo_cases.make_model()
  params = elmo_cases.init_params(model)
  ids = elmo_cases.make_streams()
  x = np.asarray(elmo_cases.encode(model, params, ids))
  top, _ = elmo_cases.run_streams(model, params, x)
  changed = x.copy()
  changed[1, 2, 3] += 1
  top_c, _ = elmo_cases.run_streams(model, params, changed)
  differs = np.abs(np.asarray(top_c) - top).max(-1)
  assert (differs[1, 2, 3:] > 0).all()
  differs[1, 2, 3:] = 0
  assert (differs == 0).all()


# Word vectors, softmax, dropout


def test_words_are_looked_up_where_there_are_no_characters():
  model = elmo_cases.make_model(num_words=200)
  params = elmo_cases.init_params(model)
  table = params['encoder']['embedding']
  assert table.shape == (256, 6)
  rng = np.random.default_rng(0)
  words = rng.integers(0, 200, (4, 9))
  lengths = np.array(elmo_cases.LENGTHS)
  layers, _ = elmo_cases.embed(model, params, words, lengths)
  np.testing.assert_array_equal(
    layers[0, 0], np.concatenate([table[words[0]]] * 2, axis=-1)
  )
  cached = elmo_cases.embed_vectors(model, params, table[words], lengths)[0]
  np.testing.assert_array_equal(cached, layers)


def test_softmax_scores_the_words_and_not_the_padding():
  model = elmo_cases.make_model()
  params = elmo_cases.init_params(model)
  ids = elmo_cases.make_streams()
  _, (top, _, logits), gradient = run(
    model, params, ids, elmo_cases.make_targets(ids)
  )
  V = elmo_cases.VOCAB_SIZE
  assert logits.shape == (2, 3, 8, 128)
  kernel, bias = params['softmax']['kernel'], params['softmax']['bias']
  np.testing.assert_allclose(
    logits[..., :V], top @ kernel[:V].T + bias[:V], atol=1e-5
  )
  assert (scipy.special.softmax(logits, axis=-1)[..., V:] == 0).all()
  for table in gradient['softmax'].values():
    assert (table[V:] == 0).all()
    assert (table[:V] != 0).all()


def test_dropout_falls_on_inputs_and_the_top():
  """The skip adds what was dropped of the second layer's input."""
  model = elmo_cases.make_model(dropout_rate=0.25)
  params = jax.tree.map(np.copy, elmo_cases.init_params(model))
  # The first layer looks at nothing, the second adds nothing.
  params['layers_0']['input_kernel'] *= 0
  params['layers_1']['projection_kernel'] *= 0
  x = np.ones((2, 16, 20, 6), np.float32)
  whole, _ = elmo_cases.run_streams(model, params, x)
  dropped, _ = elmo_cases.run_streams(model, params, x, rng=jax.random.key(0))
  zero = np.asarray(dropped) == 0
  assert abs(zero.mean() - (1 - 0.75**2)) < 0.03
  np.testing.assert_allclose(
    dropped, np.where(zero, 0, np.asarray(whole) / 0.75**2), rtol=1e-5
  )
  # Anew at each position, row and tower.
  for axis in range(4):
    assert (np.diff(zero.astype(int), axis=axis) != 0).mean() > 0.3
  # And on the first layer's input, which here is all that can differ.
  params = jax.tree.map(np.copy, elmo_cases.init_params(model))
  params['layers_1']['input_kernel'] *= 0
  model = model.clone(use_skip_connections=False)
  params['layers_0']['recurrent_kernel'] *= 0
  _, state = elmo_cases.run_streams(model, params, x)
  _, state_d = elmo_cases.run_streams(model, params, x, rng=jax.random.key(0))
  differs = np.abs(np.asarray(state.cell) - state_d.cell)
  assert differs[1].max() == 0
  assert differs[0].max() > 0.01


def test_gradients_are_finite_and_reach_everything():
  model = elmo_cases.make_model()
  params = elmo_cases.init_params(model)
  ids = elmo_cases.make_streams()
  loss, _, gradient = run(
    model, params, ids, elmo_cases.make_targets(ids), rng=jax.random.key(0)
  )
  assert np.isfinite(loss)
  for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
    assert np.isfinite(leaf).all(), path
    assert (np.asarray(leaf) != 0).mean() > 0.1, path
  # Saturated everywhere, and words without a character.
  wild = jax.tree.map(lambda p: 1e3 * p, params)
  ids[:, 0] = char_cnn.NO_CHARACTER
  loss, _, gradient = run(model, wild, ids, elmo_cases.make_targets(ids))
  assert all(np.isfinite(x).all() for x in jax.tree.leaves((loss, gradient)))


def test_bfloat16_stays_near_float32():
  plain = elmo_cases.make_model()
  params = elmo_cases.init_params(plain)
  ids = elmo_cases.make_streams()
  targets = elmo_cases.make_targets(ids)
  loss, _, gradient = run(plain, params, ids, targets)
  loss_b, (top, state, logits), gradient_b = run(
    plain.clone(dtype=jnp.bfloat16), params, ids, targets
  )
  np.testing.assert_allclose(loss_b, loss, rtol=0.01)
  assert top.dtype == jnp.bfloat16
  rest = jax.tree.leaves((state, logits, gradient_b))
  assert {leaf.dtype for leaf in rest} == {np.dtype(np.float32)}
  for path, leaf in jax.tree_util.tree_leaves_with_path(gradient['layers_1']):
    found = gradient_b['layers_1'][path[0].key]
    error = np.linalg.norm(found - leaf) / np.linalg.norm(leaf)
    assert error < 0.05, (path, error)


# Initial values, counts, FLOPs


def test_weights_start_as_the_release_draws_them():
  sizes = variants.ELMO['elmo-tiny'] | dict(num_layers=1)
  sizes['filters'] = ((1, 128), (5, 128))
  model = elmo.Elmo(vocab_size=1000, **sizes)
  params = elmo_cases.draw_params(model)
  encoder, layer = params['encoder'], params['layers_0']
  N, P, F = 256, 64, 256
  glorot = (6 / (2 * P + 4 * F)) ** 0.5
  for array, limit in (
    (encoder['characters'], 1.0),
    (encoder['filters_1']['kernel'], 0.05),
    (layer['input_kernel'], glorot),
    (layer['recurrent_kernel'], glorot),
    (layer['projection_kernel'], (6 / (P + F)) ** 0.5),
  ):
    assert abs(array).max() <= limit
    np.testing.assert_allclose(array.std(), limit / 3**0.5, rtol=0.03)
    assert abs(array.mean()) < 0.05 * limit
  for array, stddev in (
    (encoder['highway_0']['kernel'], N**-0.5),
    (encoder['projection']['kernel'], N**-0.5),
    (params['softmax']['kernel'][:1000], P**-0.5),
  ):
    np.testing.assert_allclose(array.std(), stddev, rtol=0.03)
    assert abs(array).max() > 3.5 * stddev  # not truncated
  assert (encoder['highway_0']['bias'] == np.array([[0.0], [-2.0]])).all()
  for zeros in (
    encoder['filters_0']['bias'],
    encoder['projection']['bias'],
    layer['bias'],
    params['softmax']['bias'],
    params['softmax']['kernel'][1000:],
  ):
    assert (zeros == 0).all()
  words = elmo_cases.make_model(num_words=1000)
  drawn = jax.jit(functools.partial(words.init, method='encode'))(
    jax.random.key(0), np.zeros(1, int)
  )
  table = np.asarray(nn.meta.unbox(drawn)['params']['encoder']['embedding'])
  table = table[:1000]
  np.testing.assert_allclose(table.std(), (2 / 1006) ** 0.5, rtol=0.03)


@pytest.mark.parametrize(
  'name, millions',
  # As the page that offers the weights gives them (allennlp.org/elmo).
  [('elmo-small', 13.6), ('elmo-medium', 28.0), ('elmo', 93.6)],
)
def test_parameter_counts_are_the_published_ones(name, millions):
  sizes = variants.ELMO[name]
  P = sizes['projection_dim']

  def count(vocab_size, **fields):
    model = elmo.Elmo(vocab_size=vocab_size, **sizes, **fields)
    params = nn.meta.unbox(elmo_cases.abstract_params(model))
    return num_parameters(params, vocab_size)

  assert round(count(0) / 1e6, 1) == millions
  if name == 'elmo':
    assert count(0) == 93_600_848
  V = 793_471  # 1 row of padding
  assert count(V) == count(0) + V * (P + 1)
  # A table of words is padded likewise; the layers are those of characters.
  layer = (2 * P + 1) * 4 * sizes['lstm_dim'] + sizes['lstm_dim'] * P
  layers = 2 * sizes['num_layers'] * layer
  assert count(300, num_words=300) == layers + 300 * P + 300 * (P + 1)


# Bad input


@pytest.mark.parametrize(
  'fields, message',
  [
    (dict(projection_dim=22), 'projection_dim is 22.*lstm_dim .22.'),
    (dict(filters=((1, 3), (2, 3))), 'projection_dim is 6.*filters .6.'),
    (dict(filters=((51, 99),)), r'filters are \(\(51, 99\),\).*50'),
    (dict(filters=()), r'filters are \(\), expected'),
  ],
)
def test_bad_sizes_are_refused(fields, message):
  with pytest.raises(ValueError, match=message):
    elmo_cases.abstract_params(elmo_cases.make_model(**fields))


def test_bad_shapes_are_refused():
  model = elmo_cases.make_model()
  params = elmo_cases.init_params(model)
  ids, lengths = elmo_cases.make_ids()
  with pytest.raises(ValueError, match=r'ids are \(4, 9, 49\), expected 50'):
    elmo_cases.embed(model, params, ids[..., 1:], lengths)
  with pytest.raises(ValueError, match=r'lengths are \(3,\).*\(4,\)'):
    elmo_cases.embed(model, params, ids, lengths[:3])
  state = elmo_cases.make_state(model, 3)
  with pytest.raises(ValueError, match=r'\(2, 2, 3, 22\).*\(2, 2, 4, 22\)'):
    elmo_cases.embed(model, params, ids, lengths, state)
  x = np.zeros((2, 3, 5, 7), np.float32)
  with pytest.raises(ValueError, match=r'\(2, 3, 5, 7\), expected 2.*of 6'):
    elmo_cases.run_streams(model, params, x)
  model = elmo_cases.make_model(vocab_size=0)
  with pytest.raises(ValueError, match='no softmax'):
    model.apply({'params': {}}, x, method='logits')
