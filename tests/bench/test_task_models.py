"""That AllenNLP's models read our inputs as ours do, and are run once."""

import dataclasses
import json
import os

import allennlp_reference as reference
import jax
import numpy as np
import pytest
import task_model_rows
import task_model_speed
import task_models
from etils import epath

from configs.tables.base import Column, Part
from train.papers import table_figures
from train.vectors.vector_cache import CachedVectors, VectorCache

pytest.importorskip('torch')

L, D = 3, 4
SMALL = {
  'dim': 3,
  'hidden': 5,
  'maxout': (6, 4),
  'batch': 4,
  'epochs': 2,
  'limit': 8,
  'eval_limit': 6,
  'word_dim': 3,
  'fixed': False,
}


def recipe_of(model, **changes):
  return dataclasses.replace(
    task_model_rows.RECIPES[model], **(SMALL | changes)
  )


@pytest.fixture
def language_model(monkeypatch):
  """Drawn vectors in place of a language model's."""

  def vectors(cache, sentences, folder):
    del cache, folder
    lengths = [len(words) for words in sentences]
    layers = np.random.default_rng(0).normal(size=(sum(lengths), L, D))
    return CachedVectors(
      layers.astype(np.float16), np.cumsum([0, *lengths[:-1]])
    )

  monkeypatch.setattr(VectorCache, '__init__', lambda cache, weights: None)
  monkeypatch.setattr(VectorCache, 'vectors', vectors)


def array(parameter):
  return parameter.detach().numpy()


def body_params(model):
  """The parameters of AllenNLP's body as those of ours."""
  body, linear, bilstm = model.body, reference.linear, reference.bilstm
  if model.recipe.model == 'bcn':
    layers = body._output_layer._linear_layers
    maxouts = [linear(layer, pool_size=4) for layer in layers]
    return {
      'hidden': linear(body._pre_encode_feedforward._linear_layers[0]),
      'encoder': bilstm(body._encoder._module),
      'integrator': bilstm(body._integrator._module),
      'pooling': linear(body._self_attentive_pooling_projection),
      **dict(zip(('maxout_0', 'maxout_1', 'logits'), maxouts, strict=True)),
    }
  if model.recipe.model == 'esim':
    return {
      'encoder': bilstm(body._encoder._module),
      'projection': linear(body._projection_feedforward._linear_layers[0]),
      'composition': bilstm(body._inference_encoder._module),
      'hidden': linear(body._output_feedforward._linear_layers[0]),
      'logits': linear(body._output_logit._linear_layers[0]),
    }
  if model.recipe.model == 'bilstm_crf':
    return {
      'encoder': bilstm(body.encoder._module),
      'logits': linear(body.tag_projection_layer._module),
    }
  return {
    'encoder': bilstm(body.encoder._module),
    'pair_encoder': bilstm(body.pair_encoder._module),
    'classifier': {
      'hidden': linear(body.classifier[0]),
      'logits': linear(body.classifier[2]),
    },
  }


def params_of(model):
  params = {'body': body_params(model)} | reference.words(model.words)
  if hasattr(model.body, 'crf'):
    params['crf'] = {'transitions': array(model.body.crf.transitions)}
  return params


@pytest.mark.parametrize(
  'name, mix_at, changes',
  [
    ('bcn', 'both', {'layer_norm': True}),
    ('esim', 'output', {}),
    ('bilstm_crf', 'both', {'characters': 5}),
    ('bilstm_attention', 'both', {}),
    ('bilstm_crf', None, {'word_dim': 0, 'characters': 5}),
  ],
)
def test_reads_a_batch_as_ours_does(
  sesame_data, torch, language_model, name, mix_at, changes
):
  from task_model_torch import Model

  task, _ = task_model_speed.TIMED[name]
  if mix_at is not None:
    changes |= {'language_model': 'small', 'mix_at': mix_at}
  recipe = recipe_of(name, **changes)
  inputs = task_model_rows.read(task, str(sesame_data), recipe)
  theirs = Model(inputs, recipe, 0)
  table = inputs.table
  if table.num_rows:
    np.testing.assert_array_equal(
      array(theirs.words.parts['rows'].weight), table.initial(0)
    )
  constraints = None
  if name == 'bilstm_crf':
    constraints = theirs.body.crf._constraint_mask.detach().clone()
  reference.disturb(torch, theirs)
  if constraints is not None:
    theirs.body.crf._constraint_mask.data = constraints
  ours = task_model_speed.our_model(inputs, recipe)
  run = jax.jit(
    lambda params, arrays: ours.apply({'params': params}, *arrays, train=False)
  )
  (batch, *_) = inputs.splits['dev'].batches.eval_batches(4)
  arrays = [
    batch.get(key) for key in ('tokens', 'token_mask', 'characters', 'vectors')
  ]
  found = jax.device_get(run(params_of(theirs), arrays))
  theirs.eval()
  texts, labels = task_model_rows.to_torch(batch, recipe)
  expected = theirs(texts, labels)
  assert not theirs.words.added
  if name != 'bilstm_crf':
    logits = expected.get('label_logits', expected.get('logits'))
    np.testing.assert_allclose(found['logits'], array(logits), atol=2e-5)
    return
  paths = found['logits'].argmax(axis=-1)
  for path, tags, mask, logits, emissions in zip(
    paths,
    expected['tags'],
    batch['token_mask'],
    array(expected['logits']),
    found['emissions'],
    strict=True,
  ):
    assert path[mask].tolist() == tags
    count = mask.sum()
    np.testing.assert_allclose(emissions[:count], logits[:count], atol=2e-5)


def test_runs_once_and_a_table_reads_it(
  sesame_data, torch, language_model, tmp_path, monkeypatch
):
  record = tmp_path / 'runs.json'
  recipe = recipe_of('bilstm_crf', language_model='small', mix_l2=1.0)
  arguments = 'panx_en', str(sesame_data), recipe, 2, record
  task_models.learn(*arguments)
  found = json.loads(record.read_text())
  first, second = found['runs']
  assert (first['seed'], second['seed']) == (0, 1)
  assert first['inputs'] == 'drawn+characters+language_model@input'
  assert first['epochs'] == 2 and first['train_size'] == 8
  (mean,) = found['means']
  assert mean['seeds'] == 2
  column = Column('PAN-X', (Part('panx_en', metrics=('dev/f1',)),))
  figures = table_figures.read_reference(epath.Path(record), [column])
  assert figures['PAN-X'].mean == pytest.approx(mean['metrics']['dev/f1'])

  monkeypatch.setattr(task_models, 'run', None)
  task_models.learn(*arguments)
  other = dataclasses.replace(recipe, dropout=0.1)
  with pytest.raises(ValueError, match='seed 0 was run with dropout 0.5'):
    task_models.learn('panx_en', str(sesame_data), other, 2, record)
  with pytest.raises(ValueError, match='drawn vectors of words are learned'):
    fixed = recipe_of('bcn', fixed=True)
    task_models.learn('sst5', str(sesame_data), fixed, 1, record)
  with pytest.raises(ValueError, match='expected classification, texts: 2'):
    task_models.learn('sst5', str(sesame_data), recipe_of('esim'), 1, record)
  with pytest.raises(FileNotFoundError, match='there is no such folder'):
    task_models.learn(*arguments[:4], tmp_path / 'none' / 'runs.json')


def test_the_best_epoch_is_scored_and_the_rate_halved(
  sesame_data, torch, monkeypatch
):
  import task_model_torch

  recipe = recipe_of('bcn', epochs=6, patience=3, plateau=0)
  inputs = task_model_rows.read('sst5', str(sesame_data), recipe)
  scores = iter([0.2, 0.4, 0.4, 0.3, 0.4, 0.1, 0.1])
  made, states, rates = [], [], []
  make = task_model_torch.make_step

  def make_step(model, recipe):
    step = make(model, recipe)
    made.append(step.optimizer)
    return step

  def evaluate(model, inputs, split):
    states.append(model.words.parts['rows'].weight.detach().clone())
    rates.append(made[0].param_groups[0]['lr'])
    return {'accuracy': next(scores)}

  monkeypatch.setattr(task_model_torch, 'make_step', make_step)
  monkeypatch.setattr(task_models, 'evaluate', evaluate)
  found = task_models.run(inputs, recipe, 0)
  assert found['epochs'] == 5
  assert [*found['metrics']] == ['dev/accuracy', 'test/accuracy']
  np.testing.assert_array_equal(states[-1], states[1])
  assert not np.array_equal(states[-1], states[4])
  np.testing.assert_allclose(
    np.array(rates[:5]) / recipe.learning_rate, [1, 1, 1, 0.5, 0.25]
  )


@pytest.mark.slow
@pytest.mark.parametrize('name', ['esim', 'bilstm_crf'])
def test_steps_of_both_can_be_timed(sesame_data, torch, monkeypatch, name):
  monkeypatch.setattr(os, 'sched_setaffinity', lambda *cores: None)
  monkeypatch.setattr(task_model_speed, 'NUM_TIMED', 1)
  task, _ = task_model_speed.TIMED[name]
  recipe = recipe_of(name, layers=1, dropout=0.0)
  options = dict(data=str(sesame_data), task=task, recipe=recipe, threads=1)
  for make in (task_model_speed.ours, task_model_speed.theirs):
    run, _ = make(**options)
    (first,), (second,) = run(), run()
    assert np.isfinite([first, second]).all()
    assert second != first  # the first step changed the weights
