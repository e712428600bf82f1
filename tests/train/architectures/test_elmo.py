"""ELMo's pre-training: what a run leaves, computes and refuses."""

import functools
import json
import sys

import h5py
import jax
import numpy as np
import pytest
import runs
from elmo_store import (
  LENGTH,
  ROWS,
  STEPS,
  WORDS,
  build_words,
  make_job,
  naive_evaluation,
  read_rows,
  restore_params,
  run_steps,
  small_elmo_config,
  write_topics,
)
from small_elmo import NEAR, embed_alone

from data.examples import pipeline
from data.store import build, corpus
from data.vocabulary import tokenization
from train import embed
from train.architectures import samples
from train.pretrain import assemble
from train.vectors import text_counts
from train.vectors.trained_model import TrainedModel

pytestmark = pytest.mark.usefixtures('one_device')


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  folder = tmp_path_factory.mktemp('store')
  return build_words(write_topics(folder, 0, 60), folder / 'words')


@pytest.fixture(scope='module')
def finished(store, tmp_path_factory):
  """A finished run: (config, workdir, results, what it said)."""
  config = small_elmo_config(store)
  workdir = tmp_path_factory.mktemp('finished')
  said = []
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(samples, 'say', said.append)
    results = runs.train(config, workdir, draws=True)
  return config, workdir, results, said


# --- A whole run


def test_a_run_learns_and_says_so(finished):
  _, workdir, results, said = finished
  assert json.loads((workdir / 'results.json').read_text()) == results
  figures = results['metrics']
  perplexities = [
    figures[f'eval/{direction}_perplexity']
    for direction in ('forward', 'backward')
  ]
  for direction, perplexity in zip(
    ('forward', 'backward'), perplexities, strict=True
  ):
    assert perplexity == pytest.approx(
      np.exp(figures[f'eval/{direction}_loss'])
    )
  assert figures['eval/perplexity_ratio'] == pytest.approx(
    max(perplexities) / figures['eval/unigram_perplexity']
  )
  rows = read_rows(workdir)
  losses = [rows[step, 'train/loss'] for step in range(1, STEPS + 1)]
  # Untrained, each of V words is about as likely; of a rare one the sampled
  # loss is less than of the whole softmax.
  assert 0.75 < losses[0] / (LENGTH * np.log(WORDS)) < 1.05
  assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 2
  assert (workdir / 'curves.png').read_bytes().startswith(b'\x89PNG')
  head, *sentences = said
  assert 'Held-out sentences' in head
  assert len(sentences) > 1 and all(' -> ' in line for line in sentences)


def test_the_loss_is_of_a_whole_row(finished):
  """Words of a row times the mean over words and directions (bilm-tf)."""
  rows = read_rows(finished[1])
  for step in range(1, STEPS + 1):
    directions = [
      rows[step, f'train/{name}_loss'] for name in ('forward', 'backward')
    ]
    assert directions[0] != directions[1]
    assert rows[step, 'train/loss'] == pytest.approx(
      LENGTH * np.mean(directions), rel=1e-6
    )


def test_evaluation_is_that_of_a_naive_reader(finished):
  config, workdir, results, _ = finished
  expected = naive_evaluation(restore_params(workdir, config), config)
  names = [
    f'eval/{name}_perplexity' for name in ('forward', 'backward', 'unigram')
  ]
  found = [results['metrics'][name] for name in names]
  np.testing.assert_allclose(found, expected, rtol=1e-4)


# --- Its steps


def test_accumulated_equals_the_big_batch(store):
  reports, states = zip(
    *(
      run_steps(
        small_elmo_config(
          store, train__micro_batches=parts, model__dropout_rate=0.0
        ),
        num_steps=2,
      )
      for parts in (1, 2)
    ),
    strict=True,
  )
  for whole, parts in zip(*reports, strict=True):
    for name in ('loss', 'grad_norm'):
      np.testing.assert_allclose(parts[name], whole[name], rtol=1e-5)
    jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=1e-5),
      parts['sums'],
      whole['sums'],
    )
  for part in ('params', 'carry'):
    jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-5),
      getattr(states[1], part),
      getattr(states[0], part),
    )
  # Rows that changed places would be seen.
  cell = states[0].carry['cell']
  assert len(cell) == ROWS
  for row in range(1, ROWS):
    assert np.abs(cell[row] - cell[0]).max() > 1e-2


def test_meshes_agree(finished, store):
  rows = read_rows(finished[1])
  alone = [rows[step, 'train/loss'] for step in (1, 2, 3)]
  sizes = dict(mesh__data=2, mesh__fsdp=2, mesh__tensor=2)
  config = small_elmo_config(store, **sizes)
  reports, _ = run_steps(config, 3, devices=jax.devices())
  losses = [report['loss'] for report in reports]
  np.testing.assert_allclose(losses[0], alone[0], rtol=1e-6)
  np.testing.assert_allclose(losses, alone, rtol=1e-4)


def test_a_loss_that_is_not_finite_is_reported(store, tmp_path, monkeypatch):
  create = assemble.Parts.create_state

  def spoilt(job):
    state = create(job)
    bias = state.params['layers_1']['bias']
    state.params['layers_1']['bias'] = bias.at[0, 0, 0].set(np.nan)
    return state

  monkeypatch.setattr(assemble.Parts, 'create_state', spoilt)
  with pytest.raises(
    FloatingPointError, match='(?s)not finite in step 1.*forward nan'
  ) as error:
    runs.train(small_elmo_config(store), tmp_path)
  assert 'nan  layers_0/bias' in str(error.value)
  with np.load(tmp_path / 'nonfinite-step-0.npz') as batch:
    assert batch['reverse_type_ids'].shape == (ROWS, LENGTH)
  assert not (tmp_path / 'results.json').exists()


# --- Words that are looked up


@pytest.mark.slow
def test_a_table_of_words_learns(store, tmp_path):
  config = small_elmo_config(store, model__characters=False, train__steps=6)
  results = runs.train(config, tmp_path)
  rows = read_rows(tmp_path)
  assert rows[6, 'eval/forward_loss'] < np.log(WORDS)
  table = restore_params(tmp_path, config)['encoder']
  assert [leaf.shape for leaf in jax.tree.leaves(table)] == [(384, 8)]
  assert results['steps'] == 6
  with pytest.raises(ValueError, match='a table of 300 words in place of'):
    TrainedModel(tmp_path)


@pytest.mark.parametrize('characters', [True, False])
def test_types_beyond_the_softmax_are_unknown(store, characters):
  config = small_elmo_config(store, model__characters=characters)
  opened, job = make_job(config)
  examples = {
    LENGTH: job.objective.open_examples(config, opened, LENGTH, held_out=False)
  }
  host = pipeline.train_batch(examples, job.phases, 0, 0)
  batch = job.objective.transform(host, None)
  for text in ('', 'reverse_'):
    types = host[f'{text}type_ids']
    assert types.max() >= WORDS
    known = np.where(types < WORDS, types, opened.tokenizer.unk_id)
    np.testing.assert_array_equal(
      batch[f'{text}type_ids'], types if characters else known
    )
    targets = host[f'{text}targets']
    np.testing.assert_array_equal(
      batch[f'{text}targets'],
      np.where(targets < WORDS, targets, opened.tokenizer.unk_id),
    )


# --- What is refused


@pytest.mark.parametrize('tokenizer', ['wordpiece', 'bpe'])
def test_pieces_of_words_are_refused(tokenizer, tmp_path):
  text = write_topics(tmp_path, 0, 20)
  build.build_store(
    str(text), f'train:{tokenizer}:300', tmp_path / 'store', progress=False
  )
  config = small_elmo_config(tmp_path / 'store')
  with pytest.raises(
    ValueError, match="not a store of whole words.*data.tokenizer='train:words"
  ):
    runs.train(config, tmp_path / 'new')
  assert not (tmp_path / 'new').exists()


# --- Another text with the same words


@pytest.fixture(scope='module')
def other_text(tmp_path_factory):
  return write_topics(tmp_path_factory.mktemp('other'), 60, 90)


def test_a_trained_model_goes_on_with_another_text(
  finished, store, other_text, tmp_path
):
  config, weights, _, _ = finished
  folder = build_words(other_text, tmp_path / 'store', tokenizer=weights)
  tuning = small_elmo_config(folder, init__weights=str(weights))
  before, after = (
    corpus.open_store(path).tokenizer.pieces for path in (store, folder)
  )
  assert after[:WORDS] == before[:WORDS]
  assert set(after[WORDS:]) - set(before)
  params = restore_params(weights, config)
  untuned = naive_evaluation(params, tuning)
  (report,), _ = run_steps(tuning, 1, params=params)

  results = runs.train(tuning, tmp_path / 'tuned')
  rows = read_rows(tmp_path / 'tuned')
  assert rows[1, 'train/loss'] == report['loss']
  for perplexity, direction in zip(
    untuned, ('forward', 'backward'), strict=False
  ):
    name = f'eval/{direction}_perplexity'
    assert results['metrics'][name] < perplexity - 1
  found = tokenization.load(tmp_path / 'tuned')
  assert found.pieces == after


def test_weights_of_other_words_are_refused(finished, other_text, tmp_path):
  folder = build_words(other_text, tmp_path / 'store')
  config = small_elmo_config(folder, init__weights=str(finished[1]))
  theirs, ours = (
    tokenization.load(path).fingerprint[:8] for path in (finished[1], folder)
  )
  with pytest.raises(
    ValueError, match=f'(?s){theirs}.*{ours}.*--tokenizer {finished[1]}'
  ):
    runs.train(config, tmp_path / 'new')
  assert not (tmp_path / 'new').exists()


# --- Its vectors

TEXT = "The value isn't known.\n\nAn unseenword, too"


@pytest.mark.parametrize(
  ('options', 'split'),
  [([], str.split), (['--running'], text_counts.splitter(True))],
)
def test_vectors_are_those_of_the_model(
  options, split, finished, tmp_path, monkeypatch
):
  workdir = finished[1]
  found = TrainedModel(workdir)
  assert found.tokenizer.split == 'marks'
  model, params = found.prepared()
  assert 'softmax' not in params
  text, output = tmp_path / 'text', tmp_path / 'vectors.hdf5'
  text.write_text(TEXT)
  arguments = ['embed', str(workdir), str(text), str(output), *options]
  monkeypatch.setattr(sys, 'argv', arguments)
  embed.main()
  with h5py.File(output) as file:
    for i, line in enumerate(TEXT.splitlines()):
      expected, _ = embed_alone(model, params, split(line))
      assert file[str(i)].shape == (3, len(split(line)), 16)
      np.testing.assert_allclose(file[str(i)], expected, **NEAR)
  assert len(split(TEXT)) == (10 if options else 7)
