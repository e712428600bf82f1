"""Pre-training on packed rows: a row's texts know nothing of each other."""

import functools
import itertools
import json
import re

import bert_cases
import gpt_cases
import jax
import numpy as np
import pytest
import runs
from gpt_store import small_gpt_config, small_stores
from launch import end, start

from configs import base, variants
from data.examples import packing, pipeline
from data.store import corpus
from train.architectures import families
from train.architectures.architecture import Vocabulary
from train.engine import sharding
from train.pretrain import job
from train.run import metrics, settings, training

LENGTH = 32
SIZES = (9, 14, 3, 8)  # of the texts of a row, and 3 places of padding
FORMS = {
  'bert': {},
  'modern': dict(
    norm='pre',
    biases=False,
    gated=True,
    positions='rotary',
    window=2,
    num_token_types=0,
    num_layers=4,
  ),
  'scanned': dict(null_key=True, scan_layers=True),
  'left_to_right': dict(left_to_right=True),
}


def pack_one_row():
  """Returns a row of several texts, and each of them in a row of its own."""
  rng = np.random.default_rng(0)
  texts = np.repeat(np.arange(1, len(SIZES) + 1), SIZES)
  texts = np.pad(texts, (0, 37 - len(texts)))[None].astype(np.int32)
  tokens = rng.integers(5, 1000, texts.shape).astype(np.int32)
  positions = np.asarray(packing.positions(texts))
  places = np.arange(37)
  alone = np.zeros((len(SIZES), 37), np.int32)
  for number, size in enumerate(SIZES):
    alone[number, :size] = tokens[texts == number + 1]
  mask = places < np.array(SIZES)[:, None]
  return (tokens, texts, positions), (
    alone,
    mask,
    np.broadcast_to(places, alone.shape),
  )


@functools.partial(jax.jit, static_argnums=0)
def hidden(model, params, tokens, mask, positions):
  if 'left_to_right' not in model.__dataclass_fields__:  # a GPT
    inputs = tokens, mask, positions
  else:
    inputs = tokens, mask, 0 * tokens, positions
  return model.apply({'params': params}, *inputs, train=False)['hidden']


def check_alone(model, params):
  packed, alone = pack_one_row()
  found = np.asarray(hidden(model, params, *packed))
  expected = np.asarray(hidden(model, params, *alone))
  for number, size in enumerate(SIZES):
    np.testing.assert_allclose(
      found[packed[1] == number + 1],
      expected[number, :size],
      rtol=1e-6,
      atol=1e-6 * np.abs(expected).max(),
    )
  # A mask of real tokens would let the texts see each other.
  apart = hidden(model, params, packed[0], packed[1] > 0, packed[2])
  assert np.abs(np.asarray(apart) - found)[packed[1] == 2].max() > 1e-3


@pytest.mark.parametrize('form', FORMS)
def test_a_text_in_a_packed_row_of_bert_is_as_alone(form):
  model = bert_cases.make_model(heads=(), **FORMS[form])
  fields = {'heads': (), 'max_length': 64, 'vocab_size': bert_cases.VOCAB_SIZE}
  params = bert_cases.draw_params(
    bert_cases.abstract_params(**(bert_cases.TINY | fields | FORMS[form]))
  )
  check_alone(model, params)


@pytest.mark.parametrize('pre_norm', [False, True])
def test_a_text_in_a_packed_row_of_gpt_is_as_alone(pre_norm):
  model = gpt_cases.make_model(pre_norm=pre_norm)
  check_alone(model, gpt_cases.init_params(pre_norm))


CHANGES = {
  'data.packed': 'documents',
  'train.objective': 'mlm',
  'train.phases': ((8, LENGTH, 16, 'continue'),),
  'train.eval_every': 8,
  'train.log_every': 2,
}


@pytest.fixture(scope='module')
def config(small_config):
  return settings.with_overrides(small_config(), CHANGES)


@pytest.fixture(scope='module')
def gpt_stores(tmp_path_factory):
  return small_stores(tmp_path_factory.mktemp('stores'))


def transformed(config, rows=64):
  """Returns the vocabulary, and a host batch before and after."""
  store = corpus.open_store(config.data.folder)
  kind = families.objective_of(config)
  vocabulary = Vocabulary.of(store.tokenizer)
  objective = kind(config, LENGTH, vocabulary)
  examples = kind.open_examples(config, store, LENGTH, held_out=False)
  phases = ((1, LENGTH, rows, 'continue'),)
  host = pipeline.train_batch({LENGTH: examples}, phases, 0, 0)
  host['example_mask'][-1] = False
  keys = jax.random.split(jax.random.key(0), rows)
  return vocabulary, host, jax.device_get(objective.transform(host, keys))


@pytest.mark.parametrize('unit', ['piece', 'word', 'span'])
def test_masks_fall_on_the_text_alone(config, unit):
  vocabulary, host, batch = transformed(
    settings.with_overrides(config, {'objective.unit': unit})
  )
  specials = vocabulary.specials
  weights = batch['mlm_weights'] > 0
  rows, slots = np.nonzero(weights)
  places = batch['mlm_positions'][rows, slots]
  hidden = host['tokens'][rows, places]
  np.testing.assert_array_equal(batch['mlm_targets'][rows, slots], hidden)
  assert not np.isin(hidden, [specials.cls, specials.sep, specials.pad]).any()
  assert (host['texts'][rows, places] > 0).all() and not weights[-1].any()
  share = weights.sum() / (host['texts'][:-1] > 0).sum()
  assert share == pytest.approx(0.15, abs=0.02)
  assert host['texts'].max() > 1


def test_sentences_may_be_texts_of_their_own(config):
  by_sentences = settings.with_overrides(config, {'data.packed': 'sentences'})
  _, host, batch = transformed(by_sentences)
  _, documents, _ = transformed(config)
  assert host['texts'].max(axis=1).sum() > documents['texts'].max(axis=1).sum()
  store = corpus.open_store(config.data.folder)
  room = LENGTH - 2
  expected = {
    tuple(store.tokens[first : min(first + room, end)].tolist())
    for begin, end in itertools.pairwise(store.sentences.tolist())
    for first in range(begin, end, room)
  }
  for tokens, texts in zip(host['tokens'], host['texts'], strict=True):
    for text in range(1, texts.max() + 1):
      assert tuple(tokens[texts == text][1:-1].tolist()) in expected
  assert not batch['positions'][:, 0].any()


def test_a_left_to_right_bert_predicts_no_other_text(small_config):
  config = settings.with_overrides(
    small_config(),
    CHANGES | {'train.objective': 'lm', 'model.left_to_right': True},
  )
  vocabulary, host, batch = transformed(config)
  rows, places = np.nonzero(batch['loss_weights'])
  texts, tokens = host['texts'], host['tokens']
  assert (texts[rows, places] == texts[rows, places + 1]).all()
  np.testing.assert_array_equal(
    batch['targets'][rows, places], tokens[rows, places + 1]
  )
  sep = vocabulary.specials.sep
  assert not (batch['targets'][rows, places] == sep).any()


def stop_after_four(config, workdir, monkeypatch):
  class Stopped(Exception):
    pass

  def stop(checkpoints, step, *arguments, **options):
    saved(checkpoints, step, *arguments, **options)
    if step == 4:
      raise Stopped

  saved = training.checkpoint.Checkpoints.save
  with monkeypatch.context() as patch:
    patch.setattr(training.checkpoint.Checkpoints, 'save', stop)
    with pytest.raises(Stopped):
      runs.train(config, workdir)


def check_continues(config, tmp_path, monkeypatch):
  expected = runs.train(config, tmp_path / 'whole')
  stop_after_four(config, tmp_path / 'run', monkeypatch)
  results = runs.train(config, tmp_path / 'run')
  for name in ('state_sha256', 'optimizer_sha256', 'metrics'):
    assert results[name] == expected[name], name
  return results


def test_a_run_that_goes_on_ends_as_one_that_never_stopped(
  config, one_device, tmp_path, monkeypatch, capsys
):
  check_continues(config, tmp_path, monkeypatch)
  printed = capsys.readouterr().err
  assert re.search(r'rows of 32 .* 9\d\.\d+% of the places are in use', printed)
  other = settings.with_overrides(config, {'data.packed': None})
  with pytest.raises(
    ValueError, match="data.packed: 'documents' there, None here"
  ):
    job.make(other, tmp_path / 'run')


@pytest.mark.parametrize('name', ['gpt', 'gpt2'])
def test_documents_of_a_gpt2_begin_and_end_with_their_token(name, gpt_stores):
  config = small_gpt_config(name, gpt_stores, **{'data.packed': 'documents'})
  store = corpus.open_store(config.data.folder)
  objective = families.objective_of(config)
  rows = objective.open_examples(config, store, LENGTH, held_out=False)
  batch = rows.batch(np.arange(rows.num_windows), None)
  texts = batch['texts']
  begins = (np.diff(texts, axis=1, prepend=0) != 0) & (texts > 0)
  end = getattr(store.tokenizer, 'end_of_text_id', -1)
  has_end = {key: batch[key] == end for key in ('tokens', 'targets')}
  assert has_end['tokens'].any() == has_end['targets'].any() == (name == 'gpt2')
  assert not (has_end['tokens'] & ~begins).any()


@pytest.mark.slow
@pytest.mark.parametrize('name', ['gpt', 'gpt2'])
def test_a_gpt_goes_on_as_well(
  name, gpt_stores, one_device, tmp_path, monkeypatch
):
  config = small_gpt_config(name, gpt_stores, **{'data.packed': 'documents'})
  results = check_continues(config, tmp_path, monkeypatch)
  assert 0 < results['metrics']['eval/lm_loss'] < 10


def test_a_workdir_older_than_packing_goes_on(
  small_config, one_device, tmp_path
):
  config = small_config(train__phases=((2, LENGTH, 16, 'continue'),))
  results = runs.train(config, tmp_path / 'run')
  path = tmp_path / 'run/config.json'
  written = json.loads(path.read_text())
  assert written['data'].pop('packed') is None
  path.write_text(json.dumps(written))
  assert runs.train(config, tmp_path / 'run') == results


PROGRAM = """
import json, sys
overrides, workdir, coordinator, process = sys.argv[1:5]
import runs
from train.run import command, settings
from train.host import processes
command.run(lambda: processes.join('cpu', coordinator, 2, int(process)))
config = settings.with_overrides(
  settings.load_config('bert_tiny'), json.loads(overrides))
command.run(lambda: runs.train(config, workdir))
"""


@pytest.mark.slow
def test_two_processes_train_like_two_devices_of_one(config, tmp_path):
  config = settings.with_overrides(
    config,
    {
      'train.phases': ((3, LENGTH, 16, 'continue'),),
      'train.log_every': 1,
      'mesh.data': -1,
    },
  )
  overrides = json.dumps(settings.flatten(config))
  children = start(
    lambda coordinator, i: [
      '-c',
      PROGRAM,
      overrides,
      str(tmp_path / 'run'),
      coordinator,
      str(i),
    ],
    num_processes=2,
    devices=1,
  )
  for code, _, error in end(children):
    assert code == 0, error[-3000:]
  rows = metrics.read_metrics(tmp_path / 'run')
  losses = [value for _, name, value in rows if name == 'train/loss']
  alone = runs.losses_on(
    config, sharding.make_mesh(config.mesh, jax.devices()[:2])
  )
  np.testing.assert_allclose(losses[0], alone[0], rtol=1e-6)
  np.testing.assert_allclose(losses, alone, rtol=1e-4)


@pytest.mark.parametrize('objective', ['bert', 'dialogue'])
def test_packing_and_next_sentences_exclude_each_other(config, objective):
  other = settings.with_overrides(config, {'train.objective': objective})
  with pytest.raises(
    ValueError,
    match=f"data.packed='documents': train.objective='{objective}' learns from"
    " pairs .* 'mlm' or 'lm', or data.packed=None",
  ):
    job.check_config(other)


def test_only_models_that_can_keep_texts_apart_have_the_key():
  having = {
    name
    for name in families.FAMILIES
    if 'packed' in variants.make_defaults(name).data
  }
  assert (
    having
    == {'bert', 'gpt', 'gpt2'}
    == {
      name for name in families.FAMILIES if families.ARCHITECTURES[name].packed
    }
  )
  assert not base.get_config().data.packed
