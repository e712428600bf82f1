"""BERT read from left to right: the ablation's model."""

import functools

import bert_cases
import fusions
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transfer_cases
import transformers
from flax import linen as nn

from configs import variants
from models import layers
from models.pretrained import bert as pretrained
from models.pretrained import hugging_face

HEADS = ('mlm',)


def make_model(**fields):
  return bert_cases.make_model(left_to_right=True, heads=HEADS, **fields)


@functools.partial(jax.jit, static_argnums=0)
def run(model, params, batch):
  """Logits of what follows every token."""
  everywhere = jnp.broadcast_to(
    jnp.arange(batch['tokens'].shape[1]), batch['tokens'].shape
  )
  batch = batch | {'mlm_positions': everywhere}
  inputs = [batch[key] for key in bert_cases.INPUTS]
  return model.apply({'params': params}, *inputs, train=False)['mlm_logits']


def params_with(heads):
  params = dict(bert_cases.init_params())
  for head in {'pooler', 'nsp', 'mlm'} - set(heads):
    del params[head]
  return params


def test_no_position_sees_what_follows():
  model, params = make_model(), params_with(HEADS)
  batch, t = bert_cases.make_batch(), 17
  logits = run(model, params, batch)
  tokens = batch['tokens'].copy()
  tokens[0, t] = 5 + (tokens[0, t] + 1) % 900
  changed = run(model, params, batch | {'tokens': tokens})
  np.testing.assert_array_equal(changed[0, :t], logits[0, :t])
  np.testing.assert_array_equal(changed[1:], logits[1:])
  assert (np.abs(changed[0, t:] - logits[0, t:]).max(-1) > 1e-4).all()
  # What reads both ways does see it.
  both_ways = model.clone(left_to_right=False)
  before = run(both_ways, params, batch)
  after = run(both_ways, params, batch | {'tokens': tokens})
  assert (np.abs(after[0, :t] - before[0, :t]).max(-1) > 1e-4).all()


def test_logits_are_those_of_hugging_faces_decoder():
  model, params = make_model(), params_with(HEADS)
  batch = bert_cases.make_batch()
  logits = run(model, params, batch)
  both_ways = model.clone(left_to_right=False)
  _, arrays = pretrained.to_hugging_face(params, both_ways)
  theirs = transformers.BertLMHeadModel(
    transformers.BertConfig(**pretrained.to_config(both_ways), is_decoder=True)
  )
  missing = theirs.load_state_dict(
    {key: torch.tensor(np.array(value)) for key, value in arrays.items()},
    strict=False,
  )
  assert not missing.unexpected_keys
  tensors = {key: torch.tensor(value) for key, value in batch.items()}
  with torch.no_grad():
    expected = theirs.eval()(
      input_ids=tensors['tokens'].long(),
      attention_mask=tensors['token_mask'].long(),
      token_type_ids=tensors['token_types'].long(),
    ).logits
  real = batch['token_mask']
  ours = np.asarray(logits)[..., : bert_cases.VOCAB_SIZE]
  bert_cases.assert_close(ours[real], expected.numpy()[real], 1e-4)


def test_nothing_of_hugging_faces_reads_so(tmp_path):
  with pytest.raises(ValueError, match='reads from left to right'):
    hugging_face.write_folder(tmp_path, make_model(), params_with(HEADS))
  assert not list(tmp_path.iterdir())


def test_parameter_count_without_next_sentences():
  """That of Hugging Face's BertForMaskedLM."""
  params = bert_cases.abstract_params(
    vocab_size=30_522, heads=HEADS, **variants.BERT['bert-base']
  )
  assert layers.num_parameters(nn.unbox(params), 30_522) == 109_514_298


# Of heads of tasks: four texts, of which row i ends at LENGTHS[i] - 1.
LENGTHS = (13, 7, 2, 9)


def make_task_model(head='classifier', num_outputs=3, **fields):
  encoder = transfer_cases.make_bert(
    ('pooler',) if fields.get('features', 'last') == 'last' else (),
    left_to_right=True,
    pool='last',
    num_layers=4,
  )
  return transfer_cases.make_model(encoder, head, num_outputs, **fields)


def logits_of(model, params, batch):
  inputs = transfer_cases.inputs_of(batch)
  return np.asarray(transfer_cases.run(model, params, inputs)['logits'])


@pytest.mark.parametrize(
  ('choices', 'fields'),
  [
    (None, {}),
    (None, {'num_outputs': 1}),
    (4, {'num_outputs': 1}),
    (None, {'features': 'sum_last_4'}),
    (None, {'features': 'mix', 'num_outputs': 1}),
    (None, {'head': 'span_classifier', 'num_outputs': 2}),
  ],
  ids=['classes', 'score', 'choices', 'sum', 'mix', 'no answer'],
)
def test_what_is_said_of_a_text_depends_on_all_of_it(choices, fields):
  """And on nothing else: not on the padding, nor how much there is."""
  model = make_task_model(**fields)
  batch = transfer_cases.make_batch(lengths=LENGTHS, choices=choices)
  params = transfer_cases.draw_params(model, batch)
  is_span = model.head == 'span_classifier'

  def said(batch):
    logits = logits_of(model, params, batch)
    # Of spans the first place says that there is no answer.
    return (logits[:, 0] if is_span else logits).reshape(len(LENGTHS), -1)

  found = said(batch)
  assert len(np.unique(found.round(5), axis=0)) == len(LENGTHS)
  for t in range(batch['tokens'].shape[-1]):
    tokens = batch['tokens'].copy()
    tokens[..., t] = 5 + (tokens[..., t] + 1) % 100
    moved = np.abs(said(batch | {'tokens': tokens}) - found)
    is_real = batch['token_mask'][..., t].reshape(len(LENGTHS), -1)
    assert (moved[np.broadcast_to(is_real, moved.shape)] > 1e-7).all(), t
    assert (moved[~np.broadcast_to(is_real, moved.shape)] == 0).all(), t
  longer = {
    key: np.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, 5)])
    for key, value in batch.items()
    if key in ('tokens', 'token_mask', 'token_types', 'positions')
  }
  np.testing.assert_allclose(said(batch | longer), found, atol=1e-6)


@pytest.mark.parametrize('features', ['last', 'sum_last_4'])
def test_it_is_read_at_the_last_real_token(features):
  """By hand: the pooler's layer, or none, and the linear one above."""
  model = make_task_model(features=features)
  batch = transfer_cases.make_batch(lengths=LENGTHS)
  params = transfer_cases.draw_params(model, batch)
  every = make_task_model('token_classifier', features=features)
  width = len(params['classifier']['kernel'])
  head = {
    'kernel': np.eye(width, dtype=np.float32),
    'bias': np.zeros(width, np.float32),
  }
  hidden = logits_of(
    every.clone(num_outputs=width), params | {'token_classifier': head}, batch
  )[np.arange(len(LENGTHS)), batch['last']]
  if features == 'last':
    pooler = params['pooler']
    hidden = np.tanh(hidden @ pooler['kernel'] + pooler['bias'])
  kernel, bias = (params['classifier'][key] for key in ('kernel', 'bias'))
  expected = hidden @ kernel + bias
  np.testing.assert_allclose(
    logits_of(model, params, batch), expected, rtol=0, atol=1e-5
  )


def test_only_the_ends_of_a_row_change_places_for_spans():
  spans = make_task_model('span_classifier', 2)
  batch = transfer_cases.make_batch(lengths=LENGTHS)
  params = transfer_cases.draw_params(spans, batch)
  plain = spans.clone(backbone=spans.backbone.clone(pool='first'))

  def logits_of(model):
    run = jax.jit(
      lambda params: model.apply(
        {'params': params}, *transfer_cases.inputs_of(batch), train=False
      )['logits'],
      # Otherwise the CPU's compiler rounds by what reads the encoder.
      compiler_options=fusions.AS_USERS,
    )
    return np.array(run(params))

  found, expected = logits_of(spans), logits_of(plain)
  for row, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
    last = LENGTHS[row] - 1
    theirs[[0, last]] = theirs[[last, 0]]
    np.testing.assert_array_equal(ours, theirs)
