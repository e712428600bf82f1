"""The biattentive classification network against AllenNLP's on PyTorch."""

import allennlp_reference as reference
import elmo_task_cases as cases
import numpy as np
import pytest
from elmo_task_cases import D, E, F

from configs import base
from models.elmo_tasks import bcn

H = 6
MODEL = bcn.Bcn(
  num_outputs=3, hidden_dim=H, lstm_dim=F, maxout_dims=(8, 6), maxout_pool=2
)


def make_theirs(torch, added):
  """AllenNLP's model; `added` take the place of ELMo's vectors."""
  theirs = reference.load(
    'models.biattentive_classification_network',
    'modules',
    'modules.maxout',
    'modules.seq2seq_encoders.pytorch_seq2seq_wrapper',
    'nn',
  )
  Wrapper = theirs.pytorch_seq2seq_wrapper.PytorchSeq2SeqWrapper

  class Elmo(torch.nn.Module):
    _scalar_mixes = (None,)

    def get_output_dim(self):
      return E

    def forward(self, tokens):
      return {'elmo_representations': [tokens]}

  def make_bilstm(width):
    return Wrapper(
      torch.nn.LSTM(width, F, bidirectional=True, batch_first=True)
    )

  width = 2 * F + (E if added else 0)
  model = theirs.biattentive_classification_network
  model = model.BiattentiveClassificationNetwork(
    vocab=reference.Vocabulary('abc'),
    text_field_embedder=reference.make_embedder(torch, D),
    embedding_dropout=0.0,
    pre_encode_feedforward=theirs.modules.FeedForward(
      D, 1, H, theirs.nn.Activation.by_name('relu')()
    ),
    encoder=make_bilstm(H),
    integrator=make_bilstm(6 * F),
    integrator_dropout=0.0,
    output_layer=theirs.maxout.Maxout(4 * width, 3, [8, 6, 3], 2, 0.0),
    elmo=Elmo() if added else None,
    use_integrator_output_elmo=bool(added),
  )
  reference.disturb(torch, model)
  return model.eval()


def params_of(model, gradients=False):
  def maxout(i):
    layer = model._output_layer._linear_layers[i]
    return reference.linear(layer, gradients, pool_size=2)

  return {
    'hidden': reference.linear(
      model._pre_encode_feedforward._linear_layers[0], gradients
    ),
    'encoder': reference.bilstm(model._encoder._module, gradients),
    'integrator': reference.bilstm(model._integrator._module, gradients),
    'pooling': reference.linear(
      model._self_attentive_pooling_projection, gradients
    ),
    'maxout_0': maxout(0),
    'maxout_1': maxout(1),
    'logits': maxout(2),
  }


@pytest.mark.parametrize('with_added', [False, True])
def test_equals_allennlp_with_its_gradient(torch, with_added):
  batch = cases.make_batch(1, with_added)
  added = reference.make_added(torch, batch) if with_added else []
  model = make_theirs(torch, added)
  (text,) = reference.make_texts(torch, batch)
  tokens = text | ({'elmo': added[0]} if with_added else {})
  outputs = model(tokens, label=torch.tensor(cases.LABELS))
  outputs['loss'].backward()

  step = cases.make_step(MODEL)
  loss, logits, (by_params, by_x, by_added) = step(params_of(model), batch)
  theirs = outputs['logits'].detach().numpy()
  assert np.abs(theirs).max() > 0.1
  np.testing.assert_allclose(logits, theirs, rtol=0, atol=1e-5)
  assert abs(loss - outputs['loss'].item()) < 1e-4
  cases.assert_equal_trees(by_params, params_of(model, gradients=True), 1e-4)
  expected = reference.gradient_of([text['vectors']], batch)
  assert np.abs(expected).max() > 5e-4
  np.testing.assert_allclose(by_x, expected, rtol=0, atol=1e-4)
  if with_added:
    expected = reference.gradient_of(added, batch)
    assert np.abs(expected).max() > 5e-4
    np.testing.assert_allclose(by_added, expected, rtol=0, atol=1e-4)

  # An empty text makes no NaN, and changes only its own example.
  found = step(params_of(model), batch.with_an_empty_text())
  assert cases.is_finite(found)
  np.testing.assert_allclose(found[1][1:], logits[1:], rtol=0, atol=1e-5)
  assert np.abs(found[1][0] - logits[0]).max() > 1e-3


def test_dropout_is_of_training_only():
  batch = cases.make_batch(1)
  first, second = cases.drop_twice(
    MODEL, cases.make_params(MODEL, batch), batch
  )
  assert np.isfinite(first).all()
  assert np.abs(first - second).max() > 1e-3


def test_all_axes_have_a_rule():
  rules = {name for name, _ in base.get_config().mesh.rules}
  axes = cases.axes_of(MODEL, cases.make_batch(1))
  assert {'embed', 'mlp', 'classes', 'gates', 'towers'} <= axes
  assert axes <= rules | {None}


def test_two_texts_are_refused():
  with pytest.raises(ValueError, match=r'expected \[B, 1, T, D\]: the BCN'):
    cases.axes_of(MODEL, cases.make_batch(2))
