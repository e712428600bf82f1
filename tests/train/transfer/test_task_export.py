"""What was fine-tuned answers the same with transformers' classes."""

import json
import pydoc_data.topics
import shutil

import numpy as np
import pytest
import runs
import small_published
import task_answers
import torch

from data.vocabulary import tokenization
from train.exports import exported, folders, onnx_file
from train.run import settings
from train.transfer import encoders, predictors

pytestmark = pytest.mark.usefixtures('one_device')
CLASSES = {
  'own pairs': 'BertForSequenceClassification',
  'own scores': 'BertForSequenceClassification',
  'swag': 'BertForMultipleChoice',
  'conll2003': 'BertForTokenClassification',
  'own questions': 'BertForQuestionAnswering',
}


@pytest.mark.parametrize('kind', CLASSES)
def test_transformers_answers_the_same(run_of, tmp_path, kind):
  import transformers

  config, workdir, _ = run_of(kind)
  folders.export(workdir, tmp_path / 'exported')
  theirs, found = getattr(transformers, CLASSES[kind]).from_pretrained(
    tmp_path / 'exported', output_loading_info=True
  )
  assert not any(found.values()), found
  _, _, facts = predictors.open_member(workdir)
  if facts['labels']:
    names = [theirs.config.id2label[i] for i in range(len(facts['labels']))]
    assert names == facts['labels']
  # The class that the config names is the one that a pipeline would take.
  written = json.loads((tmp_path / 'exported' / 'config.json').read_text())
  assert written['architectures'] == [CLASSES[kind]]
  regression = kind == 'own scores'
  assert (written.get('problem_type') == 'regression') == regression
  card = (tmp_path / 'exported/README.md').read_text()
  assert f'transformers.{CLASSES[kind]}.from_pretrained' in card
  for part in ('| steps | 4 |', '| begun with | bert |', 'license: unknown'):
    assert part in card
  batch, ours = task_answers.answers(config, workdir)
  with torch.no_grad():
    outputs = theirs.eval()(
      **{
        name: torch.from_numpy(np.asarray(batch[key]).astype(np.int64))
        for name, key in (
          ('input_ids', 'tokens'),
          ('attention_mask', 'token_mask'),
          ('token_type_ids', 'token_types'),
        )
      }
    )
  if kind == 'own questions':
    logits = torch.stack([outputs.start_logits, outputs.end_logits], -1)
  else:
    logits = outputs.logits
  logits = logits.numpy()
  mask = np.ones(logits.shape[:1], bool)
  if kind in ('conll2003', 'own questions'):
    mask = batch['token_mask']
  np.testing.assert_allclose(ours[mask], logits[mask], atol=1e-4)


@pytest.fixture(scope='module')
def small_gpt2(tmp_path_factory):
  folder = tmp_path_factory.mktemp('published') / 'gpt2'
  training = tokenization.parse_training('train:bytebpe:400')
  texts = list(pydoc_data.topics.topics.values())[:20]
  small_published.write_gpt(folder, tokenization.train(texts, training))
  return folder


def run_onnx(config, workdir, folder):
  """Exports a run; returns our logits and onnxruntime's, at real tokens."""
  onnxruntime = pytest.importorskip('onnxruntime')
  request = exported.ExportRequest('onnx')
  folders.export(workdir, folder, request=request)
  session = onnxruntime.InferenceSession(str(folder / 'model.onnx'))
  batch, ours = task_answers.answers(config, workdir)
  names = dict(zip(onnx_file.INPUTS, encoders.INPUTS, strict=False))
  inputs = {
    part.name: np.asarray(batch[names[part.name]]).astype(np.int64)
    for part in session.get_inputs()
  }
  rows, *_ = inputs['input_ids'].shape
  if len(session.get_inputs()[0].shape) < inputs['input_ids'].ndim:
    flat = {k: x.reshape(-1, x.shape[-1]) for k, x in inputs.items()}
    theirs = session.run(None, flat)
    return ours, theirs[0].reshape(ours.shape)
  theirs = session.run(None, inputs)
  theirs = np.stack(theirs, -1) if len(theirs) > 1 else theirs[0]
  if ours.ndim < 3:
    return ours, theirs
  mask = batch['token_mask']
  return ours[mask], theirs[mask]


@pytest.mark.slow
@pytest.mark.parametrize('kind', CLASSES)
def test_onnxruntime_answers_the_same(run_of, kind, tmp_path):
  config, workdir, _ = run_of(kind)
  ours, theirs = run_onnx(config, workdir, tmp_path / 'exported')
  np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-5)
  told = json.loads((tmp_path / 'exported/config.json').read_text())
  assert told['architectures'] == [CLASSES[kind]]
  if kind in ('own pairs', 'conll2003'):
    _, _, facts = predictors.open_member(workdir)
    assert list(told['id2label'].values()) == facts['labels']


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['own scores', 'own choices', 'own tags'])
def test_a_gpt_2_answers_the_same(config_of, small_gpt2, kind, tmp_path):
  config = settings.with_overrides(
    config_of(kind), {'init.weights': str(small_gpt2)}
  )
  runs.train(config, tmp_path / 'run')
  with pytest.raises(ValueError, match='a fine-tuned gpt2.*--form=onnx writes'):
    folders.export(tmp_path / 'run', tmp_path / 'exported')
  ours, theirs = run_onnx(config, tmp_path / 'run', tmp_path / 'exported')
  np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-5)
  card = (tmp_path / 'exported/README.md').read_text()
  end = tokenization.load(small_gpt2).end_of_text_id
  assert f'start {end}, delimiter {end}, classify {end}' in card


@pytest.mark.parametrize('features', ['sum_last_4', 'second_to_last'])
def test_other_features_are_not_exported(run_of, features, tmp_path):
  """A head reads the last layer, everywhere else."""
  _, workdir, _ = run_of('own pairs')
  shutil.copytree(workdir, tmp_path / 'run')
  file = tmp_path / 'run/config.json'
  config = json.loads(file.read_text())
  config['task']['features'] = features
  file.write_text(json.dumps(config))
  for form in exported.FORMS[::2]:
    with pytest.raises(ValueError, match=f"features '{features}', expected 'l"):
      folders.export(
        tmp_path / 'run',
        tmp_path / 'new',
        request=exported.ExportRequest(form),
      )
  assert not (tmp_path / 'new').exists()
