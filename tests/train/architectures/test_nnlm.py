"""Bengio et al. 2003's network on the engine, and models of whole words."""

import argparse

import jax
import numpy as np
import pytest
import runs
from elmo_store import WORDS, build_words, write_topics

from configs.sections import task as task_section
from data.examples import pipeline
from data.store import corpus
from data.tasks import registry
from models.baselines import nnlm
from train.architectures import families
from train.architectures.architecture import Vocabulary, token_counts
from train.engine import objectives
from train.language import scoring
from train.run import metrics, settings
from train.transfer import encoders
from train.vectors import embedder
from train.vectors.trained_model import TrainedModel
from train.views import attention_weights

LENGTH, ROWS, STEPS = 16, 8, 12


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  folder = tmp_path_factory.mktemp('words')
  return build_words(write_topics(folder, 0, 30), folder / 'store')


def small_config(store, name='nnlm_tiny', **overrides):
  return settings.with_overrides(
    settings.load_config(name),
    {
      'data.folder': str(store),
      'data.loader': 'plain',
      'train.phases': ((STEPS, LENGTH, ROWS, 'continue'),),
      'train.log_every': 1,
      'train.eval_every': 6,
      'train.checkpoint_every': 6,
      'eval.global_batch': 16,
      'eval.max_windows': 32,
    }
    | {key.replace('__', '.'): value for key, value in overrides.items()},
  )


@pytest.fixture(scope='module')
def finished(store, tmp_path_factory):
  config = small_config(
    store,
    model__embed_dim=8,
    model__hidden_dim=16,
    model__num_samples=128,
    optim__learning_rate=2.0,
  )
  workdir = tmp_path_factory.mktemp('nnlm')
  return config, workdir, runs.train(config, workdir)


def test_it_learns_and_is_scored_by_all_words(finished, store):
  config, workdir, results = finished
  losses = [
    value
    for _, name, value in metrics.read_metrics(workdir)
    if name == 'eval/lm_loss'
  ]
  assert losses[-1] < losses[0]
  found = TrainedModel(workdir, use='score')
  assert isinstance(found.model, nnlm.Nnlm)
  # The words that no model predicts are unknown to the opened tokenizer.
  assert found.tokenizer.vocab_size == WORDS
  assert found.encode(['zyzzyva'])[0] == [found.tokenizer.unk_id]
  opened = corpus.open_store(store)
  examples = families.objective_of(config).open_examples(
    config, opened, LENGTH, held_out=True
  )
  known = Vocabulary.of(opened.tokenizer).known
  windows = []
  for batch in pipeline.eval_batches(
    examples, config.eval.global_batch, config.eval.max_windows
  ):
    kept = batch['example_mask']
    for window, size in zip(
      np.asarray(known(batch['window'][kept])),
      batch['lengths'][kept],
      strict=True,
    ):
      windows.append(window[:size].tolist())
  scores = scoring.score_sequences(found.model, found.params, windows)
  mean = np.concatenate(list(scores)).mean()
  assert -mean == pytest.approx(results['metrics']['eval/lm_loss'], rel=1e-5)


def test_losses_of_all_words_are_those_of_the_logits(finished, store):
  """Without sampling, in evaluation, both methods of the module agree."""
  config, workdir, _ = finished
  opened = corpus.open_store(store)
  vocabulary = Vocabulary.of(opened.tokenizer)
  found = TrainedModel(workdir, use='score')
  host = first_batch(config, opened)
  sums = []
  for samples in (0, 128):
    sampled = settings.with_overrides(config, {'model.num_samples': samples})
    objective = families.ARCHITECTURES['nnlm'].objectives['lm'](
      sampled, LENGTH, vocabulary
    )
    batch = objective.transform(host, None)
    outputs = objective.apply(found.model, found.params, batch)
    sums.append(objective.losses(outputs, batch)[0]['lm'])
  np.testing.assert_allclose(*sums, rtol=1e-5)
  expected = objectives.lm_weights(batch)
  assert objective.weights(batch) == expected


def first_batch(config, store):
  examples = families.objective_of(config).open_examples(
    config, store, LENGTH, held_out=False
  )
  return examples.train_batch(0, slice(None), ROWS, 0, 0)


@pytest.mark.parametrize(
  ('name', 'objective'), [('gpt_tiny', 'lm'), ('bert_tiny', 'bert')]
)
def test_rare_words_are_the_unknown_one(store, name, objective):
  config = small_config(store, name)
  opened = corpus.open_store(store)
  host = first_batch(config, opened)
  assert max(array.max() for array in host.values()) >= WORDS
  vocabulary = Vocabulary.of(opened.tokenizer)
  family = families.check_config(config)
  transform = family.objectives[objective](config, LENGTH, vocabulary).transform
  keys = jax.random.split(jax.random.key(0), ROWS)
  batch = jax.device_get(jax.jit(transform)(host, keys))
  for key in {'tokens', 'targets', 'mlm_targets'} & batch.keys():
    assert 0 <= batch[key].min() and batch[key].max() < WORDS
  counts = token_counts(opened)
  assert len(counts) == WORDS and counts.sum() == opened.counts.sum()
  assert counts[opened.tokenizer.unk_id] > 0


@pytest.mark.parametrize(
  ('overrides', 'message'),
  [
    ({'model.order': 1}, 'model.order=1: expected 2 or more'),
    (
      {'model.hidden_dim': 0, 'model.direct': False},
      'model.hidden_dim=0: expected a positive number, or model.direct=True',
    ),
    ({'model.hidden_dim': -1}, 'model.hidden_dim=-1: expected 0 or more'),
    ({'model.max_length': 32}, 'length 64 is longer.*model.max_length=32'),
    ({'train.objective': 'bert'}, "'nnlm' is trained with 'lm'"),
  ],
)
def test_bad_values_are_named(overrides, message):
  config = settings.with_overrides(settings.load_config('nnlm_tiny'), overrides)
  with pytest.raises(ValueError, match=message):
    families.check_config(config)


def test_config_arguments():
  assert settings.load_config('nnlm_tiny:sampled').model.num_samples == 1024
  with pytest.raises(ValueError, match='nnlm_tiny:half: expected nothing or'):
    settings.load_config('nnlm_tiny:half')


def test_uses_that_it_has_not_are_refused(finished):
  _, workdir, _ = finished
  arguments = argparse.Namespace(weights=str(workdir), tokenizer=None)
  with pytest.raises(ValueError, match='nnlm, which has no vectors of texts'):
    embedder.run(arguments)
  with pytest.raises(ValueError, match=r'attention. Expected bert, gpt, gpt2$'):
    attention_weights.open_model(workdir)
  task, config = registry.find('sst2'), task_section.get_config()
  config.init.weights = str(workdir)
  with pytest.raises(ValueError, match='kind nnlm has no layers .*gpt2, lstm'):
    encoders.open_encoder(config, task, None)
  config.init.weights = None
  config.model.name, config.data.tokenizer = 'nnlm', str(workdir)
  with pytest.raises(ValueError, match='^model.name=nnlm: .* lstm, elmo$'):
    encoders.open_encoder(config, task, None)
