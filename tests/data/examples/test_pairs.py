"""Pairs of windows."""

import numpy as np
import pytest
from window_stores import draw_sizes, make_store

from data.examples import pairs, pipeline

LENGTH = 32


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  held_out = [number % 5 == 0 for number in range(60)]
  sizes = draw_sizes(0, 60)
  sizes[3] = [200]  # a sentence longer than several windows
  sizes[4] = [3]
  return make_store(tmp_path_factory.mktemp('store'), sizes, held_out)


@pytest.fixture(scope='module')
def examples(store):
  return pairs.PairExamples(store, LENGTH, held_out=False)


def phases_of(batch_size, steps=1000, length=LENGTH):
  return ((steps, length, batch_size, 'continue'),)


def test_rows_hold_the_text(store, examples):
  numbers = np.arange(examples.num_windows)
  others = numbers[::-1]
  batch = examples.rows(numbers, others)
  sentence_starts = set(store.sentences.tolist())
  document_starts = set(store.sentences[store.documents].tolist())
  for row in numbers:
    for text, starts, size, document, number in (
      ('window', 'sentence_starts', 'lengths', 'document_ids', row),
      (
        'other_window',
        'other_starts',
        'other_lengths',
        'other_document_ids',
        others[row],
      ),
    ):
      window = examples._windows[number]
      length = batch[size][row]
      expected = window['start'] + np.arange(length)
      assert batch[text].shape[1] == LENGTH + LENGTH // 8
      assert batch[text][row, :length].tolist() == expected.tolist()
      assert not batch[text][row, length:].any()
      marks = [place in sentence_starts - document_starts for place in expected]
      assert batch[starts][row, :length].tolist() == marks
      assert not batch[starts][row, length:].any()
      assert batch[document][row] == window['document']
      assert not store.held_out[window['document']]
  assert {array.dtype.str for array in batch.values()} == {'<i4', '|b1'}


def test_partners_are_uniform_over_other_documents(examples):
  size = examples.num_windows
  document = examples._windows['document']
  draws = np.random.default_rng(0).integers(0, 2**64, 200_000, np.uint64)
  for number in (0, size // 2, size - 1):
    others = examples.partners(np.full(len(draws), number), draws)
    counts = np.bincount(others, minlength=size)
    own = document == document[number]
    assert not counts[own].any()
    expected = len(draws) / (~own).sum()
    # Chi square with mean k and variance 2 k: 5 sigma.
    degrees = (~own).sum() - 1
    chi = ((counts[~own] - expected) ** 2 / expected).sum()
    assert abs(chi - degrees) < 5 * (2 * degrees) ** 0.5


def test_training_partners_are_spread(examples):
  pairs = set()
  for step in range(40):
    batch = pipeline.train_batch({LENGTH: examples}, phases_of(16), 5, step)
    assert (batch['document_ids'] != batch['other_document_ids']).all()
    windows = (
      batch[name][:, 0].tolist() for name in ('window', 'other_window')
    )
    pairs |= set(zip(*windows, strict=True))
  # A window meets another partner in every epoch.
  assert len(pairs) > 0.97 * 40 * 16


def test_shapes_of_a_batch_need_no_text(store):
  examples = {LENGTH: pairs.PairExamples(store, LENGTH, held_out=False)}
  phases = ((9, LENGTH, 8, 'continue'),)
  batch = pipeline.train_batch(examples, phases, 0, 0)
  shapes = pairs.batch_shapes(LENGTH, 8)
  assert {k: (v.shape, v.dtype) for k, v in batch.items()} == {
    k: (v.shape, v.dtype) for k, v in shapes.items()
  }
