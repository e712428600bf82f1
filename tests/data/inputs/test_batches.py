"""Batches: every example once an epoch, whoever makes which rows."""

import collections
import dataclasses
import itertools
import time

import numpy as np
import pytest

from data.inputs import batches
from data.inputs.features import Features, flatten


def features_of(count, num_rows=1, longest=60, kind='classification', seed=0):
  """Features whose tokens tell which row they are of: row, row, ..."""
  rng = np.random.default_rng(seed)
  lengths = rng.integers(3, longest + 1, count * num_rows)
  tokens, offsets = flatten(
    [(np.full(n, row + 1, np.int32),) for row, n in enumerate(lengths)]
  )
  labels = {
    'classification': np.arange(count, dtype=np.int32) % 7,
    'regression': np.arange(count, dtype=np.float32) / 8,
    'choice': np.arange(count, dtype=np.int32) % num_rows,
    'tagging': tokens * 2,
    'span': np.stack([np.arange(count, dtype=np.int32)] * 2, axis=1),
  }
  return Features(
    num_rows,
    tokens,
    offsets,
    np.minimum(lengths, 2).astype(np.int32),
    labels[kind],
    np.arange(count) % 5 > 0,
    np.arange(count, dtype=np.int32),
    word_index=tokens if kind == 'tagging' else None,
  )


def make(features, **options):
  options = {'pad_id': 0, 'max_length': 64} | options
  return batches.Batches(features, **options)


ALL = slice(None)


def numbers_of(batch):
  """Which features a batch of one row an example has."""
  return (batch['tokens'].reshape(len(batch['last']), -1)[:, 0] - 1).tolist()


@pytest.mark.parametrize('bucket', [True, False])
@pytest.mark.parametrize('count,size', [(1000, 8), (317, 12), (5, 8)])
def test_every_example_once_an_epoch(count, size, bucket):
  made = make(features_of(count), bucket=bucket)
  steps = -(-3 * count // size)
  seen, ids = [], []
  for step in range(steps):
    batch = made.train_batch(step, ALL, size, 3, steps)
    seen += zip(batch['example_ids'].tolist(), numbers_of(batch), strict=True)
  ids, seen = zip(*sorted(seen), strict=True)
  assert ids == tuple(range(steps * size))
  orders = [seen[epoch * count : (epoch + 1) * count] for epoch in range(3)]
  for order in orders:
    assert sorted(order) == list(range(count))
  assert count < 10 or orders[0] != orders[1]
  other = make(features_of(count), bucket=bucket)
  assert numbers_of(other.train_batch(0, ALL, size, 4, steps)) != numbers_of(
    other.train_batch(0, ALL, size, 3, steps)
  )


@pytest.mark.parametrize('bucket', [True, False])
def test_batches_are_functions_of_the_step(bucket):
  features = features_of(900, num_rows=2, kind='choice')
  one, other = (make(features, bucket=bucket) for _ in range(2))
  steps = list(range(0, 120, 7))
  forward = [one.train_batch(step, ALL, 16, 1, 120) for step in steps]
  backward = [
    other.train_batch(step, ALL, 16, 1, 120) for step in reversed(steps)
  ]
  for a, b in zip(forward, reversed(backward), strict=True):
    assert a.keys() == b.keys()
    for name in a:
      np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.parametrize('split', ['slices', 'strides'])
def test_hosts_make_rows_of_the_same_batch(split):
  made = make(features_of(500))
  parts = [slice(first, first + 4) for first in range(0, 16, 4)]
  if split == 'strides':
    parts = [np.arange(first, 16, 4) for first in range(4)]
  order = np.concatenate([np.arange(16)[part] for part in parts])

  def check(whole, hosts):
    for name in whole:
      joined = np.concatenate([host[name] for host in hosts])
      np.testing.assert_array_equal(joined, whole[name][order])

  for step in (0, 30, 59):
    whole = made.train_batch(step, ALL, 16, 0, 60)
    check(whole, [made.train_batch(step, p, 16, 0, 60) for p in parts])
  for whole, *hosts in zip(
    made.eval_batches(16),
    *(made.eval_batches(16, part) for part in parts),
    strict=True,
  ):
    check(whole, hosts)


@pytest.mark.parametrize('kind', ['classification', 'regression', 'span'])
def test_a_batch_holds_its_features(kind):
  features = features_of(50, kind=kind)
  batch = make(features, pad_id=99).train_batch(2, ALL, 8, 0, 20)
  length = batch['tokens'].shape[1]
  assert length in batches.LENGTHS
  for row, number in enumerate(numbers_of(batch)):
    size = features.lengths[number]
    assert batch['tokens'][row].tolist() == [number + 1] * size + [99] * (
      length - size
    )
    assert batch['token_mask'][row].tolist() == [
      place < size for place in range(length)
    ]
    assert batch['token_types'][row].tolist() == [
      int(2 <= place < size) for place in range(length)
    ]
    assert batch['positions'][row].tolist() == list(range(length))
    assert batch['last'][row] == size - 1
    np.testing.assert_array_equal(batch['labels'][row], features.labels[number])
    assert batch['label_mask'][row] == features.label_mask[number]
  assert batch['example_mask'].all()
  dtypes = {name: str(array.dtype) for name, array in batch.items()}
  assert dtypes == {
    'tokens': 'int32',
    'token_mask': 'bool',
    'token_types': 'int32',
    'positions': 'int32',
    'last': 'int32',
    'labels': 'float32' if kind == 'regression' else 'int32',
    'label_mask': 'bool',
    'example_ids': 'int32',
    'example_mask': 'bool',
  }


def test_rows_of_choices_and_tags_of_words():
  features = features_of(40, num_rows=3, kind='choice')
  batch = make(features).train_batch(1, ALL, 8, 0, 20)
  length = batch['tokens'].shape[2]
  assert batch['tokens'].shape == batch['positions'].shape == (8, 3, length)
  for row in range(8):
    number = int(batch['tokens'][row, 0, 0] - 1) // 3
    for choice in range(3):
      place = features.place(number, choice)
      size = place.stop - place.start
      mask = batch['token_mask'][row, choice]
      assert mask.sum() == size == batch['last'][row, choice] + 1
      assert (
        batch['tokens'][row, choice][mask] == 3 * number + choice + 1
      ).all()
    assert batch['labels'][row] == features.labels[number]
  features = features_of(40, kind='tagging')
  batch = make(features).train_batch(1, ALL, 8, 0, 20)
  expected = np.where(batch['token_mask'], 2 * batch['tokens'], -1)
  np.testing.assert_array_equal(batch['labels'], expected)


def test_token_types_of_their_own():
  features = features_of(40, num_rows=2, kind='choice')
  drawn = np.random.default_rng(0).integers(2, size=len(features.tokens))
  features = dataclasses.replace(features, token_types=drawn.astype(np.int8))
  batch = make(features).train_batch(1, ALL, 8, 0, 20)
  assert batch['token_types'].dtype == np.int32
  assert not batch['token_types'][~batch['token_mask']].any()
  for i in range(8):
    for row in range(2):
      number = int(batch['tokens'][i, row, 0] - 1)
      mask = batch['token_mask'][i, row]
      expected = drawn[features.place(number // 2, number % 2)]
      np.testing.assert_array_equal(
        batch['token_types'][i, row][mask], expected
      )


def test_rows_of_a_table_and_vectors_of_words():
  features = features_of(6, num_rows=2, longest=9)
  table_rows = np.arange(13, dtype=np.int32) * 3 + 1
  # Each vector holds its word's place among the words of all rows.
  vectors = np.arange(features.offsets[-1]) + np.zeros((3, 2, 1))
  vectors = vectors.transpose(2, 0, 1).astype(np.float16)
  inputs = batches.WordInputs(table_rows, vectors, features.offsets[:-1])
  made = make(features, inputs=inputs)
  for batch in made.eval_batches(4):
    assert batch['vectors'].shape == (*batch['tokens'].shape, 3, 2)
    for i, number in enumerate(batch['example_ids']):
      for row in range(2):
        place = features.place(number, row)
        mask = batch['token_mask'][i, row]
        np.testing.assert_array_equal(
          batch['tokens'][i, row][mask], table_rows[features.tokens[place]]
        )
        np.testing.assert_array_equal(
          batch['vectors'][i, row][mask], vectors[place]
        )
        assert not batch['tokens'][i, row][~mask].any()
        assert not batch['vectors'][i, row][~mask].any()


def test_lengths_are_alike_in_a_batch():
  features = features_of(4000, longest=128)
  made = make(features, max_length=128)
  shapes, real, padded = collections.Counter(), 0, 0
  for step in range(125):
    batch = made.train_batch(step, ALL, 32, 0, 125)
    shapes[batch['tokens'].shape[1]] += 1
    real += batch['token_mask'].sum()
    padded += batch['token_mask'].size
  assert set(shapes) <= {8, 12, 16, 24, 32, 48, 64, 96, 128}
  assert real / padded > 0.8
  # Long and short ones follow each other by chance.
  firsts = [
    made.train_batch(step, ALL, 32, 0, 125)['tokens'].shape[1]
    for step in range(10)
  ]
  assert firsts != sorted(firsts) and len(set(firsts)) > 2
  fixed = make(features, max_length=128, bucket=False)
  assert fixed.train_batch(0, ALL, 32, 0, 9)['tokens'].shape == (32, 128)
  assert next(make(features_of(9), max_length=60).eval_batches(4))[
    'tokens'
  ].shape == (4, 60)


def test_rows_of_words_have_less_padding():
  features = features_of(400)
  widths, cells = [], []
  for lengths in (batches.LENGTHS, batches.WORD_LENGTHS):
    made = make(features, lengths=lengths)
    found = [
      made.train_batch(i, ALL, 8, 0, 50)['token_mask'] for i in range(50)
    ]
    assert {x.shape[1] for x in found} <= set(lengths)
    assert made.eval_lengths(8) <= set(lengths)
    widths.append({x.shape[1] for x in found})
    cells.append(sum(x.size for x in found))
    assert sum(x.sum() for x in found) == len(features.tokens)
  assert cells[1] < cells[0] and {20, 28, 40, 56} <= widths[1] - widths[0]


@pytest.mark.parametrize('bucket', [True, False])
def test_lengths_are_known_beforehand(bucket):
  made = make(features_of(300), bucket=bucket)
  first = {}
  for step in range(40):
    length = made.train_batch(step, ALL, 16, 3, 40)['tokens'].shape[1]
    first.setdefault(length, step)
  assert made.train_lengths(16, 3, 40) == first
  scored = {batch['tokens'].shape[1] for batch in made.eval_batches(16)}
  assert made.eval_lengths(16) == scored
  first, longest = next(made.eval_batches(16)), made.longest_batch(16)
  assert {name: (a.shape, a.dtype) for name, a in longest.items()} == {
    name: (a.shape, a.dtype) for name, a in first.items()
  }


@pytest.mark.parametrize('count', [64, 70, 200])
def test_epochs_of_a_small_set_do_not_meet_in_a_batch(count):
  made = make(features_of(count))
  for step in range(100):
    batch = made.train_batch(step, ALL, 16, 0, 100)
    if step * 16 // count == (step * 16 + 15) // count:  # of one epoch
      assert len(set(numbers_of(batch))) == 16
      epochs = set(batch['example_ids'] // count)
      assert epochs == {step * 16 // count}


@pytest.mark.parametrize('count,size', [(100, 16), (3, 8), (32, 16)])
def test_evaluation_has_everything_once(count, size):
  features = features_of(count)
  found = list(make(features).eval_batches(size))
  assert len(found) == -(-count // size)
  ids = []
  for batch in found:
    assert batch['tokens'].shape[0] == size
    assert numbers_of(batch) == batch['example_ids'].tolist()
    assert not (batch['label_mask'] & ~batch['example_mask']).any()
    ids += batch['example_ids'][batch['example_mask']].tolist()
  assert sorted(ids) == list(range(count))
  lengths = [features.lengths[i] for i in ids]
  assert lengths == sorted(lengths, reverse=True)


def test_refusals():
  features = features_of(10)
  with pytest.raises(ValueError, match='tokens, max_length is 32'):
    make(features, max_length=32)
  with pytest.raises(ValueError, match='no examples'):
    make(features_of(0))
  with pytest.raises(ValueError, match=r'step 9: the run has steps 0\.\.8'):
    make(features).train_batch(9, ALL, 2, 0, 9)


def test_a_batch_is_made_in_two_milliseconds():
  made = make(features_of(20_000, longest=128), max_length=128)
  best = np.inf
  for first in itertools.accumulate([0, 60, 60]):
    began = time.perf_counter()
    for step in range(first, first + 60):
      made.train_batch(step, ALL, 32, 0, 180)
    best = min(best, (time.perf_counter() - began) / 60)
  assert best < 2e-3


def test_label_masks_of_features_are_kept():
  features = features_of(10)
  hidden = dataclasses.replace(features, label_mask=np.zeros(10, bool))
  for batch in make(hidden).eval_batches(4):
    assert not batch['label_mask'].any()
