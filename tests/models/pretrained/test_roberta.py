"""RoBERTa of transformers, read and written as a BERT."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from models.pretrained import hugging_face, published, roberta

VOCAB_SIZE, POSITIONS, PAD = 90, 18, 1
LENGTH = POSITIONS - PAD - 1  # the longest text
FORM = roberta.Form(PAD)


def make(torch, kind, **options):
  import transformers

  config = transformers.RobertaConfig(
    **{
      'vocab_size': VOCAB_SIZE,
      'hidden_size': 32,
      'intermediate_size': 40,
      'num_hidden_layers': 3,
      'num_attention_heads': 4,
      'max_position_embeddings': POSITIONS,
      'type_vocab_size': 1,
      'layer_norm_eps': 1e-5,
      'pad_token_id': PAD,
    }
    | options
  )
  torch.manual_seed(0)
  model = getattr(transformers, f'Roberta{kind}')(config).eval()
  with torch.no_grad():
    for leaf in model.parameters():
      leaf += 0.1 * torch.randn(leaf.shape)
  return model


def rows(pad=PAD):
  """Two texts, the longest that there is and one with padding behind it."""
  rng = np.random.default_rng(0)
  mask = np.arange(LENGTH) < np.array([[LENGTH], [6]])
  return np.where(mask, rng.integers(4, VOCAB_SIZE, mask.shape), pad), mask


def run(weights, pad=PAD):
  tokens, mask = rows(pad)
  places = jnp.broadcast_to(jnp.arange(LENGTH), tokens.shape)
  return jax.jit(
    lambda params: weights.model.apply(
      {'params': {k: v for k, v in params.items() if k not in weights.heads}},
      jnp.asarray(tokens),
      jnp.asarray(mask),
      jnp.ones_like(places),  # of types, which there are none
      places,
      places,
      train=False,
      all_layers=True,
    )
  )(weights.load())


def theirs(torch, model, pad=PAD, **options):
  tokens, mask = rows(pad)
  with torch.no_grad():
    return model(
      input_ids=torch.tensor(tokens),
      attention_mask=torch.tensor(mask.astype(np.int64)),
      **options,
    )


def write_again(weights, folder, form=FORM, config=None):
  hugging_face.write_folder(
    folder, weights.model, weights.load(), config, as_roberta=form
  )
  return published.open_folder(folder)


@pytest.mark.parametrize(
  ('pad', 'tied'), [(PAD, True), (0, True), (PAD, False)]
)
def test_a_masked_model_is_equal(torch, pad, tied, tmp_path):
  """Also with another padding symbol, so with other rows of positions."""
  import transformers

  model = make(
    torch,
    'ForMaskedLM',
    pad_token_id=pad,
    max_position_embeddings=LENGTH + pad + 1,
    tie_word_embeddings=tied,
  )
  model.save_pretrained(tmp_path / 'there')
  weights = published.open_folder(tmp_path / 'there')
  weights.check_problems()
  assert weights.model.heads == ('mlm',) and not weights.set_aside
  assert weights.model.tied == tied
  assert weights.model.max_length == LENGTH
  assert weights.model.layer_norm_epsilon == 1e-5
  expected = theirs(torch, model, pad, output_hidden_states=True)
  found, (_, mask) = run(weights, pad), rows(pad)
  layers = torch.stack(expected.hidden_states).numpy()
  np.testing.assert_allclose(
    np.asarray(found['layers'])[:, mask], layers[:, mask], atol=1e-5
  )
  logits = np.asarray(found['mlm_logits'])[mask][:, :VOCAB_SIZE]
  np.testing.assert_allclose(logits, expected.logits.numpy()[mask], atol=1e-4)
  write_again(weights, tmp_path / 'here', roberta.Form(pad))
  again, told = transformers.RobertaForMaskedLM.from_pretrained(
    tmp_path / 'here', output_loading_info=True
  )
  assert not any(told.values()), told
  found = theirs(torch, again.eval(), pad).logits.numpy()
  np.testing.assert_allclose(
    found[mask], expected.logits.numpy()[mask], atol=1e-5
  )


HEADS = {
  'Model': (('pooler',), None),
  'ForSequenceClassification': (('pooler',), 'classifier'),
  'ForTokenClassification': ((), 'token_classifier'),
  'ForQuestionAnswering': ((), 'span_classifier'),
  'ForMultipleChoice': (('pooler',), 'classifier'),
}


def logits_of(outputs):
  if 'start_logits' in outputs:
    return np.stack([outputs.start_logits, outputs.end_logits], -1)
  return (
    outputs.logits if 'logits' in outputs else outputs.pooler_output
  ).numpy()


@pytest.mark.parametrize('kind', HEADS)
def test_heads_are_read_and_written(torch, kind, tmp_path):
  """A classifier of texts is our pooler and classifier."""
  import transformers

  model = make(torch, kind)
  model.save_pretrained(tmp_path / 'there')
  weights = published.open_folder(tmp_path / 'there')
  weights.check_problems()
  heads, extra = HEADS[kind]
  assert weights.model.heads == heads and not weights.set_aside
  assert weights.heads == ((extra,) if extra else ())
  found, (tokens, mask) = run(weights), rows()
  if kind == 'ForMultipleChoice':  # a row is a choice
    ids, seen = (torch.tensor(x[None].astype(np.int64)) for x in (tokens, mask))
    with torch.no_grad():
      expected = model(input_ids=ids, attention_mask=seen).logits.numpy().T
  else:
    expected = logits_of(theirs(torch, model))
  ours = found['hidden']
  if 'pooler' in heads:
    ours = found['pooled']
  if extra:
    head = weights.load()[extra]
    ours = ours @ head['kernel'] + head['bias']
  rows_ = mask if ours.ndim == 3 else ...
  np.testing.assert_allclose(
    np.asarray(ours)[rows_], expected[rows_], atol=1e-5
  )
  is_choice = kind == 'ForMultipleChoice'
  config = {'architectures': [f'Roberta{kind}']} if is_choice else None
  write_again(
    weights, tmp_path / 'here', FORM._replace(choice=is_choice), config
  )
  again, told = getattr(transformers, f'Roberta{kind}').from_pretrained(
    tmp_path / 'here', output_loading_info=True
  )
  assert not any(told.values()), told
  config = json.loads((tmp_path / 'here/config.json').read_text())
  assert config['architectures'] == [f'Roberta{kind}']
  for name, leaf in again.state_dict().items():
    wanted = model.state_dict()[name]
    if name.endswith('position_embeddings.weight'):
      leaf, wanted = leaf[PAD + 1 :], wanted[PAD + 1 :]
      wanted = wanted + model.base_model.embeddings.token_type_embeddings.weight
    if name.endswith('token_type_embeddings.weight'):
      assert not leaf.any()
      continue
    torch.testing.assert_close(leaf, wanted, rtol=0, atol=0)


def test_an_older_file_has_a_pooler_that_nothing_computes_with(torch, tmp_path):
  model = make(torch, 'ForSequenceClassification')
  model.save_pretrained(tmp_path)
  file = tmp_path / 'model.safetensors'
  arrays = safetensors.numpy.load_file(file)
  for name in ('weight', 'bias'):
    arrays[f'roberta.pooler.dense.{name}'] = np.zeros_like(
      arrays[f'classifier.dense.{name}']
    )
  arrays['roberta.embeddings.position_ids'] = np.arange(POSITIONS)[None]
  safetensors.numpy.save_file(arrays, file, {'format': 'pt'})
  weights = published.open_folder(tmp_path)
  weights.check_problems()
  assert len(weights.set_aside) == 3
  kernel = np.asarray(weights.load()['pooler']['kernel'])
  expected = model.classifier.dense.weight.detach().numpy().T
  np.testing.assert_array_equal(kernel, expected)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'type_vocab_size': 2}, 'type_vocab_size is 2, expected 1'),
    ({'type_vocab_size': None}, 'type_vocab_size is None, expected 1'),
    ({'pad_token_id': None}, 'pad_token_id is None, expected a number'),
    ({'pad_token_id': 'x'}, "pad_token_id is 'x', expected a number"),
    ({'pad_token_id': 17}, 'max_position_embeddings is 18, expected more than'),
    (
      {'max_position_embeddings': 'x'},
      "max_position_embeddings is 'x', expect",
    ),
    ({'max_position_embeddings': 20}, r'another shape: \S*position_embeddings'),
    ({'hidden_act': 'gelu_new'}, "hidden_act is 'gelu_new', expected 'gelu'"),
    ({'hidden_act': ['gelu']}, r"hidden_act is \['gelu'\], expected"),
    ({'hidden_size': 30}, 'hidden_size is 30, expected a multiple'),
    ({'position_embedding_type': 'relative_key'}, 'position_embedding_type is'),
    ({'is_decoder': True}, 'is_decoder is True'),
    ({'tie_word_embeddings': False}, r'missing: lm_head\.decoder\.weight'),
    ({'model_type': 'xlm-roberta'}, "model_type is 'xlm-roberta', expected"),
  ],
)
def test_another_config_is_refused(torch, changes, message, tmp_path):
  make(torch, 'ForMaskedLM').save_pretrained(tmp_path)
  file = tmp_path / 'config.json'
  config = json.loads(file.read_text())
  file.write_text(json.dumps(config | changes))
  with pytest.raises(ValueError, match=message):
    published.open_folder(tmp_path).check_problems()


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    (
      'roberta.embeddings.token_type_embeddings.weight',
      'missing: .*types?_emb',
    ),
    (
      'roberta.embeddings.position_embeddings.weight',
      'missing: .*position_emb',
    ),
    ('lm_head.dense.weight', r'missing: lm_head\.dense\.weight'),
    ('lm_head.layer_norm.bias', r'missing: lm_head\.layer_norm\.bias'),
  ],
)
def test_missing_arrays_are_named(torch, name, message, tmp_path):
  make(torch, 'ForMaskedLM').save_pretrained(tmp_path)
  file = tmp_path / 'model.safetensors'
  arrays = safetensors.numpy.load_file(file)
  del arrays[name]
  safetensors.numpy.save_file(arrays, file, {'format': 'pt'})
  with pytest.raises(ValueError, match=message):
    published.open_folder(tmp_path).check_problems()


def test_what_a_roberta_does_not_compute_is_written_as_a_bert(torch, tmp_path):
  """Types of tokens, next sentences, another function before the softmax."""
  make(torch, 'ForMaskedLM').save_pretrained(tmp_path / 'there')
  model = published.open_folder(tmp_path / 'there').model
  assert roberta.is_like(model)
  for changes in (
    {'num_token_types': 2},
    {'heads': ('pooler', 'mlm', 'nsp')},
    {'gelu': 'tanh'},
  ):
    assert not roberta.is_like(model.clone(**changes))
  assert roberta.is_like(model.clone(gelu='tanh', heads=()))
