"""The cache of words' vectors: those of the command, computed once, whole."""

import json
import pydoc_data.topics
import threading

import h5py
import numpy as np
import pytest
import small_published
from small_elmo import small_elmo

from data.vocabulary import tokenization
from models.pretrained import elmo as pretrained
from train.vectors import embedder, vector_cache
from train.vectors.request import Choice, Request
from train.vectors.trained_model import TrainedModel
from train.vectors.vector_cache import VectorCache

LONG = 'An object that can be called with arguments , such as a function ;'
SENTENCES = [
  'A cat sat .'.split(),
  [],
  ['cat'],
  (LONG * 5).split(),  # beyond the 64 positions of the small BERT
  'A cat sat .'.split(),
  ['cat'],
]
STARTS = [0, 4, 4, 5, 0, 4]


@pytest.fixture(scope='module')
def elmo_folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('elmo')
  pretrained.write_folder(folder, *small_elmo())
  return folder


@pytest.fixture(scope='module')
def bert_folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('bert')
  tokenizer = tokenization.train(
    list(pydoc_data.topics.topics.values())[:20],
    tokenization.parse_training('train:wordpiece:400'),
  )
  small_published.write_bert(folder, tokenizer)
  return folder


@pytest.fixture(scope='module')
def cache(elmo_folder):
  return VectorCache(elmo_folder)


def files_of(folder):
  return sorted(path.name for path in folder.iterdir())


def check_rows(found, expected):
  """Each sentence's rows are its expected [L, words, D], in halves."""
  assert found.layers.dtype == np.float16
  assert found.starts.dtype == np.int64
  for words, start, layers in zip(
    SENTENCES, found.starts, expected, strict=True
  ):
    rows = found.layers[start : start + len(words)].swapaxes(0, 1)
    assert rows.shape == layers.shape
    np.testing.assert_allclose(rows, layers, rtol=1e-3, atol=1e-3)


def test_elmo_as_the_command(elmo_folder, cache, tmp_path):
  text, output = tmp_path / 'text', tmp_path / 'out.h5'
  text.write_text('\n'.join(map(' '.join, SENTENCES)) + '\n')
  embedder.embed_file(*TrainedModel(elmo_folder).prepared(), text, output)
  found = cache.vectors(SENTENCES, tmp_path / 'cache')
  assert isinstance(found.layers, np.memmap)
  assert (cache.model.num_layers, cache.model.dim) == (3, 12)
  assert found.layers.shape == (5 + len(SENTENCES[3]), 3, 12)
  assert found.starts.tolist() == STARTS
  with h5py.File(output) as file:
    check_rows(found, [file[str(i)][()] for i in range(len(SENTENCES))])


def test_bert_as_the_command(bert_folder, tmp_path):
  cache = VectorCache(str(bert_folder))
  weights = TrainedModel(bert_folder)
  pieces = weights.tokenizer.encode_words(SENTENCES)
  assert sum(map(len, pieces[3])) > weights.model.max_length
  assert any(len(word) > 1 for words in pieces for word in words)
  expected = weights.vectors(
    map(' '.join, SENTENCES),
    Request('word', 'first', choice=Choice('all')),
  )
  found = cache.vectors(SENTENCES, tmp_path)
  assert (
    found.layers.shape[1:]
    == (cache.model.num_layers, cache.model.dim)
    == (3, 32)
  )
  assert found.starts.tolist() == STARTS
  check_rows(found, [each.array for each in expected])
  # The settings of a model are no parameters, and change its vectors.
  small_published.change(bert_folder, 'num_attention_heads', 4)
  assert VectorCache(bert_folder).digest != cache.digest


def test_the_second_time_from_disk(
  elmo_folder, cache, embedded, tmp_path, capsys
):
  first = cache.vectors(SENTENCES, tmp_path)
  (name,) = files_of(tmp_path)
  assert files_of(tmp_path / name) == [
    '.verified.json',
    'checksums.json',
    'layers.bin',
    'meta.json',
  ]
  said = capsys.readouterr().err
  size = (tmp_path / name / 'layers.bin').stat().st_size
  assert f'vectors of {len(first.layers)} words: ' in said
  assert f'{size:,} bytes in {tmp_path / name}' in said and 'words/s' in said
  again = VectorCache(elmo_folder).vectors(SENTENCES, tmp_path)
  assert embedded == [4]  # distinct sentences
  assert f'read from {tmp_path / name}' in capsys.readouterr().err
  np.testing.assert_array_equal(again.layers, first.layers)
  np.testing.assert_array_equal(again.starts, first.starts)
  # Other sentences, the same sentences in another order of first use.
  cache.vectors(SENTENCES[2:], tmp_path)
  assert embedded == [4, 3] and len(files_of(tmp_path)) == 2
  # Sentences given more often are no others.
  cache.vectors(SENTENCES + SENTENCES, tmp_path)
  assert embedded == [4, 3]


def test_in_the_users_cache(cache, tmp_path, monkeypatch):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  found = cache.vectors(SENTENCES)
  (folder,) = (tmp_path / 'sesame' / 'word_vectors').iterdir()
  assert found.layers.filename == folder / 'layers.bin'


def test_other_weights_have_their_own(cache, embedded, tmp_path):
  model, params = small_elmo()
  bias = params['encoder']['projection']['bias']
  changed = {**params, 'encoder': {**params['encoder']}}
  changed['encoder']['projection'] = {
    **params['encoder']['projection'],
    'bias': bias + np.float32(0.5),
  }
  pretrained.write_folder(tmp_path / 'other', model, changed)
  other = VectorCache(tmp_path / 'other')
  assert other.digest != cache.digest
  one = cache.vectors(SENTENCES, tmp_path / 'cache')
  two = other.vectors(SENTENCES, tmp_path / 'cache')
  assert embedded == [4, 4] and len(files_of(tmp_path / 'cache')) == 2
  assert np.abs(one.layers - two.layers).max() > 0.1


def flip(path):
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 1
  path.write_bytes(data)


def test_damage_is_made_anew(cache, embedded, tmp_path, capsys):
  whole = np.array(cache.vectors(SENTENCES, tmp_path).layers)
  (folder,) = tmp_path.iterdir()
  layers, meta = folder / 'layers.bin', folder / 'meta.json'
  facts = json.loads(meta.read_text())
  damages = {
    'layers.bin has 7 bytes, expected': lambda: layers.write_bytes(b'7' * 7),
    'cannot be read (': meta.unlink,
    'source is other, expected': lambda: meta.write_text(
      json.dumps(facts | {'source': 'other'})
    ),
    'source is None': lambda: meta.write_text('[]'),
    'layers.bin is damaged: its checksum': lambda: flip(layers),
    'checksums.json is missing': (folder / 'checksums.json').unlink,
  }
  for number, (message, damage) in enumerate(damages.items(), start=2):
    damage()
    capsys.readouterr()
    found = cache.vectors(SENTENCES, tmp_path)
    said = capsys.readouterr().err
    assert f'{folder}: {message}' in said and 'computed anew' in said
    assert len(embedded) == number
    np.testing.assert_array_equal(found.layers, whole)
    assert files_of(tmp_path) == [folder.name]


def test_nothing_half_written(cache, tmp_path, monkeypatch):
  compute = VectorCache.compute

  def stop(*arguments):
    for done, item in enumerate(compute(*arguments)):
      if done == 2:
        assert any(name.endswith('.partial') for name in files_of(tmp_path))
        raise KeyboardInterrupt
      yield item

  with monkeypatch.context() as patch:
    patch.setattr(VectorCache, 'compute', stop)
    with pytest.raises(KeyboardInterrupt):
      cache.vectors(SENTENCES, tmp_path)
  assert not files_of(tmp_path)
  # What kills left: of other sentences, and of these.
  (tmp_path / '.other.partial').mkdir()
  (tmp_path / '.other.lock').touch()
  cache.vectors(SENTENCES, tmp_path)
  (name,) = files_of(tmp_path)
  assert not name.startswith('.')


def test_two_at_once_compute_once(cache, embedded, tmp_path, monkeypatch):
  found, started, entered = [], threading.Event(), threading.Semaphore(0)
  counted, exclusive = VectorCache.compute, vector_cache.folders.exclusive

  def slow(*arguments):
    started.set()
    for _ in range(2):  # both ask for the lock
      assert entered.acquire(timeout=30)
    yield from counted(*arguments)

  def asked(target, **options):
    entered.release()
    return exclusive(target, **options)

  monkeypatch.setattr(VectorCache, 'compute', slow)
  monkeypatch.setattr(vector_cache.folders, 'exclusive', asked)

  def run():
    found.append(cache.vectors(SENTENCES, tmp_path))

  threads = [threading.Thread(target=run) for _ in range(2)]
  threads[0].start()
  assert started.wait(30)
  threads[1].start()
  for thread in threads:
    thread.join()
  assert embedded == [4]
  np.testing.assert_array_equal(found[0].layers, found[1].layers)
  assert len(files_of(tmp_path)) == 1


def test_bad_input_is_named(elmo_folder, cache, tmp_path, monkeypatch):
  with pytest.raises(ValueError, match='gs://b/c: word vectors need a local'):
    cache.vectors(SENTENCES, 'gs://b/c')
  with pytest.raises(ValueError, match='2 sentences without a word'):
    cache.vectors([[], []], tmp_path)

  def huge(cache, sentences):
    array = np.full((3, len(sentences[0]), 12), 7e4, np.float32)
    yield 0, vector_cache.vector_files.VectorFile(array, None, 0)

  monkeypatch.setattr(VectorCache, 'compute', huge)
  with pytest.raises(ValueError, match="of 'A cat sat .' reach 70000, expecte"):
    cache.vectors(SENTENCES, tmp_path)
  assert not files_of(tmp_path)
  lone = tmp_path / 'lone'
  lone.mkdir()
  weights = lone / 'lm_weights.hdf5'
  weights.write_bytes((elmo_folder / weights.name).read_bytes())
  with pytest.raises(FileNotFoundError, match=r'\*options.json .* holds lm_w'):
    VectorCache(lone)
