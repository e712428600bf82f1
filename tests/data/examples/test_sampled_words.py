"""Rows of sampled words, against the text that they were taken from."""

import numpy as np
import pytest
from window_stores import draw_sizes, make_store

from data.examples import pipeline, sampled_words
from data.vocabulary.words import SPECIALS, Words

LENGTH, SEED = 128, 3
NUM_TYPES, SOFTMAX = 60, 50


def make_words_store(folder, split):
  """Returns a store of 12 documents, every fourth held out."""
  held_out = [number % 4 == 0 for number in range(12)]
  sizes = draw_sizes(4, 12, mean_sentences=40, mean_size=8)
  sizes[1] = []  # a document without text
  store = make_store(folder, sizes, held_out)
  random = np.random.default_rng(0)
  ranks = np.minimum(random.zipf(1.3, len(store.tokens)), NUM_TYPES) - 1
  store.tokens = (ranks + len(SPECIALS)).astype(np.uint16)
  pieces = (*SPECIALS, *(f'w{i}' for i in range(NUM_TYPES)))
  store.tokenizer = Words(pieces, SOFTMAX, split)
  trained = np.repeat(
    ~store.held_out, np.diff(store.sentences[store.documents])
  )
  store.counts = np.bincount(store.tokens[trained], minlength=len(pieces))
  return store


@pytest.fixture(scope='module', params=['spaces', 'marks'])
def store(request, tmp_path_factory):
  return make_words_store(tmp_path_factory.mktemp('store'), request.param)


def open_examples(store, held_out=False, sample=0.0, min_count=1):
  return sampled_words.SampledWordExamples(
    store, LENGTH, held_out=held_out, sample=sample, min_count=min_count
  )


def text_of(store, held_out=False):
  """Returns (words, number of the segment of each) of a split."""
  words, segments = [], []
  for document in np.flatnonzero(store.held_out == held_out):
    for sentence in range(*store.documents[document : document + 2]):
      some = store.tokens[slice(*store.sentences[sentence : sentence + 2])]
      words += some.tolist()
      is_line = store.tokenizer.sentence_per_line
      segments += [sentence if is_line else document] * len(some)
  return np.array(words), np.array(segments)


@pytest.mark.parametrize('held_out', [False, True])
def test_an_epoch_without_sampling_is_the_text_in_rows(store, held_out):
  examples = open_examples(store, held_out)
  words, segments = text_of(store, held_out)
  known = words < SOFTMAX
  numbers = np.arange(examples.num_windows)
  batch = examples.batch(numbers, numbers.astype(np.uint64))
  size = examples.num_read
  for row in numbers:
    part = slice(row * size, (row + 1) * size)
    expected = words[part][known[part]]
    used = batch['segments'][row] >= 0
    np.testing.assert_array_equal(batch['tokens'][row, used], expected)
    assert not batch['tokens'][row, ~used].any()
    # Segments begin and end where they do in the text.
    found = np.diff(batch['segments'][row, used])
    changes = np.diff(segments[part][known[part]])
    np.testing.assert_array_equal(found != 0, changes != 0)


def test_words_are_kept_with_the_probability_of_the_release(store):
  examples = open_examples(store, sample=0.02)
  counts = sampled_words.word_counts(store, 1)
  kept = np.zeros(len(counts))
  epochs = 200
  for draw in range(epochs):
    numbers = np.arange(examples.num_windows)
    draws = (draw * 1000 + numbers).astype(np.uint64)
    batch = examples.batch(numbers, draws)
    words = batch['tokens'][batch['segments'] >= 0]
    kept += np.bincount(words, minlength=len(counts))
  total = counts.sum()
  for word in np.flatnonzero(counts):
    count = counts[word]
    allowed = 0.02 * total
    share = min(1, ((count / allowed) ** 0.5 + 1) * allowed / count)
    deviation = (share * (1 - share) / (epochs * count)) ** 0.5
    # A row may have no place for its last words.
    assert abs(kept[word] / (epochs * count) - share) < 4 * deviation + 0.01


def test_batches_follow_from_seed_and_step_and_rows(store):
  examples = open_examples(store, sample=0.02)
  phases = ((1000, LENGTH, 4, 'continue'),)

  def batch(step, rows=pipeline.ALL_ROWS, seed=SEED):
    return pipeline.train_batch({LENGTH: examples}, phases, seed, step, rows)

  whole = batch(5)
  shapes = sampled_words.batch_shapes(LENGTH, 4)
  assert {k: (v.shape, v.dtype) for k, v in whole.items()} == {
    k: (v.shape, v.dtype) for k, v in shapes.items()
  }
  for name, array in batch(5, np.array([1, 3])).items():
    np.testing.assert_array_equal(array, whole[name][[1, 3]])
  assert not np.array_equal(batch(5, seed=4)['tokens'], whole['tokens'])
  assert not np.array_equal(batch(6)['tokens'], whole['tokens'])


def test_rare_words_are_left_out(store):
  counts = sampled_words.word_counts(store, 1)
  least = int(np.sort(counts)[-5])
  some = sampled_words.word_counts(store, least)
  assert np.count_nonzero(some) == 5
  examples = open_examples(store, min_count=least)
  batch = examples.batch(np.arange(2), np.arange(2, dtype=np.uint64))
  assert set(batch['tokens'][batch['segments'] >= 0]) == set(
    np.flatnonzero(some)
  )


def test_stores_without_words_are_refused(store):
  with pytest.raises(ValueError, match='min_count=9999999 leaves 0 words'):
    open_examples(store, min_count=9_999_999)
  held_out, store.held_out = store.held_out, np.ones_like(store.held_out)
  try:
    with pytest.raises(ValueError, match='no training words'):
      open_examples(store)
  finally:
    store.held_out = held_out
