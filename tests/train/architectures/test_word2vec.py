"""word2vec from a store to vectors: runs, restarts, devices, errors."""

import argparse
import functools
import json
import shutil

import jax
import numpy as np
import pytest
import runs
from elmo_store import make_job
from word2vec_runs import (
  kill_and_resume,
  make_store,
  results_of,
  run_steps,
  small_config,
)

from configs.sections import task as task_section
from data.examples import sampled_words
from data.store import corpus
from data.tasks import registry
from data.vocabulary import word_vectors
from data.vocabulary.word2vec import ngrams
from train.architectures import families, word2vec
from train.language import beside
from train.params import convert, opened, warm_start
from train.run import settings
from train.transfer import encoders
from train.vectors import embedder
from train.views import attention_weights


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  return make_store(tmp_path_factory.mktemp('store'))


@pytest.fixture(scope='module')
def finished(store, tmp_path_factory):
  """The workdir of an uninterrupted run."""
  workdir = tmp_path_factory.mktemp('finished')
  runs.train(small_config(store, objective__classes=5), workdir)
  return workdir


@pytest.mark.usefixtures('one_device')
def test_a_run_writes_vectors_and_classes(store, finished):
  opened = corpus.open_store(store)
  counts = sampled_words.word_counts(opened, 2)
  words = [opened.tokenizer.pieces[i] for i in np.flatnonzero(counts)]
  found = [
    word_vectors.read(finished / name, words)
    for name in ('vectors.txt', 'vectors.bin')
  ]
  for vectors in found:
    assert set(vectors.words) == set(words)
    assert vectors.num_in_file == len(words)
    np.testing.assert_array_equal(vectors.vectors, found[0].vectors)
  by_count = [counts[opened.tokenizer.pieces.index(w)] for w in found[0].words]
  assert by_count == sorted(by_count, reverse=True)
  classes = dict(
    line.split() for line in (finished / 'classes.txt').read_text().splitlines()
  )
  assert classes.keys() == set(words)
  assert set(classes.values()) == {'0', '1', '2', '3', '4'}
  metrics = results_of(finished)['metrics']
  assert 0 < metrics['eval/pair_loss'] < 6 * np.log(2)  # of zero scores


def test_vectors_with_parts_are_written_as_means(store, tmp_path):
  config = small_config(store, model__buckets=200, model__part_sizes=(2, 4))
  opened, _ = make_job(config)
  pieces = opened.tokenizer.pieces
  random = np.random.default_rng(0)
  params = {
    'input': {'embedding': random.random((len(pieces), 16), np.float32)},
    'buckets': {'rows': random.random((256, 16), np.float32)},
  }
  write = families.ARCHITECTURES['word2vec'].write_outputs
  write(config, params, opened, tmp_path)
  counts = sampled_words.word_counts(opened, 2)
  words = [pieces[i] for i in np.flatnonzero(counts)]
  found = word_vectors.read(tmp_path / 'vectors.bin', words)
  for word, vector in zip(found.words, found.vectors, strict=True):
    rows, _ = ngrams.number([word], 200, 2, 4)
    own = params['input']['embedding'][pieces.index(word)]
    expected = np.mean([own, *params['buckets']['rows'][rows]], axis=0)
    np.testing.assert_allclose(vector, expected, rtol=1e-5)


def test_a_text_without_parts_is_refused(store):
  config = small_config(store, model__buckets=9, model__part_sizes=(90, 99))
  with pytest.raises(ValueError, match='part_sizes=.* no word of the text has'):
    make_job(config)


@pytest.mark.usefixtures('one_device')
def test_a_killed_run_ends_with_the_same_bits(store, finished, tmp_path):
  config = small_config(store, objective__classes=5)
  kill_and_resume(config, tmp_path / 'run')
  old, new = results_of(finished), results_of(tmp_path / 'run')
  assert new['state_sha256'] == old['state_sha256']
  for name in ('vectors.txt', 'vectors.bin', 'classes.txt'):
    one, other = ((w / name).read_bytes() for w in (finished, tmp_path / 'run'))
    assert one == other
  shutil.rmtree(tmp_path / 'run')


@pytest.mark.slow
@pytest.mark.parametrize(('kind', 'updates'), [('skipgram', 2), ('cbow', 8)])
def test_shards_of_rows_and_text_change_nothing(store, kind, updates):
  """An update has a row for each device, or one that all compute."""
  parts = kind == 'skipgram'
  config = small_config(
    store,
    train__objective=kind,
    model__buckets=200 * parts,
    model__hierarchical=True,  # beside sampled words
    optim__learning_rate=0.1,
    objective__updates=updates,
  )
  state, reports = run_steps(config, 2)
  sharded = settings.with_overrides(config, {'mesh.data': 2, 'mesh.fsdp': 2})
  other_state, others = run_steps(sharded, 2, jax.devices()[:4])
  expected, found = state.params, other_state.params
  names = {'input', 'output', 'nodes', *['buckets'] * parts}
  assert expected.keys() == names
  for name in names:
    (one,), (other,) = expected[name].values(), found[name].values()
    assert np.abs(one).max() > 0.01
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)
  assert others[-1]['loss'] == pytest.approx(reports[-1]['loss'], rel=1e-5)


def test_the_order_of_the_original_is_learnt_alike(store):
  losses = {}
  for order in word2vec.ORDERS:
    config = small_config(
      store, objective__order=order, objective__most_pairs=1e9
    )
    _, reports = run_steps(config, 3)
    losses[order] = [float(report['loss']) for report in reports]
    assert losses[order][-1] < losses[order][0]
  assert losses['batched'] == pytest.approx(losses['sequential'], rel=0.02)


@pytest.mark.parametrize(
  ('buckets', 'power', 'half_width'), [(0, 0.75, 0.5), (200, 0.5, 1.0)]
)
def test_words_are_sampled_and_drawn_as_released(
  store, buckets, power, half_width
):
  """word2vec.c's power and width; with parts of words those of fastText."""
  config = small_config(store, model__buckets=buckets)
  opened, job = make_job(config)
  counts = sampled_words.word_counts(opened, 2)
  keys = jax.vmap(jax.random.key)(np.arange(400))
  row = np.zeros((400, 32), np.int32)
  batch = {'tokens': row, 'segments': row, 'example_mask': row[:, 0] == 0}
  (objective,) = job.objective_of.values()
  samples = objective.transform(batch, keys)['samples']
  found = np.bincount(np.ravel(samples), minlength=len(counts))
  expected = counts**power / sum(counts**power) * found.sum()
  known = counts > 0
  assert (found[~known] == 0).all()
  # Within five deviations; the other power is far outside.
  miss = np.abs(found - expected)[known] / np.sqrt(expected[known])
  assert miss.max() < 5
  state = job.create_state()
  width = half_width / config.model.embed_dim
  for name in ('input', *['buckets'] * (buckets > 0)):
    (table,) = state.params[name].values()
    assert 0.98 * width < np.abs(table).max() <= width


def test_an_update_that_is_not_finite_changes_nothing(store):
  config = small_config(store, optim__learning_rate=1e38)
  state, reports = run_steps(config, 3)
  assert reports[-1]['nonfinite_step'] in (0, 1, 2)
  for table in jax.tree.leaves(state.params):
    assert np.isfinite(table).all()


def test_the_rates_of_frequent_rows_are_bounded(store):
  config = small_config(store)
  opened, job = make_job(config)
  counts = sampled_words.word_counts(opened, 2)
  scale = functools.partial(
    word2vec.row_scales,
    job.model,
    counts=counts,
    tree=None,
    parts=None,
    objective=config.objective,
  )
  few, many = scale('input', 64), scale('input', 64_000)
  assert (few == 1).all()
  shares = sampled_words.keep_shares(counts, 1e-2) * counts
  expected = 64_000 * 4 * shares / shares.sum()  # a mean window has 4 words
  np.testing.assert_allclose(
    many * np.maximum(expected, 64), np.full(len(counts), 64), rtol=1e-5
  )
  assert (scale('output', 64_000) <= many).all()  # sampled words come on top


@pytest.mark.parametrize(
  ('overrides', 'message'),
  [
    ({'model.window': 0}, 'model.window=0: expected 1 to 64'),
    ({'model.window': 65}, 'model.window=65: expected 1 to 64'),
    ({'model.negative': 0}, 'model.negative=0: expected 1 or more, or'),
    ({'objective.sample': -1.0}, r'objective.sample=-1.0: expected 0 to 1'),
    ({'objective.order': 'x'}, "objective.order='x': expected one of"),
    (
      {'train.phases': ((1, 64, 128, 'continue', 'word'),)},
      "has the unit 'word', but train.objective='skipgram' of model",
    ),
    ({'model.buckets': -1}, 'model.buckets=-1: expected 0 to'),
    ({'model.part_sizes': (4, 3)}, 'model.part_sizes=.*: expected two sizes'),
    (
      {'model.buckets': 9, 'train.objective': 'cbow'},
      "model.buckets=9: expected 0, or train.objective='skipgram'",
    ),
    ({'train.objective': 'lm'}, "is trained with 'skipgram' or 'cbow'"),
    (
      {'train.phases': ((1, 100, 128, 'continue'),)},
      'length 100, expected a multiple of 64',
    ),
  ],
)
def test_wrong_keys_are_refused(overrides, message):
  config = settings.load_config('word2vec_novels')
  with pytest.raises(ValueError, match=message):
    families.check_config(settings.with_overrides(config, overrides))


@pytest.mark.usefixtures('one_device')
def test_a_vocabulary_that_min_count_empties_is_refused(store, tmp_path):
  config = small_config(store, objective__min_count=1_000_000)
  with pytest.raises(ValueError, match=r'min_count=1000000 leaves 0 words'):
    runs.train(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.usefixtures('one_device')
def test_a_store_of_pieces_is_refused(small_store, tmp_path):
  with pytest.raises(ValueError, match='is not a store of whole words'):
    runs.train(small_config(small_store), tmp_path / 'run')


@pytest.mark.usefixtures('one_device')
def test_weights_open_and_begin_another_run(store, finished, tmp_path):
  found = opened.open_weights(finished)
  found.check_complete()
  assert found.name == 'word2vec'
  config = small_config(store, init__weights=str(finished), train__steps=1)
  config = settings.with_overrides(config, {'optim.learning_rate': 0.0})
  runs.train(config, tmp_path / 'run')
  one, other = (opened.open_weights(w) for w in (finished, tmp_path / 'run'))
  for old, new in zip(
    *map(jax.tree.leaves, (one.load(), other.load())), strict=True
  ):
    np.testing.assert_array_equal(old, new)
  overrides = convert.inspect(finished)['overrides']
  assert {'--config.model.negative=5', '--config.train.objective=skipgram'} < {
    *overrides
  }
  other = {'model.negative': 7, 'train.objective': 'cbow'}
  with pytest.raises(ValueError, match='does not fit the config') as error:
    warm_start.open_beginning(settings.with_overrides(config, other))
  for part in (
    'negative is 5 there, 7 in the config: --config.model.negative=5',
    'kind is skipgram there, cbow in the config: --config.train.objective=skip',
  ):
    assert part in str(error.value)
  arguments = argparse.Namespace(weights=str(finished), tokenizer=None)
  with pytest.raises(ValueError, match='they are in .*vectors.txt'):
    embedder.run(arguments)
  with pytest.raises(ValueError, match='word2vec, which predicts no tokens'):
    beside.open_text(str(finished), [])
  with pytest.raises(ValueError, match='word2vec, which has no attention. Exp'):
    attention_weights.open_model(finished)
  config = task_section.get_config()
  config.init.weights = str(finished)
  with pytest.raises(ValueError, match='task.word_vectors=.*/vectors.txt'):
    encoders.open_encoder(config, registry.find('sst2'), None)


@pytest.mark.usefixtures('one_device')
def test_analogies_read_the_vectors_of_a_run(finished, tmp_path, run_command):
  from train import analogies

  words = (finished / 'vectors.txt').read_text().splitlines()[1:9]
  names = [line.split()[0] for line in words]
  (tmp_path / 'pairs.txt').write_text(
    ''.join(f'{names[i]}\t{names[i + 1]}\t{i}\n' for i in range(6))
  )
  pairs = '--word_pairs', 'pairs.txt', '--json'
  figures = [
    json.loads(run_command(analogies, name, *pairs).out)['vectors'][0]['layers']
    for name in (finished, finished / 'vectors.txt')
  ]
  assert figures[0] == figures[1]
  shutil.copytree(finished, tmp_path / 'begun')
  (tmp_path / 'begun/vectors.bin').unlink()
  with pytest.raises(SystemExit, match='holds a word2vec; expected an elmo'):
    run_command(analogies, 'begun', *pairs)
