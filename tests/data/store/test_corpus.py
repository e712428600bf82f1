"""The token store: what is written, what is refused, what survives a kill."""

import gzip
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from data.store import arrays, build, corpus, pool
from data.text import sentences
from data.vocabulary import tokenization, wordpiece

TOKENIZER = 'train:wordpiece:200'


def make_documents(count, seed=0, num_sentences=(2, 9)):
  """Documents as lists of sentences that the recogniser takes for such."""
  rng = random.Random(seed)
  words = [
    ''.join(rng.choices('abcdefghijklmnop', k=rng.randint(2, 8)))
    for _ in range(300)
  ]

  def sentence():
    chosen = rng.choices(words, k=rng.randint(3, 12))
    return ' '.join(chosen).capitalize() + '.'

  return [
    [sentence() for _ in range(rng.randint(*num_sentences))]
    for _ in range(count)
  ]


def write_documents(path, documents):
  text = '\n\n'.join('\n'.join(document) for document in documents) + '\n'
  path.write_text(text)
  return os.fspath(path)


def build_quietly(source, tokenizer, out, **options):
  return build.build_store(
    os.fspath(source), os.fspath(tokenizer), out, progress=False, **options
  )


def contents(folder):
  return {
    path.name: path.read_bytes()
    for path in pathlib.Path(folder).iterdir()
    if path.name != '.verified.json'
  }


def leftovers(folder):
  return [path.name for path in folder.iterdir() if path.name.startswith('.')]


@pytest.fixture(scope='module')
def documents():
  return make_documents(200)


@pytest.fixture(scope='module')
def built(tmp_path_factory, documents):
  """A folder with text.txt and its store; tests copy what they change."""
  folder = tmp_path_factory.mktemp('built')
  text = write_documents(folder / 'text.txt', documents)
  build_quietly(text, TOKENIZER, folder / 'store', workers=1)
  return folder


@pytest.fixture
def store_copy(built, tmp_path):
  shutil.copytree(built / 'store', tmp_path / 'store')
  return tmp_path / 'store'


def test_round_trip(built, documents):
  store = corpus.open_store(built / 'store')
  tokenizer = tokenization.load(built / 'store')
  assert store.num_documents == len(documents)
  assert store.tokens.dtype == np.uint16
  counts = np.zeros(store.vocab_size, np.int64)
  for number, document in enumerate(documents):
    start, stop = store.documents[number : number + 2]
    assert stop - start == len(document)
    for index, sentence in zip(range(start, stop), document, strict=True):
      expected = tokenizer.tokenizer.encode(sentence).ids
      span = slice(*store.sentences[index : index + 2])
      assert store.tokens[span].tolist() == expected
      if not store.held_out[number]:
        counts += np.bincount(expected, minlength=store.vocab_size)
  hashes = [
    int.from_bytes(
      pool.digest(' '.join(' '.join(document).split()).encode()), 'little'
    )
    for document in documents
  ]
  sizes = np.diff(store.sentences[store.documents])
  order = np.argsort(np.array(hashes, np.uint64))
  held = store.held_out[order]
  count = held.sum()
  assert 0 < count < 30 and held[:count].all()
  share = sizes[order][:count].sum() / store.num_tokens
  assert abs(share - 0.05) <= sizes[order][count - 1] / store.num_tokens
  np.testing.assert_array_equal(store.counts, counts)
  audit = store.meta['audit']
  assert audit['tokens'] == store.num_tokens == store.sentences[-1]
  assert audit['sentences'] == sum(map(len, documents))
  held = [
    np.diff(store.sentences[store.documents[i : i + 2]])[0]
    for i in np.flatnonzero(store.held_out)
  ]
  assert audit['held_out']['tokens'] == sum(held)
  assert counts.sum() + sum(held) == store.num_tokens
  assert leftovers(built) == []


def test_running_text_is_split(tmp_path):
  (tmp_path / 'texts').mkdir()
  prose = make_documents(30, seed=3)
  for number, document in enumerate(prose):
    # Hard-wrapped in the middle of sentences.
    words = ' '.join(document).split()
    lines = [' '.join(words[i : i + 7]) for i in range(0, len(words), 7)]
    (tmp_path / 'texts' / f'{number:02}.txt').write_text('\n'.join(lines))
  build_quietly(os.fspath(tmp_path / 'texts'), TOKENIZER, tmp_path / 'out')
  store = corpus.open_store(tmp_path / 'out')
  first = ' '.join(prose[0])
  expected = [
    store.tokenizer.tokenizer.encode(sentence).ids
    for sentence in sentences.split_sentences(first)
  ]
  assert store.documents[1] == len(expected)
  flat = [i for ids in expected for i in ids]
  assert store.tokens[: len(flat)].tolist() == flat


def test_pool_equals_no_pool(built, tmp_path, monkeypatch):
  monkeypatch.setattr(pool, 'ITEM_CHARACTERS', 5_000)
  started = []
  start = pool._start_worker
  monkeypatch.setattr(
    pool, '_start_worker', lambda *a: started.append(a) or start(*a)
  )
  build_quietly(built / 'text.txt', TOKENIZER, tmp_path / 'pool', workers=2)
  assert len(started) == 2
  assert contents(tmp_path / 'pool') == contents(built / 'store')


def test_remembered_words_change_nothing(built, monkeypatch):
  tokenizer = tokenization.load(built / 'store')
  rng = random.Random(0)
  odd = (
    "e\u0301 \u0301a b\u200bc 中文x A\u00adb \ufffd ΣΑΣ İi ﬁn don't x"
    + 'y' * 300
  )
  pool_of_words = [
    *odd.split(' '),
    'Dog,',
    '(no)',
    '\U0001f600',
    '\u1e9e',
    'ab',
  ]
  texts = [
    ' '.join(rng.choices(pool_of_words, k=rng.randint(1, 9)))
    for _ in range(300)
  ]
  texts += ['', odd]
  expected = tokenizer.encode_batch(texts)
  assert any(expected)
  for limit in (200_000, 12):  # the second forgets all the time
    monkeypatch.setattr(pool, 'CACHE_WORDS', limit)
    encoder = pool.Encoder(tokenizer)
    for start in range(0, len(texts), 20):
      found = encoder.encode_texts(texts[start : start + 20])
      assert found == expected[start : start + 20]
    assert len(encoder._cache) <= max(limit, len(pool_of_words))


def test_real_text_with_remembered_words(sesame_data):
  vocab = sesame_data / 'fixtures/vocab/bert-base-cased-vocab.txt'
  tokenizer = tokenization.load(vocab)
  encoder = pool.Encoder(tokenizer)
  for path in sorted((sesame_data / 'novels').iterdir())[:3]:
    texts = sentences.split_sentences(path.read_text()[:100_000])
    assert encoder.encode_texts(texts) == tokenizer.encode_batch(texts)


def test_documents_of_several_pieces(tmp_path, monkeypatch):
  from data.text import documents

  plain = make_documents(3, seed=5, num_sentences=(400, 500))
  for number, document in enumerate([*plain, plain[0]]):
    (tmp_path / f'{number}.txt').write_text('\n'.join(document))
  spec = os.fspath(tmp_path / '*.txt')
  whole = build_quietly(spec, TOKENIZER, tmp_path / 'whole', workers=1)
  monkeypatch.setattr(documents, 'PIECE_CHARS', 3_000)
  monkeypatch.setattr(pool, 'ITEM_CHARACTERS', 7_000)
  parts = build_quietly(spec, TOKENIZER, tmp_path / 'parts', workers=1)
  assert whole['duplicate_documents'] == parts['duplicate_documents'] == 1
  for name in ('tokens', 'sentences', 'documents'):
    file = f'{name}.npy'
    assert (tmp_path / 'whole' / file).read_bytes() == (
      tmp_path / 'parts' / file
    ).read_bytes()


def test_workers_import_neither_jax_nor_tensorflow():
  code = (
    'import sys; from data.store import pool; '
    'print([n for n in ("jax", "tensorflow", "flax") if n in sys.modules])'
  )
  found = subprocess.run(
    [sys.executable, '-c', code], capture_output=True, text=True, check=True
  )
  assert found.stdout.strip() == '[]'


def test_dead_worker_is_an_error(built, tmp_path, monkeypatch):
  monkeypatch.setattr(pool, 'ITEM_CHARACTERS', 5_000)
  monkeypatch.setattr(pool, '_COMMAND', 'raise SystemExit(7)')
  with pytest.raises(ChildProcessError, match='died .exit code 7.'):
    build_quietly(built / 'text.txt', TOKENIZER, tmp_path / 'out', workers=2)
  assert list(tmp_path.iterdir()) == []


def test_compressed_equals_plain(built, documents, tmp_path):
  text = tmp_path / 'text.txt.gz'
  text.write_bytes(gzip.compress((built / 'text.txt').read_bytes()))
  build_quietly(os.fspath(text), TOKENIZER, tmp_path / 'out')
  found, expected = contents(tmp_path / 'out'), contents(built / 'store')
  for name in expected.keys() - {'store.json'}:
    assert found[name] == expected[name], name


def test_wide_vocabulary_is_uint32(tmp_path, documents):
  pieces = [*wordpiece.SPECIALS, *'abcdefghijklmnop.']
  pieces += [f'##{letter}' for letter in 'abcdefghijklmnop']
  pieces += [f'filler{i}' for i in range(70_000)]
  (tmp_path / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  text = write_documents(tmp_path / 'text.txt', documents)
  build_quietly(text, tmp_path / 'vocab.txt', tmp_path / 'out')
  store = corpus.open_store(tmp_path / 'out')
  assert store.tokens.dtype == np.uint32
  assert store.vocab_size == len(pieces)


# --- Held out


def test_duplicates_fall_on_one_side(tmp_path):
  unique = make_documents(60, seed=1)
  # The copies differ in white space alone.
  copies = [[s.replace(' ', '  ') for s in document] for document in unique]
  text = write_documents(tmp_path / 'text.txt', unique + copies)
  audit = build_quietly(text, TOKENIZER, tmp_path / 'out', held_out=0.3)
  store = corpus.open_store(tmp_path / 'out')
  assert audit['duplicate_documents'] == 60
  np.testing.assert_array_equal(store.held_out[:60], store.held_out[60:])
  assert 5 < store.held_out[:60].sum() < 32


def test_few_documents_are_cut(tmp_path):
  few = [*make_documents(3, 2, (40, 60)), ['Only one sentence here.']]
  text = write_documents(tmp_path / 'text.txt', few)
  build_quietly(text, TOKENIZER, tmp_path / 'out', held_out=0.1)
  store = corpus.open_store(tmp_path / 'out')
  assert store.held_out.tolist() == [False, True] * 3 + [False]
  sizes = np.diff(store.documents).tolist()
  expected = []
  for document in few[:3]:
    tail = round(len(document) * 0.1)
    expected += [len(document) - tail, tail]
  assert sizes == [*expected, 1]
  trained = np.repeat(
    ~store.held_out, np.diff(store.sentences[store.documents])
  )
  np.testing.assert_array_equal(
    store.counts,
    np.bincount(store.tokens[trained], minlength=store.vocab_size),
  )


# --- Rerun, other input, interruption


def test_rerun_returns_at_once(built, tmp_path, monkeypatch):
  def fail(*args):
    raise AssertionError('built again')

  monkeypatch.setattr(arrays, 'write_arrays', fail)
  before = (built / 'store' / 'tokens.npy').stat().st_mtime_ns
  audit = build_quietly(built / 'text.txt', TOKENIZER, built / 'store')
  assert audit == corpus.read_meta(built / 'store')['audit']
  # The vocabulary that it trained is the same tokenizer.
  vocab = shutil.copytree(built / 'store', tmp_path / 'vocab') / 'vocab.txt'
  build_quietly(built / 'text.txt', vocab, built / 'store')
  assert (built / 'store' / 'tokens.npy').stat().st_mtime_ns == before


def test_other_input_is_refused_and_replaced(store_copy, built, tmp_path):
  text = built / 'text.txt'
  with pytest.raises(ValueError, match='held_out .0.05 in the store, asked'):
    build_quietly(text, TOKENIZER, store_copy, held_out=0.2)
  with pytest.raises(ValueError, match='something else: tokenizer'):
    build_quietly(text, 'train:wordpiece:150', store_copy)
  other = write_documents(tmp_path / 'other.txt', make_documents(50, seed=8))
  with pytest.raises(ValueError, match='something else: source'):
    build_quietly(other, TOKENIZER, store_copy)
  build_quietly(other, TOKENIZER, store_copy, overwrite=True)
  assert corpus.open_store(store_copy).num_documents == 50
  assert leftovers(tmp_path) == []


def test_other_folders_are_left_alone(built, tmp_path):
  (tmp_path / 'thesis.tex').write_text('years of work')
  for overwrite in (False, True):
    with pytest.raises(ValueError, match='not a token store, and is left'):
      build_quietly(
        built / 'text.txt', TOKENIZER, tmp_path, overwrite=overwrite
      )
  assert [path.name for path in tmp_path.iterdir()] == ['thesis.tex']


def child(text, out, before='', **popen):
  code = (
    # A job in the background of a shell inherits that SIGINT is ignored.
    'import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n'
    'import sys; from data.store import pool; from data import prepare\n'
    f'{before}\n'
    'pool.ITEM_CHARACTERS = 20_000\n'
    f'sys.exit(prepare.main(["--source", {os.fspath(text)!r}, "--tokenizer", '
    f'{TOKENIZER!r}, "--out", {os.fspath(out)!r}, "--workers", "2"]))'
  )
  return subprocess.Popen(
    [sys.executable, '-c', code], stderr=subprocess.PIPE, text=True, **popen
  )


@pytest.mark.slow
@pytest.mark.parametrize('how', [signal.SIGKILL, signal.SIGINT])
def test_interrupted_build(tmp_path, how):
  # Long enough to be caught in the middle.
  text = write_documents(tmp_path / 'text.txt', make_documents(40_000))
  out = tmp_path / 'out'
  tokens = tmp_path / '.out.partial' / 'tokens.npy'
  with child(text, out, start_new_session=True) as process:
    deadline = time.monotonic() + 60
    while not tokens.exists() or tokens.stat().st_size < 1 << 20:
      assert process.poll() is None and time.monotonic() < deadline
      time.sleep(0.02)
    workers = psutil.Process(process.pid).children()
    assert len(workers) == 2
    if how == signal.SIGINT:
      os.killpg(process.pid, how)  # as a terminal does
    else:
      process.kill()
    errors = process.communicate(timeout=100)[1]
  assert not out.exists()
  _, alive = psutil.wait_procs(workers, timeout=60)
  assert not alive
  if how == signal.SIGINT:
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith('error: interrupted')
    assert 'Traceback' not in errors
    assert leftovers(tmp_path) == []
  else:
    assert tokens.exists()
    short = write_documents(tmp_path / 'short.txt', make_documents(30))
    build_quietly(short, TOKENIZER, out)
    assert corpus.open_store(out).num_documents == 30
    assert leftovers(tmp_path) == []


def test_a_live_builder_is_waited_for(built, tmp_path, capsys):
  import threading

  out = tmp_path / 'out'
  with corpus.exclusive(out):
    (tmp_path / '.out.partial').mkdir()
    thread = threading.Thread(
      target=build_quietly, args=(built / 'text.txt', TOKENIZER, out)
    )
    thread.start()
    time.sleep(0.5)
    assert thread.is_alive() and (tmp_path / '.out.partial').exists()
    # The other process finishes an equal store: it is not built again.
    shutil.copytree(built / 'store', out)
    marker = (out / 'store.json').stat().st_ino
  thread.join(20)
  assert (out / 'store.json').stat().st_ino == marker
  assert 'waiting for the process' in capsys.readouterr().err


def test_disk_full(built, tmp_path):
  limit = (
    'import resource; '
    'resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))'
  )
  process = child(built / 'text.txt', tmp_path / 'out', limit)
  errors = process.communicate(timeout=400)[1]
  assert process.returncode == 1
  lines = errors.strip().splitlines()
  assert len(lines) == 1 and lines[0].startswith('error: disk full'), errors
  assert list(tmp_path.iterdir()) == []


def test_a_part_written_means_disk_full(tmp_path):
  with (
    pytest.raises(OSError, match='disk full while writing .*index.*3125'),
    corpus.new_folder(tmp_path / 'index'),
  ):
    raise OSError('4192 requested and 3125 written')  # as ndarray.tofile says
  assert list(tmp_path.iterdir()) == []


# --- Opening


def test_not_a_store(tmp_path):
  with pytest.raises(FileNotFoundError, match='no store.json'):
    corpus.open_store(tmp_path)
  with pytest.raises(FileNotFoundError, match='data.prepare'):
    corpus.open_store(tmp_path / 'missing')


def test_other_format_version(store_copy):
  path = store_copy / 'store.json'
  meta = json.loads(path.read_bytes())
  path.write_text(json.dumps({**meta, 'format_version': 2}))
  with pytest.raises(
    ValueError, match='format version 2, this program reads 1'
  ):
    corpus.open_store(store_copy)
  path.write_text(json.dumps({**meta, 'max_id': 3}))
  with pytest.raises(ValueError, match='changed after it was written'):
    corpus.open_store(store_copy)
  path.write_bytes(path.read_bytes()[:100])
  with pytest.raises(ValueError, match='store.json is damaged'):
    corpus.open_store(store_copy)


@pytest.mark.parametrize('name', [f'{name}.npy' for name in corpus.ARRAYS])
def test_flipped_byte(store_copy, name):
  path = store_copy / name
  data = bytearray(path.read_bytes())
  data[-1] ^= 1
  path.write_bytes(data)
  with pytest.raises(ValueError, match=f'{name} is damaged: .* chunk 0'):
    corpus.open_store(store_copy)


def test_damaged_chunk_is_named(store_copy, monkeypatch):
  monkeypatch.setattr(corpus, 'CHUNK_BYTES', 1000)
  path = store_copy / 'tokens.npy'
  sums = corpus.checksums(path)
  assert len(sums) == -(-path.stat().st_size // 1000)
  data = bytearray(path.read_bytes())
  data[2345] ^= 1
  path.write_bytes(data)
  with pytest.raises(ValueError, match='chunk 2 .from byte 2000'):
    corpus._compare_checksums(path, corpus.checksums(path), sums)


@pytest.mark.parametrize('name', ['tokens.npy', 'documents.npy'])
def test_half_copied(store_copy, name):
  size = (store_copy / name).stat().st_size
  os.truncate(store_copy / name, size // 2)
  with pytest.raises(
    ValueError, match=f'{name} has {size // 2} bytes, expected {size}'
  ):
    corpus.open_store(store_copy)
  (store_copy / name).unlink()
  with pytest.raises(FileNotFoundError, match=f'{name} is missing'):
    corpus.open_store(store_copy)


def test_vocabulary_of_another_store(store_copy):
  path = store_copy / 'vocab.txt'
  pieces = path.read_text().splitlines()
  path.write_text('\n'.join([*pieces[:-2], *reversed(pieces[-2:])]) + '\n')
  with pytest.raises(ValueError, match='fingerprint'):
    corpus.open_store(store_copy)
  path.write_text('\n'.join(pieces[:50]) + '\n')
  with pytest.raises(
    ValueError, match='has 50 pieces, but tokens.npy holds id'
  ):
    corpus.open_store(store_copy)


def test_stamp_spares_the_checksums(store_copy, monkeypatch):
  corpus.open_store(store_copy)  # a copy: checked anew
  read = []
  checksums = corpus.checksums
  monkeypatch.setattr(
    corpus, 'checksums', lambda path: read.append(path) or checksums(path)
  )
  corpus.open_store(store_copy)
  assert read == []
  os.utime(store_copy / 'tokens.npy')
  corpus.open_store(store_copy)
  assert read


def test_unwritable_stamp_is_done_without(store_copy, monkeypatch):
  def refuse(*args, **kwargs):
    raise PermissionError('read-only')

  (store_copy / '.verified.json').unlink()
  monkeypatch.setattr(pathlib.Path, 'write_text', refuse)
  assert corpus.open_store(store_copy).num_documents == 200
  assert not (store_copy / '.verified.json').exists()


def test_cache(built, store_copy, tmp_path):
  cache = tmp_path / 'cache'
  store = corpus.open_store(store_copy, cache=cache)
  assert store.folder.parent == cache
  assert contents(store.folder) == contents(built / 'store')
  inode = (store.folder / 'tokens.npy').stat().st_ino
  # Taken from the cache from now on; the origin's arrays are not read.
  (store_copy / 'tokens.npy').unlink()
  again = corpus.open_store(store_copy, cache=cache)
  assert (again.folder / 'tokens.npy').stat().st_ino == inode
  assert leftovers(cache) == []


def test_cache_checks_while_copying(store_copy, tmp_path):
  path = store_copy / 'sentences.npy'
  data = bytearray(path.read_bytes())
  data[200] ^= 4
  path.write_bytes(data)
  with pytest.raises(ValueError, match='store/sentences.npy is damaged'):
    corpus.open_store(store_copy, cache=tmp_path / 'cache')
  assert list((tmp_path / 'cache').iterdir()) == []


def test_remote_store_needs_a_cache():
  with pytest.raises(ValueError, match='data.cache'):
    corpus.open_store('gs://bucket/store')


# --- What the training command calls


def ensure(source, folder, tokenizer=TOKENIZER, **options):
  return build.ensure_store(
    os.fspath(source), tokenizer, folder, progress=False, **options
  )


def test_ensure_store_builds_small_text(built, tmp_path):
  store = ensure(built / 'text.txt', tmp_path / 'a' / 'store')
  assert store.num_documents == 200
  assert contents(store.folder) == contents(built / 'store')
  ensure(built / 'text.txt', tmp_path / 'a' / 'store')


def test_ensure_store_names_the_command(built, tmp_path):
  text = built / 'text.txt'
  with pytest.raises(ValueError) as error:
    ensure(text, tmp_path / 'my store', limit_bytes=1000, held_out=0.1)
  assert str(error.value).endswith(
    f'python -m data.prepare --source {text} --tokenizer {TOKENIZER} --out '
    f"'{tmp_path}/my store' --held_out 0.1"
  )
  assert list(tmp_path.iterdir()) == []


def test_ensure_store_names_what_differs(store_copy, built):
  with pytest.raises(ValueError, match='tokenizer .built with') as error:
    ensure(built / 'text.txt', store_copy, 'train:wordpiece:99', held_out=0.4)
  assert 'held_out (0.05 in the store, asked 0.4)' in str(error.value)
  assert 'source (' not in str(error.value)


def test_ensure_store_without_the_text(store_copy, tmp_path, documents):
  text = write_documents(tmp_path / 'text.txt', documents)
  build_quietly(text, TOKENIZER, store_copy, overwrite=True)
  os.unlink(text)
  assert ensure(text, store_copy).num_documents == 200
  with pytest.raises(ValueError, match='source .the store was built from'):
    ensure(tmp_path / 'other.txt', store_copy)
