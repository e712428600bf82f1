"""Weights as TensorFlow and OpenAI's programs write them, and bad files."""

import collections
import io
import json
import math
import os
import pickle
import re
import shutil
import struct

import numpy as np
import published_cases
import pytest
from etils import epath

from models import gpt
from models.pretrained import (
  hugging_face,
  plain_pickle,
  published,
  weight_files,
)


@pytest.fixture(scope='module')
def save_checkpoint():
  """Returns a function (prefix, arrays), by TensorFlow's own writer."""
  tf = pytest.importorskip('tensorflow')

  def save(prefix, arrays):
    tf.raw_ops.SaveV2(
      prefix=str(prefix),
      tensor_names=list(arrays),
      shape_and_slices=[''] * len(arrays),
      tensors=[tf.constant(array) for array in arrays.values()],
    )

  return save


# google-research/bert


def bert_arrays(model, params):
  """The variables of modeling.py and run_pretraining.py, written out."""
  D = model.embed_dim
  V = model.vocab_size
  embeddings = params['embeddings']
  arrays = {
    'bert/embeddings/word_embeddings': embeddings['tokens']['embedding'][:V],
    'bert/embeddings/position_embeddings': embeddings['positions'],
    'bert/embeddings/token_type_embeddings': embeddings['token_types'],
    'bert/embeddings/LayerNorm/gamma': embeddings['layer_norm']['scale'],
    'bert/embeddings/LayerNorm/beta': embeddings['layer_norm']['bias'],
    'bert/pooler/dense/kernel': params['pooler']['kernel'],
    'bert/pooler/dense/bias': params['pooler']['bias'],
  }
  layers = params['layers']
  for i in range(model.num_layers):
    where = f'bert/encoder/layer_{i}'
    attention = layers['attention']
    for j, name in enumerate(('query', 'key', 'value')):
      qkv = attention['qkv']
      here = f'{where}/attention/self/{name}'
      arrays[f'{here}/kernel'] = qkv['kernel'][i][:, j].reshape(D, D)
      arrays[f'{here}/bias'] = qkv['bias'][i][j].reshape(D)
    for theirs, ours in (
      ('attention/output/dense', attention['out']),
      ('intermediate/dense', layers['mlp']['in']),
      ('output/dense', layers['mlp']['out']),
    ):
      kernel = ours['kernel'][i]
      arrays[f'{where}/{theirs}/kernel'] = kernel.reshape(-1, kernel.shape[-1])
      arrays[f'{where}/{theirs}/bias'] = ours['bias'][i]
    for theirs, ours in (
      ('attention/output/LayerNorm', layers['attention_norm']),
      ('output/LayerNorm', layers['mlp_norm']),
    ):
      arrays[f'{where}/{theirs}/gamma'] = ours['scale'][i]
      arrays[f'{where}/{theirs}/beta'] = ours['bias'][i]
  if 'mlm' in params:
    head, mlm = 'cls/predictions', params['mlm']
    arrays |= {
      f'{head}/output_bias': mlm['bias'][:V],
      f'{head}/transform/dense/kernel': mlm['dense']['kernel'],
      f'{head}/transform/dense/bias': mlm['dense']['bias'],
      f'{head}/transform/LayerNorm/gamma': mlm['layer_norm']['scale'],
      f'{head}/transform/LayerNorm/beta': mlm['layer_norm']['bias'],
      'cls/seq_relationship/output_weights': params['nsp']['kernel'].T,
      'cls/seq_relationship/output_bias': params['nsp']['bias'],
    }
  for name, theirs in (('classifier', ''), ('span_classifier', 'cls/squad/')):
    if name in params:
      arrays[f'{theirs}output_weights'] = params[name]['kernel'].T
      arrays[f'{theirs}output_bias'] = params[name]['bias']
  return arrays


def write_bert_config(folder, model):
  keys = {
    'vocab_size': 'vocab_size',
    'hidden_size': 'embed_dim',
    'num_hidden_layers': 'num_layers',
    'num_attention_heads': 'num_heads',
    'intermediate_size': 'mlp_dim',
    'max_position_embeddings': 'max_length',
    'type_vocab_size': 'num_token_types',
    'hidden_dropout_prob': 'dropout_rate',
    'attention_probs_dropout_prob': 'attention_dropout_rate',
  }
  config = {key: getattr(model, field) for key, field in keys.items()}
  config |= {'hidden_act': 'gelu', 'initializer_range': 0.02}
  (folder / 'bert_config.json').write_text(json.dumps(config))


@pytest.mark.parametrize(
  'name, prefix',
  [
    ('BertForPreTraining', 'bert_model.ckpt'),
    ('BertForSequenceClassification', 'model.ckpt-343'),
    ('squad', 'model.ckpt-7'),
  ],
)
def test_bert_of_tensorflow(name, prefix, save_checkpoint, tmp_path):
  if name == 'squad':  # the encoder there has a pooler always
    model, _ = published_cases.make_bert('BertModel')
    params = published_cases.draw(model, ('span_classifier', 2))
  else:
    model, params = published_cases.make_bert(name)
  arrays = bert_arrays(model, params)
  slots = {
    f'{name}/adam_{x}': array for name, array in arrays.items() for x in 'mv'
  } | {'global_step': np.int64(343)}
  save_checkpoint(tmp_path / prefix, arrays | slots)
  write_bert_config(tmp_path, model)
  opened = published.open_folder(tmp_path)
  assert (opened.kind, opened.name) == ('TensorFlow', 'bert')
  assert set(opened.set_aside) == set(slots)
  assert opened.notes['gelu'].startswith('unknown, read as erf')
  assert ('output_weights' in opened.notes) == ('classifier' in params)
  assert opened.model == model
  assert opened.heads == tuple(x for x in params if x.endswith('classifier'))
  published_cases.assert_same(opened.load(), params)
  # Hugging Face's names hold the same, which its own classes confirm.
  if name != 'squad':
    hugging_face.write_folder(tmp_path / 'there', model, params)
    again = published.open_folder(tmp_path / 'there')
    published_cases.assert_same(again.load(), params)


def test_checkpoints_that_are_damaged_or_several(save_checkpoint, tmp_path):
  model, params = published_cases.make_bert('BertModel')
  for step in (5, 12):
    save_checkpoint(tmp_path / f'model.ckpt-{step}', bert_arrays(model, params))
  write_bert_config(tmp_path, model)
  with pytest.raises(ValueError, match='several.*ckpt-12.index, model.ckpt-5.'):
    published.open_folder(tmp_path)
  (tmp_path / 'checkpoint').write_text(
    'model_checkpoint_path: "/tmp/run/model.ckpt-12"\n'
    'all_model_checkpoint_paths: "/tmp/run/model.ckpt-5"\n'
  )
  published_cases.assert_same(published.open_folder(tmp_path).load(), params)
  data = tmp_path / 'model.ckpt-12.data-00000-of-00001'
  whole = data.read_bytes()
  data.write_bytes(whole[:-4])
  with pytest.raises(ValueError, match='data-00000-of-00001 is damaged.*bytes'):
    published.open_folder(tmp_path)
  data.write_bytes(whole[:9000] + b'!' + whole[9001:])  # checked when read
  with pytest.raises(ValueError, match='data-00000-of-00001 is damaged'):
    published.open_folder(tmp_path).load()
  data.rename(tmp_path / 'model.ckpt-12.data-00001-of-00003')
  with pytest.raises(
    FileNotFoundError, match='data-00000-of-00003, .*data-00002-of-00003$'
  ):
    published.open_folder(tmp_path)


# OpenAI's


def openai_arrays(model, params):
  """Name -> array in GPT's order; names and shapes of GPT-2."""
  arrays = {
    'model/wpe': params['embeddings']['positions'],
    'model/wte': params['embeddings']['tokens']['embedding'][
      : model.vocab_size
    ],
  }
  layers = params['layers']
  D = model.embed_dim
  for i in range(model.num_layers):
    for name, ours, shape in (
      ('attn/c_attn', layers['attention']['qkv'], (D, 3 * D)),
      ('attn/c_proj', layers['attention']['out'], (D, D)),
      ('ln_1', layers['attention_norm'], None),
      ('mlp/c_fc', layers['mlp']['in'], (D, model.mlp_dim)),
      ('mlp/c_proj', layers['mlp']['out'], (model.mlp_dim, D)),
      ('ln_2', layers['mlp_norm'], None),
    ):
      if shape:
        kernel = ours['kernel'][i].reshape(1, *shape)
        arrays[f'model/h{i}/{name}/w'] = kernel
      else:
        arrays[f'model/h{i}/{name}/g'] = ours['scale'][i]
      arrays[f'model/h{i}/{name}/b'] = ours['bias'][i].reshape(-1)
  if model.pre_norm:
    arrays['model/ln_f/g'] = params['final_norm']['scale']
    arrays['model/ln_f/b'] = params['final_norm']['bias']
  return arrays


def test_gpt2_of_tensorflow(save_checkpoint, tmp_path):
  model, params = published_cases.make_gpt('gpt2')
  model = model.clone(mlp_dim=256)
  params = published_cases.draw(model)
  save_checkpoint(tmp_path / 'model.ckpt', openai_arrays(model, params))
  hparams = dict(n_vocab=133, n_ctx=17, n_embd=64, n_head=1, n_layer=2)
  file = tmp_path / 'hparams.json'
  file.write_text(json.dumps(hparams))
  opened = published.open_folder(tmp_path)
  assert (opened.kind, opened.name) == ('TensorFlow', 'gpt2')
  assert opened.model == model
  published_cases.assert_same(opened.load(), params)
  file.write_text(json.dumps(hparams | {'n_head': 0, 'n_layer': None}))
  assert published.open_folder(tmp_path).problems == (
    'n_layer is missing, expected a count of layers',
    'n_head is 0, expected a count',
  )
  (tmp_path / 'model.ckpt.index').unlink()
  with pytest.raises(FileNotFoundError, match='no model.ckpt.index; it holds'):
    published.open_folder(tmp_path)


def write_openai(folder, arrays, num_files=10):
  flat = np.concatenate([array.ravel() for array in arrays.values()])
  for i, part in enumerate(np.array_split(flat, num_files)):
    np.save(folder / f'params_{i}.npy', part)
  (folder / 'params_shapes.json').write_text(
    json.dumps([array.shape for array in arrays.values()])
  )


def test_gpt_of_openai(tmp_path):
  model, params = published_cases.make_gpt('gpt')
  write_openai(tmp_path, openai_arrays(model, params))
  opened = published.open_folder(tmp_path)
  assert (opened.kind, opened.name) == ('OpenAI', 'gpt')
  assert opened.model == model
  published_cases.assert_same(opened.load(), params)
  np.save(tmp_path / 'params_9.npy', np.zeros(3, np.float32))
  with pytest.raises(
    ValueError, match='numbers in 10 files, params_0.npy to params_9.npy, exp'
  ):
    published.open_folder(tmp_path)
  (tmp_path / 'params_9.npy').write_bytes(b'\x93NUMPY')
  with pytest.raises(ValueError, match='params_9.npy is damaged'):
    published.open_folder(tmp_path)
  (tmp_path / 'params_9.npy').unlink()
  with pytest.raises(
    ValueError, match='9 files, params_0.npy to params_8.npy, .* has 10 files'
  ):
    published.open_folder(tmp_path)
  for i in (0, 2):
    (tmp_path / f'params_{i}.npy').unlink()
  with pytest.raises(
    FileNotFoundError, match='7 files .* expected 9 .*: it lacks params_0.npy, '
  ):
    published.open_folder(tmp_path)
  (tmp_path / 'params_shapes.json').write_text('[[17, 64], [133, 64], [64]]')
  with pytest.raises(ValueError, match='no list of the shapes'):
    published.open_folder(tmp_path)


@pytest.mark.parametrize('num_heads', [1, 2, 4])
def test_gpt_of_openai_in_another_size(num_heads, tmp_path):
  """A file tells its heads, and there are as many files as there are."""
  model, _ = published_cases.make_gpt('gpt')
  model = model.clone(embed_dim=48, mlp_dim=192, num_heads=num_heads)
  params = published_cases.draw(model)
  write_openai(tmp_path, openai_arrays(model, params), num_files=3)
  assert published.open_folder(tmp_path).problems == (
    'n_head is missing, expected a count',
    'no file tells the number of heads, and n_embd is 48, no multiple of 64,'
    ' the width of a head as released: write {"n_head": N} in hparams.json',
  )
  file = tmp_path / 'hparams.json'
  file.write_text(json.dumps({'n_head': num_heads}))
  opened = published.open_folder(tmp_path)
  assert (opened.kind, opened.model) == ('OpenAI', model)
  assert 'num_heads' not in opened.notes
  published_cases.assert_same(opened.load(), params)
  file.write_text(json.dumps({'n_head': 5, 'n_embd': 48, 'n_ctx': 18}))
  assert published.open_folder(tmp_path).problems == (
    'n_embd is 48, expected a multiple of n_head (5)',
    'n_ctx is 18 in hparams.json, 17 by params_shapes.json',
  )


def test_heads_of_openai_are_as_wide_as_released(tmp_path):
  """Unless a file tells their number."""
  model = published_cases.make_gpt('gpt')[0].clone(embed_dim=128, mlp_dim=512)
  write_openai(tmp_path, openai_arrays(model, published_cases.draw(model)))
  opened = published.open_folder(tmp_path)
  assert opened.model == model.clone(num_heads=2)
  assert opened.notes['num_heads'].startswith('read as n_embd / 64')
  (tmp_path / 'hparams.json').write_text('{"n_head": 1}')
  assert published.open_folder(tmp_path).model == model


def test_the_published_shapes_are_a_gpt(sesame_data, tmp_path):
  shutil.copy(sesame_data / 'fixtures/vocab/gpt/params_shapes.json', tmp_path)
  shapes = json.loads((tmp_path / 'params_shapes.json').read_text())
  total = sum(math.prod(shape) for shape in shapes)
  for i in range(10):  # zeros that take no space on the disk
    size = total // 10 + (i < total % 10)
    np.lib.format.open_memmap(
      tmp_path / f'params_{i}.npy', 'w+', np.float32, shape=(size,)
    )
  opened = published.open_folder(tmp_path)
  opened.check_problems()
  assert opened.model == gpt.Gpt(
    vocab_size=40478, num_layers=12, embed_dim=768, num_heads=12, mlp_dim=3072
  )
  assert total == 116_534_784  # as Hugging Face counts openai-gpt


# Pickles that are not only weights


class Evil:
  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return os.mkdir, (self.path,)


@pytest.mark.parametrize('archive', [True, False], ids=['zip', 'old'])
def test_pickles_that_run_something_are_not_opened(torch, archive, tmp_path):
  model, params = published_cases.make_bert('BertModel')
  hugging_face.write_folder(tmp_path, model, params)
  (tmp_path / 'model.safetensors').unlink()
  file, made = tmp_path / 'pytorch_model.bin', tmp_path / 'made'
  for state, told in (
    ({'x': torch.zeros(2), 'y': Evil(str(made))}, 'it would run posix.mkdir'),
    (torch.nn.Linear(2, 2), r'it would run torch\.nn'),
    ({'x': collections.Counter()}, 'it would run collections.Counter'),
    ({'model': {'x': torch.zeros(2)}, 'step': 3}, 'model, step are no arrays'),
    ([torch.zeros(2)], 'it holds a list, no names'),
  ):
    torch.save(state, file, _use_new_zipfile_serialization=archive)
    with pytest.raises(ValueError, match=f'pytorch_model.bin .*{told}'):
      published.open_folder(tmp_path)
  assert not made.exists()
  file.write_bytes(pickle.dumps(Evil(str(made))))
  with pytest.raises(ValueError, match='it would run posix.mkdir'):
    published.open_folder(tmp_path)
  assert not made.exists()


@pytest.mark.parametrize('archive', [True, False], ids=['zip', 'old'])
def test_arrays_of_pytorch_that_share_numbers(torch, archive, tmp_path):
  base = torch.randn(7, 11)
  state = collections.OrderedDict(
    turned=base.t(),
    part=base[2:5, 1::3],
    parameter=torch.nn.Parameter(torch.randn(3)),
    none=torch.zeros(0, 3),
    one=torch.tensor(2.5),
    counts=torch.arange(5),
    half=torch.randn(4).half(),
    brain=torch.randn(4, 2).bfloat16(),
    double=torch.randn(2).double(),
  )
  file = epath.Path(tmp_path) / 'x.bin'
  torch.save(state, file, _use_new_zipfile_serialization=archive)
  entries = weight_files.HUGGING_FACE['pytorch_model.bin'](file)
  assert list(entries) == list(state)
  for name, entry in entries.items():
    array, tensor = entry.read(), state[name].detach()
    assert array.shape == entry.shape == tuple(tensor.shape)
    assert f'torch.{array.dtype}' == f'torch.{entry.dtype}' == str(tensor.dtype)
    np.testing.assert_array_equal(
      array.astype(np.float64), tensor.double().numpy()
    )


@pytest.mark.parametrize('protocol', [2, 3, 4, 5])
@pytest.mark.parametrize('archive', [True, False], ids=['zip', 'old'])
def test_state_dicts_of_pytorch(torch, archive, protocol, tmp_path):
  """Of modules: with `_metadata`, tied, Parameters, and with a view."""
  model = torch.nn.Sequential(
    torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5)
  ).half()
  model[1].weight = model[0].weight
  state = model.state_dict(keep_vars=True)
  assert state._metadata
  state['first'] = state['0.weight'][0]
  state['ones'] = torch.ones(1).expand(3, 7)
  file = epath.Path(tmp_path) / 'x.bin'
  torch.save(
    *(state, file),
    _use_new_zipfile_serialization=archive,
    pickle_protocol=protocol,
  )
  entries = weight_files.HUGGING_FACE['pytorch_model.bin'](file)
  assert list(entries) == list(state)
  for name, tensor in state.items():
    np.testing.assert_array_equal(entries[name].read(), tensor.detach().numpy())


def test_state_dicts_of_python_2(tmp_path):
  """Bytes for names, and an OrderedDict from a list of pairs."""
  head = [0x1950A86A20F9469CFC6C, 1001, {'little_endian': True}]
  file = epath.Path(tmp_path) / 'x.bin'
  file.write_bytes(
    b''.join(pickle.dumps(part, 2) for part in head)
    + b'\x80\x02ccollections\nOrderedDict\nq\0]q\1(]q\2(U\1xq\3'
    + b'ctorch._utils\n_rebuild_tensor_v2\nq\4((U\7storageq\5'
    + b'ctorch\nFloatStorage\nq\6U\x0a9876543210q\7U\3cpuq\x08K\2NtQ'
    + b'K\0K\2\x85K\1\x85\x89h\0]\x85RtRee\x85R}(U\t_metadataq\x0a'
    + b'h\0]\x85Rub.'
    + b'\x80\x02]q\0U\x0a9876543210q\1a.'
    + np.array([2], '<i8').tobytes()
    + np.array([3, 5], '<f4').tobytes()
  )
  entries = weight_files.HUGGING_FACE['pytorch_model.bin'](file)
  np.testing.assert_array_equal(entries['x'].read(), np.float32([3, 5]))


def test_memories_of_python_2_begin_at_place_1():
  """Also where a place takes four bytes, after 255 of them."""
  content = b'\x80\x02}('
  for place in range(1, 400):
    name = f'k{place}'.encode()
    content += b'U' + bytes([len(name)]) + name
    short = place < 256
    content += (
      b'q' + bytes([place]) if short else b'r' + struct.pack('<I', place)
    )
    content += b'K\1'
  found = plain_pickle.Unpickler(io.BytesIO(content + b'u.')).load()
  assert list(found) == [f'k{place}' for place in range(1, 400)]


# Which folders are of which kind


def test_other_folders_are_told_what_was_looked_for(tmp_path):
  assert not published.is_published(tmp_path / 'nowhere')
  with pytest.raises(FileNotFoundError, match='nowhere is no folder'):
    published.open_folder(tmp_path / 'nowhere')
  (tmp_path / 'tf_model.h5').touch()
  assert not published.is_published(tmp_path)
  with pytest.raises(
    FileNotFoundError,
    match=r'looked for config.json with .*params_0.*; it holds tf_model.h5$',
  ):
    published.open_folder(tmp_path)
  config = tmp_path / 'config.json'
  config.write_text(json.dumps({'model': {'name': 'bert'}, 'train': {}}))
  assert not published.is_published(tmp_path)
  config.write_text(json.dumps({'model_type': 'bert'}))
  assert published.is_published(tmp_path)
  with pytest.raises(FileNotFoundError, match=r'no weights.*tf_model.h5$'):
    published.open_folder(tmp_path)
  config.write_text(json.dumps({'model_type': 'llama'}))
  opened = published.open_folder(tmp_path)
  assert (opened.name, opened.model) == ('llama', None)
  with pytest.raises(ValueError, match="model_type is 'llama', expected bert"):
    opened.check_problems()


def test_remote_files_are_copied_first(tmp_path, monkeypatch):
  model, params = published_cases.make_bert('BertModel')
  hugging_face.write_folder(tmp_path, model, params)
  monkeypatch.setattr(
    weight_files, 'is_remote', lambda file: file.parent == tmp_path
  )
  opened = published.open_folder(tmp_path)
  (tmp_path / 'model.safetensors').write_bytes(b'')
  published_cases.assert_same(opened.load(), params)
  copy = weight_files.local(epath.Path(tmp_path) / 'model.safetensors')
  assert re.search('published-weights-', str(copy))
