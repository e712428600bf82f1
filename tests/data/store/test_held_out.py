"""Which documents are held out, and how much text they are."""

import collections
import os
import random

import numpy as np
import pytest
from text_stores import (
  TOKENIZER,
  build_quietly,
  make_documents,
  write_documents,
)

from data.store import build, corpus, held_out


def draw(hashes, tokens, share):
  """`held_out.hold_out` of documents of one sentence each."""
  offsets = np.arange(len(hashes) + 1)
  sentences = np.concatenate([[0], np.cumsum(tokens)])
  cut, found, rule = held_out.hold_out(
    np.asarray(hashes, np.uint64), offsets, sentences, share
  )
  assert cut is offsets and 'hash' in rule
  return found


def by_hand(hashes, tokens, share):
  """The rule in plain Python, one text after the other."""
  sizes, copies = collections.Counter(), collections.Counter(hashes)
  for key, size in zip(hashes, tokens, strict=True):
    sizes[key] += size
  target, held, chosen = share * sum(tokens), 0, []
  for key in sorted(sizes):
    documents = sum(copies[key] for key in chosen)
    if held >= target or documents >= (1 + share) / 2 * len(hashes):
      break
    if held + sizes[key] <= 2 * target:
      chosen.append(key)
      held += sizes[key]
  rest = [key for key in sorted(sizes) if key not in chosen]
  chosen += rest[: max(0, 2 - len(chosen))]
  return [key in chosen for key in hashes]


@pytest.mark.parametrize('share', [0.005, 0.05, 0.3, 0.6])
def test_tokens_up_to_the_share_in_the_order_of_the_hashes(share):
  rng = np.random.default_rng(0)
  for case in range(40):
    count = int(rng.integers(20, 400))
    hashes = rng.integers(0, 1 << 64, count, np.uint64)
    hashes[rng.integers(0, count, count // 4)] = hashes[0]  # the same texts
    hashes[: count // 3] >>= np.uint64(rng.integers(0, 9))
    sizes = rng.lognormal(6, (0.1, 1, 2.5)[case % 3], count)
    tokens = 1 + sizes.astype(int)
    found = draw(hashes, tokens, share)
    assert found.tolist() == by_hand(hashes.tolist(), tokens.tolist(), share)
    assert np.isin(hashes, hashes[~found])[found].sum() == 0
    order = rng.permutation(count)
    np.testing.assert_array_equal(
      draw(hashes[order], tokens[order], share), found[order]
    )


def test_a_giant_leaves_text_to_train_on():
  """Sixty notes beside a book of nearly all tokens: half of them are taken."""
  hashes = np.random.default_rng(1).integers(0, 1 << 64, 61, np.uint64)
  tokens = np.array([2_000_000] + 60 * [1000])
  found = draw(hashes, tokens, 0.05)
  assert found.tolist() == by_hand(hashes.tolist(), tokens.tolist(), 0.05)
  assert not found[0]
  assert 30 <= found.sum() <= 34


def test_books_are_held_out_by_their_length():
  """Of 156 books, the two whose hashes lie below 0.05 were the shortest."""
  rng = random.Random(0)
  hashes = [(i << 64) // 156 for i in range(156)]
  tokens = [rng.randint(50_000, 300_000) for _ in hashes]
  for i in range(8):
    tokens[i] = 20_000
  found = draw(hashes, tokens, 0.05)
  held = np.array(tokens)[found].sum()
  assert 0 <= held - 0.05 * sum(tokens) <= max(tokens)
  assert found[:8].all()  # in their order, none passed over
  assert found.tolist() == sorted(found.tolist(), reverse=True)


def test_a_document_that_would_make_it_twice_the_share_is_passed_over():
  hashes, tokens = np.arange(30), np.full(30, 100)
  tokens[2] = 5_000  # 63 % of the text
  found = draw(hashes, tokens, 0.05)
  assert np.flatnonzero(found).tolist() == [0, 1, 3, 4]


def test_two_texts_at_least():
  hashes = np.arange(40, 0, -1).astype(np.uint64) << np.uint64(50)
  found = draw(hashes, np.full(40, 7), 1e-9)
  assert np.flatnonzero(found).tolist() == [38, 39]
  hashes[39] = hashes[38]  # one text
  found = draw(hashes, np.full(40, 7), 1e-9)
  assert np.flatnonzero(found).tolist() == [37, 38, 39]
  with pytest.raises(ValueError, match='all 40 documents would be held out'):
    draw(hashes * np.uint64(0), np.full(40, 7), 0.5)
  with pytest.raises(ValueError, match='all 40 documents would be held out'):
    draw(hashes, np.full(40, 7), 0.9999)


def write(folder, sizes):
  folder.mkdir()
  rng = random.Random(1)
  for number, size in enumerate(sizes):
    words = rng.choices(('one', 'two', 'three', 'four', 'five'), k=size)
    (folder / f'{number:03}.txt').write_text(
      f'Text {number}: {" ".join(words)}.'
    )
  return os.fspath(folder)


def test_the_audit_says_the_share_and_warns(tmp_path):
  source = write(tmp_path / 'texts', [50 + i for i in range(100)])
  audit = build.build_store(
    source, 'train:wordpiece:120', tmp_path / 'store', progress=False
  )
  assert 0.05 <= audit['held_out']['tokens'] / audit['tokens'] < 0.07
  assert not any('held out' in line for line in audit['warnings'])
  source = write(tmp_path / 'large', [20_000] * 20 + [1] * 5)
  audit = build.build_store(
    source,
    'train:wordpiece:120',
    tmp_path / 'second',
    held_out=0.01,
    progress=False,
  )
  (warning,) = (line for line in audit['warnings'] if 'held out' in line)
  assert '1.0% were asked for' in warning


def test_an_old_store_keeps_its_held_out_documents(tmp_path):
  source = write(tmp_path / 'texts', [50 + i for i in range(100)])
  asked = (source, 'train:wordpiece:120', tmp_path / 'store')
  build.build_store(*asked, progress=False)
  folder = tmp_path / 'store'
  meta = corpus.read_meta(folder)
  other = np.zeros(100, bool)
  other[:3] = True
  np.save(folder / 'held_out.npy', other)
  for key in ('files', 'digest', 'format_version'):
    del meta[key]
  meta['audit']['held_out'] = {
    'rule': 'whole documents by hash',
    'documents': 3,
    'tokens': 100,
  }
  (folder / 'store.json').unlink()
  (folder / '.verified.json').unlink()
  corpus.write_meta(folder, meta)
  store = build.ensure_store(*asked, progress=False)
  np.testing.assert_array_equal(store.held_out, other)
  assert build.build_store(*asked, progress=False) == meta['audit']


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


def test_a_text_of_two_languages_falls_on_one_side():
  rng = np.random.default_rng(0)
  shared = rng.integers(0, 2**64, 30, np.uint64)
  hashes = np.concatenate(
    [shared, rng.integers(0, 2**64, 70, np.uint64), shared[::-1], shared[:4]]
  )
  documents = 2 * np.arange(len(hashes) + 1)  # of two sentences each
  sentences = 10 * np.arange(documents[-1] + 1)
  # The last language is so small that its documents are cut.
  sizes = {'aa': 100, 'bb': 30, 'cc': 4}
  _, flags, _, bounds = held_out.hold_out_each(
    hashes, documents, sentences, 0.2, sizes
  )
  assert bounds.tolist() == [0, 100, 130, 138]
  one, other = flags[:100], flags[100:130]
  assert np.array_equal(one[:30], other[::-1]) and 0 < other.sum() < 30
  assert one[30:].any()
