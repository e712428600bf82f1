"""BERT in its modern form: trained, stopped, sharded, fine-tuned, exported."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs
import small_tasks

from configs import variants
from data.examples import transforms
from data.store import corpus
from models import features
from train.architectures import bert as family
from train.architectures.architecture import Vocabulary
from train.engine import state
from train.exports import exported, folders, onnx_file
from train.meanings.words import model_vectors
from train.params import opened, warm_start
from train.run import settings, training, workdirs
from train.vectors.request import Request
from train.vectors.trained_model import TrainedModel

CHANGES = variants.MODERN | {
  'model.window': 5,
  'model.num_layers': 4,
  'train.phases': ((8, 32, 16, 'continue'),),
  'train.eval_every': 8,
  'train.log_every': 2,
  'optim.warmup_steps': 2,
  'optim.learning_rate': 5e-3,
}


@pytest.fixture(scope='module')
def config(small_config):
  return settings.with_overrides(small_config(), CHANGES)


@pytest.fixture(scope='module')
def trained(config, one_device, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('modern') / 'run'
  return workdir, runs.train(config, workdir)


def test_a_run_that_goes_on_ends_as_one_that_never_stopped(
  trained, config, tmp_path, monkeypatch
):
  class Stopped(Exception):
    pass

  done = []

  def stop(checkpoints, step, *arguments, **options):
    saved(checkpoints, step, *arguments, **options)
    done.append(step)
    if step == 4:
      raise Stopped

  saved = training.checkpoint.Checkpoints.save
  with monkeypatch.context() as patch:
    patch.setattr(training.checkpoint.Checkpoints, 'save', stop)
    with pytest.raises(Stopped):
      runs.train(config, tmp_path / 'run')
  results = runs.train(config, tmp_path / 'run')
  _, expected = trained
  for name in ('state_sha256', 'optimizer_sha256', 'metrics'):
    assert results[name] == expected[name], name


def test_masks_fall_and_scores_have_the_last_share(config, small_store):
  store = corpus.open_store(small_store)
  objective = family.MaskedTokensAlone(
    config, 32, Vocabulary.of(store.tokenizer)
  )
  objective.num_steps = 8
  shapes = objective.batch_shapes(32, 64)
  rng = np.random.default_rng(0)
  batch = {
    name: jnp.asarray(rng.integers(5, 400, leaf.shape), leaf.dtype)
    for name, leaf in shapes.items()
  }
  batch |= {
    name: jnp.ones(leaf.shape, leaf.dtype)
    for name, leaf in shapes.items()
    if leaf.dtype == bool
  }
  keys = transforms.row_keys(jax.random.key(0), jnp.arange(64))
  at = jax.jit(objective.transform_at)

  def share(masked):
    return float(masked['mlm_weights'].sum() / masked['token_mask'].sum())

  shares = [share(at(batch, keys, jnp.int32(step))) for step in (0, 4, 8, 99)]
  assert shares == pytest.approx([0.3, 0.225, 0.15, 0.15], abs=0.02)
  scored = jax.jit(objective.transform)(batch, keys)
  assert share(scored) == pytest.approx(0.15, abs=0.02)
  assert scored['mlm_weights'].shape[1] < 8


@pytest.mark.parametrize('tied', [True, False])
def test_transformers_opens_an_export(
  torch, trained, config, tied, one_device, tmp_path
):
  import transformers

  run, _ = trained
  if not tied:
    run = tmp_path / 'untied'
    runs.train(settings.with_overrides(config, {'model.tied': False}), run)
  folders.export(run, tmp_path / 'out')
  theirs = transformers.AutoModelForMaskedLM.from_pretrained(
    tmp_path / 'out', attn_implementation='eager'
  ).eval()
  assert type(theirs).__name__ == 'ModernBertForMaskedLM'
  tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / 'out')
  encoded = tokenizer(['a function of two strings'], return_tensors='pt')
  found = opened.open_weights(run)
  assert found.model.tied == tied
  ids = np.asarray(encoded['input_ids'])
  assert ids[0, 1:-1].tolist() == found.encode(['a function of two strings'])[0]
  places = np.arange(ids.shape[1])[None]
  params = found.load()
  outputs = found.model.apply(
    {'params': params},
    jnp.asarray(ids),
    jnp.ones(ids.shape, bool),
    jnp.zeros_like(places),
    places,
    places,
    train=False,
    all_layers=True,
  )
  with torch.no_grad():
    expected = theirs(
      input_ids=encoded['input_ids'],
      attention_mask=encoded['attention_mask'],
      output_hidden_states=True,
    )
    own = theirs.model.embeddings(encoded['input_ids'])
  np.testing.assert_allclose(
    outputs['mlm_logits'][..., : found.model.vocab_size],
    expected.logits,
    atol=1e-4,
  )
  np.testing.assert_allclose(
    outputs['layers'], torch.stack(expected.hidden_states), atol=1e-5
  )
  own_VD = np.asarray(features.token_vectors(found.model, params))
  np.testing.assert_allclose(own_VD[ids], own, atol=1e-6)


@pytest.mark.slow
def test_sentence_transformers_opens_an_export(trained, tmp_path):
  theirs = pytest.importorskip('sentence_transformers')
  request = exported.ExportRequest('sentence-transformers', 'mean', True)
  folders.export(trained[0], tmp_path / 'out', request=request)
  model = theirs.SentenceTransformer(str(tmp_path / 'out'), device='cpu')
  assert type(model[0].auto_model).__name__ == 'ModernBertModel'
  texts = ['A value is a name.', 'x', 'An object that is called, or not; ' * 2]
  asked = Request(pool='mean', normalize=True)
  ours = [x.array for x in TrainedModel(trained[0]).vectors(texts, asked)]
  np.testing.assert_allclose(model.encode(texts), ours, atol=1e-6)


@pytest.mark.slow
def test_onnxruntime_opens_an_export(torch, trained, tmp_path):
  """Windows and rotary positions, of short rows and of long ones."""
  onnxruntime = pytest.importorskip('onnxruntime')
  request = exported.ExportRequest('onnx')
  folders.export(trained[0], tmp_path / 'out', request=request)
  session = onnxruntime.InferenceSession(str(tmp_path / 'out/model.onnx'))
  names = [part.name for part in session.get_inputs()]
  assert names == [*onnx_file.INPUTS[:2]]
  found = opened.open_weights(trained[0])
  params = found.load()
  for length in (1, 7, found.model.max_length):
    ids = np.arange(length)[None] % found.model.vocab_size
    mask = np.ones_like(ids)
    places = np.arange(length)[None]
    outputs = found.model.apply(
      {'params': params},
      ids,
      mask.astype(bool),
      0 * ids,
      places,
      places,
      train=False,
    )
    (theirs,) = session.run(None, dict(zip(names, (ids, mask), strict=True)))
    ours = outputs['mlm_logits'][..., : found.model.vocab_size]
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-5)


def test_a_task_is_learnt_from_it_and_opened_again(trained, tmp_path):
  task = small_tasks.write_sentences(tmp_path / 'task')
  config = small_tasks.small_config(
    task, trained[0], **{'train.num_epochs': 1.0}
  )
  results = runs.train(config, tmp_path / 'fine')
  assert results['config']['model.positions'] == 'rotary'
  again = opened.open_weights(tmp_path / 'fine')
  assert again.model.window == 5 and not again.model.num_token_types
  assert workdirs.read_config(tmp_path / 'fine').model.norm == 'pre'
  assert state.digest(again.load()) == results['state_sha256']


def test_layer_0_of_its_vectors_knows_no_place(trained):
  found = TrainedModel(trained[0])
  sentences = [['the', 'value', 'of', 'a', 'value']]
  ((_, vectors),) = found.pieces(sentences)
  ids = sum(found.tokenizer.encode_words(sentences)[0], [])
  own_VD = features.token_vectors(found.model, found.params)
  np.testing.assert_array_equal(vectors.array[0], np.asarray(own_VD)[ids])
  alone = model_vectors.without_context(found, ['value'], 1)
  place = ids.index(*found.tokenizer.encode_words([['a', 'value']])[0][1])
  np.testing.assert_allclose(
    alone.layers[0, 0], vectors.array[0, place], atol=1e-6
  )


@pytest.fixture(scope='module')
def by_mean(trained, tmp_path_factory):
  """The model as a folder whose classifier reads the mean of the tokens."""
  folder = tmp_path_factory.mktemp('mean') / 'out'
  folders.export(trained[0], folder)
  file = folder / 'config.json'
  told = json.loads(file.read_text())
  assert told['classifier_pooling'] == 'cls'
  file.write_text(json.dumps(told | {'classifier_pooling': 'mean'}))
  return folder


def test_a_pre_training_keeps_the_pooling_of_its_weights(
  by_mean, config, tmp_path
):
  """For its export, and for the fine-tuning that first has a pooler."""
  config = settings.with_overrides(
    config,
    {
      'init.weights': str(by_mean),
      'train.phases': ((1, 32, 16, 'continue'),),
      'train.eval_every': 1,
    },
  )
  runs.train(config, tmp_path / 'run')
  assert opened.open_weights(tmp_path / 'run').model.pool == 'mean'
  task = small_tasks.write_sentences(tmp_path / 'task')
  tuning = small_tasks.small_config(
    task, tmp_path / 'run', **{'train.num_epochs': 1.0}
  )
  runs.train(tuning, tmp_path / 'fine')
  for name in ('run', 'fine'):
    folders.export(tmp_path / name, tmp_path / 'out' / name)
    told = json.loads((tmp_path / 'out' / name / 'config.json').read_text())
    assert told['classifier_pooling'] == 'mean', name


def test_next_sentences_are_not_learnt_from_another_pooling(by_mean, config):
  other = settings.with_overrides(
    config,
    {
      'init.weights': str(by_mean),
      'train.objective': 'bert',
      'data.packed': None,
    },
  )
  with pytest.raises(
    ValueError,
    match='pool is mean there, first in the config: --config.train.obj.*=mlm',
  ):
    warm_start.open_beginning(other)
