"""Folders of sentence-transformers, of both forms, beside the program."""

import json
import shutil

import numpy as np
import pytest
from etils import epath

from models.pretrained import sentence_modules
from models.pretrained.weights import SentenceForm, Weights
from train.params import convert
from train.vectors.request import Request
from train.vectors.trained_model import TrainedModel

TEXTS = ['A value is a name.', 'x', 'An object that is called, OR NOT']
PROMPT = 'The Query: '


@pytest.fixture(scope='module')
def theirs(torch):
  """The package, whose imports warn of what it does not need."""
  del torch
  return pytest.importorskip('sentence_transformers')


def vectors(folder, texts=TEXTS):
  found = TrainedModel(folder).vectors(texts, Request())
  return np.stack([vector.array for vector in found])


@pytest.mark.parametrize('prompt', [None, 'ours'])
@pytest.mark.parametrize('pool', ['cls', 'mean'])
@pytest.mark.parametrize('normalize', [False, True])
def test_version_6_and_we_give_the_same_vectors(
  theirs, small_bert, pool, normalize, prompt, tmp_path
):
  """Of what it wrote itself, and of a workdir of that."""
  from sentence_transformers.sentence_transformer import modules

  encoder = modules.Transformer(str(small_bert))
  parts = [encoder, modules.Pooling(32, pool)]
  parts += [modules.Normalize()] * normalize
  model = theirs.SentenceTransformer(
    modules=parts,
    device='cpu',
    prompts={'ours': PROMPT, 'other': 'Other: '},
    default_prompt_name=prompt,
  )
  model.max_seq_length = 48
  model.save(str(tmp_path / 'folder'))
  expected = model.encode(TEXTS)
  np.testing.assert_allclose(
    vectors(tmp_path / 'folder'), expected, rtol=0, atol=1e-6
  )
  found = TrainedModel(tmp_path / 'folder').weights
  form = SentenceForm(pool, normalize, PROMPT if prompt else '', False, 48)
  assert found.sentence_form == form
  others = 'other' if prompt else 'other, ours'
  assert f'prompts for {others}, which' in found.notes['prompts']
  convert.import_(tmp_path / 'folder', tmp_path / 'workdir')
  assert TrainedModel(tmp_path / 'workdir').weights.sentence_form == form
  np.testing.assert_allclose(
    vectors(tmp_path / 'workdir'), expected, rtol=0, atol=1e-6
  )


def make(source, folder, settings=None, kinds=('Transformer', 'Pooling')):
  """Writes a folder as versions up to 5 do."""
  shutil.copytree(source, folder)
  modules = [
    {
      'idx': i,
      'path': f'{i}_{kind}' if i else '',
      'type': kind if '.' in kind else f'sentence_transformers.models.{kind}',
    }
    for i, kind in enumerate(kinds)
  ]
  (folder / 'modules.json').write_text(json.dumps(modules))
  (folder / '1_Pooling').mkdir()
  change(folder, '1_Pooling/config.json', settings or {})
  return folder


def change(folder, name, content):
  (folder / name).write_text(json.dumps(content))


def test_lower_case_and_the_length_of_version_5(small_bert, tmp_path):
  folder = make(small_bert, tmp_path / 'folder')
  change(
    folder,
    'sentence_bert_config.json',
    {'max_seq_length': 20, 'do_lower_case': True},
  )
  form = TrainedModel(folder).weights.sentence_form
  assert form == SentenceForm('mean', lower_case=True, max_length=20)
  assert form.read('An ÉCLAIR') == 'an éclair'


POOLS = {
  'max': {'pooling_mode_max_tokens': True},
  'mean_sqrt_len_tokens': {'pooling_mode_mean_sqrt_len_tokens': True},
  'weightedmean': {'pooling_mode': 'weightedmean'},
  'lasttoken': {'pooling_mode': ['lasttoken']},
  'cls, mean': {
    'pooling_mode_cls_token': True,
    'pooling_mode_mean_tokens': True,
  },
  'mean, max': {'pooling_mode': ['mean', 'max']},
  'pooling_mode_new': {'pooling_mode_new': True},
}


@pytest.mark.parametrize('pool', POOLS)
def test_other_pools_are_refused_by_name(small_bert, pool, tmp_path):
  folder = make(small_bert, tmp_path / 'folder', POOLS[pool])
  with pytest.raises(ValueError, match=f'pools by {pool}, expected cls or m'):
    TrainedModel(folder)


@pytest.mark.parametrize(
  'kinds',
  [
    ('Transformer', 'Pooling', 'Dense'),
    ('Router',),
    ('StaticEmbedding',),
    ('Transformer', 'WeightedLayerPooling', 'Pooling'),
    ('custom_st.Transformer', 'Pooling'),
  ],
)
def test_other_modules_are_refused_by_name(small_bert, kinds, tmp_path):
  folder = make(small_bert, tmp_path / 'folder', kinds=kinds)
  with pytest.raises(ValueError, match=f'has the modules {", ".join(kinds)}'):
    TrainedModel(folder)


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    (
      sentence_modules.MODEL_FILE,
      {'truncate_dim': 16},
      'has truncate_dim 16, expected nothing',
    ),
    (
      sentence_modules.MODEL_FILE,
      {'model_type': 'SparseEncoder'},
      "model_type 'SparseEncoder', expected 'SentenceTransformer'",
    ),
    (
      sentence_modules.MODEL_FILE,
      {'default_prompt_name': 'a'},
      "default_prompt_name 'a', expected one of no prompts",
    ),
    (sentence_modules.MODEL_FILE, {'prompts': {'a': 1}}, 'are no texts'),
    (
      'sentence_bert_config.json',
      {'transformer_task': 'fill-mask'},
      "transformer_task 'fill-mask', expected 'feature-extraction'",
    ),
    (
      'modules.json',
      [
        {'path': path, 'type': f'sentence_transformers.models.{kind}'}
        for path, kind in (('0_T', 'Transformer'), ('1_Pooling', 'Pooling'))
      ],
      'the Transformer in the folder 0_T, expected it beside',
    ),
  ],
)
def test_other_settings_are_refused_by_name(
  small_bert, name, content, message, tmp_path
):
  folder = make(small_bert, tmp_path / 'folder')
  change(folder, name, content)
  with pytest.raises(ValueError, match=message) as error:
    TrainedModel(folder)
  assert 'a copy of the folder without modules.json is read' in str(error.value)


def test_a_prompt_that_is_not_pooled_is_refused(small_bert, tmp_path):
  folder = make(
    small_bert,
    tmp_path / 'folder',
    {'pooling_mode': 'mean', 'include_prompt': False},
  )
  assert TrainedModel(folder).weights.sentence_form.pool == 'mean'
  change(
    folder,
    sentence_modules.MODEL_FILE,
    {'prompts': {'a': PROMPT}, 'default_prompt_name': 'a'},
  )
  found = sentence_modules.add_form(Weights(epath.Path(folder), '', 'bert'))
  assert 'has include_prompt False, expected True' in found.problems[0]
