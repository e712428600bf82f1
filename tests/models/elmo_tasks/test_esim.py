"""ESIM against AllenNLP's on PyTorch."""

import allennlp_reference as reference
import elmo_task_cases as cases
import numpy as np
import pytest
from elmo_task_cases import D, E, F

from models.elmo_tasks import esim

H = 16
MODEL = esim.Esim(num_outputs=3, lstm_dim=F, hidden_dim=H)


def make_theirs(torch, added):
  """AllenNLP's model; `added` are appended to what its encoder returns."""
  torch.manual_seed(3)
  theirs = reference.load(
    'models.esim',
    'modules',
    'modules.seq2seq_encoders.pytorch_seq2seq_wrapper',
    'modules.similarity_functions.dot_product',
    'nn',
  )
  Wrapper = theirs.pytorch_seq2seq_wrapper.PytorchSeq2SeqWrapper

  class Encoder(Wrapper):
    def get_output_dim(self):
      return super().get_output_dim() + E

    def forward(self, inputs, mask):
      outputs = super().forward(inputs, mask)
      return torch.cat([outputs, added.pop(0)], dim=-1)

  def make_bilstm(cls, width):
    return cls(torch.nn.LSTM(width, F, bidirectional=True, batch_first=True))

  def make_layer(inputs, outputs, activation):
    return theirs.modules.FeedForward(
      inputs, 1, outputs, theirs.nn.Activation.by_name(activation)()
    )

  encoder = make_bilstm(Encoder, D)
  model = theirs.esim.ESIM(
    vocab=reference.Vocabulary('abc'),
    text_field_embedder=reference.make_embedder(torch, D),
    encoder=encoder,
    similarity_function=theirs.dot_product.DotProductSimilarity(),
    projection_feedforward=make_layer(4 * encoder.get_output_dim(), H, 'relu'),
    inference_encoder=make_bilstm(Wrapper, H),
    output_feedforward=make_layer(8 * F, H, 'relu'),
    output_logit=make_layer(H, 3, 'linear'),
  )
  reference.disturb(torch, model)
  return model.eval()


def params_of(model, gradients=False):
  def linear(layer):
    return reference.linear(layer._linear_layers[0], gradients)

  return {
    'encoder': reference.bilstm(model._encoder._module, gradients),
    'projection': linear(model._projection_feedforward),
    'composition': reference.bilstm(
      model._inference_encoder._module, gradients
    ),
    'hidden': linear(model._output_feedforward),
    'logits': linear(model._output_logit),
  }


def test_equals_allennlp_with_its_gradient(torch):
  batch = cases.make_batch(2)
  added = reference.make_added(torch, batch)
  model = make_theirs(torch, [*added])
  texts = reference.make_texts(torch, batch)
  outputs = model(*texts, label=torch.tensor(cases.LABELS))
  outputs['loss'].backward()

  step = cases.make_step(MODEL)
  params = params_of(model)
  loss, logits, (by_params, by_x, by_added) = step(params, batch)
  theirs = outputs['label_logits'].detach().numpy()
  np.testing.assert_allclose(logits, theirs, rtol=0, atol=1e-5)
  assert abs(loss - outputs['loss'].item()) < 1e-4
  cases.assert_equal_trees(by_params, params_of(model, gradients=True), 1e-4)
  vectors = [text['vectors'] for text in texts]
  expected = reference.gradient_of(vectors, batch)
  assert np.abs(expected).max() > 1e-2
  np.testing.assert_allclose(by_x, expected, rtol=0, atol=1e-4)
  expected = reference.gradient_of(added, batch)
  assert np.abs(expected).max() > 1e-2
  np.testing.assert_allclose(by_added, expected, rtol=0, atol=1e-4)

  # An empty text makes no NaN, and changes only its own example.
  found = step(params, batch.with_an_empty_text())
  assert cases.is_finite(found)
  np.testing.assert_allclose(found[1][1:], logits[1:], rtol=0, atol=1e-5)
  assert np.abs(found[1][0] - logits[0]).max() > 1e-2


def test_drops_in_training_without_added_vectors():
  batch = cases.make_batch(2, with_added=False)
  first, second = cases.drop_twice(
    MODEL, cases.make_params(MODEL, batch), batch
  )
  assert np.isfinite(first).all()
  assert np.abs(first - second).min() > 1e-3


def test_one_text_is_refused():
  with pytest.raises(
    ValueError, match=r'expected \[B, 2, T, D\]: ESIM reads 2'
  ):
    cases.axes_of(MODEL, cases.make_batch(1))
