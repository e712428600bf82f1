"""Rows packed with whole documents or sentences, and parts of long ones."""

import itertools
import types

import jax
import numpy as np
import pytest
from window_stores import draw_sizes, make_store

from data.examples import packing, pipeline, streams

LENGTH = 16
END = 999_999
CLS, SEP, PAD = 777_001, 777_002, 777_003


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  held_out = [number % 5 == 0 for number in range(60)]
  sizes = draw_sizes(1, 60, mean_sentences=3, mean_size=4)
  sizes[1], sizes[2], sizes[3] = [LENGTH + 1], [LENGTH], [1]
  sizes[4] = []  # a document without text
  sizes[6] = [5 * LENGTH + 3]
  store = make_store(tmp_path_factory.mktemp('store'), sizes, held_out)
  store.tokenizer = types.SimpleNamespace(cls_id=CLS, sep_id=SEP, pad_id=PAD)
  return store


def texts_in(store, held_out, texts='documents'):
  """Returns the tokens of each text of a split, as lists."""
  found = []
  for document in np.flatnonzero(store.held_out == held_out):
    first, last = store.documents[document : document + 2]
    bounds = store.sentences[first : last + 1]
    if texts == 'documents':
      bounds = bounds[[0, -1]]
    found += [
      store.tokens[begin:end].tolist()
      for begin, end in itertools.pairwise(bounds)
    ]
  return found


def texts_of(batch, *names):
  """Returns of each text its numbers in some arrays, without padding."""
  found = []
  for row, texts in enumerate(batch['texts']):
    assert (np.diff(texts[texts > 0]) >= 0).all() and texts[0] == 1
    assert not texts[np.flatnonzero(texts)[-1] + 1 :].any()
    for text in range(1, texts.max() + 1):
      own = texts == text
      found.append([batch[name][row][own].tolist() for name in names])
  return found


def every(examples):
  numbers = np.arange(examples.num_windows)
  return examples.batch(numbers, numbers.astype(np.uint64))


@pytest.mark.parametrize('texts', ['documents', 'sentences'])
@pytest.mark.parametrize('held_out', [False, True])
def test_masked_texts_are_whole_or_parts_that_fill_a_row(
  store, held_out, texts
):
  examples = packing.FramedRows(store, LENGTH, held_out=held_out, texts=texts)
  batch = every(examples)
  found = sorted(tokens for (tokens,) in texts_of(batch, 'tokens'))
  expected = sorted(
    [CLS, *text[first : first + LENGTH - 2], SEP]
    for text in texts_in(store, held_out, texts)
    for first in range(0, len(text), LENGTH - 2)
  )
  assert found == expected
  assert examples.num_parts == len(expected)
  assert (batch['tokens'][batch['texts'] == 0] == PAD).all()
  real = (batch['texts'] > 0).mean()
  assert examples.real_share == pytest.approx(real)
  assert real > {'documents': 0.93, 'sentences': 0.85}[texts]
  told = examples.describe_rows()
  assert f'{real:.2%} of the places' in told and f' {texts} or parts' in told


def test_units_are_marked_in_the_text_alone(store):
  begins = np.arange(len(store.tokens)) % 3 == 0
  units = np.packbits(begins, bitorder='little')
  marked = types.SimpleNamespace(**vars(store), units=units)
  batch = every(packing.FramedRows(marked, LENGTH, held_out=False, units=True))
  plain = every(packing.FramedRows(store, LENGTH, held_out=False))
  made = jax.device_get(
    packing.read_framed(
      batch | {'example_mask': np.ones(len(batch['texts']), bool)},
      known=lambda ids: ids,
      units=True,
    )
  )
  np.testing.assert_array_equal(made['tokens'], plain['tokens'])
  is_text = made['token_mask'] & ~np.isin(made['tokens'], (CLS, SEP))
  np.testing.assert_array_equal(
    made['unit_starts'], is_text & (made['tokens'] % 3 == 0)
  )


@pytest.mark.parametrize('texts', ['documents', 'sentences'])
def test_each_token_but_the_first_is_predicted_once(store, texts):
  batch = every(
    packing.NextTokenRows(store, LENGTH, held_out=False, texts=texts)
  )
  found = sorted(texts_of(batch, 'tokens', 'targets'))
  expected = sorted(
    [text[:-1][first : first + LENGTH], text[1:][first : first + LENGTH]]
    for text in texts_in(store, False, texts)
    for first in range(0, len(text) - 1, LENGTH)
  )
  assert found == expected


@pytest.mark.parametrize('texts', ['documents', 'sentences'])
def test_ends_of_text_stand_before_and_after_each_text(store, texts):
  batch = every(
    packing.NextTokenRows(
      store, LENGTH, held_out=False, end_of_text=END, texts=texts
    )
  )
  found = sorted(texts_of(batch, 'tokens', 'targets'))
  expected = []
  for text in filter(None, texts_in(store, False, texts)):
    ended = [END, *text, END]
    expected += [
      [
        ended[:-1][first : first + LENGTH],
        ended[1:][first : first + LENGTH],
      ]
      for first in range(0, len(ended) - 1, LENGTH)
    ]
  assert found == sorted(expected)


@pytest.mark.parametrize('end_of_text', [None, END])
def test_targets_are_those_of_rows_that_are_not_packed(store, end_of_text):
  """In the same windows, unless the documents are one stream (GPT-2)."""
  options = dict(held_out=True, end_of_text=end_of_text)
  found = texts_of(
    every(packing.NextTokenRows(store, LENGTH, **options)), 'tokens', 'targets'
  )
  batch = every(streams.StreamExamples(store, LENGTH, **options))
  expected = [
    [window[: size - 1].tolist(), window[1:size].tolist()]
    for window, size in zip(batch['window'], batch['lengths'], strict=True)
  ]
  targets, same = (
    sorted(itertools.chain.from_iterable(targets for _, targets in windows))
    for windows in (found, expected)
  )
  if end_of_text is None:
    assert sorted(found) == sorted(expected)
  else:  # nothing stands before the first document of the stream
    same = sorted([*same, texts_in(store, True)[0][0]])
    assert not any(END in tokens[1:] for tokens, _ in found)
    assert any(END in tokens[1:] for tokens, _ in expected)
  assert targets == same


def best_fit(sizes, length):
  """Returns the sizes in each row, one after the other as the book has it."""
  rows = []
  for size in sorted(sizes, reverse=True):
    fits = [row for row in rows if sum(row) + size <= length]
    if fits:
      max(fits, key=sum).append(size)
    else:
      rows.append([size])
  return rows


@pytest.mark.parametrize('length', [1, 7, 16, 50])
def test_rows_are_those_of_best_fit(length):
  rng = np.random.default_rng(length)
  for count in (0, 1, 5, 300):
    sizes = rng.integers(1, length + 1, count)
    row = packing.pack(sizes, length)
    assert sorted(set(row)) == list(range(row.max() + 1 if count else 0))
    found = [sizes[row == number] for number in sorted(set(row))]
    assert all(sum(each) <= length for each in found)
    # Of rows equally full either may be taken, so that the rests differ.
    assert len(found) == len(best_fit(sizes.tolist(), length))


def test_books_fill_all_rows_but_their_last(tmp_path):
  store = make_store(tmp_path, [[1000], [1000], [1000]])
  examples = packing.NextTokenRows(store, LENGTH, held_out=False)
  assert examples.real_share > 0.99
  assert examples.num_windows == -(-3 * 999 // LENGTH)


def test_blocks_change_what_shares_a_row_but_not_the_texts(
  store, tmp_path, monkeypatch
):
  whole = packing.FramedRows(store, LENGTH, held_out=False)
  monkeypatch.setattr(packing, '_BLOCK', 7)
  other = types.SimpleNamespace(**vars(store) | {'folder': tmp_path})
  parts = packing.FramedRows(other, LENGTH, held_out=False)
  assert sorted(texts_of(every(parts), 'tokens')) == sorted(
    texts_of(every(whole), 'tokens')
  )
  assert parts.num_windows > whole.num_windows


@pytest.mark.parametrize('texts', ['documents', 'sentences'])
def test_languages_share_no_row(tmp_path, texts):
  sizes = draw_sizes(2, 40, mean_sentences=2, mean_size=4)
  store = make_store(tmp_path, sizes, language_bounds=[0, 10, 40])
  examples = packing.NextTokenRows(store, LENGTH, held_out=False, texts=texts)
  assert list(examples.describe_languages()) == ['l0', 'l1']
  border = store.sentences[store.documents[10]]
  batch = every(examples)
  first = batch['tokens'] < border
  real = batch['texts'] > 0
  rows = np.arange(len(first)) < examples.bounds[1]
  assert (first[real] == np.broadcast_to(rows[:, None], real.shape)[real]).all()


def test_a_split_without_a_row_is_refused(tmp_path):
  store = make_store(tmp_path, [[1], [5, 3]], [True, False])
  packing.NextTokenRows(store, LENGTH, held_out=False)
  for texts in ('documents', 'sentences'):
    expected = f'no held-out {texts[:-1]} of 2 or more tok'
    with pytest.raises(ValueError, match=expected):
      packing.NextTokenRows(store, LENGTH, held_out=True, texts=texts)


def test_batches_fit_their_shapes_and_are_sharded_by_rows(store):
  for examples, shapes_of in (
    (
      packing.FramedRows(store, LENGTH, held_out=False),
      packing.framed_shapes,
    ),
    (
      packing.NextTokenRows(store, LENGTH, held_out=False),
      packing.next_token_shapes,
    ),
  ):
    phases = ((50, LENGTH, 8, 'continue'),)
    batches = [
      pipeline.train_batch({LENGTH: examples}, phases, 0, 30, rows)
      for rows in (slice(None), slice(4), slice(4, 8))
    ]
    shapes = jax.tree.map(
      lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), batches[0]
    )
    assert shapes == shapes_of(LENGTH, 8)
    for name, array in batches[0].items():
      halves = [batch[name] for batch in batches[1:]]
      np.testing.assert_array_equal(np.concatenate(halves), array)


def test_positions_begin_again_with_each_text():
  texts = np.array([[1, 1, 1, 2, 3, 3, 0, 0], [1, 2, 2, 2, 2, 2, 2, 2]])
  expected = [[0, 1, 2, 0, 0, 1, 0, 1], [0, 0, 1, 2, 3, 4, 5, 6]]
  np.testing.assert_array_equal(jax.jit(packing.positions)(texts), expected)
