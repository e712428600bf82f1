"""BERT read from left to right: the ablation's model."""

import functools

import bert_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from flax import linen as nn

from configs import variants
from models import bert
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
  assert bert.num_parameters(nn.unbox(params), 30_522) == 109_514_298


def test_train_flops_without_next_sentences():
  """As the program multiplies, backwards twice as much as forwards."""
  batch = bert_cases.make_batch(lengths=(8,) * 4, T=8, P=8)
  model = make_model(scan_layers=False)
  params = params_with(HEADS)
  forward = bert_cases.dot_flops(
    jax.make_jaxpr(functools.partial(run, model))(params, batch).jaxpr
  )
  sizes = bert_cases.TINY
  counted = bert.train_flops(
    batch=4,
    length=8,
    predictions=8,
    vocab_size=1024,  # padding is multiplied, too
    num_layers=sizes['num_layers'],
    embed_dim=sizes['embed_dim'],
    mlp_dim=sizes['mlp_dim'],
    next_sentence=False,
  )
  assert counted == 3 * forward
