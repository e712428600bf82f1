"""Windows of contiguous tokens, inside documents and over one stream."""

import jax
import numpy as np
import pytest
from window_stores import draw_sizes, make_store

from data.examples import pipeline, streams, transforms

LENGTH = 16
END = 999_999


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  held_out = [number % 5 == 0 for number in range(40)]
  sizes = draw_sizes(1, 40)
  sizes[1], sizes[2], sizes[3] = [LENGTH + 1], [LENGTH], [1]
  sizes[4] = []  # a document without text
  return make_store(tmp_path_factory.mktemp('store'), sizes, held_out)


def documents_of(store, held_out):
  bounds = store.sentences[store.documents]
  return [
    store.tokens[bounds[d] : bounds[d + 1]].tolist()
    for d in np.flatnonzero(store.held_out == held_out)
  ]


def all_rows(examples):
  numbers = np.arange(examples.num_windows)
  batch = examples.batch(numbers, numbers.astype(np.uint64))
  for window, length in zip(batch['window'], batch['lengths'], strict=True):
    assert not window[length:].any()
    yield window[:length].tolist()


@pytest.mark.parametrize('held_out', [False, True])
def test_windows_stay_inside_documents(store, held_out):
  examples = streams.StreamExamples(store, LENGTH, held_out=held_out)
  expected = [
    document[start : start + LENGTH + 1]
    for document in documents_of(store, held_out)
    for start in range(0, len(document) - 1, LENGTH)
  ]
  assert list(all_rows(examples)) == expected


@pytest.mark.parametrize('held_out', [False, True])
def test_documents_are_joined_by_end_of_text(store, held_out):
  examples = streams.StreamExamples(
    store, LENGTH, held_out=held_out, end_of_text=END
  )
  stream = []
  for document in documents_of(store, held_out):
    if document:
      stream += [*document, END]
  expected = [
    stream[start : start + LENGTH + 1]
    for start in range(0, len(stream) - 1, LENGTH)
  ]
  assert list(all_rows(examples)) == expected


def test_every_token_but_the_first_is_predicted_once(store):
  examples = streams.StreamExamples(store, LENGTH, held_out=False)
  numbers = np.arange(examples.num_windows)
  batch = examples.batch(numbers, numbers.astype(np.uint64))
  mask = np.ones(len(numbers), bool)
  mask[-1] = False
  made = transforms.next_tokens(batch | {'example_mask': mask}, length=LENGTH)
  weights = np.asarray(made['loss_weights'])
  assert not weights[-1].any()
  targets = np.asarray(made['targets'])[:-1][weights[:-1] > 0]
  documents = documents_of(store, False)
  first_of_last = documents[-1][(len(documents[-1]) - 1) // LENGTH * LENGTH]
  expected = [t for d in documents for t in d[1:] if t <= first_of_last]
  assert targets.tolist() == expected
  # A target is the next token, and no padding is an input.
  tokens = np.asarray(made['tokens'])
  assert (targets == tokens[:-1][weights[:-1] > 0] + 1).all()
  token_mask = np.asarray(made['token_mask'])
  assert (token_mask.sum(1) == np.minimum(batch['lengths'], LENGTH)).all()
  assert not tokens[~token_mask].any()


@pytest.mark.parametrize('end_of_text', [None, END])
def test_batches_fit_their_shapes(store, end_of_text):
  examples = {
    LENGTH: streams.StreamExamples(
      store, LENGTH, held_out=False, end_of_text=end_of_text
    )
  }
  phases = ((5, LENGTH, 8, 'continue'),)
  batch = pipeline.train_batch(examples, phases, 0, 0)
  shapes = streams.batch_shapes(LENGTH, 8)
  assert {
    name: jax.ShapeDtypeStruct(array.shape, array.dtype)
    for name, array in batch.items()
  } == shapes
  parts = [
    pipeline.train_batch(examples, phases, 0, 0, slice(first, first + 4))
    for first in (0, 4)
  ]
  for name, array in batch.items():
    np.testing.assert_array_equal(
      np.concatenate([part[name] for part in parts]), array
    )


def test_a_split_without_a_prediction_is_refused(tmp_path):
  store = make_store(tmp_path, [[1], [5, 3]], [True, False])
  streams.StreamExamples(store, LENGTH, held_out=False)
  with pytest.raises(ValueError, match='no held-out document of two tokens'):
    streams.StreamExamples(store, LENGTH, held_out=True)
