"""Windows, their order, host batches and what runs them ahead."""

import subprocess
import sys

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


def starts_of(batch):
  return batch['window'][:, 0].tolist()


def test_an_epoch_holds_every_window_once(examples):
  size = examples.num_windows
  steps = 3 * size // 16 + 1
  seen = []
  for step in range(steps):
    batch = pipeline.train_batch(
      {LENGTH: examples}, phases_of(16), seed=5, step=step
    )
    assert batch['example_ids'].tolist() == list(
      range(step * 16, step * 16 + 16)
    )
    assert batch['example_mask'].all()
    seen += starts_of(batch)
  everything = sorted(examples._windows['start'].tolist())
  epochs = [seen[epoch * size : (epoch + 1) * size] for epoch in range(3)]
  assert size % 16, 'a batch should straddle epochs'
  for epoch in epochs:
    assert sorted(epoch) == everything
  assert epochs[0] != epochs[1] != epochs[2]


def test_batches_are_pure_functions_of_the_step(store, examples):
  phases = phases_of(16)
  fresh = pairs.PairExamples(store, LENGTH, held_out=False)
  for step in (0, 7, 40):
    first, again = (
      pipeline.train_batch({LENGTH: each}, phases, 5, step)
      for each in (examples, fresh)
    )
    for name in first:
      assert np.array_equal(first[name], again[name])
  other = pipeline.train_batch({LENGTH: examples}, phases, 6, 7)
  this = pipeline.train_batch({LENGTH: examples}, phases, 5, 7)
  assert starts_of(other) != starts_of(this)


def test_rows_of_processes_join_to_the_batch(examples):
  for step in (0, 5, 9):
    whole = pipeline.train_batch({LENGTH: examples}, phases_of(24), 5, step)
    parts = [
      pipeline.train_batch(
        {LENGTH: examples}, phases_of(24), 5, step, slice(8 * n, 8 * n + 8)
      )
      for n in range(3)
    ]
    for name in whole:
      joined = np.concatenate([part[name] for part in parts])
      assert np.array_equal(joined, whole[name])


def test_example_order_does_not_depend_on_the_batch(examples):
  def texts(batch_size):
    batches = [
      pipeline.train_batch({LENGTH: examples}, phases_of(batch_size), 5, step)
      for step in range(48 // batch_size)
    ]
    return {
      name: np.concatenate([batch[name] for batch in batches])
      for name in batches[0]
    }

  one, two = texts(8), texts(24)
  for name in one:
    assert np.array_equal(one[name], two[name])


def test_phases(store, examples):
  longer = pairs.PairExamples(store, 64, held_out=False)
  splits = {LENGTH: examples, 64: longer}
  phases = (*phases_of(16, 3), (2, 64, 8, 'continue'), *phases_of(16, 3))
  batches = [pipeline.train_batch(splits, phases, 5, n) for n in range(8)]
  shapes = [batch['window'].shape for batch in batches]
  assert shapes == [(16, 36)] * 3 + [(8, 72)] * 2 + [(16, 36)] * 3
  # The second phase of the same length has an order of its own.
  assert starts_of(batches[0]) != starts_of(batches[5])
  assert batches[5]['example_ids'][0] == 0
  for step in (-1, 8):
    with pytest.raises(ValueError, match=rf'step {step}: .* steps 0\.\.7'):
      pipeline.train_batch(splits, phases, 5, step)


def test_too_few_examples(examples):
  size = examples.num_windows
  pipeline.train_batch({LENGTH: examples}, phases_of(size), 5, 0)
  with pytest.raises(ValueError, match=f'{size} training examples'):
    pipeline.train_batch({LENGTH: examples}, phases_of(size + 1), 5, 0)


def test_evaluation_covers_held_out_text_once(store):
  examples = pairs.PairExamples(store, LENGTH, held_out=True)
  size = examples.num_windows
  for batch_size in (1, 7, size, size + 3):
    batches = list(pipeline.eval_batches(examples, batch_size, 10**6))
    again = list(pipeline.eval_batches(examples, batch_size, 10**6))
    assert {len(batch['lengths']) for batch in batches} == {batch_size}
    joined = {
      name: np.concatenate([batch[name] for batch in batches])
      for name in batches[0]
    }
    mask = joined['example_mask']
    assert mask.sum() == size and mask[:size].all()
    assert joined['example_ids'][mask].tolist() == list(range(size))
    assert joined['lengths'].all()
    assert store.held_out[joined['document_ids']].all()
    assert store.held_out[joined['other_document_ids']].all()
    assert (joined['document_ids'] != joined['other_document_ids']).all()
    for one, two in zip(batches, again, strict=True):
      for name in one:
        assert np.array_equal(one[name], two[name])
    if batch_size == 1:
      partners = joined['other_window']
    assert np.array_equal(joined['other_window'][mask], partners)


def test_evaluation_of_a_part_and_of_one_process(store):
  examples = pairs.PairExamples(store, LENGTH, held_out=True)
  size = examples.num_windows
  count = size // 2
  batches = list(pipeline.eval_batches(examples, 4, count))
  ids = np.concatenate([b['example_ids'][b['example_mask']] for b in batches])
  assert len(set(ids.tolist())) == count
  assert ids[0] == 0 and ids[-1] >= size - 4
  assert set(np.diff(ids)) <= {2, 3}
  rows = list(pipeline.eval_batches(examples, 4, count, rows=slice(2, 4)))
  for whole, part in zip(batches, rows, strict=True):
    for name in whole:
      assert np.array_equal(whole[name][2:], part[name])


def test_evaluation_draws_a_window_several_times(store):
  examples = pairs.PairExamples(store, LENGTH, held_out=True)
  (once,) = pipeline.eval_batches(examples, 16, 5)
  (batch,) = pipeline.eval_batches(examples, 16, 5, 3)
  assert batch['example_mask'].sum() == 15
  for name in ('window', 'document_ids'):
    expected = np.repeat(once[name][:5], 3, axis=0)
    assert np.array_equal(batch[name][:15], expected)
  assert len(set(batch['example_ids'].tolist())) == 15
  partners = batch['other_window'][:15].reshape(5, 3, -1)
  assert any((p[0] != p[1]).any() or (p[0] != p[2]).any() for p in partners)


LOADERS = [pipeline.tf_batches, pipeline.plain_batches]


@pytest.mark.parametrize('loader', LOADERS)
def test_loaders_give_the_batches_in_order(store, examples, loader):
  splits = {
    LENGTH: examples,
    64: pairs.PairExamples(store, 64, held_out=False),
  }
  phases = (*phases_of(16, 20), (20, 64, 8, 'continue'))

  def make(step):
    return pipeline.train_batch(splits, phases, 5, step)

  with loader(make, 11, 35) as batches:
    steps = 11
    for batch in batches:
      expected = make(steps)
      assert list(batch) == list(expected)
      for name in batch:
        assert batch[name].dtype == expected[name].dtype
        assert np.array_equal(batch[name], expected[name])
      steps += 1
  assert steps == 35
  with loader(make, 3, 3) as batches:
    assert list(batches) == []


@pytest.mark.parametrize('loader', LOADERS)
def test_loaders_raise_what_went_wrong(loader):
  def make(step):
    if step >= 5:
      raise ValueError(f'nothing at step {step}')
    return {'step': np.array([step])}

  seen = []
  with pytest.raises(ValueError, match='^nothing at step 5$'):  # noqa: PT012
    with loader(make, 0, 10) as batches:
      for batch in batches:
        seen.append(int(batch['step'][0]))
  assert seen == [0, 1, 2, 3, 4]
  with pytest.raises(ValueError, match='^nothing at step 7$'):
    with loader(make, 7, 10) as batches:
      next(batches)


PROGRAM = """
import sys, time
import numpy as np
from data.examples import pipeline

def make(step):
  if step == 60 and sys.argv[2] == 'maker':
    raise ValueError('maker broke')
  time.sleep(0.001)
  return {'x': np.full((100, 100), step)}

with getattr(pipeline, sys.argv[1])(make, 0, 10**9) as batches:
  for n, batch in enumerate(batches):
    if n == 50 and sys.argv[2] == 'return':
      break
    if n == 50 and sys.argv[2] == 'interrupt':
      raise KeyboardInterrupt
if sys.argv[1] == 'plain_batches':
  assert 'tensorflow' not in sys.modules
"""


WAYS = ('return', 'maker', 'interrupt')


@pytest.mark.slow
def test_programs_end():
  children = {
    (loader, way): subprocess.Popen(
      [sys.executable, '-c', PROGRAM, loader, way],
      stderr=subprocess.PIPE,
      text=True,
    )
    for loader, way in (
      *(('tf_batches', way) for way in WAYS),
      ('plain_batches', 'return'),
    )
  }
  try:
    for (loader, way), child in children.items():
      _, errors = child.communicate(timeout=400)
      assert (child.returncode == 0) == (way == 'return'), errors
      last = errors.strip().splitlines()[-1:]
      expected = {
        'maker': ['ValueError: maker broke'],
        'interrupt': ['KeyboardInterrupt'],
      }
      if way != 'return':
        assert last == expected[way], (loader, errors)
  finally:
    for child in children.values():
      child.kill()
