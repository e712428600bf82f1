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
from train.params import trained
from train.vectors import embedder, text_vectors, word_cache
from train.vectors.request import Choice, Request

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
def source(elmo_folder):
  return word_cache.open_source(elmo_folder)


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


def test_elmo_as_the_command(elmo_folder, source, tmp_path):
  text, output = tmp_path / 'text', tmp_path / 'out.h5'
  text.write_text('\n'.join(map(' '.join, SENTENCES)) + '\n')
  model, params, _ = trained.load_elmo(elmo_folder)
  embedder.embed_file(model, params, text, output)
  found = word_cache.vectors(source, SENTENCES, tmp_path / 'cache')
  assert isinstance(found.layers, np.memmap)
  assert (source.num_layers, source.dim) == (3, 12)
  assert found.layers.shape == (5 + len(SENTENCES[3]), 3, 12)
  assert found.starts.tolist() == STARTS
  with h5py.File(output) as file:
    check_rows(found, [file[str(i)][()] for i in range(len(SENTENCES))])


def test_bert_as_the_command(bert_folder, tmp_path):
  source = word_cache.open_source(str(bert_folder))
  weights = trained.load(bert_folder, expected=('bert',))
  pieces = weights.tokenizer.encode_words(SENTENCES)
  assert sum(map(len, pieces[3])) > weights.model.max_length
  assert any(len(word) > 1 for words in pieces for word in words)
  expected = text_vectors.embed_texts(
    weights,
    map(' '.join, SENTENCES),
    Request('word', 'first', choice=Choice('all')),
  )
  found = word_cache.vectors(source, SENTENCES, tmp_path)
  assert found.layers.shape[1:] == (source.num_layers, source.dim) == (3, 32)
  assert found.starts.tolist() == STARTS
  check_rows(found, [each.array for each in expected])
  # The settings of a model are no parameters, and change its vectors.
  small_published.change(bert_folder, 'num_attention_heads', 4)
  assert word_cache.open_source(bert_folder).digest != source.digest


def test_the_second_time_from_disk(
  elmo_folder, source, embedded, tmp_path, capsys
):
  first = word_cache.vectors(source, SENTENCES, tmp_path)
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
  again = word_cache.vectors(
    word_cache.open_source(elmo_folder), SENTENCES, tmp_path
  )
  assert embedded == [4]  # distinct sentences
  assert f'read from {tmp_path / name}' in capsys.readouterr().err
  np.testing.assert_array_equal(again.layers, first.layers)
  np.testing.assert_array_equal(again.starts, first.starts)
  # Other sentences, the same sentences in another order of first use.
  word_cache.vectors(source, SENTENCES[2:], tmp_path)
  assert embedded == [4, 3] and len(files_of(tmp_path)) == 2
  # Sentences given more often are no others.
  word_cache.vectors(source, SENTENCES + SENTENCES, tmp_path)
  assert embedded == [4, 3]


def test_in_the_users_cache(source, tmp_path, monkeypatch):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  found = word_cache.vectors(source, SENTENCES)
  (folder,) = (tmp_path / 'sesame' / 'word_vectors').iterdir()
  assert found.layers.filename == folder / 'layers.bin'


def test_other_weights_have_their_own(source, embedded, tmp_path):
  model, params = small_elmo()
  bias = params['encoder']['projection']['bias']
  changed = {**params, 'encoder': {**params['encoder']}}
  changed['encoder']['projection'] = {
    **params['encoder']['projection'],
    'bias': bias + np.float32(0.5),
  }
  pretrained.write_folder(tmp_path / 'other', model, changed)
  other = word_cache.open_source(tmp_path / 'other')
  assert other.digest != source.digest
  one = word_cache.vectors(source, SENTENCES, tmp_path / 'cache')
  two = word_cache.vectors(other, SENTENCES, tmp_path / 'cache')
  assert embedded == [4, 4] and len(files_of(tmp_path / 'cache')) == 2
  assert np.abs(one.layers - two.layers).max() > 0.1


def flip(path):
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 1
  path.write_bytes(data)


def test_damage_is_made_anew(source, embedded, tmp_path, capsys):
  whole = np.array(word_cache.vectors(source, SENTENCES, tmp_path).layers)
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
    found = word_cache.vectors(source, SENTENCES, tmp_path)
    said = capsys.readouterr().err
    assert f'{folder}: {message}' in said and 'computed anew' in said
    assert len(embedded) == number
    np.testing.assert_array_equal(found.layers, whole)
    assert files_of(tmp_path) == [folder.name]


def test_nothing_half_written(source, tmp_path, monkeypatch):
  compute = word_cache.Source.compute

  def stop(*arguments):
    for done, item in enumerate(compute(*arguments)):
      if done == 2:
        assert any(name.endswith('.partial') for name in files_of(tmp_path))
        raise KeyboardInterrupt
      yield item

  with monkeypatch.context() as patch:
    patch.setattr(word_cache.Source, 'compute', stop)
    with pytest.raises(KeyboardInterrupt):
      word_cache.vectors(source, SENTENCES, tmp_path)
  assert not files_of(tmp_path)
  # What kills left: of other sentences, and of these.
  (tmp_path / '.other.partial').mkdir()
  (tmp_path / '.other.lock').touch()
  word_cache.vectors(source, SENTENCES, tmp_path)
  (name,) = files_of(tmp_path)
  assert not name.startswith('.')


def test_two_at_once_compute_once(source, embedded, tmp_path, monkeypatch):
  found, started, entered = [], threading.Event(), threading.Semaphore(0)
  counted, exclusive = word_cache.Source.compute, word_cache.folders.exclusive

  def slow(*arguments):
    started.set()
    for _ in range(2):  # both ask for the lock
      assert entered.acquire(timeout=30)
    yield from counted(*arguments)

  def asked(target, **options):
    entered.release()
    return exclusive(target, **options)

  monkeypatch.setattr(word_cache.Source, 'compute', slow)
  monkeypatch.setattr(word_cache.folders, 'exclusive', asked)

  def run():
    found.append(word_cache.vectors(source, SENTENCES, tmp_path))

  threads = [threading.Thread(target=run) for _ in range(2)]
  threads[0].start()
  assert started.wait(30)
  threads[1].start()
  for thread in threads:
    thread.join()
  assert embedded == [4]
  np.testing.assert_array_equal(found[0].layers, found[1].layers)
  assert len(files_of(tmp_path)) == 1


def test_bad_input_is_named(elmo_folder, source, tmp_path, monkeypatch):
  with pytest.raises(ValueError, match='gs://b/c: word vectors need a local'):
    word_cache.vectors(source, SENTENCES, 'gs://b/c')
  with pytest.raises(ValueError, match='2 sentences without a word'):
    word_cache.vectors(source, [[], []], tmp_path)

  def huge(source, sentences):
    array = np.full((3, len(sentences[0]), 12), 7e4, np.float32)
    yield 0, word_cache.vector_files.VectorFile(array, None, 0)

  monkeypatch.setattr(word_cache.Source, 'compute', huge)
  with pytest.raises(ValueError, match="of 'A cat sat .' reach 70000, expecte"):
    word_cache.vectors(source, SENTENCES, tmp_path)
  assert not files_of(tmp_path)
  lone = tmp_path / 'lone'
  lone.mkdir()
  weights = lone / 'lm_weights.hdf5'
  weights.write_bytes((elmo_folder / weights.name).read_bytes())
  with pytest.raises(FileNotFoundError, match=r'\*options.json .* holds lm_w'):
    word_cache.open_source(lone)
