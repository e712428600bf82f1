"""What the papers' ablations pre-train: each from a config to a model."""

import re

import jax
import numpy as np
import pytest
import runs
from gpt_store import small_stores

from data.examples import pipeline, transforms
from data.store import corpus
from train.architectures import architecture, bert, families
from train.engine import sharding
from train.language import cloze, scoring
from train.params import opened, warm_start
from train.pretrain import job
from train.run import metrics, settings
from train.vectors.trained_model import TrainedModel

LENGTH = 32
LEARNING = {
  'model__dropout_rate': 0.0,
  'model__attention_dropout_rate': 0.0,
  'train__phases': ((40, LENGTH, 16, 'continue'),),
  'train__log_every': 10,
  'train__eval_every': 40,
  'train__checkpoint_every': 40,
  'optim__learning_rate': 5e-3,
}
pytestmark = pytest.mark.usefixtures('one_device')


def vary(config, variant):
  """Returns the config with what a variant of bert_base changes."""
  plain, varied = (
    settings.flatten(settings.load_config(name))
    for name in ('bert_base', f'bert_base:{variant}')
  )
  changes = {key: varied[key] for key in plain if varied[key] != plain[key]}
  assert changes
  return settings.with_overrides(config, changes)


def train_losses(workdir, name):
  return [
    value
    for _, metric, value in metrics.read_metrics(workdir)
    if metric == f'train/{name}_loss'
  ]


@pytest.fixture(scope='module')
def finished(small_config, tmp_path_factory):
  """Returns a function variant -> config, workdir and results of its run."""
  done = {}

  def finish(variant):
    if variant not in done:
      config = vary(small_config(**LEARNING), variant)
      if variant == 'no_nsp':
        config = settings.with_overrides(config, {'model.null_key': True})
      workdir = tmp_path_factory.mktemp('run')
      done[variant] = config, workdir, runs.train(config, workdir)
    return done[variant]

  return finish


def objective_of(config, store):
  vocabulary = architecture.Vocabulary.of(store.tokenizer)
  return families.objective_of(config)(config, LENGTH, vocabulary)


def transformed(config, rows=256, num_examples=None):
  """Returns the store, and a host batch before and after the transforms.

  Args:
    config: of the run.
    rows: of the batch.
    num_examples: how many of these are examples, by default all.
  """
  store = corpus.open_store(config.data.folder)
  objective = objective_of(config, store)
  examples = objective.open_examples(config, store, LENGTH, held_out=False)
  phases = ((1, LENGTH, rows, 'continue'),)
  host = pipeline.train_batch({LENGTH: examples}, phases, 0, 0)
  if num_examples is not None:
    host |= {'example_mask': np.arange(rows) < num_examples}
  keys = jax.random.split(jax.random.key(0), rows)
  return store, host, jax.device_get(jax.jit(objective.transform)(host, keys))


@pytest.mark.parametrize(
  ('variant', 'loss', 'perplexity'),
  [
    ('no_nsp', 'mlm', 'eval/mlm_perplexity'),
    ('ltr_no_nsp', 'lm', 'eval/perplexity'),
  ],
)
def test_a_run_learns_and_opens_again(variant, loss, perplexity, finished):
  config, workdir, results = finished(variant)
  losses = train_losses(workdir, loss)
  assert losses[-1] < losses[0] - 0.5
  figures = results['metrics']
  assert figures[perplexity] == pytest.approx(
    np.exp(figures[f'eval/{loss}_loss'])
  )
  assert 0 < figures[f'eval/{loss}_accuracy'] < 1
  assert not any('nsp' in name for name in figures)
  found = opened.open_weights(workdir)
  found.check_complete()
  assert found.model.heads == ('mlm',)
  assert found.model.left_to_right == (variant == 'ltr_no_nsp')
  assert not any(path.startswith(('nsp', 'pooler')) for path in found.shapes)


def test_words_without_a_row_keep_the_marks_of_units():
  vocabulary = architecture.Vocabulary.of_size(10)
  specials = vocabulary.specials
  ids = specials.pad, specials.cls, specials.sep, specials.mask
  assert vocabulary.unknown not in ids
  ids, known = np.array([[[3, 12, 9, 10]], [[3, 1, 9, 1]]], np.int32)
  mark = np.int32(transforms.UNIT_START)
  for marks in (0, mark, [mark, 0, 0, mark]):
    batch = {'window': ids + marks, 'other_window': ids, 'lengths': ids}
    found = bert._known(batch, vocabulary)
    np.testing.assert_array_equal(found['window'], known + marks)
    np.testing.assert_array_equal(found['other_window'], known)
    np.testing.assert_array_equal(found['lengths'], ids)


@pytest.mark.parametrize('variant', ['no_nsp', 'ltr_no_nsp'])
def test_the_second_text_continues_the_first(variant, small_config):
  """Nothing of the other window is read, and both token types are there."""
  store, host, batch = transformed(vary(small_config(), variant))
  assert not batch['nsp_labels'].any() and not batch['nsp_weights'].any()
  specials = architecture.Vocabulary.of(store.tokenizer).specials
  tokens = batch['tokens'].copy()
  if 'mlm_targets' in batch:
    rows, slots = np.nonzero(batch['mlm_weights'])
    places = batch['mlm_positions'][rows, slots]
    tokens[rows, places] = batch['mlm_targets'][rows, slots]
  both = 0
  for row in range(len(tokens)):
    text = tokens[row][batch['token_mask'][row]]
    first_sep, last_sep = np.flatnonzero(text == specials.sep)
    window = host['window'][row].tolist()
    for part in (text[1:first_sep], text[first_sep + 1 : last_sep]):
      assert contains(window, part.tolist())
    types = batch['token_types'][row]
    np.testing.assert_array_equal(types[: first_sep + 1], 0)
    np.testing.assert_array_equal(types[first_sep + 1 : len(text)], 1)
    both += last_sep > first_sep + 1 > 2
  assert both > 0.9 * len(tokens)


def contains(text, part):
  starts = range(len(text) - len(part) + 1)
  return any(text[i : i + len(part)] == part for i in starts)


def test_null_keys_are_trained(finished, tmp_path):
  """Each head of each layer has its own, and all of them move."""
  config, workdir, _ = finished('no_nsp')
  made = job.make(config, tmp_path)
  with sharding.scope(made.mesh, config.mesh.rules):
    drawn = made.create().params
  trees = drawn, TrainedModel(workdir).params
  before, after = (
    np.asarray(tree['layers']['attention']['null_key']) for tree in trees
  )
  assert before.shape == (2, 2, 16)
  assert (abs(after - before).max(axis=-1) > 1e-3).all()


def test_left_to_right_loss_is_that_of_a_loop(small_config):
  """Over the text's tokens, each after all that stands before it."""
  config = vary(small_config(), 'ltr_no_nsp')
  store, _, batch = transformed(config, rows=6, num_examples=5)
  objective = objective_of(config, store)
  logits = np.random.default_rng(0).normal(size=(6, LENGTH, 512))
  sums, _ = jax.jit(objective.losses)({'mlm_logits': logits}, batch)
  specials = architecture.Vocabulary.of(store.tokenizer).specials
  total, count = 0.0, 0
  for row in range(5):
    for at in range(1, int(batch['token_mask'][row].sum())):
      token = int(batch['tokens'][row, at])
      if token in (specials.cls, specials.sep):
        continue
      scores = logits[row, at - 1]
      total += np.log(np.exp(scores).sum()) - scores[token]
      count += 1
  assert count > 60
  np.testing.assert_allclose(sums['lm'], (total, count), rtol=1e-5)
  assert objective.weights(batch)['lm'] == count
  # The head looks at every position, and no token is hidden.
  np.testing.assert_array_equal(
    batch['mlm_positions'], np.tile(np.arange(LENGTH), (6, 1))
  )
  assert not (batch['tokens'] == specials.mask).any()


@pytest.mark.parametrize(
  'shares',
  [
    (80, 10, 10),
    (100, 0, 0),
    (80, 0, 20),
    (80, 20, 0),
    (0, 20, 80),
    (0, 0, 100),
  ],
)
def test_masks_fall_as_configured(shares, small_config):
  variant = f'mask={"/".join(map(str, shares))}'
  config = small_config()
  if shares != (80, 10, 10):  # the default
    config = vary(config, variant)
  store, _, batch = transformed(config, rows=1024)
  rows, slots = np.nonzero(batch['mlm_weights'])
  now = batch['tokens'][rows, batch['mlm_positions'][rows, slots]]
  was = batch['mlm_targets'][rows, slots]
  mask = architecture.Vocabulary.of(store.tokenizer).specials.mask
  masked, same = (now == mask).mean(), (now == was).mean()
  # A random token is the mask, or the same, once in 500 times.
  found = (masked, same, 1 - masked - same)
  assert len(now) > 3_000
  np.testing.assert_allclose(found, np.array(shares) / 100, atol=0.03)
  for share, value in zip(shares, found, strict=True):
    assert share or value < 0.006


def test_what_reads_left_to_right_is_not_mistaken(finished, small_config):
  config, workdir, _ = finished('ltr_no_nsp')
  model = opened.open_weights(workdir).model
  with pytest.raises(ValueError, match='have never seen a mask'):
    cloze.check_model(model)
  begun = {'init.weights': str(workdir)}
  warm_start.open_beginning(settings.with_overrides(config, begun))
  with pytest.raises(
    ValueError, match='left_to_right is True there, False in the config'
  ):
    warm_start.open_beginning(settings.with_overrides(small_config(), begun))


@pytest.mark.parametrize(
  ('overrides', 'message'),
  [
    ({'train.objective': 'lm'}, "expected 'bert', 'dialogue' or 'mlm'"),
    ({'model.left_to_right': True}, "or 'lm' with model.left_to_right=True"),
  ],
)
def test_objectives_that_do_not_fit_are_refused(
  overrides, message, small_config, tmp_path
):
  config = settings.with_overrides(small_config(), overrides)
  with pytest.raises(ValueError, match=message):
    runs.train(config, tmp_path)


def test_a_plan_counts_what_is_trained(small_config, tmp_path, capsys):
  plain = small_config()
  counts = {}
  for variant in ('bert', 'no_nsp', 'ltr_no_nsp'):
    config = plain if variant == 'bert' else vary(plain, variant)
    job.make(config, tmp_path).print_plan(tmp_path, True)
    out = capsys.readouterr()
    counts[variant] = re.search(r'([\d,]+) parameters', out.err)[1]
  counts = {name: int(n.replace(',', '')) for name, n in counts.items()}
  D = plain.model.embed_dim
  heads = D * D + D + 2 * D + 2  # pooler, next sentence
  assert counts['no_nsp'] == counts['ltr_no_nsp'] == counts['bert'] - heads


@pytest.fixture(scope='module')
def lstm(tmp_path_factory):
  folder = tmp_path_factory.mktemp('stores')
  config = settings.with_overrides(
    settings.load_config('gpt:lstm'),
    {
      'model.embed_dim': 32,
      'model.lstm_dim': 64,
      'model.max_length': 64,
      'model.dtype': 'float32',
      'data.folder': str(small_stores(folder)['gpt']),
      'data.loader': 'plain',
      'train.phases': ((12, LENGTH, 16, 'continue'),),
      'train.platform': 'cpu',
      'train.log_every': 1,
      'train.eval_every': 6,
      'train.checkpoint_every': 6,
      'optim.learning_rate': 1e-2,
      'optim.warmup_steps': 2,
      'eval.global_batch': 16,
      'eval.max_windows': 32,
    },
  )
  workdir = tmp_path_factory.mktemp('lstm')
  return config, workdir, runs.train(config, workdir)


def test_an_lstm_learns_and_scores(lstm):
  config, workdir, results = lstm
  losses = train_losses(workdir, 'lm')
  assert losses[-1] < losses[0] - 0.3
  found = TrainedModel(workdir, use='score')
  assert found.name == 'lstm'
  # The held-out loss again, as score computes it.
  store = corpus.open_store(config.data.folder)
  windows = []
  examples = families.objective_of(config).open_examples(
    config, store, LENGTH, held_out=True
  )
  for batch in pipeline.eval_batches(
    examples, config.eval.global_batch, config.eval.max_windows
  ):
    kept = batch['example_mask']
    for window, size in zip(
      batch['window'][kept], batch['lengths'][kept], strict=True
    ):
      windows.append(window[:size].tolist())
  scores = scoring.score_sequences(found.model, found.params, windows)
  mean = np.concatenate(list(scores)).mean()
  assert -mean == pytest.approx(results['metrics']['eval/lm_loss'], rel=1e-5)
  with pytest.raises(ValueError, match='holds a lstm, expected gpt or gpt2'):
    TrainedModel(workdir, use='generate')


def test_an_lstm_is_begun_with(lstm):
  config, workdir, _ = lstm
  begun = {'init.weights': str(workdir)}
  weights = warm_start.open_beginning(settings.with_overrides(config, begun))
  sizes = warm_start.module_settings(weights.name, weights.model)
  assert sizes == {
    key: config.model[key]
    for key in ('num_layers', 'embed_dim', 'lstm_dim', 'max_length')
  }
  wider = begun | {'model.lstm_dim': 65}
  with pytest.raises(ValueError, match='lstm_dim is 64 there, 65 in the conf'):
    warm_start.open_beginning(settings.with_overrides(config, wider))


@pytest.mark.parametrize(
  ('overrides', 'message'),
  [
    ({'model.lstm_dim': 0}, 'model.lstm_dim=0: expected a positive number'),
    ({'model.max_length': 256}, 'length 512 is longer.*model.max_length=256'),
    ({'train.objective': 'bert'}, "'lstm' is trained with 'lm'"),
  ],
)
def test_bad_values_of_an_lstm_are_named(overrides, message):
  config = settings.with_overrides(settings.load_config('gpt:lstm'), overrides)
  with pytest.raises(ValueError, match=message):
    families.check_config(config)
