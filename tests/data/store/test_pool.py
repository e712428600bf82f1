"""Encoding on several processes."""

import os
import random
import subprocess
import sys

import pytest
from text_stores import TOKENIZER, build_quietly, contents, make_documents

from data.store import pool
from data.text import sentences
from data.vocabulary import tokenization


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
