"""BERT there and back, by Hugging Face and google-research/bert."""

import json
import shutil

import jax
import numpy as np
import published_cases
import pytest
from safetensors import numpy as safetensors

from models.pretrained import hugging_face, published


def our_bert_outputs(model, params, inputs):
  """Ours under their names; heads that are extra are one product each."""
  positions = np.tile(np.arange(inputs[0].shape[1]), (len(inputs[0]), 1))
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
  theirs = published_cases.open_theirs(transformers, name, tmp_path / 'ours')
  inputs = published_cases.make_inputs()
  expected = published_cases.their_outputs(torch, theirs, inputs)
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


@pytest.mark.parametrize(
  'prefix', ['_orig_mod.', 'model.', 'module._orig_mod.']
)
def test_names_of_programs_that_wrap_the_model(prefix, tmp_path):
  """torch.compile, a module that holds the model, and both of DataParallel."""
  model, params = published_cases.make_bert('BertForPreTraining')
  hugging_face.write_folder(tmp_path, model, params)
  file = tmp_path / 'model.safetensors'
  arrays = safetensors.load_file(file)
  wrapped = {f'{prefix}{name}': array for name, array in arrays.items()}
  safetensors.save_file(wrapped, file, {'format': 'pt'})
  found = published.open_folder(tmp_path)
  assert not found.problems
  published_cases.assert_same(found.load(), params)


def test_ernies_activation_there_and_back(torch, transformers, tmp_path):
  model, params = published_cases.make_bert('BertModel')
  model = model.clone(gelu='relu')
  hugging_face.write_folder(tmp_path, model, params)
  theirs = published_cases.open_theirs(transformers, 'BertModel', tmp_path)
  assert theirs.config.hidden_act == 'relu'
  inputs = published_cases.make_inputs()
  expected = published_cases.their_outputs(torch, theirs, inputs)
  found = our_bert_outputs(model, params, inputs)['pooler_output']
  np.testing.assert_allclose(found, expected['pooler_output'], atol=1e-4)
  assert published.open_folder(tmp_path).model == model


@pytest.mark.parametrize(
  'name, prefix',
  [
    ('BertForPreTraining', 'bert_model.ckpt'),
    ('BertForSequenceClassification', 'model.ckpt-343'),
    ('squad', 'model.ckpt-7'),
  ],
)
def test_bert_of_tensorflow(name, prefix, tmp_path):
  if name == 'squad':  # the encoder there has a pooler always
    model, _ = published_cases.make_bert('BertModel')
    params = published_cases.draw(model, ('span_classifier', 2))
  else:
    model, params = published_cases.make_bert(name)
  arrays = published_cases.bert_arrays(model, params)
  slots = {
    f'{name}/adam_{x}': array for name, array in arrays.items() for x in 'mv'
  } | {'global_step': np.int64(343)}
  published_cases.save_checkpoint(tmp_path / prefix, arrays | slots)
  published_cases.write_bert_config(tmp_path, model)
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


def test_what_we_do_not_have_is_listed_at_once(released, tmp_path):
  config = json.loads((released[0] / 'config.json').read_text())
  config |= {
    'position_embedding_type': 'relative_key',
    'is_decoder': True,
    'add_cross_attention': True,
    'hidden_act': 'silu',
    'quantization_config': {'bits': 8},
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
    "hidden_act is 'silu', expected gelu or gelu_new or gelu_pytorch_tanh or"
    ' relu',
    "position_embedding_type is 'relative_key', only 'absolute' is known here",
    'is_decoder is True, only False is known here',
    'add_cross_attention is True, only False is known here',
    "quantization_config is {'bits': 8}, only None is known here",
  ]
  with pytest.raises(ValueError, match='(?s)cannot be used.*hidden_.*quantiz'):
    opened.load()
  config = json.loads((released[0] / 'config.json').read_text())
  config |= {'intermediate_size': 51}
  (tmp_path / 'config.json').write_text(json.dumps(config))
  arrays['encoder.more'] = np.zeros(2, np.float32)
  safetensors.save_file(arrays, tmp_path / 'model.safetensors')
  problems = published.open_folder(tmp_path).problems
  assert 'not known: encoder.more (2,)' in problems
  theirs = 'intermediate.dense.weight is (50, 36), expected (51, 36)'
  assert sum(theirs in line for line in problems) == 3


@pytest.mark.parametrize('name', ['BertForPreTraining', 'BertForMaskedLM'])
@pytest.mark.parametrize('has_one_bias', [False, True])
def test_a_softmax_of_its_own_table_there_and_back(
  torch, transformers, name, has_one_bias, tmp_path
):
  """The classes read the decoder's bias; version 4 may have saved one alone."""
  model, params = published_cases.make_bert(name, tied=False)
  hugging_face.write_folder(tmp_path / 'ours', model, params)
  theirs = published_cases.open_theirs(transformers, name, tmp_path / 'ours')
  assert theirs.config.tie_word_embeddings is False
  inputs = published_cases.make_inputs()
  ours = our_bert_outputs(model, params, inputs)
  expected = published_cases.their_outputs(torch, theirs, inputs)
  key = 'logits' if 'logits' in expected else 'prediction_logits'
  mask = inputs[1]
  found = np.asarray(ours[key])[mask]
  np.testing.assert_allclose(found, expected[key][mask], atol=1e-4)
  file = tmp_path / 'ours/model.safetensors'
  arrays = safetensors.load_file(file)
  bias = 'cls.predictions.bias'
  if has_one_bias:
    del arrays['cls.predictions.decoder.bias']
  else:  # a trained model leaves this as it was drawn
    arrays[bias] = np.zeros_like(arrays[bias])
  safetensors.save_file(arrays, file)
  opened = published.open_folder(tmp_path / 'ours')
  opened.check_problems()
  assert opened.model == model
  published_cases.assert_same(opened.load(), params)


def test_a_softmax_whose_own_table_nobody_saved_is_refused(
  transformers, released, tmp_path
):
  shutil.copytree(released[0], tmp_path, dirs_exist_ok=True)
  config = json.loads((tmp_path / 'config.json').read_text())
  config['tie_word_embeddings'] = False
  (tmp_path / 'config.json').write_text(json.dumps(config))
  (problem,) = published.open_folder(tmp_path).problems
  assert problem.startswith('missing: cls.predictions.decoder.weight (')
  config = transformers.BertConfig.from_pretrained(tmp_path)
  transformers.BertModel(config).save_pretrained(tmp_path)
  opened = published.open_folder(tmp_path)
  assert opened.problems == () and opened.model.tied
