"""Rows of endless text, against the text of whole epochs made naively."""

import itertools
import math
import threading
import types

import jax
import numpy as np
import pytest
from window_stores import draw_sizes, make_store

from data.examples import permutation, pipeline, word_streams
from data.vocabulary.words import SPECIALS, Words

LENGTH, ROWS, SEED = 7, 5, 3
PHASES = ((1000, LENGTH, ROWS, 'continue'),)
IDS = 'type_ids', 'targets', 'reverse_type_ids', 'reverse_targets'


def make_words_store(folder, sizes, held_out=None):
  """A store in which each word is of another type."""
  store = make_store(folder, sizes, held_out)
  store.tokens = (store.tokens + len(SPECIALS)).astype(np.uint16)
  pieces = (*SPECIALS, *(f'w{i}' for i in range(len(store.tokens))))
  store.tokenizer = Words(pieces, 20, 'spaces')
  return store


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  held_out = [number % 4 == 0 for number in range(12)]
  sizes = draw_sizes(4, 12, mean_sentences=4, mean_size=4)
  sizes[1] = []  # a document without text
  sizes[2] = [1, 3 * LENGTH]
  return make_words_store(tmp_path_factory.mktemp('store'), sizes, held_out)


@pytest.fixture(scope='module')
def examples(store):
  return word_streams.WordStreamExamples(store, LENGTH, held_out=False)


def sentences_of(store, held_out):
  return [
    store.tokens[store.sentences[s] : store.sentences[s + 1]].tolist()
    for document in np.flatnonzero(store.held_out == held_out)
    for s in range(*store.documents[document : document + 2])
  ]


def spell_out(sentences):
  """int [4, N]: what stands at each position, for inputs and targets."""
  columns = []
  for words in sentences:
    back = words[::-1]
    columns += zip(
      [0, *words], [*words, 1], [1, *back], [*back, 0], strict=True
    )
  return np.array(columns).T


def epoch_text(store, epoch, phase=0, seed=SEED):
  sentences = sentences_of(store, False)
  key = permutation.order_key(seed, phase, epoch)
  order = permutation.permute(np.arange(len(sentences)), len(sentences), key)
  return spell_out([sentences[number] for number in order])


def train_batch(examples, step, rows=pipeline.ALL_ROWS, phases=PHASES):
  return pipeline.train_batch(
    {phase[1]: examples for phase in phases}, phases, SEED, step, rows
  )


def assert_equal(found, expected):
  assert found.keys() == expected.keys()
  for name in found:
    np.testing.assert_array_equal(found[name], expected[name], name)


@pytest.mark.parametrize('block', [3, 1 << 20])
@pytest.mark.parametrize('length,rows', [(7, 5), (20, 3), (4, 1), (200, 2)])
def test_training_reads_the_text_of_each_epoch(
  store, length, rows, block, monkeypatch
):
  monkeypatch.setattr(word_streams, '_BLOCK', block)
  examples = word_streams.WordStreamExamples(store, length, held_out=False)
  size = spell_out(sentences_of(store, False)).shape[1]
  assert examples.num_windows == -(-size // length)
  share = -(-size // rows)
  texts = [epoch_text(store, epoch) for epoch in range(12)]
  assert not (texts[0] == texts[1]).all()
  straddled = 0
  for step in range(3 * share // length):
    batch = examples.train_batch(step, slice(None), rows, SEED, 0)
    for row, column in itertools.product(range(rows), range(length)):
      offset = step * length + column
      text = texts[offset // share]
      place = (row * size // rows + offset % share) % size
      found = [batch[name][row, column] for name in IDS]
      assert found == text[:, place].tolist(), (step, row, column)
    first, last = step * length // share, (step * length + length - 1) // share
    straddled += first < last
    assert batch['example_ids'].tolist() == list(
      range(step * rows, (step + 1) * rows)
    )
    assert batch['loss_weights'].all() and batch['example_mask'].all()
    table = store.tokenizer.characters
    for name in ('', 'reverse_'):
      np.testing.assert_array_equal(
        batch[f'{name}characters'], table[batch[f'{name}type_ids']]
      )
  assert straddled


def test_an_epoch_is_all_of_the_text_in_another_order(store, examples):
  size = spell_out(sentences_of(store, False)).shape[1]
  share = -(-size // ROWS)
  steps = -(-share // LENGTH)
  batches = [train_batch(examples, step) for step in range(steps)]
  expected = spell_out(sentences_of(store, False))
  for name, whole in zip(IDS, expected, strict=True):
    rows = np.concatenate([b[name] for b in batches], axis=1)[:, :share]
    # Row b and b + 1 share a position where shares are rounded up.
    found = np.concatenate(
      [
        row[: (b + 1) * size // ROWS - b * size // ROWS]
        for b, row in enumerate(rows)
      ]
    )
    assert sorted(found.tolist()) == sorted(whole.tolist())
    assert found.tolist() != whole.tolist()


def test_backward_sentences_are_the_forward_ones_reversed(store, examples):
  share = spell_out(sentences_of(store, False)).shape[1] // ROWS
  # At an epoch's end a row leaves its sentence.
  batches = [train_batch(examples, step) for step in range(share // LENGTH)]

  def cut(name, symbol):
    """The sentences that begin and end in a row."""
    for row in np.concatenate([batch[name] for batch in batches], axis=1):
      starts = np.flatnonzero(row == symbol).tolist()
      for a, b in itertools.pairwise(starts):
        yield row[a + 1 : b].tolist()

  forward = list(cut('type_ids', 0))
  backward = list(cut('reverse_type_ids', 1))
  assert len(forward) > 5
  assert [words[::-1] for words in backward] == forward


def test_any_step_and_any_rows_by_themselves(store, examples):
  phases = ((3, LENGTH, ROWS, 'continue'), (900, LENGTH, 8, 'continue'))
  for step in (0, 2, 3, 11, 400):
    whole = train_batch(examples, step, phases=phases)
    fresh = word_streams.WordStreamExamples(store, LENGTH, held_out=False)
    assert_equal(train_batch(fresh, step, phases=phases), whole)
    parts = [
      train_batch(fresh, step, rows, phases)
      for rows in (slice(0, 2), np.arange(2, len(whole['example_ids'])))
    ]
    joined = {name: np.concatenate([p[name] for p in parts]) for name in whole}
    assert_equal(joined, whole)
  first = train_batch(examples, 3, phases=phases)
  text = epoch_text(store, 0, phase=1)
  np.testing.assert_array_equal(first['type_ids'][0], text[0, :LENGTH])


def test_threads_make_the_same_batches(store):
  """Also where epochs change faster than they are kept."""
  expected = [
    train_batch(
      word_streams.WordStreamExamples(store, LENGTH, held_out=False), step
    )
    for step in range(40)
  ]
  examples = word_streams.WordStreamExamples(store, LENGTH, held_out=False)
  found = {}

  def work(steps):
    for step in steps:
      found[step] = train_batch(examples, step)

  threads = [
    threading.Thread(target=work, args=[range(k, 40, 4)]) for k in range(4)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert len(examples._starts) == word_streams._EPOCHS_KEPT
  for step, batch in enumerate(expected):
    assert_equal(found[step], batch)


@pytest.mark.parametrize('rows', [1, 3, 4, 1000])
def test_evaluation_scores_each_position_once(store, rows):
  examples = word_streams.WordStreamExamples(store, LENGTH, held_out=True)
  text = spell_out(sentences_of(store, True))
  size = text.shape[1]
  batches = list(pipeline.eval_batches(examples, rows, 10**6))
  assert len(batches) == math.ceil(math.ceil(size / rows) / LENGTH)
  for batch in batches:
    assert batch['example_ids'].tolist() == list(range(rows))
    np.testing.assert_array_equal(
      batch['example_mask'], batch['loss_weights'].any(axis=1)
    )
  weights = np.concatenate([b['loss_weights'] for b in batches], axis=1)
  assert weights.sum() == size
  for name, expected in zip(IDS, text, strict=True):
    ids = np.concatenate([b[name] for b in batches], axis=1)
    # Row by row, what counts is the text in its order.
    assert ids[weights > 0].tolist() == expected.tolist()
    assert (0 <= ids).all() and (ids < store.tokenizer.vocab_size).all()
  halves = [
    list(pipeline.eval_batches(examples, rows, 10**6, 1, part))
    for part in (slice(0, rows // 2), slice(rows // 2, rows))
  ]
  for batch, *parts in zip(batches, *halves, strict=True):
    joined = {name: np.concatenate([p[name] for p in parts]) for name in batch}
    assert_equal(joined, batch)


def test_evaluation_of_a_part(store):
  examples = word_streams.WordStreamExamples(store, LENGTH, held_out=True)
  whole = list(pipeline.eval_batches(examples, 2, 10**6))
  for most, expected in ((1, 1), (3, 1), (4, 2), (5, 2)):
    part = list(pipeline.eval_batches(examples, 2, most, 9))
    assert len(part) == expected < len(whole)
    for found, batch in zip(part, whole, strict=False):
      assert_equal(found, batch)


def test_counts_are_those_of_the_targets(store):
  size = store.tokenizer.softmax_size
  trained = [w for words in sentences_of(store, False) for w in words]
  counts = np.bincount(trained, minlength=store.tokenizer.vocab_size)
  whole = types.SimpleNamespace(**vars(store), counts=counts)
  targets = spell_out(sentences_of(store, False))[1]
  expected = np.bincount(np.where(targets < size, targets, 2), minlength=size)
  found = word_streams.token_counts(whole)
  assert found.dtype == np.int64 and found[2] > 0
  np.testing.assert_array_equal(found, expected)
  assert counts[2] == 0  # what was given is as it was


@pytest.mark.parametrize('loader', ['plain_batches', 'tf_batches'])
def test_batches_fit_their_shapes_in_either_loader(examples, loader):
  def make(step):
    return train_batch(examples, step)

  with getattr(pipeline, loader)(make, 0, 30) as batches:
    for step, batch in enumerate(batches):
      assert_equal(batch, make(step))
  assert step == 29
  assert {
    name: jax.ShapeDtypeStruct(array.shape, array.dtype)
    for name, array in batch.items()
  } == word_streams.batch_shapes(LENGTH, ROWS)


def test_unfit_stores_are_refused(store, tmp_path):
  none = make_words_store(tmp_path, [[5, 3], []], [False, True])
  word_streams.WordStreamExamples(none, LENGTH, held_out=False).check_text(1)
  with pytest.raises(ValueError, match=f'{tmp_path} has no held-out words'):
    word_streams.WordStreamExamples(none, LENGTH, held_out=True)
  store = types.SimpleNamespace(**vars(store))
  store.tokenizer = types.SimpleNamespace(description='WordPiece, cased')
  message = r'WordPiece, cased\): prepare .*--tokenizer train:words:N'
  for use in (
    word_streams.token_counts,
    lambda store: word_streams.WordStreamExamples(
      store, LENGTH, held_out=False
    ),
  ):
    with pytest.raises(ValueError, match=message):
      use(store)
