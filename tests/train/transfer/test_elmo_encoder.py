"""An ELMo as it is, below the head of a task."""

import functools

import jax
import numpy as np
import pytest
import runs
import small_elmo
import small_kinds
import small_tasks

from data.inputs.batches import Batches
from data.scoring import kinds, scores
from data.tasks import registry
from models import elmo, task_model
from models.pretrained import elmo as pretrained
from train.exports import folders
from train.params import opened
from train.transfer import predictors
from train.vectors import elmo_vectors

pytestmark = pytest.mark.usefixtures('one_device')
FROZEN = {
  'task.frozen': True,
  'task.features': 'mix',
  'task.bilstm_layers': 1,
  'task.bilstm_dim': 8,
  'optim.learning_rate': 3e-2,
}


@pytest.fixture(scope='module')
def small(tmp_path_factory):
  """A folder of published weights, the model and its parameters."""
  model = elmo.Elmo(
    vocab_size=0,
    lstm_dim=24,
    projection_dim=16,
    filters=((1, 8), (2, 16), (3, 16)),
    num_highway=1,
    char_embed_dim=8,
  )
  params = small_elmo.random_params(model)
  folder = tmp_path_factory.mktemp('published') / 'elmo'
  pretrained.write_folder(folder, model, params)
  return folder, model, params


def config_of(folder, kind, weights_folder, **changes):
  changes = small_kinds.write(folder, kind) | FROZEN | changes
  return small_tasks.small_config(
    folder, weights_folder, **{'own.test': None} | changes
  )


def answers_again(workdir, read, results):
  """Holds what a workdir answers of dev against what the run found."""
  task, split, predictions = predictors.predict([workdir], read)
  found = scores.score(task, split.examples, predictions)
  assert found
  for metric, value in found.items():
    assert value == results['metrics'][f'eval/{task.name}/{metric}']


@pytest.mark.slow
def test_words_are_tagged_from_the_mix_of_layers(small, tmp_path):
  weights_folder, _, params = small
  folder, workdir = tmp_path / 'set', tmp_path / 'run'
  config = config_of(
    folder,
    'conll2003',
    weights_folder,
    **{'train.steps': 300, 'train.eval_every': 50},
  )
  results = runs.train(config, workdir)
  assert results['metrics']['eval/conll2003/f1'] > 0.7
  found = opened.open_weights(workdir)
  assert (found.name, found.tokenizer) == ('elmo', None)
  kept = jax.device_get(found.load(found.on_one_device()))
  for name in params:  # as they were
    jax.tree.map(np.testing.assert_array_equal, kept[name], params[name])
  assert np.any(kept['mix']['mix_weights'])
  answers_again(
    workdir, lambda task: registry.load(task, str(folder), 'dev'), results
  )
  # What is finished is not begun again; and the head cannot be written.
  assert runs.train(config, workdir) == results
  with pytest.raises(ValueError, match='bilstm'):
    folders.export(workdir, tmp_path / 'exported')


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['own pairs', 'own choices', 'own scores'])
def test_texts_are_read_as_words(small, tmp_path, kind):
  config = config_of(tmp_path / 'set', kind, small[0], **{'train.steps': 2})
  results = runs.train(config, tmp_path / 'run')
  (dev,) = (tmp_path / 'set').glob('dev.*')
  answers_again(tmp_path / 'run', lambda task: task.read(dev, 'dev'), results)


def test_the_plan_knows_how_slow_an_elmo_is(small, tmp_path, capsys):
  changes = {'train.peak_tflops': 1.0}
  config = config_of(tmp_path / 'set', 'own tags', small[0], **changes)
  runs.train(config, tmp_path / 'run', dry_run=True)
  assert 'if these reach 13% of 1 TFLOP/s' in capsys.readouterr().out


def test_layers_are_those_that_embedding_gives(small, tmp_path):
  """The same vectors by another way: `train.embed`'s."""
  _, model, params = small
  small_kinds.write(tmp_path / 'set', 'conll2003')
  task = registry.find('conll2003')
  examples = registry.load(task, str(tmp_path / 'set'), 'dev')
  features = kinds.encode(task, examples, None, 64, form='elmo')
  batches = Batches(features, pad_id=0, max_length=64)
  (batch,) = batches.eval_batches(len(examples))
  tagger = task_model.TaskModel(
    backbone=model,
    head='token_classifier',
    num_outputs=2 * model.projection_dim,
    dropout_rate=0.5,
    features='second_to_last',
    frozen=True,
  )
  width = 2 * model.projection_dim
  head = {'kernel': np.eye(width), 'bias': np.zeros(width)}
  names = ('tokens', 'token_mask', 'token_types', 'positions', 'last')
  logits = jax.jit(functools.partial(tagger.apply, train=False))(
    {'params': params | {'token_classifier': head}},
    *(batch[name] for name in (*names, 'characters')),
  )['logits']
  vectors = elmo_vectors.embed_sentences(
    model, params, [example.words for example in examples]
  )
  expected = list(vectors)
  for row, number, mask in zip(
    logits, batch['example_ids'], batch['token_mask'], strict=True
  ):
    layers = expected[number]
    assert mask.sum() == layers.shape[1] + 2
    np.testing.assert_allclose(
      row[1 : 1 + layers.shape[1]], layers[1], rtol=0, atol=1e-5
    )


@pytest.mark.parametrize(
  ('kind', 'changes', 'message'),
  [
    ('own pairs', {'task.frozen': False}, 'ELMo must be frozen'),
    ('own pairs', {'task.bilstm_layers': 0}, 'task.bilstm_layers=0: an ELMo'),
    ('own pairs', {'task.lm_weight': 0.5}, 'only a GPT, or a BERT'),
    ('own pairs', {'init.num_layers': 1}, 'inherits some layers'),
    ('own pairs', {'task.features': 'sum_last_4'}, 'the encoder has 2'),
    ('own questions', {}, 'only a BERT finds spans'),
  ],
)
def test_what_an_elmo_cannot_do(small, tmp_path, kind, changes, message):
  config = config_of(tmp_path / 'set', kind, small[0], **changes)
  with pytest.raises(ValueError, match=message):
    runs.train(config, tmp_path / 'run')
