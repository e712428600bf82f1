"""Hugging Face's classes open what we write, and we what they write."""

import json
import shutil

import jax
import numpy as np
import published_cases
import pytest
from safetensors import numpy as safetensors

from models.pretrained import hugging_face, published

B, T = 3, 11


@pytest.fixture(scope='module')
def transformers(torch):
  del torch
  return pytest.importorskip('transformers')


def open_theirs(transformers, name, folder):
  theirs, told = getattr(transformers, name).from_pretrained(
    folder, output_loading_info=True, attn_implementation='eager'
  )
  told = {key: told[key] for key in told if 'key' in key}
  assert not any(told.values()) and len(told) >= 3, told
  return theirs.eval()


def make_inputs():
  rng = np.random.default_rng(1)
  tokens = rng.integers(0, 131, (B, T))
  mask = np.arange(T) < np.array([[T], [4], [7]])
  types = rng.integers(0, 3, (B, T))
  return tokens, mask, types, np.tile(np.arange(T), (B, 1))


def their_outputs(torch, theirs, inputs):
  names = ('input_ids', 'attention_mask', 'token_type_ids', 'position_ids')
  given = dict(zip(names, inputs, strict=True))
  if not theirs.config.model_type == 'bert':
    del given['token_type_ids']
  with torch.no_grad():
    outputs = theirs(
      **{name: torch.tensor(np.int64(x)) for name, x in given.items()}
    )
  return {
    name: value.numpy()
    for name, value in outputs.items()
    if name[0] != 'p' or name != 'past_key_values'
  }


def our_bert_outputs(model, params, inputs):
  """Ours under their names; heads that are extra are one product each."""
  positions = np.tile(np.arange(T), (B, 1))
  outputs = jax.jit(
    lambda params: model.apply(
      {'params': params}, *inputs, positions, train=False
    )
  )(params)
  hidden, V = outputs['hidden'], model.vocab_size

  def score(head, x):
    return x @ params[head]['kernel'] + params[head]['bias']

  found = {}
  if 'mlm' in model.heads:
    logits = outputs['mlm_logits'][..., :V]
    found |= {'prediction_logits': logits, 'logits': logits}
  if 'nsp' in model.heads:
    found['seq_relationship_logits'] = outputs['nsp_logits']
  if 'pooler' in model.heads:
    found['pooler_output'] = outputs['pooled']
  found['last_hidden_state'] = hidden
  if 'classifier' in params:
    found['logits'] = score('classifier', outputs['pooled'])
  if 'token_classifier' in params:
    found['logits'] = score('token_classifier', hidden)
  if 'span_classifier' in params:
    start_end = score('span_classifier', hidden)
    found |= {
      'start_logits': start_end[..., 0],
      'end_logits': start_end[..., 1],
    }
  return found


@pytest.mark.parametrize('name', published_cases.BERT_CLASSES)
def test_bert_there_and_back(torch, transformers, name, tmp_path):
  model, params = published_cases.make_bert(name)
  hugging_face.write_folder(tmp_path / 'ours', model, params)
  theirs = open_theirs(transformers, name, tmp_path / 'ours')
  inputs = make_inputs()
  expected = their_outputs(torch, theirs, inputs)
  ours = our_bert_outputs(model, params, inputs)
  mask = inputs[1]
  for key, value in expected.items():
    found = np.asarray(ours[key])
    if value.shape[:2] == mask.shape:  # padding means nothing
      found, value = found[mask], value[mask]
    np.testing.assert_allclose(found, value, atol=1e-4, err_msg=key)
  theirs.save_pretrained(tmp_path / 'theirs')
  for folder in ('ours', 'theirs'):
    opened = published.open_folder(tmp_path / folder)
    assert (opened.kind, opened.name) == ('Hugging Face', 'bert')
    assert opened.model == model
    assert opened.heads == tuple(
      head for head in params if head.endswith('classifier')
    )
    published_cases.assert_same(opened.load(), params)


@pytest.mark.parametrize('name', ['gpt', 'gpt2'])
def test_gpt_there_and_back(torch, transformers, name, tmp_path):
  model, params = published_cases.make_gpt(name)
  # Their defaults are beyond this vocabulary.
  ids = {'bos_token_id': 1, 'eos_token_id': 1}
  hugging_face.write_folder(tmp_path / 'ours', model, params, ids)
  kind = {'gpt': 'OpenAIGPT', 'gpt2': 'GPT2'}[name]
  theirs = open_theirs(transformers, f'{kind}LMHeadModel', tmp_path / 'ours')
  tokens, mask, _, positions = inputs = make_inputs()
  expected = their_outputs(torch, theirs, inputs)['logits']
  ours = jax.jit(
    lambda params: model.apply(
      {'params': params}, tokens, mask, positions, train=False
    )
  )(params)['lm_logits'][..., : model.vocab_size]
  np.testing.assert_allclose(np.asarray(ours)[mask], expected[mask], atol=1e-4)
  theirs.save_pretrained(tmp_path / 'theirs')
  for folder in ('ours', 'theirs'):
    opened = published.open_folder(tmp_path / folder)
    assert (opened.name, opened.model) == (name, model)
    published_cases.assert_same(opened.load(), params)


def test_folders_are_not_written_over(tmp_path):
  model, params = published_cases.make_bert('BertModel')
  (tmp_path / 'notes').touch()
  with pytest.raises(FileExistsError, match='is not empty: name a new folder'):
    hugging_face.write_folder(tmp_path, model, params)
  (tmp_path / 'notes').unlink()
  hugging_face.write_folder(tmp_path, model, params, {'pad_token_id': 7})
  names = {'config.json', 'model.safetensors'}
  assert {path.name for path in tmp_path.iterdir()} == names
  assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1
  config = json.loads((tmp_path / 'config.json').read_text())
  assert config['pad_token_id'] == 7
  model, params = published_cases.make_bert('BertForPreTraining')
  del params['pooler'], params['nsp']
  params['span_classifier'] = params['mlm']
  with pytest.raises(ValueError, match=r'the heads mlm \+ span_class'):
    hugging_face.write_folder(tmp_path / 'new', model, params)
  assert not (tmp_path / 'new').exists()


# Their other files


@pytest.fixture(scope='module')
def released(transformers, tmp_path_factory):
  """(folder, class, parameters) of a BERT with pre-training heads."""
  folder = tmp_path_factory.mktemp('released')
  model, params = published_cases.make_bert('BertForPreTraining')
  hugging_face.write_folder(folder, model, params)
  theirs = open_theirs(transformers, 'BertForPreTraining', folder)
  return folder, theirs, params


def test_weights_in_several_files(released, tmp_path):
  _, theirs, params = released
  theirs.save_pretrained(tmp_path, max_shard_size='20KB')
  shards = sorted(tmp_path.glob('model-*.safetensors'))
  assert len(shards) > 3
  published_cases.assert_same(published.open_folder(tmp_path).load(), params)
  data = shards[2].read_bytes()
  shards[2].write_bytes(data[:-5])
  with pytest.raises(ValueError, match=f'{shards[2].name} is damaged'):
    published.open_folder(tmp_path)
  shards[0].unlink()
  shards[2].unlink()
  with pytest.raises(
    FileNotFoundError,
    match=f'2 of the .*missing: {shards[0].name}, {shards[2].name}$',
  ):
    published.open_folder(tmp_path)


@pytest.mark.parametrize('archive', [True, False], ids=['zip', 'old'])
def test_files_of_pytorch(torch, released, archive, tmp_path):
  """As those of 2018 and 2019, whose names were TensorFlow's here and there."""
  folder, theirs, params = released
  (tmp_path / 'bert_config.json').write_bytes(
    (folder / 'config.json').read_bytes()
  )
  state = {
    name.replace('LayerNorm.weight', 'LayerNorm.gamma').replace(
      'LayerNorm.bias', 'LayerNorm.beta'
    ): tensor
    for name, tensor in theirs.state_dict().items()
  }
  assert sum('gamma' in name for name in state) == 8
  state['bert.embeddings.position_ids'] = torch.arange(19)[None]
  file = tmp_path / 'pytorch_model.bin'
  torch.save(state, file, _use_new_zipfile_serialization=archive)
  opened = published.open_folder(tmp_path)
  assert opened.set_aside == ('bert.embeddings.position_ids',)
  published_cases.assert_same(opened.load(), params)
  state['cls.predictions.decoder.weight'] = torch.zeros(131, 36)
  torch.save(state, file, _use_new_zipfile_serialization=archive)
  with pytest.raises(ValueError, match='decoder.weight differs from embedd'):
    published.open_folder(tmp_path).load()
  data = file.read_bytes()
  for kept in (0, 10, len(data) // 100, len(data) // 2, len(data) - 100):
    file.write_bytes(data[:kept])
    with pytest.raises(ValueError, match='pytorch_model.bin is damaged or no'):
      published.open_folder(tmp_path)


def test_half_precision_and_numbers_that_are_none(torch, released, tmp_path):
  _, theirs, params = released
  for dtype in ('bfloat16', 'float16'):
    folder = tmp_path / dtype
    theirs.to(getattr(torch, dtype)).save_pretrained(folder)
    found = published.open_folder(folder).load()
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=2**-8, atol=1e-6),
      found,
      params,
    )
    theirs.float()
  arrays = safetensors.load_file(folder / 'model.safetensors')
  arrays['bert.pooler.dense.weight'][3, 2] = np.inf
  safetensors.save_file(arrays, folder / 'model.safetensors')
  with pytest.raises(
    ValueError, match='pooler.dense.weight holds numbers that'
  ):
    published.open_folder(folder).load()


def test_what_we_do_not_have_is_listed_at_once(released, tmp_path):
  config = json.loads((released[0] / 'config.json').read_text())
  config |= {
    'position_embedding_type': 'relative_key',
    'is_decoder': True,
    'add_cross_attention': True,
    'hidden_act': 'silu',
    'quantization_config': {'bits': 8},
    'tie_word_embeddings': False,
    'hidden_size': 36.0,
    'layer_norm_eps': '1e-12',
  }
  del config['num_hidden_layers']
  (tmp_path / 'config.json').write_text(json.dumps(config))
  arrays = safetensors.load_file(released[0] / 'model.safetensors')
  arrays['cls.predictions.decoder.weight'] = arrays[
    'bert.embeddings.word_embeddings.weight'
  ]
  safetensors.save_file(arrays, tmp_path / 'model.safetensors')
  opened = published.open_folder(tmp_path)
  assert opened.model is None
  assert list(opened.problems) == [
    'hidden_size is 36.0, expected a count',
    'num_hidden_layers is missing, expected a count of layers',
    "layer_norm_eps is '1e-12', expected a number below 1, such as 1e-5",
    "hidden_act is 'silu', expected gelu or gelu_new or gelu_pytorch_tanh",
    "position_embedding_type is 'relative_key', only 'absolute' is known here",
    'is_decoder is True, only False is known here',
    'add_cross_attention is True, only False is known here',
    "quantization_config is {'bits': 8}, only None is known here",
    'tie_word_embeddings is False, only True is known here',
  ]
  with pytest.raises(ValueError, match='(?s)cannot be used.*hidden_size.*tie_word'):
    opened.load()
  config = json.loads((released[0] / 'config.json').read_text())
  config |= {'intermediate_size': 51, 'tie_word_embeddings': False}
  (tmp_path / 'config.json').write_text(json.dumps(config))
  arrays['encoder.more'] = np.zeros(2, np.float32)
  safetensors.save_file(arrays, tmp_path / 'model.safetensors')
  problems = published.open_folder(tmp_path).problems
  assert problems[0] == 'tie_word_embeddings is False, only True is known here'
  assert 'not known: encoder.more (2,)' in problems
  theirs = 'intermediate.dense.weight is (50, 36), expected (51, 36)'
  assert sum(theirs in line for line in problems) == 3


@pytest.mark.parametrize('name', ['GPT2Model', 'GPT2ForSequenceClassification'])
def test_without_a_head_nothing_is_untied(transformers, name, tmp_path):
  """Such a GPT-2 embeds texts; who asks for probabilities reads the note."""
  config = transformers.GPT2Config(
    vocab_size=50,
    n_layer=2,
    n_embd=16,
    n_head=2,
    n_positions=8,
    tie_word_embeddings=False,
  )
  getattr(transformers, name)(config).save_pretrained(tmp_path)
  opened = published.open_folder(tmp_path)
  assert opened.problems == ()
  assert 'no lm_head.weight is there' in opened.notes['softmax']
  opened.load()
  transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
  assert published.open_folder(tmp_path).problems == (
    'tie_word_embeddings is False, only True is known here',
  )


def test_berts_that_are_not_tied(transformers, released, tmp_path):
  """Of one with an MLM head, whose own matrix nobody saved, too."""
  shutil.copytree(released[0], tmp_path, dirs_exist_ok=True)
  config = json.loads((tmp_path / 'config.json').read_text())
  config['tie_word_embeddings'] = False
  (tmp_path / 'config.json').write_text(json.dumps(config))
  assert published.open_folder(tmp_path).problems == (
    'tie_word_embeddings is False, only True is known here',
  )
  config = transformers.BertConfig.from_pretrained(tmp_path)
  transformers.BertModel(config).save_pretrained(tmp_path)
  assert published.open_folder(tmp_path).problems == ()


def test_gpts_that_hugging_face_does_not_have(tmp_path):
  model, params = published_cases.make_gpt('gpt')
  with pytest.raises(ValueError, match='(?s)gelu is .erf.*mlp_dim is 255, exp'):
    hugging_face.write_folder(
      tmp_path / 'new', model.clone(gelu='erf', mlp_dim=255), params
    )
