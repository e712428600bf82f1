"""That AllenNLP's models of roles, coreference and questions are fair peers."""

import dataclasses
import json
import os

import allennlp_reference as reference
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_kinds
import task_model_rows
import task_model_speed
import task_models

from data.examples import pipeline
from data.vocabulary import tag_schemes
from models import crf
from models.elmo_tasks.coref import loss as coref
from train.vectors.vector_cache import CachedVectors, VectorCache

pytest.importorskip('torch')

SMALL = {
  'dim': 3,
  'hidden': 5,
  'batch': 4,
  'epochs': 2,
  'word_dim': 3,
  'fixed': False,
  'patience': None,
}
# Model -> changes for little data.
CHANGES = {
  'deep_srl': {'layers': 2},
  'e2e_coref': {'batch': 1, 'characters': 4},
  # The texts have 60 words.
  'bidaf': {'characters': 4, 'max_length': 48},
}


def recipe_of(name, **changes):
  return dataclasses.replace(
    task_model_rows.RECIPES[name], **(SMALL | CHANGES[name] | changes)
  )


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  """A folder of small sets in the forms of the published ones."""
  folder = tmp_path_factory.mktemp('sets')
  small_kinds.write(folder / 'ewt_propbank', 'own roles')
  for split in small_kinds.SIZES:
    file = folder / 'ewt_propbank' / f'{split}.gold_conll'
    file.rename(file.with_name(f'ewt_srl_{split}.gold_conll'))
  small_kinds.write(folder / 'squad', 'squad2')
  for split in ('train', 'dev'):
    file = folder / 'squad' / f'{split}-v2.0.json'
    found = json.loads(file.read_text())
    paragraphs = found['data'][0]['paragraphs']
    found['data'][0]['paragraphs'] = [
      each for each in paragraphs if each['qas'][0]['answers']
    ]
    file.with_name(f'{split}-v1.1.json').write_text(json.dumps(found))
  (folder / 'ontogum').mkdir()
  for seed, split in enumerate(('train', 'dev')):
    (folder / 'ontogum' / f'{split}.tsv').write_text(_documents(seed))
  return str(folder)


def _documents(seed):
  """Documents of OntoGUM, in which equal words are of one cluster."""
  rng, lines = np.random.default_rng(seed), []
  for number in range(8):
    lines += [f'# newdoc id = GUM_news_{number}', '# genre = news']
    for sentence in range(3):
      lines.append(f'# sent_id = GUM_news_{number}-{sentence + 1}')
      length = rng.integers(3, 13)
      for i, word in enumerate(rng.integers(0, 12, length).tolist()):
        mention = f'({word}-object)' if word < 4 else '_'
        fields = (i + 1, f'word{word}', 'x', 'NOUN', 'NN', 0, 'dep', mention)
        lines.append('\t'.join(map(str, (*fields, '_'))))
      lines.append('')
  return '\n'.join(lines) + '\n'


TASKS = {name: task_model_speed.TIMED[name][0] for name in CHANGES}


@pytest.mark.parametrize('name', TASKS)
def test_learns_and_is_scored(data, torch, tmp_path, name):
  import task_model_torch

  task, recipe = TASKS[name], recipe_of(name, dropout=0.0, patience=2)
  record = tmp_path / 'runs.json'
  task_models.learn(task, data, recipe, 1, record)
  (found,) = json.loads(record.read_text())['runs']
  assert found['epochs'] == 2 and found['inputs'].startswith('drawn')
  metrics = {
    'deep_srl': {'dev/f1', 'dev/f1/verb', 'test/f1/verb'},
    'e2e_coref': {'dev/average_f1'},
    'bidaf': {'dev/f1', 'dev/em'},
  }
  assert metrics[name] <= found['metrics'].keys()

  torch.manual_seed(0)
  inputs = task_model_rows.read(task, data, recipe)
  rate = recipe.learning_rate * (1 if name == 'deep_srl' else 10)
  recipe = dataclasses.replace(recipe, dim=16, learning_rate=rate)
  model = task_model_torch.Model(inputs, recipe, 0)
  step = task_model_torch.make_step(model, recipe)
  batches = inputs.splits['train'].batches
  batch = batches.train_batch(0, pipeline.ALL_ROWS, recipe.batch, 0, 10)
  losses = [step(batch) for _ in range(20)]
  assert losses[-1] < 0.8 * losses[0]


def params_of(model):
  """The parameters of AllenNLP's model as those of ours."""
  params = reference.words(model.words)
  if model.recipe.model == 'e2e_coref':
    return params | {'body': reference.resolver(model.body.resolver)}
  if model.recipe.model == 'bidaf':
    return params | {'body': reference.bidaf(model.body.flow)}
  labeler = model.body.labeler
  table = labeler.binary_feature_embedding.weight.detach().numpy()
  return params | {
    'marks': {'table': table},
    'body': {
      'encoder': reference.highway_lstms(labeler.encoder._module),
      'logits': reference.linear(labeler.tag_projection_layer._module),
    },
  }


@pytest.fixture
def language_model(monkeypatch):
  """Drawn vectors in place of a language model's."""

  def vectors(cache, sentences, folder):
    del cache, folder
    lengths = [len(words) for words in sentences]
    layers = np.random.default_rng(0).normal(size=(sum(lengths), 3, 4))
    return CachedVectors(
      layers.astype(np.float16), np.cumsum([0, *lengths[:-1]])
    )

  monkeypatch.setattr(VectorCache, '__init__', lambda cache, weights: None)
  monkeypatch.setattr(VectorCache, 'vectors', vectors)


@pytest.mark.parametrize('name', TASKS)
def test_reads_a_batch_as_ours_does(data, torch, language_model, name):
  import task_model_torch

  recipe = recipe_of(name, language_model='small')
  inputs = task_model_rows.read(TASKS[name], data, recipe)
  theirs = task_model_torch.Model(inputs, recipe, 0)
  np.testing.assert_array_equal(
    theirs.words.parts['rows'].weight.detach(), inputs.table.initial(0)
  )
  reference.disturb(torch, theirs)
  theirs.eval()
  ours = task_model_speed.our_model(inputs, recipe)
  run = jax.jit(
    lambda params, arrays: ours.apply({'params': params}, *arrays, train=False)
  )
  (batch, *_) = inputs.splits['dev'].batches.eval_batches(recipe.batch)
  found = jax.device_get(
    run(params_of(theirs), task_model_speed.inputs_of(ours, batch))
  )
  expected = theirs(*task_model_rows.to_torch(batch, recipe))
  answers = expected['answers']
  mask = batch['token_mask']
  if name == 'deep_srl':
    logits = expected['logits'].detach().numpy()
    for b, count in enumerate(mask.sum(axis=1)):
      emissions, paths = found['emissions'][b], found['logits'][b]
      np.testing.assert_allclose(
        emissions[:count], logits[b, :count], atol=2e-5
      )
      assert (paths[:count].argmax(-1) == answers[b].argmax(-1)).all()
  elif name == 'e2e_coref':
    ((answer,), (links,)) = answers, jax.jit(coref.links)(found)
    np.testing.assert_array_equal(links[: len(answer)], answer)
    losses = jax.jit(coref.antecedent_losses)(found, batch['labels'])
    assert losses[0] == pytest.approx(expected['loss'].item(), rel=1e-5)
    # Some link, and some do not.
    assert {True, False} == {*(answer[:, 2] >= 0).tolist()}
  else:
    for b, count in enumerate(mask[:, 1].sum(axis=1)):
      ours_there = found['logits'][b, :count]
      np.testing.assert_allclose(ours_there, answers[b][:count], atol=2e-5)


def test_the_best_paths_are_ours(torch):
  from task_bodies import structured

  labels = ('O', 'B-X', 'I-X', 'B-Y', 'I-Y')
  K, T = len(labels), 6
  allowed = tag_schemes.allowed(labels)
  logits = np.random.default_rng(0).normal(0, 2, (20, T, K)).astype('f4')
  lengths = [T, 1, 3, 5] * 5
  found = structured.best_paths(
    torch.tensor(logits), lengths, torch.tensor(allowed)
  )
  mask = np.arange(T) < np.array(lengths)[:, None]
  scores = jax.jit(
    lambda logits: crf.best_scores(
      jax.nn.log_softmax(logits), jnp.zeros((K, K)), allowed, mask
    )
  )(logits)
  scores = np.asarray(scores)
  changed = 0
  for b, length in enumerate(lengths):
    path = scores[b, :length].argmax(-1)
    assert (found[b].argmax(-1) == path).all() and found[b].shape == (length, K)
    changed += (path != logits[b, :length].argmax(-1)).any()
  assert changed > 5


def test_windows_without_their_answer_have_no_loss(data, torch):
  import task_model_torch

  recipe = recipe_of('bidaf', dropout=0.0)
  inputs = task_model_rows.read('squad1', data, recipe)
  model = task_model_torch.Model(inputs, recipe, 0)
  # The dropout of the vectors of characters is of training too.
  model.words.parts['characters']._dropout.p = 0.0
  training = inputs.splits['train'].batches
  texts, labels = task_model_rows.to_torch(
    next(training.eval_batches(len(training.features))), recipe
  )
  is_there = (labels >= 0).all(dim=1)
  assert is_there.any() and not is_there.all()
  loss = model(texts, labels)['loss'].item()
  kept = [{k: x[is_there] for k, x in text.items()} for text in texts]
  assert loss == pytest.approx(model(kept, labels[is_there])['loss'].item())


def test_mixes_at_the_output_are_refused(data, torch, language_model):
  import task_model_torch

  for mix_at in ('output', 'both'):
    recipe = recipe_of('bidaf', language_model='small', mix_at=mix_at)
    inputs = task_model_rows.read('squad1', data, recipe)
    with pytest.raises(ValueError, match="expected 'input' for the model bid"):
      task_model_torch.Model(inputs, recipe, 0)


# The third is alike, and takes seconds to compile.
@pytest.mark.slow
@pytest.mark.parametrize('name', ['deep_srl', 'bidaf'])
def test_steps_of_both_can_be_timed(data, torch, monkeypatch, name):
  monkeypatch.setattr(os, 'sched_setaffinity', lambda *cores: None)
  monkeypatch.setattr(task_model_speed, 'NUM_TIMED', 1)
  recipe = recipe_of(name, layers=1, dropout=0.0)
  options = dict(data=data, task=TASKS[name], recipe=recipe, threads=1)
  for make in (task_model_speed.ours, task_model_speed.theirs):
    run, _ = make(**options)
    (first,), (second,) = run(), run()
    assert np.isfinite([first, second]).all()
    assert second != first  # the first step changed the weights
