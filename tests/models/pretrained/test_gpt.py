"""GPT and GPT-2 there and back, by Hugging Face and openai/gpt-2."""

import json

import jax
import numpy as np
import published_cases
import pytest

from models.pretrained import hugging_face, published


@pytest.mark.parametrize('name', ['gpt', 'gpt2'])
def test_gpt_there_and_back(torch, transformers, name, tmp_path):
  model, params = published_cases.make_gpt(name)
  # Their defaults are beyond this vocabulary.
  ids = {'bos_token_id': 1, 'eos_token_id': 1}
  hugging_face.write_folder(tmp_path / 'ours', model, params, ids)
  kind = {'gpt': 'OpenAIGPT', 'gpt2': 'GPT2'}[name]
  theirs = published_cases.open_theirs(
    transformers, f'{kind}LMHeadModel', tmp_path / 'ours'
  )
  tokens, mask, _, positions = inputs = published_cases.make_inputs()
  expected = published_cases.their_outputs(torch, theirs, inputs)['logits']
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


def test_gpt2_of_tensorflow(tmp_path):
  model, params = published_cases.make_gpt('gpt2')
  model = model.clone(mlp_dim=256)
  params = published_cases.draw(model)
  published_cases.save_checkpoint(
    tmp_path / 'model.ckpt', published_cases.openai_arrays(model, params)
  )
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


def test_gpts_that_hugging_face_does_not_have(tmp_path):
  model, params = published_cases.make_gpt('gpt')
  with pytest.raises(ValueError, match='(?s)gelu is .erf.*mlp_dim is 255, exp'):
    hugging_face.write_folder(
      tmp_path / 'new', model.clone(gelu='erf', mlp_dim=255), params
    )
