"""Batches of documents: whole ones, and parts of long ones in training."""

import collections
import itertools

import numpy as np
import pytest
from small_documents import TASK, document

from data.inputs import document_batches
from data.inputs.batches import WordInputs
from data.inputs.document_batches import DocumentBatches
from data.scoring import kinds

LENGTHS = [
  (3, 5, 2),
  (4,) * 9,
  (1, 12, 3, 3, 6, 2, 2),
  (7, 7),
  (2, 2, 2, 9, 2, 2),
]
DOCUMENTS = [
  document(lengths, number=i, genre=('bc', 'nw', 'zz')[i % 3])
  for i, lengths in enumerate(LENGTHS)
]


@pytest.fixture(scope='module')
def features():
  return kinds.encode(TASK, DOCUMENTS, None, 14, form='words')


def make(features, **options):
  return DocumentBatches(
    features, pad_id=0, max_length=14, **{'max_sentences': 4, **options}
  )


def expected_labels(example, first, count):
  """The mentions in sentences, in clusters that still have two."""
  lengths = [len(words) for words in example.sentences]
  low = sum(lengths[:first])
  high = low + sum(lengths[first : first + count])
  found = []
  for number, cluster in enumerate(example.clusters):
    kept = [m for m in cluster if low <= m[0] and m[1] < high]
    if len(kept) > 1:
      found += [[a - low, b - low, number] for a, b in kept]
  return sorted(found)


def check(features, batch, i, example, first, count):
  """One row of a batch has these sentences of the example."""
  words = np.array(features.words)
  mask = batch['token_mask'][i]
  sentences = example.sentences[first : first + count]
  lengths = [len(sentence) for sentence in sentences]
  assert (np.diff(mask.astype(int)) <= 0).all()
  expected = np.repeat(np.arange(count), lengths)
  np.testing.assert_array_equal(batch['sentences'][i][mask], expected)
  assert (batch['sentences'][i][~mask] == -1).all()
  # Rows of whole sentences, in their order.
  read = batch['sentence_rows'][i]
  np.testing.assert_array_equal(read[read >= 0], np.arange(sum(lengths)))
  assert (np.diff((read >= 0).astype(int), axis=1) <= 0).all()
  for row in read:
    numbers = expected[row[row >= 0]]
    assert np.isin(expected, numbers).sum() == len(numbers)
  assert tuple(words[batch['tokens'][i][mask]]) == sum(sentences, ())
  names = {'': 0}
  for name in sum(example.speakers, ()):
    names.setdefault(name, len(names))
  speakers = sum(example.speakers[first : first + count], ())
  assert batch['speakers'][i][mask].tolist() == [names[s] for s in speakers]
  assert not batch['speakers'][i][~mask].any()
  assert batch['genres'][i] == {'bc': 1, 'nw': 2}.get(example.genre, 0)
  labels = batch['labels'][i]
  real = (labels >= 0).all(axis=1)
  assert sorted(labels[real].tolist()) == expected_labels(example, first, count)
  assert (labels[~real] == -1).all()
  assert (np.diff(real.astype(int)) <= 0).all()
  characters = batch['characters'][i]
  np.testing.assert_array_equal(
    characters, features.characters[batch['tokens'][i]]
  )


@pytest.mark.parametrize('size', [1, 2, 3])
def test_evaluation_reads_whole_documents(features, size):
  batches = make(features)
  seen, found = [], set()
  for batch in batches.eval_batches(size):
    found.add(batch['tokens'].shape[1])
    for i in range(size):
      number = batch['example_ids'][i]
      check(features, batch, i, DOCUMENTS[number], 0, len(LENGTHS[number]))
      assert batch['label_mask'][i] == batch['example_mask'][i]
      if batch['example_mask'][i]:
        seen.append(int(number))
  assert sorted(seen) == list(range(len(DOCUMENTS)))
  assert batches.eval_lengths(size) == found
  longest = batches.longest_batch(size)
  assert longest['tokens'].shape == (size, max(found))
  assert longest['labels'].shape == batch['labels'].shape


def test_training_reads_parts_of_long_documents(features):
  batches = make(features)
  size, seed, steps = 2, 3, 200
  starts = collections.defaultdict(list)
  found = {}
  for step in range(steps):
    numbers, chosen = batches.order.batch(step, size, seed, steps)
    batch = batches.train_batch(step, slice(None), size, seed, steps)
    found.setdefault(batch['tokens'].shape[1], step)
    assert batch['example_ids'].tolist() == numbers.tolist()
    assert batch['example_mask'].all() and batch['label_mask'].all()
    for i, number in enumerate(chosen):
      example = DOCUMENTS[number]
      count = min(len(example.sentences), 4)
      words = np.array(features.words)
      read = tuple(words[batch['tokens'][i][batch['token_mask'][i]]])
      fitting = [
        first
        for first in range(len(example.sentences) - count + 1)
        if sum(example.sentences[first : first + count], ()) == read
      ]
      (first,) = fitting
      check(features, batch, i, example, first, count)
      starts[int(number)].append(first)
  assert batches.train_lengths(size, seed, steps) == found
  # Each place comes equally often, not in the order of the text.
  for number, firsts in starts.items():
    places = max(len(LENGTHS[number]) - 4, 0) + 1
    shares = np.bincount(firsts, minlength=places)
    assert len(shares) == places
    assert shares.max() - shares.min() <= 2
    assert places == 1 or firsts[:places] != sorted(firsts[:places])


def test_a_batch_is_a_function_of_seed_and_step(features):
  args = (2, 7, 100)
  first = make(features).train_batch(31, slice(None), *args)
  again = make(features)
  again.train_batch(4, slice(None), *args)
  batch = again.train_batch(31, slice(None), *args)
  second = again.train_batch(31, slice(1, 2), *args)
  for name, value in first.items():
    np.testing.assert_array_equal(value, batch[name])
    np.testing.assert_array_equal(value[1:], second[name])
  other = again.train_batch(31, slice(None), 2, 8, 100)
  assert any(
    (other[n].shape != v.shape) or (other[n] != v).any()
    for n, v in first.items()
  )


def test_inputs_of_a_model(features):
  rng = np.random.default_rng(0)
  vectors = rng.normal(size=(len(features.tokens), 2, 3)).astype(np.float16)
  inputs = WordInputs(
    rng.integers(1, 9, len(features.words)).astype(np.int32),
    vectors,
    features.offsets[:-1],
  )
  batches = make(features, inputs=inputs)
  plain = make(features).train_batch(5, slice(None), 2, 0, 10)
  batch = batches.train_batch(5, slice(None), 2, 0, 10)
  mask = batch['token_mask']
  np.testing.assert_array_equal(
    batch['tokens'], np.where(mask, inputs.table_rows[plain['tokens']], 0)
  )
  assert batch['vectors'].shape == (*mask.shape, 2, 3)
  assert not batch['vectors'][~mask].any()
  for i in range(2):
    # The words of a document stand one after the other.
    found = batch['vectors'][i][mask[i]]
    starts = np.flatnonzero((vectors == found[0]).all(axis=(1, 2)))
    (start,) = starts
    np.testing.assert_array_equal(found, vectors[start : start + len(found)])
    tokens = features.tokens[start : start + len(found)]
    np.testing.assert_array_equal(plain['tokens'][i][mask[i]], tokens)


def test_padding_is_modest():
  known = document_batches.LENGTHS
  for small, large in itertools.pairwise(known):
    assert 1 < large / small <= 1.4


def test_a_document_beyond_the_lengths_keeps_its_own(features, monkeypatch):
  monkeypatch.setattr(document_batches, 'LENGTHS', (8, 16))
  found = {b['tokens'].shape[1] for b in make(features).eval_batches(1)}
  assert found == {16, 19, 29, 36}


def test_sentences_fit_into_their_rows():
  rng = np.random.default_rng(0)
  for longest in (1, 2, 7, 40):
    for count in (1, 5, 60):
      lengths = rng.integers(1, longest + 1, count)
      lengths[0] = longest
      if count == 60:  # short and long in turns, the worst that can be
        lengths = np.tile([1, longest], 30)
      total = int(lengths.sum())
      rows, width = document_batches._num_rows(total, longest)
      places = np.full((rows, width), -1)
      document_batches._pack(lengths.tolist(), places)
      np.testing.assert_array_equal(places[places >= 0], np.arange(total))


def test_wrong_settings_are_refused(features):
  with pytest.raises(ValueError, match='has 12 words, max_length is 8'):
    DocumentBatches(features, pad_id=0, max_length=8)
  with pytest.raises(ValueError, match='max_sentences=0'):
    make(features, max_sentences=0)
  empty = kinds.encode(TASK, [], None, 14, form='words')
  with pytest.raises(ValueError, match='there are no documents'):
    make(empty)
