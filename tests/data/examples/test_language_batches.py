"""Batches of several languages."""

import numpy as np
import pytest
from window_stores import draw_sizes, make_store

from data.examples import pairs, pipeline, streams

LENGTH = 32
END_OF_TEXT = 10**6
BOUNDS = [0, 60, 80, 92]  # of three languages, in documents
PHASES = ((1000, LENGTH, 16, 'continue'),)


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  held_out = [number % 4 == 0 for number in range(BOUNDS[-1])]
  return make_store(
    tmp_path_factory.mktemp('store'),
    draw_sizes(0, BOUNDS[-1]),
    held_out,
    language_bounds=BOUNDS,
  )


@pytest.fixture(scope='module', params=['pairs', 'streams', 'one stream'])
def kind(request):
  """Returns a function (store, **options) -> examples of a kind."""
  if request.param == 'pairs':
    return lambda store, **options: pairs.PairExamples(store, LENGTH, **options)
  end = {'end_of_text': END_OF_TEXT} if request.param == 'one stream' else {}
  return lambda store, **options: streams.StreamExamples(
    store, LENGTH, **options, **end
  )


def languages_of(store, batch):
  """Returns the language of each row by its first token, which is its place."""
  first, second = batch['window'][:, :2].T
  document = np.searchsorted(
    store.sentences[store.documents],
    np.where(first == END_OF_TEXT, second, first),
    side='right',
  )
  return np.searchsorted(BOUNDS, document - 1, side='right') - 1


def join(batches):
  batches = list(batches)
  return {
    name: np.concatenate([batch[name] for batch in batches])
    for name in batches[0]
  }


def test_each_language_has_its_share_and_its_epochs(store, kind):
  examples = kind(store, held_out=False, language_exponent=0.7)
  table = examples.describe_languages()
  assert list(table) == ['l0', 'l1', 'l2']
  windows = np.array([size for size, _ in table.values()])
  assert windows.sum() == examples.num_windows
  shares = (windows / windows.sum()) ** 0.7
  shares /= shares.sum()
  np.testing.assert_allclose([s for _, s in table.values()], shares)
  batch = join(
    pipeline.train_batch({LENGTH: examples}, PHASES, 5, step)
    for step in range(200)
  )
  language = languages_of(store, batch)
  for number in range(3):
    firsts = [(*row,) for row in batch['window'][language == number, :2]]
    assert abs(len(firsts) - 3200 * shares[number]) < 2
    size = windows[number]
    epochs = [firsts[at : at + size] for at in range(0, len(firsts), size)]
    assert len(epochs) > 2
    for epoch in epochs[:-1]:
      assert len(set(epoch)) == size
    assert epochs[0] != epochs[1]
    assert set(epochs[0]) == set(epochs[1])


def test_batches_are_pure_functions_of_the_step(store, kind):
  """A restart and any number of processes see the same."""
  examples = kind(store, held_out=False)
  for step in (0, 3, 77):
    whole = pipeline.train_batch({LENGTH: examples}, PHASES, 5, step)
    for processes in (1, 2, 4):
      fresh = kind(store, held_out=False)
      rows = 16 // processes
      joined = join(
        pipeline.train_batch(
          {LENGTH: fresh}, PHASES, 5, step, slice(n * rows, (n + 1) * rows)
        )
        for n in range(processes)
      )
      for name in whole:
        assert np.array_equal(joined[name], whole[name])


def test_pairs_stay_inside_a_language(store):
  for held_out in (False, True):
    examples = pairs.PairExamples(store, LENGTH, held_out=held_out)
    numbers = np.repeat(np.arange(examples.num_windows), 50)
    draws = np.random.default_rng(0).integers(0, 2**64, len(numbers), np.uint64)
    document = examples._windows['document']
    one = document[numbers]
    other = document[examples.partners(numbers, draws)]
    assert (one != other).all()
    one, other = (
      np.searchsorted(BOUNDS, each, side='right') for each in (one, other)
    )
    assert np.array_equal(one, other)
    assert set(one) == {1, 2, 3}
  # Every other document of a small language is drawn.
  size = examples.num_windows
  last = np.full(4000, size - 1)
  draws = np.random.default_rng(1).integers(0, 2**64, 4000, np.uint64)
  expected = set(document[document >= BOUNDS[2]]) - {document[-1]}
  assert set(document[examples.partners(last, draws)]) == expected


def test_evaluation_of_each_language(store, kind):
  examples = kind(store, held_out=True)
  whole = join(pipeline.eval_batches(examples, 8, 10**6))
  ids = []
  for number, (size, _) in enumerate(examples.describe_languages().values()):
    batch = join(pipeline.eval_batches(examples, 8, 10**6, language=number))
    mask = batch['example_mask']
    assert mask.sum() == size
    assert (languages_of(store, batch)[mask] == number).all()
    ids += batch['example_ids'][mask].tolist()
    for name in ('window', 'other_window') if 'other_window' in batch else ():
      rows = whole[name][batch['example_ids'][mask]]
      assert np.array_equal(rows, batch[name][mask])
    (few,) = pipeline.eval_batches(examples, 8, 3, 2, language=number)
    assert few['example_mask'].sum() == 6
  assert ids == list(range(examples.num_windows))


def test_too_little_text_of_a_language(store, kind, tmp_path):
  examples = kind(store, held_out=False)
  examples.check_text(16)
  (size, share) = examples.describe_languages()['l2']
  rows = int(size / share) + 2
  with pytest.raises(ValueError, match=rf"'l2' has {size} training windows of"):
    examples.check_text(rows)
  names = {'held_out': 'held-out', '': 'training'}
  for split, name in names.items():
    flags = [number % 4 == 0 for number in range(BOUNDS[-1])]
    flags[BOUNDS[1] : BOUNDS[2]] = [not split] * (BOUNDS[2] - BOUNDS[1])
    short = make_store(
      tmp_path / name,
      draw_sizes(0, BOUNDS[-1]),
      flags,
      language_bounds=BOUNDS,
    )
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=f"{name} document.*language 'l1'"):
      kind(short, held_out=bool(split))
