"""Stores on Cloud Storage: built there, copied from there, checked."""

import concurrent.futures
import json
import re
import shutil

import pytest
from text_stores import TOKENIZER, contents, leftovers

from data import prepare, storage
from data.store import build, corpus
from train.benches.loopback import Fault


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
  """The cache of a user."""
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'home'))
  return tmp_path / 'home' / 'sesame' / 'stores'


@pytest.fixture
def there(gs, built):
  """The address of the uploaded store."""
  storage.upload_folder(built / 'store', f'{gs}/books', last='store.json')
  return f'{gs}/books'


def objects(loopback, folder):
  bucket, name = storage.split(folder)
  return {
    key.removeprefix(f'{name}/'): each.data
    for key, each in loopback.storage.buckets[bucket].items()
    if key.startswith(f'{name}/')
  }


def put(loopback, folder, name, data):
  bucket, folder = storage.split(folder)
  loopback.storage.put(bucket, f'{folder}/{name}', data)


def run(capsys, source, out, *more, tokenizer=TOKENIZER):
  code = prepare.main(
    ['--source', str(source), '--tokenizer', tokenizer, '--out', out, *more]
  )
  return code, capsys.readouterr().err


@pytest.mark.slow
def test_built_there_as_here(gs, loopback, built, capsys, home):
  text = (built / 'text.txt').read_bytes()
  put(loopback, f'{gs}/texts', 'text.txt', text)
  out = f'{gs}/stores/books'
  code, said = run(capsys, f'{gs}/texts', out, '--workers', '1')
  assert code == 0 and f'uploading the store to {out}' in said
  expected, found = contents(built / 'store'), objects(loopback, out)
  assert found.keys() == expected.keys()
  del expected['store.json'], found['store.json']  # names the source
  assert found == expected
  store = corpus.open_store(out)
  assert store.folder.parent == home
  assert leftovers(home) == []
  # An equal store is found at once; another is refused, unless asked for.
  loopback.requests.clear()
  code, said = run(capsys, f'{gs}/texts', out)
  assert code == 0 and 'uploading' not in said
  assert not loopback.counts('^(POST|PUT|DELETE)')
  code, said = run(capsys, f'{gs}/texts', out, '--held_out', '0.1')
  assert code == 1
  assert f'{out} holds a store of something else: held_out' in said
  options = ('--held_out', '0.1', '--overwrite', '--workers', '1')
  code, said = run(
    capsys, f'{gs}/texts/*.txt', out, *options, tokenizer=str(built / 'store')
  )
  assert code == 0
  again = corpus.open_store(out)
  assert again.folder != store.folder
  assert again.held_out.sum() > store.held_out.sum()


def test_an_upload_that_ended_early(there, loopback, built, capsys):
  bucket, name = storage.split(there)
  for lost in ('store.json', 'tokens.npy'):
    del loopback.storage.buckets[bucket][f'{name}/{lost}']
  with pytest.raises(FileNotFoundError, match='books is half uploaded: store.'):
    corpus.open_store(there)
  code, _ = run(capsys, built / 'text.txt', there, '--workers', '1')
  assert code == 0
  store = corpus.open_store(there)
  expected = contents(built / 'store')
  assert contents(store.folder).keys() == expected.keys()
  # What is no store is left alone.
  put(loopback, f'{there}/more', 'letter.txt', b'x')
  code, said = run(capsys, built / 'text.txt', f'{there}/more')
  assert code == 1 and 'is not a token store, and is left alone' in said


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (lambda data: data[:-1] + b'?', 'books/held_out.npy is damaged'),
    (lambda data: data[:5], 'books/held_out.npy has 5 bytes, expected'),
  ],
)
def test_a_mixed_store_is_not_opened(there, loopback, home, change, message):
  data = objects(loopback, there)['held_out.npy']
  put(loopback, there, 'held_out.npy', change(data))
  with pytest.raises(ValueError, match=message):
    corpus.open_store(there)
  assert list(home.iterdir()) == []


def test_a_restart_reads_no_array(there, loopback, capsys):
  store = corpus.open_store(there)
  assert capsys.readouterr().err.startswith(f'copying the store {there} (0.')
  loopback.requests.clear()
  assert corpus.open_store(there).folder == store.folder
  assert not loopback.counts(r'npy')
  assert len(loopback.requests) <= 2
  assert capsys.readouterr().err == ''
  # A copy that was damaged since is made again.
  tokens = store.folder / 'tokens.npy'
  data = bytearray(tokens.read_bytes())
  data[-1] ^= 1
  tokens.write_bytes(data)
  again = corpus.open_store(there)
  assert 'It is a copy, which is made again.' in capsys.readouterr().err
  assert contents(again.folder) == objects(loopback, there)


def test_a_cache_without_room(there, home, tmp_path, monkeypatch):
  usage = shutil.disk_usage(tmp_path)
  monkeypatch.setattr(
    shutil, 'disk_usage', lambda _: usage._replace(free=1_000)
  )
  for cache, folder in ((None, home), (tmp_path / 'else', tmp_path / 'else')):
    with pytest.raises(OSError) as error:
      corpus.open_store(there, cache=cache)
    assert re.fullmatch(
      f'the copy of {there} needs [0-9,]+ bytes in {folder}, where 1,000 are'
      ' free. Make room, or name another folder by data.cache',
      str(error.value),
    )
    assert list(folder.iterdir()) == []


def test_a_cache_is_local(there):
  with pytest.raises(ValueError, match='data.cache=gs://a-b/c: expected a loc'):
    corpus.open_store(there, cache='gs://a-b/c')


def test_one_copy_for_all_processes_of_a_host(there, loopback):
  loopback.delay = 0.02
  with concurrent.futures.ThreadPoolExecutor(3) as threads:
    stores = list(threads.map(corpus.open_store, [there] * 3))
  assert len({store.folder for store in stores}) == 1
  assert loopback.counts('GET .*tokens.npy$').total() == 1


def test_copies_under_faults(there, loopback):
  loopback.faults += [
    Fault('GET .*sentences.npy$', cut=True),
    Fault('GET .*tokens.npy$', status=503),
    Fault('GET .*documents.npy$', status=429),
    Fault('GET .*counts.npy$', delay=2.0),
    Fault('GET .*store.json', status=503),
  ]
  store = corpus.open_store(there)
  assert not any(fault.left for fault in loopback.faults)
  assert contents(store.folder) == objects(loopback, there)


def test_small_text_is_built_on_the_way(gs, loopback, built):
  text, out = str(built / 'text.txt'), f'{gs}/new'
  options = dict(progress=False, workers=1)
  with pytest.raises(ValueError, match=f'Build it once:.*\n.*--out {out}'):
    build.ensure_store(text, TOKENIZER, out, limit_bytes=9, **options)
  store = build.ensure_store(text, TOKENIZER, out, **options)
  expected = json.loads((built / 'store' / 'store.json').read_text())
  assert store.meta['files'] == expected['files']
  loopback.requests.clear()
  again = build.ensure_store(text, TOKENIZER, out, **options)
  assert again.folder == store.folder
  assert not loopback.counts('^(POST|PUT)')


def test_a_copy_that_fails_ends_at_once(
  gs, loopback, built, tmp_path, monkeypatch
):
  monkeypatch.setattr(corpus, 'CHUNK_BYTES', 100)
  folder = tmp_path / 'store'
  shutil.copytree(built / 'store', folder)
  meta = json.loads((folder / 'store.json').read_text())
  for name in ('store.json', '.verified.json'):
    (folder / name).unlink(missing_ok=True)
  corpus.write_meta(folder, meta)
  storage.upload_folder(folder, f'{gs}/books', last='store.json')
  meta = json.loads((folder / 'store.json').read_text())
  chunks = sum(len(entry['crc32']) for entry in meta['files'].values())
  assert chunks > 100
  first = next(iter(meta['files']))
  data = (folder / first).read_bytes()
  put(loopback, f'{gs}/books', first, bytes([data[0] ^ 1]) + data[1:])
  loopback.requests.clear()
  with pytest.raises(ValueError, match=f'{first} is damaged'):
    corpus.open_store(f'{gs}/books')
  assert len(loopback.requests) < chunks / 2
