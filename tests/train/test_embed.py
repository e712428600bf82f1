"""Vectors: the released ones, alone those of batches, and the file of them."""

import functools
import json
import pathlib
import sys
import types

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from data import characters
from models import elmo
from models.pretrained import elmo as pretrained
from train import checkpoint, embed, embedding, trained

SIZES = dict(
  lstm_dim=11,
  projection_dim=6,
  num_layers=2,
  filters=((1, 5), (4, 12)),
  num_highway=1,
  char_embed_dim=3,
)
NEAR = dict(rtol=0, atol=1e-6)  # vectors are of about 1


def random_params(model):
  shapes = jax.eval_shape(
    model.init,
    jax.random.key(0),
    jnp.zeros((1, 1, model.max_characters), jnp.int32),
    jnp.ones(1, jnp.int32),
  )['params']
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda leaf: rng.normal(0, 0.4, leaf.shape).astype(np.float32),
    nn.unbox(shapes),
  )


@pytest.fixture(scope='module')
def small():
  model = elmo.Elmo(vocab_size=0, **SIZES)
  return model, random_params(model)


@pytest.fixture(scope='module')
def sentences():
  """20 of few lengths, from 60 words."""
  rng = np.random.default_rng(1)
  words = [f'{"abcde"[i % 5] * (i % 7)}{i}' for i in range(60)]
  return [
    [str(word) for word in rng.choice(words, rng.choice([1, 5, 14]))]
    for _ in range(20)
  ]


@functools.partial(jax.jit, static_argnums=0)
def apply(model, params, ids, lengths, state):
  return model.apply({'params': params}, ids, lengths, state)


def embed_alone(model, params, sentence, state=None, T=16):
  """One sentence through the whole model: all layers, state after it."""
  words = ['<S>', *sentence, '</S>']
  ids = np.zeros((1, T, 50), np.int16)
  ids[0, : len(words)], _ = characters.encode_words(words)
  vectors, state = apply(model, params, ids, np.array([len(words)]), state)
  return np.asarray(vectors[:, 0, 1 : len(words) - 1]), state


@pytest.fixture(scope='module')
def alone(small, sentences):
  return [embed_alone(*small, sentence)[0] for sentence in sentences]


def assert_near(found, expected):
  found = list(found)
  assert len(found) == len(expected)
  for ours, theirs in zip(found, expected, strict=True):
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, **NEAR)


@pytest.mark.parametrize(
  'options',
  [
    {},
    {'batch_tokens': 1},  # each by itself
    {'batch_tokens': 50, 'window_words': 80, 'table_words': 40},
    {'table_words': 7},  # far fewer than there are
  ],
)
def test_a_sentence_depends_on_nothing_but_itself(
  small, sentences, alone, options
):
  found = embedding.embed_sentences(*small, iter(sentences), **options)
  assert_near(found, alone)


def test_neighbours_do_not_matter(small, sentences, alone):
  found = list(embedding.embed_sentences(*small, sentences[::-1] + sentences))
  assert_near(found, alone[::-1] + alone)


def test_rows_go_on_from_the_batch_before(small, sentences):
  """With two sentences that are empty, and a last batch of two rows."""
  model, params = small
  sentences = sentences[:17]
  sentences[4] = sentences[16] = []
  states, expected = [None] * 3, []
  for number, sentence in enumerate(sentences):
    vectors, after = embed_alone(model, params, sentence, states[number % 3])
    expected.append(vectors)
    if sentence:  # else the state stays
      states[number % 3] = after
  for window_words in (1, 10_000):
    found = embedding.embed_sentences(
      *small, sentences, stateful=True, batch_size=3, window_words=window_words
    )
    assert_near(found, expected)
  lone, _ = embed_alone(model, params, sentences[3])
  assert np.abs(lone - expected[3]).max() > 0.01


def test_released_vectors(sesame_data, tmp_path):
  """Of three streams, of which the released program read a sentence a time."""
  folder = sesame_data / 'fixtures/elmo/model'
  streams = json.loads((folder / 'lm_embeddings_sentences.json').read_text())
  text, output = tmp_path / 'text', tmp_path / 'out.hdf5'
  lines = [line for lines in zip(*streams, strict=True) for line in lines]
  text.write_text('\n'.join(lines) + '\n')
  model, params, split = trained.load_elmo(folder)
  assert split is None
  figures = embed.embed_file(
    model, params, text, output, layers='top', stateful=True, batch_size=3
  )
  assert figures['sentences'] == len(lines) == 30
  with h5py.File(output) as ours:
    for k in range(3):
      with h5py.File(folder / f'lm_embeddings_{k}.hdf5') as theirs:
        for i in range(10):
          expected = np.concatenate(theirs[str(i)][()], axis=-1)
          found = ours[str(3 * i + k)][()]
          assert found.shape == expected.shape
          np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_layers(small, sentences, alone):
  model, _ = small
  sentences, alone = [*sentences[:6], []], [*alone[:6], np.zeros((3, 0, 12))]
  assert alone[0].shape == (3, len(sentences[0]), 2 * model.projection_dim)
  for layers, choose in {
    'all': lambda x: x,
    'mean': lambda x: x.mean(0),
    'top': lambda x: x[-1],
    (-1, 0): lambda x: x[[2, 0]],
    (1,): lambda x: x[[1]],
  }.items():
    found = embedding.embed_sentences(*small, sentences, layers=layers)
    assert_near(found, [choose(array) for array in alone])


def test_each_word_is_spelt_once(small, sentences, monkeypatch):
  seen = []

  sound = characters.encode_words

  def spell(words):
    seen.extend(words)
    return sound(words)

  monkeypatch.setattr(embedding.characters, 'encode_words', spell)
  words = [word for sentence in sentences for word in sentence]
  half = len(sentences) // 2
  table = embedding.WordTable(*small, max_words=70)
  for part in (sentences[:half], sentences[half:], sentences):
    table.add(part)
  assert sorted(seen) == sorted({*words, '<S>', '</S>'})
  assert len(seen) < len(words) / 2
  rows = table.rows(sentences[0])
  assert len(rows) == len(sentences[0]) + 2
  # With room for fewer, all are forgotten once they are too many.
  table = embedding.WordTable(*small, max_words=len(seen) - 1)
  seen.clear()
  table.add(sentences[:1])
  table.add([words[:1]])
  kept = {*sentences[0], '<S>', '</S>'}
  assert sorted(seen) == sorted(kept)
  table.add([[f'new{i}' for i in range(table.vectors_NP.shape[0])]])
  with pytest.raises(KeyError):
    table.rows(sentences[0][-1:])


def test_little_is_padding_and_few_programs_are_compiled():
  rng = np.random.default_rng(0)
  lengths = rng.lognormal(3, 0.6, 5000).astype(int).clip(1)
  assert 22 < lengths.mean() < 26 and lengths.max() > 100
  window = [(i, ['a'] * length) for i, length in enumerate(lengths)]
  batches = list(embedding._batches_by_length(window, 4096))
  assert sorted(i for batch in batches for i in batch.numbers) == list(
    range(5000)
  )
  computed = sum(batch.rows * batch.length for batch in batches)
  assert (lengths + 2).sum() / computed > 0.9
  assert max(batch.rows * batch.length for batch in batches) <= 4096
  assert len({(batch.rows, batch.length) for batch in batches}) < 30
  for batch in batches:
    assert max(map(len, batch.sentences)) + 2 <= batch.length
  lengths = list(map(embedding.round_length, range(1, 1025)))
  assert lengths == sorted(lengths) and len(set(lengths)) == 16 + 6 * 8


# The file


LONG = 'x' * 48
TEXT = f"""A cat sat .

cat
. , ; !
{LONG}yyyyyyyyyyyy {LONG} \u65e5\u672c\u8a9e\u306e{'z' * 48}
  A cat sat .  \u00a0
"""


@pytest.fixture
def text(tmp_path):
  path = tmp_path / 'text.txt'
  path.write_text(TEXT)
  return path


@pytest.fixture
def output(tmp_path):
  (tmp_path / 'out').mkdir()
  return tmp_path / 'out' / 'vectors.hdf5'


def test_a_data_set_a_line(small, text, output):
  figures = embed.embed_file(*small, text, output)
  assert list(output.parent.iterdir()) == [output]
  counts = {
    key: figures[key]
    for key in ('sentences', 'words', 'cut_words', 'distinct_words')
  }
  assert counts == dict(sentences=6, words=16, cut_words=2, distinct_words=10)
  with h5py.File(output) as file:
    assert file.keys() == {*map(str, range(6)), 'sentence_to_index'}
    shapes = [file[str(i)].shape for i in range(6)]
    assert shapes == [(3, n, 12) for n in (4, 0, 1, 4, 3, 4)]
    assert {file[str(i)].dtype for i in range(6)} == {np.dtype('float32')}
    for i, line in enumerate(TEXT.splitlines()):
      expected, _ = embed_alone(*small, line.split())
      np.testing.assert_allclose(file[str(i)], expected, **NEAR)
    # Bytes beyond the 48th are not seen.
    cut, whole = file['4'][0, :2]
    np.testing.assert_array_equal(cut, whole)
    np.testing.assert_array_equal(file['0'], file['5'])
    assert file['sentence_to_index'].shape == (1,)
    index = json.loads(file['sentence_to_index'][0])
  lines = [line.strip() for line in TEXT.splitlines()]
  assert index == {line: str(lines.index(line)) for line in lines}


def test_not_a_name_before_it_is_whole(small, text, output, monkeypatch):
  """So whoever kills it, finds nothing or the old file."""
  sound = embedding.embed_numbered

  def stop(*arguments, **options):
    for done, item in enumerate(sound(*arguments, **options)):
      if done == 3:
        (partial,) = set(output.parent.iterdir()) - {output}
        assert partial.name.startswith('.')
        raise KeyboardInterrupt
      yield item

  monkeypatch.setattr(embed.embedding, 'embed_numbered', stop)
  with pytest.raises(KeyboardInterrupt):
    embed.embed_file(*small, text, output)
  assert not list(output.parent.iterdir())
  output.write_text('old')
  with pytest.raises(KeyboardInterrupt):
    embed.embed_file(*small, text, output, overwrite=True)
  assert [path.read_text() for path in output.parent.iterdir()] == ['old']
  monkeypatch.undo()
  embed.embed_file(*small, text, output, overwrite=True)
  assert h5py.is_hdf5(output)


@pytest.mark.parametrize(
  'content, message',
  [
    (b'', 'is empty, expected a sentence a line'),
    (b'a\n\nb c\nd\xff e\n', r'text.txt: not UTF-8 at byte 8 .* in line 4'),
    (b'a\n' + b'b ' * 20_000, 'line 2: 20,000 words, expected a sentence a li'),
  ],
)
def test_what_is_no_text_is_named_before_work(
  small, text, output, content, message, monkeypatch
):
  monkeypatch.setattr(embed.embedding, 'embed_numbered', pytest.fail)
  text.write_bytes(content)
  with pytest.raises(ValueError, match=message):
    embed.embed_file(*small, text, output)
  assert not list(output.parent.iterdir())


def test_a_text_that_changes_is_refused(small, text, output):
  counts = embed.count(text, str.split)
  text.write_text('')  # as the second reading of a pipe would find it
  with pytest.raises(
    ValueError, match='0 lines of 0 words were read, and 6 of'
  ):
    embed.embed_file(*small, text, output, counts=counts)
  assert not list(output.parent.iterdir())


def test_what_would_fail_at_the_end_fails_at_the_beginning(output, tmp_path):
  embed.check_output(output, overwrite=False)
  for path, overwrite, error, message in (
    (output.parent / 'no' / 'a', True, FileNotFoundError, 'no such folder'),
    (tmp_path, True, FileExistsError, 'is a folder'),
    (__file__, False, FileExistsError, 'is already there; --overwrite'),
    ('gs://bucket/a.hdf5', True, ValueError, 'OUTPUT must be local'),
  ):
    with pytest.raises(error, match=message):
      embed.check_output(path, overwrite=overwrite)
  embed.check_output(__file__, overwrite=True)


@pytest.mark.parametrize(
  'options, message',
  [
    ({'layers': (0, 3)}, r'--layers=\(0, 3\): expected .* from -3 to 2'),
    ({'layers': 'middle'}, '--layers=middle: expected all, mean, top'),
    ({'batch_tokens': 0}, '--batch_tokens=0: expected 1 or more'),
    ({'batch_size': -1, 'stateful': True}, '--batch_size=-1: expected 1 or'),
  ],
)
def test_options_without_sense(small, text, output, options, message):
  with pytest.raises(ValueError, match=message):
    embed.embed_file(*small, text, output, **options)
  assert not list(output.parent.iterdir())


def test_layers_are_read():
  assert embed.parse_layers('mean') == 'mean'
  assert embed.parse_layers('-1,-2') == (-1, -2)
  with pytest.raises(ValueError, match='--layers=last: expected all, mean'):
    embed.parse_layers('last')


def test_command(small, text, output, tmp_path, monkeypatch, capsys):
  weights = tmp_path / 'weights'
  pretrained.write_folder(weights, *small)
  folder = str(weights)

  def run(*options):
    monkeypatch.setattr(
      sys, 'argv', ['embed', folder, str(text), str(output), *options]
    )
    embed.main()
    return capsys.readouterr()

  monkeypatch.setattr(embed.device, 'enable_compilation_cache', lambda: None)
  printed = run('--json')
  figures = json.loads(printed.out)
  assert figures['words'] == 16 and figures['words_per_second'] > 0
  assert '2 words have more than 48 bytes' in printed.err
  with h5py.File(output) as file:
    everything = file['0'][()]
  printed = run('--overwrite', '--layers=-1,0', '--stateful')
  assert not printed.out and 'distinct_words' in printed.err
  with h5py.File(output) as file:
    np.testing.assert_allclose(file['0'], everything[[2, 0]], **NEAR)
  run('--overwrite', '--layers=top', '--dtype=bfloat16')
  with h5py.File(output) as file:
    assert file['0'].dtype == np.float32
    error = np.abs(file['0'] - everything[2]).max()
    assert 0 < error < 0.05  # of 8 bits
  for options in (['--batch_size=2'], ['--stateful', '--batch_tokens=9']):
    with pytest.raises(SystemExit):
      run(*options)


def test_words_of_running_text(small, text, output):
  words = pytest.importorskip('data.words')
  line = 'The cat, it sat.'
  text.write_text(f'{line}\n\n')
  split = embed.splitter(running=True)
  found = split(line)
  assert found == words.split_words(line, 'marks')
  assert len(found) > len(line.split())
  figures = embed.embed_file(*small, text, output, split=split)
  assert figures['words'] == len(found)
  with h5py.File(output) as file:
    expected, _ = embed_alone(*small, found)
    np.testing.assert_allclose(file['0'], expected, **NEAR)
    assert json.loads(file['sentence_to_index'][0]) == {line: '0', '': '1'}


# Weights


@pytest.fixture
def weights(small, tmp_path):
  """A folder of released weights, to be spoilt."""
  pretrained.write_folder(tmp_path / 'weights', *small)
  return tmp_path / 'weights'


def test_weights_come_without_their_softmax(tmp_path):
  model = elmo.Elmo(vocab_size=33, **SIZES)
  params = random_params(model)
  pretrained.write_folder(tmp_path, model, params)
  found, found_params, _ = trained.load_elmo(tmp_path)
  assert found == model.clone(vocab_size=0)
  assert found_params.keys() == params.keys() - {'softmax'}


def test_weights_that_cannot_be_used_are_named(small, weights, tmp_path):
  file = weights / 'lm_weights.hdf5'
  data = file.read_bytes()
  file.write_bytes(data[: len(data) // 2])
  with pytest.raises(ValueError, match='lm_weights.hdf5 is damaged or no HDF5'):
    trained.load_elmo(weights)
  model, params = small
  spoilt = {**params, 'layers_1': dict(params['layers_1'])}
  spoilt['layers_1']['bias'] = params['layers_1']['bias'] * np.float32(np.nan)
  pretrained.write_folder(weights, model, spoilt)
  with pytest.raises(ValueError, match='of layers_1/bias are not all finite'):
    trained.load_elmo(weights)
  options = weights / 'options.json'
  pretrained.write_folder(weights, *small)
  options.write_text(options.read_text().replace('"dim": 11', '"dim": 12'))
  with pytest.raises(ValueError, match='lstm.dim is 12, the weights have 11'):
    trained.load_elmo(weights)
  with pytest.raises(
    FileNotFoundError, match='neither a workdir of train.main'
  ):
    trained.load_elmo(tmp_path)


def test_words_that_nobody_tells_are_refused(tmp_path):
  model = elmo.Elmo(
    vocab_size=0, num_words=9, lstm_dim=11, projection_dim=6, filters=()
  )
  shapes = jax.eval_shape(
    model.init, jax.random.key(0), jnp.zeros((1, 1), int), jnp.ones(1, int)
  )
  params = jax.tree.map(
    lambda leaf: np.ones(leaf.shape, np.float32), nn.unbox(shapes['params'])
  )
  pretrained.write_folder(tmp_path, model, params)
  with pytest.raises(ValueError, match='has a table of 9 words in place of'):
    trained.load_elmo(tmp_path)


def write_config(workdir: pathlib.Path, model: dict) -> None:
  (workdir / 'config.json').write_text(json.dumps({'model': model}))


def test_workdirs(sentences, tmp_path, monkeypatch):
  """Of a run that has a softmax, of which nothing is read."""
  model = elmo.Elmo(vocab_size=33, dropout_rate=0.5, **SIZES)
  params = random_params(model)
  write_config(tmp_path, {'name': 'elmo'})
  with checkpoint.Checkpoints(tmp_path, keep=1) as checkpoints:
    checkpoints.save(3, {'params': jax.device_put(params), 'step': np.int32(3)})

  def build_model(config, vocab_size):
    assert config.name == 'elmo'
    return model.clone(vocab_size=vocab_size)

  monkeypatch.setattr(
    trained.assemble,
    'architecture_of',
    lambda config: types.SimpleNamespace(build_model=build_model),
  )
  monkeypatch.setattr(
    trained.tokenization,
    'load',
    lambda folder: types.SimpleNamespace(softmax_size=33, split='marks'),
  )
  found, found_params, split = trained.load_elmo(tmp_path)
  assert found == model.clone(vocab_size=0) and split == 'marks'
  expected = {key: leaf for key, leaf in params.items() if key != 'softmax'}
  jax.tree.map(np.testing.assert_array_equal, found_params, expected)
  (vectors,) = embedding.embed_sentences(found, found_params, sentences[:1])
  assert vectors.shape == (3, len(sentences[0]), 12)


@pytest.mark.parametrize(
  'config, message',
  [
    (
      {'model': {'name': 'bert'}},
      'holds a bert, expected the workdir of an el',
    ),
    ({'model_type': 'gpt2'}, 'holds a gpt2, expected the workdir of an elmo'),
    ({'optim': {}}, 'config.json: not the config of a run'),
  ],
)
def test_workdirs_of_other_models_are_refused(tmp_path, config, message):
  (tmp_path / 'config.json').write_text(json.dumps(config))
  with pytest.raises(ValueError, match=message):
    trained.load_elmo(tmp_path)
