"""GLUE's BiLSTM with attention against a NumPy computation in PyTorch."""

import allennlp_reference as reference
import elmo_task_cases as cases
import numpy as np
import pytest
from elmo_task_cases import D, E, F

from configs import base
from models.elmo_tasks import bilstm_attention

H = 6


def make_model(hidden=True):
  return bilstm_attention.BilstmAttention(
    num_outputs=3, hidden_classifier=hidden, lstm_dim=F, classifier_dim=H
  )


class Theirs:
  """The same from PyTorch's layers, one example at a time, without padding."""

  def __init__(self, torch, num_texts, hidden):
    torch.manual_seed(0)
    options = {'bidirectional': True, 'batch_first': True}
    self.torch, self.is_pair = torch, num_texts == 2
    self.first = torch.nn.LSTM(D, F, 2, **options)
    self.second = torch.nn.LSTM(4 * F + E, F, **options)
    width = 8 * F if self.is_pair else 2 * F + E
    self.hidden = torch.nn.Linear(width, H) if hidden else None
    self.logits = torch.nn.Linear(H if hidden else width, 3)
    self.parameters = [
      parameter
      for layer in (self.first, self.second, self.hidden, self.logits)
      if layer is not None
      for parameter in layer.parameters()
    ]

  def read(self, batch, i):
    torch, texts = self.torch, []
    for p in range(batch.mask.shape[1]):
      mask = batch.mask[i, p]
      x = torch.tensor(batch.x[i, p][mask])[None]
      texts.append((self.first(x)[0][0], torch.tensor(batch.added[i, p][mask])))
    if not self.is_pair:
      return torch.cat(texts[0], 1).max(0).values
    pooled = []
    for (own, added), (other, _) in (texts, texts[::-1]):
      attended = torch.softmax(own @ other.T, 1) @ other
      joined = torch.cat([own, attended, added], 1)
      pooled.append(self.second(joined[None])[0][0].max(0).values)
    u, v = pooled
    return torch.cat([u, v, (u - v).abs(), u * v])

  def run(self, batch):
    x = self.torch.stack([self.read(batch, i) for i in range(len(batch.x))])
    if self.hidden is not None:
      x = self.torch.tanh(self.hidden(x))
    return self.logits(x)

  def params(self, gradients=False):
    classifier = {'logits': reference.linear(self.logits, gradients)}
    if self.hidden is not None:
      classifier['hidden'] = reference.linear(self.hidden, gradients)
    found = {
      'encoder': reference.bilstm(self.first, gradients),
      'classifier': classifier,
    }
    if self.is_pair:
      found['pair_encoder'] = reference.bilstm(self.second, gradients)
    return found


@pytest.mark.parametrize('num_texts, hidden', [(1, False), (2, True)])
def test_equals_pytorchs_layers(torch, num_texts, hidden):
  batch = cases.make_batch(num_texts)
  theirs = Theirs(torch, num_texts, hidden)
  expected = theirs.run(batch)
  labels = torch.tensor(cases.LABELS)
  torch.nn.functional.cross_entropy(expected, labels).backward()

  step = cases.make_step(make_model(hidden))
  _, logits, (by_params, *_) = step(theirs.params(), batch)
  expected = expected.detach().numpy()
  assert np.abs(expected).max() > 0.1
  np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)
  cases.assert_equal_trees(by_params, theirs.params(gradients=True), 1e-4)
  found = step(theirs.params(), batch.with_an_empty_text())
  assert cases.is_finite(found)
  np.testing.assert_allclose(found[1][1:], logits[1:], rtol=0, atol=1e-5)


def test_dropout_is_of_training_only():
  model, batch = make_model(), cases.make_batch(2)
  first, second = cases.drop_twice(
    model, cases.make_params(model, batch), batch
  )
  assert np.abs(first - second).max() > 1e-3


def test_all_axes_have_a_rule():
  rules = {name for name, _ in base.get_config().mesh.rules}
  axes = cases.axes_of(make_model(), cases.make_batch(2))
  assert {'embed', 'mlp', 'classes', 'gates', 'towers'} <= axes
  assert axes <= rules | {None}
