"""GPT and GPT-2 on the engine: from text to a trained model."""

import functools
import json

import jax
import numpy as np
import pytest
import runs
import torch
import transformers
from flax import linen as nn
from gpt_store import small_gpt_config, small_stores

from data.examples import pipeline
from data.store import corpus
from models.pretrained import gpt as pretrained
from train.architectures import architecture, families
from train.engine import objectives, sharding
from train.pretrain import assemble
from train.run import metrics, settings, training_phases
from train.vectors.trained_model import TrainedModel


@pytest.fixture(scope='module')
def stores(tmp_path_factory):
  return small_stores(tmp_path_factory.mktemp('stores'))


@pytest.fixture(scope='module')
def run_of(stores, one_device, tmp_path_factory):
  """Returns a function name -> config, workdir and results of its run."""

  @functools.cache
  def run(name):
    config = small_gpt_config(name, stores)
    workdir = tmp_path_factory.mktemp(name)
    return config, workdir, runs.train(config, workdir, draws=True)

  return run


@pytest.fixture(scope='module', params=['gpt', 'gpt2'])
def finished(request, run_of):
  return run_of(request.param)


def test_a_run_learns_and_says_so(finished):
  config, workdir, results = finished
  figures = results['metrics']
  assert figures['eval/perplexity'] == pytest.approx(
    np.exp(figures['eval/lm_loss'])
  )
  assert figures['eval/perplexity_ratio'] < 1.5
  assert 0 < figures['eval/lm_accuracy'] < 1
  losses = [
    value
    for _, name, value in metrics.read_metrics(workdir)
    if name == 'train/lm_loss'
  ]
  assert losses[-1] < losses[0] - 0.2
  assert (workdir / 'curves.png').exists()
  assert set(json.loads((workdir / 'results.json').read_text())) == set(results)


def test_what_was_trained_opens_and_scores(finished):
  config, workdir, results = finished
  found = TrainedModel(workdir, use='generate')
  assert found.name == config.model.name
  store = corpus.open_store(config.data.folder)
  assert found.tokenizer.fingerprint == store.tokenizer.fingerprint
  # The held-out loss again, by the opened parameters alone.
  (length,) = {phase.length for phase in training_phases.check_phases(config)}
  examples = families.objective_of(config).open_examples(
    config, store, length, held_out=True
  )

  @jax.jit
  def score(params, batch):
    batch = objective_of(config, store, length).transform(batch, None)
    outputs = found.model.apply(
      {'params': params},
      *[batch[name] for name in ('tokens', 'token_mask', 'positions')],
      train=False,
    )
    losses, _ = objectives.lm_losses(outputs, batch)
    return losses['lm']

  total, weight = 0.0, 0.0
  for batch in pipeline.eval_batches(
    examples, config.eval.global_batch, config.eval.max_windows
  ):
    loss, tokens = map(float, score(found.params, batch))
    total, weight = total + loss, weight + tokens
  assert total / weight == pytest.approx(
    results['metrics']['eval/lm_loss'], rel=1e-5
  )
  with pytest.raises(ValueError, match=r'holds a gpt2?, expected bert'):
    TrainedModel(workdir, use='fill_masks')


def objective_of(config, store, length):
  vocabulary = architecture.Vocabulary.of(store.tokenizer)
  return families.objective_of(config)(config, length, vocabulary)


@pytest.mark.parametrize('name', ['gpt', 'gpt2'])
def test_losses_on_real_windows_are_hugging_faces(name, stores):
  config = small_gpt_config(name, stores)
  store = corpus.open_store(config.data.folder)
  arch = families.architecture_of(config)
  length = 32
  phases = ((4, length, 8, 'continue'),)
  model = arch.build_model(config.model, store.vocab_size)
  objective = objective_of(config, store, length)
  examples = {
    length: objective.open_examples(config, store, length, held_out=False)
  }
  host = pipeline.train_batch(examples, phases, 0, 1)

  @jax.jit
  def score(host, rng):
    batch = objective.transform(host, None)
    inputs = objective.inputs(batch)
    params = nn.unbox(model.init(rng, *inputs, train=False))['params']
    outputs = model.apply({'params': params}, *inputs, train=False)
    losses, sums = objective.losses(outputs, batch)
    weight = objective.weights(batch)['lm']
    return params, losses['lm'][0] / weight, sums

  params, ours, sums = jax.device_get(score(host, jax.random.key(0)))

  sizes = dict(
    vocab_size=store.vocab_size,
    n_positions=config.model.max_length,
    n_embd=config.model.embed_dim,
    n_layer=config.model.num_layers,
    n_head=config.model.num_heads,
    bos_token_id=None,
    eos_token_id=None,
  )
  if name == 'gpt':
    theirs = transformers.OpenAIGPTLMHeadModel(
      transformers.OpenAIGPTConfig(afn='gelu', **sizes)
    )
  else:
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
  _, arrays = pretrained.to_hugging_face(params, model)
  theirs.load_state_dict(
    {key: torch.tensor(np.array(value)) for key, value in arrays.items()},
    strict=False,
  )
  labels = torch.tensor(host['window'], dtype=torch.long)
  labels[np.arange(length + 1) >= host['lengths'][:, None]] = -100
  with torch.no_grad():
    expected = theirs.eval()(
      input_ids=torch.tensor(host['window'], dtype=torch.long), labels=labels
    ).loss
  assert float(ours) == pytest.approx(float(expected), abs=1e-4)
  assert sums['lm_accuracy'][1] == int((labels[:, 1:] != -100).sum())


def test_meshes_agree(run_of, tmp_path, monkeypatch):
  config, alone, _ = run_of('gpt2')
  sizes = {'mesh.data': 2, 'mesh.fsdp': 2, 'mesh.tensor': 2}
  make = functools.partial(sharding.make_mesh, devices=jax.devices())
  monkeypatch.setattr(sharding, 'make_mesh', make)
  runs.train(settings.with_overrides(config, sizes), tmp_path)
  single, mixed = (
    [
      value
      for _, metric, value in metrics.read_metrics(workdir)
      if metric == 'train/loss'
    ]
    for workdir in (alone, tmp_path)
  )
  assert len(single) == 3
  np.testing.assert_allclose(mixed, single, rtol=1e-4)


def test_a_loss_that_is_not_finite_is_reported(stores, tmp_path, monkeypatch):
  create = assemble.Parts.create_state

  def spoilt(job):
    state = create(job)
    return state.replace(
      params=jax.tree.map(lambda x: x * np.nan, state.params)
    )

  monkeypatch.setattr(assemble.Parts, 'create_state', spoilt)
  with pytest.raises(
    FloatingPointError, match='(?s)not finite in step 1.*dropout: lm nan'
  ) as error:
    runs.train(small_gpt_config('gpt', stores), tmp_path)
  assert 'Documents of the batch' not in str(error.value)
  with np.load(tmp_path / 'nonfinite-step-0.npz') as batch:
    assert len(batch['window']) == 16


@pytest.mark.parametrize(
  ('name', 'overrides', 'message'),
  [
    ('gpt', {'model.name': 'gpt2'}, 'has no end-of-text token'),
    ('gpt', {'train.objective': 'bert'}, "'gpt' is trained with 'lm'"),
    ('gpt2', {'train.global_batch': 100_000}, 'windows of 32 tokens, fewer'),
  ],
)
def test_bad_input_is_refused(name, overrides, message, stores, tmp_path):
  config = settings.with_overrides(small_gpt_config(name, stores), overrides)
  with pytest.raises(ValueError, match=message):
    runs.train(config, tmp_path)


def test_a_vocabulary_of_gpt_is_none_of_bert(small_config, stores, tmp_path):
  config = small_config(data__folder=str(stores['gpt']))
  with pytest.raises(ValueError, match='has no .CLS.'):
    runs.train(config, tmp_path)
