"""The token store: what is written, what is refused, what survives a kill."""

import gzip
import json
import os

import numpy as np
import pytest
from text_stores import (
  TOKENIZER,
  build_quietly,
  contents,
  leftovers,
  make_documents,
)

from data.store import corpus, folders, pool
from data.text import sentences
from data.vocabulary import tokenization


def test_round_trip(built, documents):
  store = corpus.open_store(built / 'store')
  tokenizer = tokenization.load(built / 'store')
  assert len(store.held_out) == len(documents)
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


def test_compressed_equals_plain(built, documents, tmp_path):
  text = tmp_path / 'text.txt.gz'
  text.write_bytes(gzip.compress((built / 'text.txt').read_bytes()))
  build_quietly(os.fspath(text), TOKENIZER, tmp_path / 'out')
  found, expected = contents(tmp_path / 'out'), contents(built / 'store')
  for name in expected.keys() - {'store.json'}:
    assert found[name] == expected[name], name


# --- Held out


# --- Rerun, other input, interruption


def test_a_part_written_means_disk_full(tmp_path):
  with (
    pytest.raises(OSError, match='disk full while writing .*index.*3125'),
    folders.new_folder(tmp_path / 'index'),
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
  monkeypatch.setattr(folders.scratch, 'beside', refuse)
  assert len(corpus.open_store(store_copy).held_out) == 200
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


# --- What the training command calls
