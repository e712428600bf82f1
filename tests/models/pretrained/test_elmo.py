"""Released biLMs: their vectors, and their files to ours and back."""

import json
import shutil

import elmo_cases
import h5py
import jax
import numpy as np
import published_cases
import pytest
from etils import epath

from configs import variants
from data.vocabulary import characters
from models import char_cnn, elmo
from models.pretrained import elmo as pretrained
from models.pretrained import hdf5_file, published

NUM_STREAMS, NUM_SENTENCES = 3, 10
T = 64  # one length for all batches: one program


@pytest.fixture(scope='module')
def folder(sesame_data):
  return sesame_data / 'fixtures/elmo/model'


@pytest.fixture(scope='module')
def released(folder):
  opened = published.open_folder(folder)
  return opened.model, opened.load()


@pytest.fixture(scope='module')
def batches(folder):
  """(ids [B, T, 50], lengths [B], top layers without <S> and </S>) a batch."""
  streams = json.loads((folder / 'lm_embeddings_sentences.json').read_text())
  found = []
  for i in range(NUM_SENTENCES):
    sentences = [['<S>', *stream[i].split(), '</S>'] for stream in streams]
    lengths = np.array([len(words) for words in sentences])
    ids = np.full((NUM_STREAMS, T, 50), char_cnn.NO_CHARACTER, np.int16)
    expected = []
    for k, words in enumerate(sentences):
      ids[k, : len(words)], _ = characters.encode_words(words)
      with h5py.File(folder / f'lm_embeddings_{k}.hdf5') as file:
        expected.append(np.concatenate(file[str(i)][()], axis=-1))
    found.append((ids, lengths, expected))
  assert sum(len(array) for *_, arrays in found for array in arrays) > 700
  return found


def worst_error(model, batches, embed, carry=True):
  """Largest error of the top layer over all sentences."""
  state, worst = elmo.empty_state(model, NUM_STREAMS), 0.0
  for ids, lengths, expected in batches:
    layers, after = embed(ids, lengths, state)
    assert layers.shape == (3, NUM_STREAMS, T, 2 * model.projection_dim)
    if carry:
      state = after
    for k, array in enumerate(expected):
      found = np.asarray(layers[-1, k, 1 : lengths[k] - 1])
      worst = max(worst, np.abs(found - array).max())
  return worst


def test_vectors_are_the_released_ones(released, batches):
  model, params = released

  def embed(ids, lengths, state):
    return elmo_cases.embed(model, params, ids, lengths, state)

  assert worst_error(model, batches, embed) < 2e-6
  # Nothing but the state carried along gives them.
  assert worst_error(model, batches, embed, carry=False) > 0.01


def test_vectors_of_cached_words_are_the_released_ones(released, batches):
  """Each word's characters are seen once in all."""
  model, params = released
  words = np.concatenate([ids.reshape(-1, 50) for ids, *_ in batches])
  types = np.unique(words, axis=0)
  assert len(types) < len(words) / 4
  vectors = np.asarray(elmo_cases.encode(model, params, types[None])[0])
  cache = dict(zip(map(bytes, types), vectors, strict=True))

  def embed(ids, lengths, state):
    x = np.array([[cache[bytes(word)] for word in row] for row in ids])
    layers, after = elmo_cases.embed_vectors(model, params, x, lengths, state)
    for k, length in enumerate(lengths):
      twice = np.concatenate([x[k, :length]] * 2, axis=-1)
      np.testing.assert_array_equal(layers[0, k, :length], twice)
    return layers, after

  assert worst_error(model, batches, embed) < 2e-6


def test_released_files_come_out_as_they_went_in(released, folder, tmp_path):
  model, params = released
  assert model.filters == ((1, 4), (2, 8), (3, 16), (4, 32), (5, 64))
  assert not model.use_skip_connections
  pretrained.write_folder(tmp_path, model, params)
  ours, theirs = (
    hdf5_file.entries(where / 'lm_weights.hdf5') for where in (tmp_path, folder)
  )
  assert ours.keys() == theirs.keys()
  for name, entry in theirs.items():
    assert ours[name].dtype == entry.dtype
    np.testing.assert_array_equal(ours[name].read(), entry.read())
  assert json.loads((tmp_path / 'options.json').read_text()) == json.loads(
    (folder / 'options.json').read_text()
  )


@pytest.mark.parametrize(
  'name, file',
  [
    ('elmo-small', '2x1024_128_2048cnn_1xhighway'),
    ('elmo', '2x4096_512_2048cnn_2xhighway'),
  ],
)
def test_sizes_are_those_of_the_published_options(sesame_data, name, file):
  path = sesame_data / f'fixtures/elmo/elmo_{file}_options.json'
  expected = elmo.Elmo(vocab_size=0, **variants.ELMO[name])
  weights = {
    piece.name: np.broadcast_to(np.float32(0), piece.shape)
    for piece in pretrained._pieces(expected)
  }
  model, problems = pretrained._model(json.loads(path.read_text()), weights)
  assert not problems
  assert model == expected


# There and back, sizes odd


def open_arrays(options, arrays):
  return pretrained.from_released(
    epath.Path('arrays'), options, published_cases.in_memory(arrays)
  )


CASES = {
  'characters': {},
  'no softmax': dict(vocab_size=0, cell_clip=None, num_highway=0),
  'words': dict(
    num_words=77, num_layers=3, use_skip_connections=False, filters=()
  ),
}
cases = pytest.mark.parametrize('fields', CASES.values(), ids=CASES)


def without_encoder(model):
  """The model without what a table of words makes meaningless."""
  names = ('filters', 'num_highway', 'char_embed_dim')
  return model.clone(**{name: 0 for name in names})


@cases
def test_export_and_import_give_the_same_bits(fields, tmp_path):
  model = elmo_cases.make_model(**fields)
  params = elmo_cases.init_params(model)
  pretrained.write_folder(tmp_path / 'new [v2]', model, params)
  opened = published.open_folder(tmp_path / 'new [v2]')
  found, params_back = opened.model, opened.load()
  if model.num_words:
    assert without_encoder(found) == without_encoder(model)
  else:
    assert found == model
  assert jax.tree.structure(params_back) == jax.tree.structure(params)
  jax.tree.map(np.testing.assert_array_equal, params_back, params)
  leaves = jax.tree.leaves(params_back)
  assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float32)}


def test_exported_matrices_are_on_input_then_state_with_gates_in_order():
  model = elmo_cases.make_model()
  params = elmo_cases.init_params(model)
  options, arrays = pretrained.to_released(params, model)
  assert options['char_cnn']['n_characters'] == 262
  assert options['n_tokens_vocab'] == elmo_cases.VOCAB_SIZE
  F, P = model.lstm_dim, model.projection_dim
  kernel = arrays['RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_0']
  layer = params['layers_0']
  for gate in range(4):
    block = kernel[:, gate * F : (gate + 1) * F]
    np.testing.assert_array_equal(block[:P], layer['input_kernel'][1, :, gate])
    np.testing.assert_array_equal(
      block[P:], layer['recurrent_kernel'][1, :, gate]
    )
  highway = params['encoder']['highway_1']
  np.testing.assert_array_equal(
    arrays['CNN_high_1/W_carry'], highway['kernel'][:, 1]
  )
  np.testing.assert_array_equal(
    arrays['CNN_high_1/b_transform'], highway['bias'][0]
  )
  assert arrays['softmax/W'].shape == (elmo_cases.VOCAB_SIZE, P)


def test_options_of_training_are_read_too():
  model = elmo_cases.make_model()
  options, arrays = pretrained.to_released(elmo_cases.init_params(model), model)
  options |= {'bidirectional': True, 'n_tokens_vocab': 32, 'dropout': 0.1}
  options['char_cnn']['n_characters'] = 261
  assert open_arrays(options, arrays).model == model


# What does not fit


@pytest.fixture
def small():
  """Options and arrays of a small model, to be spoilt."""
  model = elmo_cases.make_model()
  return pretrained.to_released(elmo_cases.init_params(model), model)


def refused(options, arrays):
  with pytest.raises(ValueError) as caught:
    open_arrays(options, arrays).load()
  first, *lines = str(caught.value).split('\n  ')
  assert first == 'arrays: these weights cannot be used:'
  return sorted(lines)


def test_every_name_and_shape_that_is_off_is_listed(small):
  options, arrays = small
  del arrays['CNN/b_cnn_1'], arrays['RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B']
  arrays['CNN/b_cnn_7'] = np.zeros(3)
  arrays['extra'] = np.zeros(())
  arrays['CNN_proj/W_proj'] = arrays['CNN_proj/W_proj'].T
  arrays['char_embed'] = np.concatenate([arrays['char_embed']] * 2)[:262]
  arrays['softmax/b'] = np.arange(elmo_cases.VOCAB_SIZE)
  assert refused(options, arrays) == [
    'another shape: CNN_proj/W_proj is (6, 17), expected (17, 6)',
    'another shape: char_embed is (262, 3), expected (261, 3)',
    'missing: CNN/b_cnn_1 (12,)',
    'missing: RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B (88,)',
    'no numbers: softmax/b is int64, expected float32',
    'not known: CNN/b_cnn_7 (3,)',
    'not known: extra ()',
  ]


def test_every_option_that_the_weights_contradict_is_listed(small):
  options, arrays = small
  options['lstm'] |= {'dim': 24, 'n_layers': 3}
  options['char_cnn'] |= {
    'filters': [[1, 5], [3, 12]],
    'n_highway': 1,
    'embedding': {'dim': 4},
  }
  lines = refused(options, arrays)
  assert [line for line in lines if line.startswith('option')] == [
    'option char_cnn.embedding.dim is 4, the weights have 3',
    'option char_cnn.filters is [[1, 5], [3, 12]], the weights have'
    ' [[1, 5], [4, 12]]',
    'option char_cnn.n_highway is 1, the weights have 2',
    'option lstm.dim is 24, the weights have 22',
    'option lstm.n_layers is 3, the weights have 2',
  ]
  # And the names and shapes that follow from them.
  assert sum('not known: CNN_high_1/' in line for line in lines) == 4
  assert sum('missing: RNN_0/RNN/MultiRNNCell/Cell2' in x for x in lines) == 3
  assert any('W_P_0 is (22, 6), expected (24, 6)' in line for line in lines)


def test_options_that_make_no_sense_are_listed(small):
  options, arrays = small
  options['lstm'] |= {'dim': '22', 'cell_clip': -3}
  del options['lstm']['use_skip_connections']
  options['char_cnn'] |= {'activation': 'tanh', 'n_characters': 60}
  options['char_cnn']['filters'] = [[1, 5], [4]]
  assert refused(options, arrays) == [
    "option char_cnn.activation is 'tanh', only relu is known here",
    'option char_cnn.filters is [[1, 5], [4]], expected pairs of a width and a'
    ' count',
    'option char_cnn.n_characters is 60, only 262 or 261 is known here',
    'option lstm.cell_clip is -3, expected a positive number or nothing',
    "option lstm.dim is '22', expected a count",
    'option lstm.use_skip_connections is missing, expected true or false',
  ]
  assert refused({}, arrays)


def test_words_need_their_table(small):
  options, arrays = small
  del options['char_cnn']
  assert any(
    'no embedding in the weights' in x for x in refused(options, arrays)
  )


@pytest.mark.parametrize('kept', [0.0, 0.02, 0.5, 0.9, 0.999])
def test_truncated_files_are_named(folder, tmp_path, kept):
  for name in ('options.json', 'lm_weights.hdf5'):
    shutil.copy(folder / name, tmp_path / name)
    (tmp_path / name).chmod(0o600)
  file = tmp_path / 'lm_weights.hdf5'
  data = file.read_bytes()
  file.write_bytes(data[: int(kept * len(data))])
  with pytest.raises(ValueError, match='lm_weights.hdf5 is damaged or no HDF5'):
    published.open_folder(tmp_path)


def test_the_names_of_the_nlpl_repository(folder, tmp_path):
  (options,) = folder.glob('*options.json')
  (weights,) = folder.glob('*weights.hdf5')
  shutil.copy(options, tmp_path / 'options.json')
  shutil.copy(weights, tmp_path / 'model.hdf5')
  assert published.is_published(tmp_path)
  found = published.open_folder(tmp_path)
  assert found.shapes == published.open_folder(folder).shapes


def test_files_that_are_not_there_or_not_right(folder, tmp_path):
  with pytest.raises(FileNotFoundError, match=r'looked for.*it holds nothing'):
    published.open_folder(tmp_path)
  (tmp_path / 'my_options.json').write_text('{"lstm": ')
  with pytest.raises(FileNotFoundError, match=r'has no \*weights.hdf5'):
    published.open_folder(tmp_path)
  shutil.copy(folder / 'lm_weights.hdf5', tmp_path / 'my_weights.hdf5')
  with pytest.raises(ValueError, match='my_options.json: Expecting value'):
    published.open_folder(tmp_path)
  (tmp_path / 'my_options.json').write_text('[]')
  with pytest.raises(ValueError, match='my_options.json holds a list, exp'):
    published.open_folder(tmp_path)
  (tmp_path / 'options.json').write_text('{}')
  with pytest.raises(ValueError, match='several.*my_options.json, options.js'):
    published.open_folder(tmp_path)
