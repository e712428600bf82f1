"""GloVe from a store to vectors: runs, restarts, devices, errors."""

import json
import shutil

import jax
import numpy as np
import pytest
import runs
from word2vec_runs import (
  kill_and_resume,
  make_store,
  results_of,
  run_steps,
  small_config,
)

from data.examples import sampled_words
from data.store import corpus
from data.vocabulary import word_vectors
from train.architectures import families
from train.params import convert, opened
from train.run import checkpoint, settings


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  return make_store(tmp_path_factory.mktemp('store'))


def glove_config(store, **overrides):
  return small_config(store, 'glove_novels', **overrides)


@pytest.fixture(scope='module')
def finished(store, tmp_path_factory):
  """The workdir of an uninterrupted run."""
  workdir = tmp_path_factory.mktemp('finished')
  runs.train(glove_config(store, objective__classes=5), workdir)
  return workdir


@pytest.mark.usefixtures('one_device')
def test_a_run_writes_sums_of_both_vectors(store, finished):
  found = corpus.open_store(store)
  counts = sampled_words.word_counts(found, 2)
  params = opened.open_weights(finished).load()
  tables = [np.asarray(params[k]['embedding']) for k in ('input', 'output')]
  for name in ('vectors.txt', 'vectors.bin'):
    pieces = found.tokenizer.pieces
    vectors = word_vectors.read(finished / name, list(pieces))
    numbers = [pieces.index(word) for word in vectors.words]
    assert sorted(numbers) == np.flatnonzero(counts).tolist()
    assert (np.diff(counts[numbers]) <= 0).all()
    np.testing.assert_array_equal(
      vectors.vectors, sum(table[numbers, :16] for table in tables)
    )
  assert len((finished / 'classes.txt').read_text().split()) == 2 * len(numbers)
  assert 0 < results_of(finished)['metrics']['eval/entry_loss'] < 10


@pytest.mark.usefixtures('one_device')
def test_a_killed_run_ends_with_the_same_bits(store, finished, tmp_path):
  config = glove_config(store, objective__classes=5)
  kill_and_resume(config, tmp_path / 'run')
  old, new = results_of(finished), results_of(tmp_path / 'run')
  for key in ('state_sha256', 'optimizer_sha256'):
    assert new[key] == old[key]
  for name in ('vectors.txt', 'vectors.bin', 'classes.txt'):
    one, other = ((w / name).read_bytes() for w in (finished, tmp_path / 'run'))
    assert one == other
  shutil.rmtree(tmp_path / 'run')


@pytest.mark.parametrize('updates', [2, 8])
def test_shards_of_rows_and_entries_change_nothing(store, updates):
  """An update has a row for each device, or one that all compute."""
  config = glove_config(store, objective__updates=updates)
  expected, reports = run_steps(config, 2)
  sharded = settings.with_overrides(
    config, {'mesh.data': 2, 'mesh.fsdp': 2, 'mesh.tensor': 2}
  )
  found, others = run_steps(sharded, 2, jax.devices())
  for one, other in zip(
    *(jax.tree.leaves((s.params, s.opt_state)) for s in (expected, found)),
    strict=True,
  ):
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)
  assert others[-1]['loss'] == pytest.approx(reports[-1]['loss'], rel=1e-5)
  for leaf in jax.tree.leaves(expected.opt_state):
    assert (leaf >= 1).all()
    assert leaf.max() > 1.001


def test_frequent_words_do_not_overshoot(store):
  """Each of 300 words comes about 10 times in an update."""
  config = glove_config(store, train__phases=((40, 64, 128, 'continue'),))
  _, reports = run_steps(config, 40)
  losses = [float(report['loss']) for report in reports]
  assert np.mean(losses[-4:]) < 0.6 * np.mean(losses[:4])


def test_an_update_that_is_not_finite_changes_nothing(store):
  state, reports = run_steps(glove_config(store, optim__learning_rate=1e30), 3)
  assert reports[-1]['nonfinite_step'] in (0, 1, 2)
  for table in jax.tree.leaves(state.params):
    assert np.isfinite(table).all()


@pytest.mark.parametrize(
  ('overrides', 'message'),
  [
    ({'objective.window': 0}, 'objective.window=0: expected 1 to 1000'),
    ({'objective.alpha': -1.0}, 'objective.alpha=-1.0: expected 0 or more'),
    ({'objective.x_max': 0.0}, 'objective.x_max=0.0: expected a positive num'),
    ({'train.objective': 'skipgram'}, "is trained with 'glove'"),
    (
      {'train.phases': ((1, 64, 128, 'continue', 'word'),)},
      "has the unit 'word', but train.objective='glove' of",
    ),
  ],
)
def test_wrong_keys_are_refused(overrides, message):
  config = settings.load_config('glove_novels')
  with pytest.raises(ValueError, match=message):
    families.check_config(settings.with_overrides(config, overrides))


def test_a_store_of_pieces_is_refused(small_store, tmp_path):
  with pytest.raises(ValueError, match='is not a store of whole words'):
    runs.train(glove_config(small_store), tmp_path / 'run')


@pytest.mark.usefixtures('one_device')
def test_weights_open_and_begin_another_run(store, finished, tmp_path):
  found = opened.open_weights(finished)
  found.check_complete()
  assert found.name == 'glove'
  assert found.model.embed_dim == 16
  config = glove_config(
    store,
    init__weights=str(finished),
    train__steps=1,
    optim__learning_rate=0.0,
  )
  runs.train(config, tmp_path / 'run')
  one, other = (opened.open_weights(w) for w in (finished, tmp_path / 'run'))
  for old, new in zip(
    *map(jax.tree.leaves, (one.load(), other.load())), strict=True
  ):
    np.testing.assert_array_equal(old, new)
  assert '--config.model.embed_dim=16' in convert.inspect(finished)['overrides']
  assert checkpoint.latest_step(tmp_path / 'run') is not None


@pytest.mark.usefixtures('one_device')
def test_analogies_read_the_vectors_of_a_run(finished, tmp_path, run_command):
  from train import analogies

  lines = (finished / 'vectors.txt').read_text().splitlines()[1:9]
  names = [line.split()[0] for line in lines]
  (tmp_path / 'pairs.txt').write_text(
    ''.join(f'{names[i]}\t{names[i + 1]}\t{i}\n' for i in range(6))
  )
  pairs = '--word_pairs', 'pairs.txt', '--json'
  figures = [
    json.loads(run_command(analogies, name, *pairs).out)['vectors'][0]['layers']
    for name in (finished, finished / 'vectors.txt')
  ]
  assert figures[0] == figures[1]
