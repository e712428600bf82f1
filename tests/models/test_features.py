"""Hidden states of every layer, however the layers are stored and run."""

import functools

import bert_cases
import fusions
import gpt_cases
import jax
import numpy as np
import pytest

from models import features, gpt


def layers_and_hidden(cases, model, params):
  batch = cases.make_batch()
  inputs = [batch[key] for key in cases.INPUTS]

  # Otherwise the CPU's compiler rounds by what reads the layers.
  @functools.partial(jax.jit, compiler_options=fusions.AS_USERS)
  def run(params):
    outputs = model.apply({'params': params}, *inputs, train=False)
    layers = features.hidden_layers(model, params, *inputs)
    return layers, outputs['hidden']

  return jax.tree.map(np.asarray, run(params))


@pytest.mark.parametrize('name', ['bert', 'gpt', 'gpt2'])
def test_scanned_unrolled_and_unstacked_agree(name):
  if name == 'bert':
    cases, fields, params = bert_cases, {}, bert_cases.init_params()
  else:
    cases, fields = gpt_cases, {'pre_norm': name == 'gpt2'}
    params = gpt_cases.init_params(**fields)
  scanned = cases.make_model(scan_layers=True, **fields)
  layers, hidden = layers_and_hidden(cases, scanned, params)
  assert layers.shape == (scanned.num_layers + 1, *hidden.shape)
  np.testing.assert_array_equal(layers[-1], hidden)
  # No layer stands twice.
  assert np.abs(np.diff(layers, axis=0)).max((1, 2, 3)).min() > 0.1

  unrolled = cases.make_model(scan_layers=False, **fields)
  others = [(unrolled, params)]
  if name != 'bert':
    others.append(gpt.prepare_decoding(scanned, params))
  for model, params in others:
    other, hidden = layers_and_hidden(cases, model, params)
    np.testing.assert_array_equal(other[-1], hidden)
    np.testing.assert_allclose(other, layers, atol=1e-5)


def test_equals_hugging_face(torch, make_reference):
  reference = make_reference(bert_cases.TINY, bert_cases.VOCAB_SIZE, 'tanh')
  batch = bert_cases.make_batch()
  with torch.no_grad():
    expected = reference.model.eval()(
      **{
        name: torch.tensor(np.asarray(batch[key], np.int64))
        for name, key in (
          ('input_ids', 'tokens'),
          ('attention_mask', 'token_mask'),
          ('token_type_ids', 'token_types'),
          ('position_ids', 'positions'),
        )
      },
      output_hidden_states=True,
    ).hidden_states
  model = bert_cases.make_model(max_length=512)
  layers, _ = layers_and_hidden(bert_cases, model, reference.params())
  assert len(expected) == len(layers)
  for ours, theirs in zip(layers, expected, strict=True):
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize('pre_norm', [False, True], ids=['gpt', 'gpt2'])
def test_gpt_equals_hugging_face(torch, make_gpt_reference, pre_norm):
  """Also the last layer of GPT-2, which they too return after its norm."""
  reference = make_gpt_reference(gpt_cases.TINY, gpt_cases.VOCAB_SIZE, pre_norm)
  batch = gpt_cases.make_batch()
  mask = batch['token_mask']
  with torch.no_grad():
    expected = reference(
      input_ids=torch.tensor(np.asarray(batch['tokens'], np.int64)),
      attention_mask=torch.tensor(np.asarray(mask, np.int64)),
      output_hidden_states=True,
    ).hidden_states
  model = gpt_cases.make_model(pre_norm=pre_norm)
  arrays = {
    name: p.detach().numpy().copy() for name, p in reference.named_parameters()
  }
  params = gpt_cases.open_arrays(arrays, model).load()
  layers, _ = layers_and_hidden(gpt_cases, model, params)
  assert len(expected) == len(layers)
  for ours, theirs in zip(layers, expected, strict=True):
    np.testing.assert_allclose(
      ours[mask], theirs.numpy()[mask], rtol=0, atol=1e-5
    )


@pytest.mark.parametrize('biases', [True, False])
def test_tokens_alone_are_what_a_modern_bert_embeds(biases):
  """It adds neither positions nor types, so that layer 0 knows no places."""
  form = dict(norm='pre', positions='rotary', num_token_types=0, biases=biases)
  fields = {'heads': (), 'vocab_size': bert_cases.VOCAB_SIZE} | form
  params = bert_cases.draw_params(
    bert_cases.abstract_params(**(bert_cases.TINY | fields))
  )
  model = bert_cases.make_model(heads=(), **form)
  layers, _ = layers_and_hidden(bert_cases, model, params)
  own_VD = np.asarray(features.token_vectors(model, params))
  tokens = np.asarray(bert_cases.make_batch()['tokens'])
  np.testing.assert_allclose(layers[0], own_VD[tokens], atol=1e-5)
