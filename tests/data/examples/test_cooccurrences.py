"""Counts of neighbours equal those of plain loops; rows have each once."""

import collections
import shutil

import numpy as np
import pytest

from data.examples import cooccurrences, sampled_words
from data.store import build, corpus

WINDOW, MIN_COUNT = 4, 3


@pytest.fixture(scope='module', params=['train:words:40', 'spaces'])
def store(request, tmp_path_factory):
  """A store of documents of lines; of 'spaces', a line is a sentence."""
  random = np.random.default_rng(0)
  folder = tmp_path_factory.mktemp('text')
  words = [f'w{chr(97 + i // 8)}{chr(97 + i % 8)}' for i in range(60)]
  shares = 1 / np.arange(2, 62)
  for number in range(24):
    lines = [
      ' '.join(
        random.choice(words, random.integers(1, 20), p=shares / sum(shares))
      )
      for _ in range(6)
    ]
    (folder / f'{number:02}.txt').write_text('\n'.join(lines) + '\n')
  tokenizer = request.param
  if tokenizer == 'spaces':
    tokenizer = 'train:words:40:spaces'
  build.build_store(
    f'{folder}/*.txt',
    tokenizer,
    folder / 'store',
    document_break='file',
    held_out=0.3,
    progress=False,
  )
  return corpus.open_store(folder / 'store')


def naive_counts(store, held_out):
  """Returns {(word, context): count} by loops, and the number of words."""
  learnt = sampled_words.word_counts(store, MIN_COUNT) > 0
  counts, num_words = collections.Counter(), 0
  for document in np.flatnonzero(store.held_out == held_out):
    first, last = store.documents[document : document + 2]
    if store.tokenizer.sentence_per_line:
      parts = [store.sentences[s : s + 2] for s in range(first, last)]
    else:
      parts = [store.sentences[[first, last]]]
    for begin, end in parts:
      words = [
        w for w in store.tokens[begin:end].tolist() if w < 40 and learnt[w]
      ]
      num_words += len(words)
      for i, word in enumerate(words):
        for j in range(max(0, i - WINDOW), i):
          counts[word, words[j]] += 1 / (i - j)
          counts[words[j], word] += 1 / (i - j)
  return counts, num_words


def rows_of(store, held_out, length=32):
  return cooccurrences.CountExamples(
    store, length, held_out=held_out, window=WINDOW, min_count=MIN_COUNT
  )


@pytest.mark.parametrize('held_out', [False, True])
def test_counts_are_those_of_loops(store, held_out, monkeypatch):
  monkeypatch.setattr(cooccurrences, '_BLOCK', 128)  # many parts and ranges
  monkeypatch.setattr(cooccurrences, '_EVERY', 4)
  expected, num_words = naive_counts(store, held_out)
  assert len(expected) > 300
  assert any(word == context for word, context in expected)
  examples = rows_of(store, held_out)
  batch = examples.batch(np.arange(examples.num_windows), None)
  found, used = {}, batch['counts'] > 0
  for word, context, count in zip(
    *(batch[name][used].tolist() for name in ('words', 'contexts', 'counts')),
    strict=True,
  ):
    assert (word, context) not in found
    found[word, context] = count
  scale = 1.0
  if held_out:
    scale = naive_counts(store, False)[1] / num_words
    assert scale > 1.5
  assert found.keys() == expected.keys()
  for pair, count in expected.items():
    assert found[pair] == pytest.approx(scale * count, rel=1e-5)
  assert batch['counts'].dtype == np.float32
  for name in ('words', 'contexts'):
    assert batch[name].dtype == np.int32
    assert not batch[name][~used].any()
  # In no order: the first row is no run of words.
  assert np.abs(np.diff(batch['words'][0])).mean() > 3


def test_an_epoch_has_each_row_once_and_folders_are_made_once(store):
  examples = rows_of(store, False)
  folders = sorted(store.folder.glob('cooccurrences-*'))
  times = [folder.stat().st_mtime_ns for folder in folders]
  other = rows_of(store, False, length=8)
  assert sorted(store.folder.glob('cooccurrences-*')) == folders
  assert [folder.stat().st_mtime_ns for folder in folders] == times
  assert not any((folder / 'parts').exists() for folder in folders)
  steps = examples.num_windows // 2
  seen = [
    row.tobytes()
    for step in range(steps)
    for row in examples.train_batch(step, slice(None), 2, 7, 0)['counts']
  ]
  assert len(set(seen)) == 2 * steps
  parts = [
    other.train_batch(0, rows, 4, 7, 0) for rows in (slice(0, 2), slice(2, 4))
  ]
  whole = other.train_batch(0, slice(None), 4, 7, 0)
  for name, array in whole.items():
    joined = np.concatenate([part[name] for part in parts])
    np.testing.assert_array_equal(joined, array)


def test_a_flipped_byte_is_counted_anew(store, capsys):
  for folder in store.folder.glob('cooccurrences-*-training-*'):
    shutil.rmtree(folder)
  right = rows_of(store, False).train_batch(0, slice(None), 2, 7, 0)
  (folder,) = store.folder.glob('cooccurrences-*-training-*')
  data = bytearray((folder / 'counts.npy').read_bytes())
  data[-2] ^= 64
  (folder / 'counts.npy').write_bytes(data)
  found = rows_of(store, False).train_batch(0, slice(None), 2, 7, 0)
  assert 'counts.npy is damaged' in capsys.readouterr().err
  for name, array in right.items():
    np.testing.assert_array_equal(found[name], array)


def test_a_text_without_neighbours_is_refused(tmp_path):
  for number in range(26):
    (tmp_path / f'{number}.txt').write_text(f'w{chr(97 + number)}\n')
  build.build_store(
    f'{tmp_path}/*.txt',
    'train:words:40',
    tmp_path / 'store',
    document_break='file',
    held_out=0.3,
    progress=False,
  )
  store = corpus.open_store(tmp_path / 'store')
  with pytest.raises(ValueError, match='no two of them are neighbours'):
    cooccurrences.CountExamples(store, 8, held_out=False, window=2, min_count=1)
  assert not list(store.folder.glob('*cooccurrences*'))
