"""The BCN against AllenNLP's on PyTorch."""

import allennlp_reference as reference
import elmo_task_cases as cases
import numpy as np
import pytest
from elmo_task_cases import D, E, F

from models.elmo_tasks import bcn

H = 16
POOL = 4
WIDTHS = (7, 5)
MODEL = bcn.Bcn(num_outputs=3, hidden_dim=H, lstm_dim=F, maxout_dims=WIDTHS)


def make_theirs(torch, added):
  """AllenNLP's model; `added` stand for the second mix of an ELMo."""
  torch.manual_seed(3)
  theirs = reference.load(
    'models.biattentive_classification_network',
    'modules',
    'modules.seq2seq_encoders.pytorch_seq2seq_wrapper',
    'nn',
  )

  class Elmo(torch.nn.Module):
    _scalar_mixes = (None,)

    def get_output_dim(self):
      return E

    def forward(self, added):
      return {'elmo_representations': [added]}

  def make_bilstm(width):
    return theirs.pytorch_seq2seq_wrapper.PytorchSeq2SeqWrapper(
      torch.nn.LSTM(width, F, bidirectional=True, batch_first=True)
    )

  network = theirs.biattentive_classification_network
  model = network.BiattentiveClassificationNetwork(
    vocab=reference.Vocabulary('abc'),
    text_field_embedder=reference.make_embedder(torch, D),
    embedding_dropout=0.5,
    pre_encode_feedforward=theirs.modules.FeedForward(
      D, 1, H, theirs.nn.Activation.by_name('relu')(), 0.25
    ),
    encoder=make_bilstm(H),
    integrator=make_bilstm(6 * F),
    integrator_dropout=0.1,
    output_layer=theirs.modules.Maxout(
      4 * (2 * F + E), 3, [*WIDTHS, 3], POOL, [0.2, 0.3, 0.0]
    ),
    elmo=Elmo(),
    use_integrator_output_elmo=True,
  )
  reference.disturb(torch, model)
  return model.eval()


def params_of(model, gradients=False):
  maxouts = [
    reference.linear(layer, gradients, POOL)
    for layer in model._output_layer._linear_layers
  ]
  return {
    'hidden': reference.linear(
      model._pre_encode_feedforward._linear_layers[0], gradients
    ),
    'encoder': reference.bilstm(model._encoder._module, gradients),
    'integrator': reference.bilstm(model._integrator._module, gradients),
    'pooling': reference.linear(
      model._self_attentive_pooling_projection, gradients
    ),
    'maxout_0': maxouts[0],
    'maxout_1': maxouts[1],
    'logits': maxouts[2],
  }


def test_equals_allennlp_with_its_gradient(torch):
  batch = cases.make_batch(1)
  added = reference.make_added(torch, batch)
  model = make_theirs(torch, added)
  (text,) = reference.make_texts(torch, batch)
  outputs = model(text | {'elmo': added[0]}, torch.tensor(cases.LABELS))
  outputs['loss'].backward()

  step = cases.make_step(MODEL)
  params = params_of(model)
  loss, logits, (by_params, by_x, by_added) = step(params, batch)
  theirs = outputs['logits'].detach().numpy()
  np.testing.assert_allclose(logits, theirs, rtol=0, atol=1e-5)
  assert abs(loss - outputs['loss'].item()) < 1e-4
  cases.assert_equal_trees(by_params, params_of(model, gradients=True), 1e-4)
  expected = reference.gradient_of([text['vectors']], batch)
  assert np.abs(expected).max() > 1e-2
  np.testing.assert_allclose(by_x, expected, rtol=0, atol=1e-4)
  expected = reference.gradient_of(added, batch)
  assert np.abs(expected).max() > 1e-2
  np.testing.assert_allclose(by_added, expected, rtol=0, atol=1e-4)

  # An empty text makes no NaN, and changes only its own example.
  found = step(params, batch.with_an_empty_text())
  assert cases.is_finite(found)
  np.testing.assert_allclose(found[1][1:], logits[1:], rtol=0, atol=1e-5)
  assert np.abs(found[1][0] - logits[0]).max() > 1e-3


def test_drops_in_training_without_added_vectors():
  batch = cases.make_batch(1, with_added=False)
  first, second = cases.drop_twice(
    MODEL, cases.make_params(MODEL, batch), batch
  )
  assert np.isfinite(first).all()
  assert np.abs(first - second).min() > 1e-3


def test_two_texts_are_refused():
  with pytest.raises(
    ValueError, match=r'expected \[B, 1, T, D\]: the BCN reads'
  ):
    cases.axes_of(MODEL, cases.make_batch(2))
