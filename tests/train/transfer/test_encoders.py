"""GPTs, the LSTM, a left-to-right BERT and a BiLSTM on top, as encoders."""

import functools
import json
import pathlib
import pydoc_data.topics
import shutil

import jax
import numpy as np
import pytest
import runs
import small_kinds
import small_published
import small_tasks
from flax import linen as nn

from configs.sections import task as task_section
from data.scoring import kinds
from data.tasks import registry
from data.vocabulary import tokenization
from models import gpt, lstm_lm
from train.architectures import architecture, families
from train.engine import sharding
from train.exports import folders
from train.params import opened
from train.run import checkpoint, settings
from train.transfer import (
  encoders,
  finetune,
  predictors,
  task_data,
  task_outputs,
)

pytestmark = pytest.mark.usefixtures('one_device')
GPT_RECIPE = {
  'optim.name': 'gpt_adam',
  'optim.schedule': 'gpt_linear',
  'optim.warmup_fraction': 0.002,
  'optim.epsilon': 1e-8,
  'task.lm_weight': 0.5,
}


@pytest.fixture(scope='module')
def gpt_of(tmp_path_factory):
  """Returns a function (kind of BPE) -> published weights of a small GPT."""

  @functools.cache
  def make(kind):
    folder = tmp_path_factory.mktemp('published') / kind
    tokenizer = tokenization.train(
      list(pydoc_data.topics.topics.values())[:20],
      tokenization.parse_training(f'train:{kind}:400'),
    )
    small_published.write_gpt(folder, tokenizer)
    return folder

  return make


@pytest.fixture(scope='module')
def pair_folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('sets') / 'pairs'
  return folder, small_kinds.write(folder, 'own pairs')


def answers_again(workdir, file, results):
  """Holds what a workdir answers of dev against what the run found."""
  task, split, predictions = predictors.predict(
    [workdir], lambda task: predictors.read_input(task, file, 'dev')
  )
  right = [
    found.answer == example.label
    for found, example in zip(predictions, split.examples, strict=True)
  ]
  assert np.mean(right) == results['metrics'][f'eval/{task.name}/accuracy']


def test_weights_without_a_vocabulary_are_told_theirs(
  gpt_of, own_set, tmp_path
):
  """By the key that also names that of a training from scratch."""
  weights_alone = tmp_path / 'alone'
  shutil.copytree(gpt_of('bpe'), weights_alone)
  for name in ('vocab.json', 'merges.txt'):
    (weights_alone / name).unlink()

  def open_encoder(weights, **changes):
    config = small_tasks.small_config(own_set, weights, **changes)
    return encoders.open_encoder(config, task_data.open_task(config), None)

  with pytest.raises(ValueError, match='no vocab.*--config.data.tokenizer=PA'):
    open_encoder(weights_alone)
  expected = open_encoder(gpt_of('bpe'))
  found = open_encoder(weights_alone, data__tokenizer=str(gpt_of('bpe')))
  assert found.tokenizer.fingerprint == expected.tokenizer.fingerprint
  assert found.module == expected.module


@pytest.mark.slow
def test_a_gpt_learns_with_both_losses(gpt_of, own_set, tmp_path):
  changes = GPT_RECIPE | {'train.num_epochs': 6.0, 'optim.learning_rate': 1e-2}
  config = small_tasks.small_config(own_set, gpt_of('bpe'), **changes)
  results = runs.train(config, tmp_path)
  assert results['metrics']['eval/own/accuracy'] > 0.8
  rows = (tmp_path / 'metrics.csv').read_text().splitlines()
  losses = [
    float(row.split(',')[2]) for row in rows if ',train/lm_loss,' in row
  ]
  assert losses[-1] < losses[0]
  answers_again(tmp_path, own_set / 'dev.jsonl', results)
  found = opened.open_weights(tmp_path)
  assert found.name == 'gpt'
  assert found.heads == ('classifier',)


def test_a_bert_learns_with_both_losses(own_set, small_bert, tmp_path):
  changes = {'task.lm_weight': 0.5, 'train.num_epochs': 3.0}
  config = small_tasks.small_config(own_set, small_bert, **changes)
  results = runs.train(config, tmp_path / 'run')
  rows = (tmp_path / 'run/metrics.csv').read_text().splitlines()
  losses = [
    float(row.split(',')[2]) for row in rows if ',train/lm_loss,' in row
  ]
  assert losses[-1] < losses[0]
  answers_again(tmp_path / 'run', own_set / 'dev.jsonl', results)
  # Its softmax is there for whoever begins with the run.
  found = opened.open_weights(tmp_path / 'run')
  assert 'mlm/bias' in found.shapes
  changes |= {
    'model.left_to_right': True,
    'init.weights': None,
    'data.tokenizer': str(small_bert),
  }
  config = small_tasks.small_config(own_set, None, **changes)
  with pytest.raises(ValueError, match='only a GPT, or a BERT that reads both'):
    runs.train(config, tmp_path / 'left')


def test_only_gpts_own_table_holds_positions():
  """GPT-2's lie apart in its release, and the LSTM has none."""
  config = task_section.get_config()
  config.task.update({'lm_weight': 0.5, 'max_length': 24})
  sizes = {'vocab_size': 9, 'num_layers': 1, 'embed_dim': 8}
  of_gpt = gpt.Gpt(**sizes, num_heads=2, mlp_dim=8)
  for module, name, expected in (
    (of_gpt, 'gpt', 24),
    (of_gpt.clone(max_length=20), 'gpt', 20),
    (of_gpt.clone(pre_norm=True), 'gpt2', 0),
    (lstm_lm.LstmLm(**sizes, lstm_dim=8), 'lstm', 0),
  ):
    config.model.name = name
    task = registry.find('sst2')
    model = encoders.EncoderProgram(config, task, module, None, None).model
    assert model.lm and model.lm_positions == expected


@pytest.mark.slow
def test_a_gpt_reads_a_pair_in_both_orders(gpt_of, pair_folder, tmp_path):
  folder, changes = pair_folder
  config = small_tasks.small_config(
    folder,
    gpt_of('bpe'),
    **changes | GPT_RECIPE | {'own.symmetric': True, 'train.steps': 2},
  )
  results = runs.train(config, tmp_path / 'run')
  answers_again(tmp_path / 'run', folder / 'dev.tsv', results)
  # The other way round says the same.
  lines = [
    line.split('\t')
    for line in (folder / 'dev.tsv').read_text().splitlines(True)
  ]
  swapped = tmp_path / 'swapped.tsv'
  swapped.write_text(
    ''.join('\t'.join([row[0], row[2], row[1], row[3]]) for row in lines)
  )
  swapped.write_text(
    swapped.read_text().replace('second\tfirst', 'first\tsecond')
  )
  chances = []
  for file in (folder / 'dev.tsv', swapped):
    _, _, found = predictors.predict(
      [tmp_path / 'run'],
      functools.partial(lambda file, task: task.read(file, 'dev'), file),
    )
    chances.append([each.probabilities for each in found])
  np.testing.assert_allclose(*chances, rtol=1e-5)


def test_tags_have_no_texts_that_change_places(gpt_of, tmp_path):
  changes = small_kinds.write(tmp_path / 'set', 'own tags')
  config = small_tasks.small_config(
    tmp_path / 'set', gpt_of('bpe'), **changes, own__symmetric=True
  )
  with pytest.raises(ValueError, match='own.symmetric=True: expected False'):
    runs.train(config, tmp_path / 'run')


@pytest.mark.slow
def test_a_gpt2_chooses(gpt_of, tmp_path):
  folder = tmp_path / 'set'
  changes = small_kinds.write(folder, 'own choices')
  config = small_tasks.small_config(
    folder, gpt_of('bytebpe'), **changes | GPT_RECIPE | {'train.steps': 2}
  )
  results = runs.train(config, tmp_path / 'run')
  answers_again(tmp_path / 'run', folder / 'dev.jsonl', results)
  assert opened.open_weights(tmp_path / 'run').name == 'gpt2'


def test_soft_classes_of_scores(gpt_of, tmp_path):
  folder = tmp_path / 'set'
  changes = small_kinds.write(folder, 'own scores')
  source = folder / 'train.jsonl'  # its scores shall span 0 to 5
  text = source.read_text().replace('0.5}', '0.0}').replace('4.5}', '5.0}')
  source.write_text(text)
  config = small_tasks.small_config(
    folder,
    gpt_of('bpe'),
    **changes | GPT_RECIPE | {'train.steps': 2, 'task.soft_classes': 6},
  )
  results = runs.train(config, tmp_path / 'run')
  _, _, found = predictors.predict(
    [tmp_path / 'run'], lambda task: task.read(folder / 'test.jsonl', 'test')
  )
  assert all(0 <= each.answer <= 5 for each in found)
  assert 'eval/own/test/spearman' in results['metrics']


def test_spans_are_not_for_a_gpt(gpt_of, tmp_path):
  folder = tmp_path / 'set'
  changes = small_kinds.write(folder, 'own questions')
  config = small_tasks.small_config(folder, gpt_of('bpe'), **changes)
  with pytest.raises(ValueError, match='only a BERT finds spans'):
    runs.train(config, tmp_path / 'run')


@pytest.fixture(scope='module')
def pretrained(small_store, gpt_of, tmp_path_factory):
  """Returns a function name -> workdir of a config, its parameters as drawn."""

  def make(name):
    config = settings.load_config(name)
    sizes = {'embed_dim': 32, 'max_length': 64}
    if name.startswith('gpt'):
      tokenizer = tokenization.load(gpt_of('bpe'))
      sizes |= {'lstm_dim': 64, 'num_layers': 1}
    else:
      tokenizer = tokenization.load(small_store)
      sizes |= {'num_layers': 2, 'num_heads': 2, 'mlp_dim': 64}
    config = settings.with_overrides(
      config, {f'model.{key}': value for key, value in sizes.items()}
    )
    workdir = tmp_path_factory.mktemp('pretrained') / name.replace(':', '_')
    workdir.mkdir()
    (workdir / 'config.json').write_text(settings.as_json(config))
    tokenizer.save(workdir)
    vocabulary = architecture.Vocabulary.of(tokenizer)
    model = families.build_model(config, vocabulary.size)
    shapes = nn.unbox(opened.abstract_params(model))
    random = np.random.default_rng(0)
    params = jax.tree.map(
      lambda leaf: random.normal(0, 0.1, leaf.shape).astype(np.float32), shapes
    )
    with checkpoint.Checkpoints(workdir, keep=1) as checkpoints:
      checkpoints.save(2, {'params': params})
    return workdir

  return make


@pytest.mark.slow
def test_an_lstm_learns_and_opens(pretrained, own_set, tmp_path):
  workdir = pretrained('gpt:lstm')
  config = small_tasks.small_config(
    own_set, workdir, **{'train.num_epochs': 6.0, 'optim.learning_rate': 1e-2}
  )
  results = runs.train(config, tmp_path)
  assert results['metrics']['eval/own/accuracy'] > 0.8
  answers_again(tmp_path, own_set / 'dev.jsonl', results)


def params_of(workdir):
  found = opened.open_weights(workdir)
  return found, jax.device_get(found.load(found.on_one_device()))


@pytest.fixture(scope='module')
def left_to_right(pretrained):
  return pretrained('bert_tiny:ltr_no_nsp')


@pytest.mark.slow
def test_a_left_to_right_bert_learns_from_the_last_token(
  left_to_right, own_set, tmp_path
):
  """Without a BiLSTM, which would show it the text in another way."""
  config = small_tasks.small_config(
    own_set,
    left_to_right,
    **{'train.num_epochs': 12.0, 'optim.learning_rate': 1e-2},
  )
  run = tmp_path / 'run'
  results = runs.train(config, run)
  assert results['metrics']['eval/own/accuracy'] > 0.8
  answers_again(run, own_set / 'dev.jsonl', results)
  assert opened.open_weights(run).model.pool == 'last'
  # Hugging Face's classes would read both ways, at [CLS].
  with pytest.raises(ValueError, match='left to right'):
    folders.export(run, tmp_path / 'exported')
  # One that was begun when [CLS] was read goes on reading that.
  file = run / opened.IMPORTED_FILE
  imported = json.loads(file.read_text())
  assert imported['fields'].pop('pool') == 'last'
  file.write_text(json.dumps(imported))
  assert opened.open_weights(run).model.pool == 'first'
  assert predictors.open_member(run).program.module.pool == 'first'
  # The last token, in the words of a version between.
  file.write_text(
    json.dumps(imported | {'fields': imported['fields'] | {'pool_last': True}})
  )
  assert opened.open_weights(run).model.pool == 'last'


@pytest.mark.slow
def test_a_left_to_right_bert_stays_so(left_to_right, own_set, tmp_path):
  config = small_tasks.small_config(
    own_set,
    left_to_right,
    **{'task.bilstm_layers': 1, 'task.bilstm_dim': 8} | {'train.steps': 2},
  )
  results = runs.train(config, tmp_path / 'run')
  answers_again(tmp_path / 'run', own_set / 'dev.jsonl', results)
  found, params = params_of(tmp_path / 'run')
  assert found.model.left_to_right
  tokens = np.arange(10, 20, dtype=np.int32)[None]
  later = tokens.copy()
  later[:, 6:] += 20
  hidden = [
    found.model.apply(
      {'params': params},
      ids,
      ids >= 0,
      0 * ids,
      np.arange(10)[None],
      train=False,
    )['hidden']
    for ids in (tokens, later)
  ]
  np.testing.assert_allclose(hidden[0][:, :6], hidden[1][:, :6], atol=1e-6)
  assert not np.allclose(hidden[0][:, 6:], hidden[1][:, 6:], atol=1e-3)
  # It cannot be written as what others read, and says so.
  with pytest.raises(ValueError, match='left to right'):
    folders.export(tmp_path / 'run', tmp_path / 'exported')
  assert not pathlib.Path(tmp_path / 'exported').exists()
  # Its encoder can begin another run, whose head is of other sizes.
  plain = small_tasks.small_config(own_set, tmp_path / 'run')
  mesh = sharding.make_mesh(plain.mesh)
  job = finetune.plan(plain, mesh)
  with sharding.scope(mesh, plain.mesh.rules):
    begun = jax.device_get(job.begin(0).params)
  np.testing.assert_array_equal(
    begun['embeddings']['tokens']['embedding'],
    params['embeddings']['tokens']['embedding'],
  )
  assert begun['classifier']['kernel'].shape[0] == 32


@pytest.mark.parametrize('kind', ['own tags', 'own choices', 'squad2'])
def test_a_left_to_right_bert_reads_where_it_has_seen_all(
  left_to_right, tmp_path, kind
):
  """Tags at last pieces; choices, and that there is no answer, at the end."""
  folder = tmp_path / 'set'
  changes = small_kinds.write(folder, kind) | {'train.steps': 1}
  if 'own.test' in changes:
    changes['own.test'] = None
  config = small_tasks.small_config(folder, left_to_right, **changes)
  mesh = sharding.make_mesh(config.mesh)
  job = finetune.plan(config, mesh)
  features = job.tasks[0].splits['dev'].features
  if kind == 'own tags':
    both_ways = kinds.encode(
      job.tasks[0].task,
      job.tasks[0].splits['dev'].examples,
      job.tasks[0].tokenizer,
      32,
    )
    assert (features.word_index != both_ways.word_index).any()
    assert (np.sort(features.word_index) == np.sort(both_ways.word_index)).all()
    # The piece after a labelled one begins another word, or ends the row.
    pieces = [job.tasks[0].tokenizer.pieces[i] for i in features.tokens]
    for place in np.flatnonzero(features.word_index >= 0):
      assert not pieces[place + 1].startswith('##')
    return
  with sharding.scope(mesh, config.mesh.rules):
    params = job.begin(0).params
    logits, _ = task_outputs.run_model(
      job.tasks[0], params, job.tasks[0].splits['dev']
    )
  said = [each[0] if kind == 'squad2' else each for each in logits]
  assert len(np.unique(np.round(said, 6), axis=0)) > len(said) // 2
