"""GLUE's baseline against the same computation on PyTorch."""

import allennlp_reference as reference
import elmo_task_cases as cases
import jax
import numpy as np
import pytest
from elmo_task_cases import D, E, F
from flax import linen as nn

from models.elmo_tasks import bilstm_attention

MODEL = bilstm_attention.BilstmAttention(
  num_outputs=3, lstm_dim=F, classifier_dim=9
)


def make_theirs(torch, num_texts):
  """Returns PyTorch's layers under our names, whatever was drawn before."""
  torch.manual_seed(3)

  def make_bilstm(width, num_layers):
    return torch.nn.LSTM(
      width, F, num_layers, bidirectional=True, batch_first=True
    )

  width = 8 * F if num_texts == 2 else 2 * F + E
  layers = {
    'encoder': make_bilstm(D, 2),
    'hidden': torch.nn.Linear(width, 9),
    'logits': torch.nn.Linear(9, 3),
  }
  if num_texts == 2:
    layers['pair_encoder'] = make_bilstm(4 * F + E, 1)
  layers = torch.nn.ModuleDict(layers)
  reference.disturb(torch, layers)
  return layers


def compute(torch, layers, texts, added, labels):
  """Returns the loss and logits, a row at a time without padding."""
  encoded = [
    [layers['encoder'](row[None, :length])[0][0] for row, length in rows(text)]
    for text in texts
  ]
  vectors = []
  for b in range(len(labels)):
    u, *v = (text[b] for text in encoded)
    if not v:
      more = added[0][b][: len(u)]
      vectors.append(torch.cat([u, more], dim=-1).amax(dim=0))
      continue
    (v,) = v
    pooled = []
    for one, other, more in ((u, v, added[0]), (v, u, added[1])):
      attended = torch.softmax(one @ other.T, dim=-1) @ other
      both = torch.cat([one, attended, more[b][: len(one)]], dim=-1)
      pooled.append(layers['pair_encoder'](both[None])[0][0].amax(dim=0))
    u, v = pooled
    vectors.append(torch.cat([u, v, (u - v).abs(), u * v]))
  hidden = torch.tanh(layers['hidden'](torch.stack(vectors)))
  logits = layers['logits'](hidden)
  return torch.nn.functional.cross_entropy(logits, labels), logits


def rows(text):
  return zip(text['vectors'], text['mask'].sum(dim=1), strict=True)


def params_of(layers, gradients=False):
  params = {
    name: reference.bilstm(layers[name], gradients)
    for name in ('encoder', 'pair_encoder')
    if name in layers
  }
  return params | {
    'classifier': {
      name: reference.linear(layers[name], gradients)
      for name in ('hidden', 'logits')
    }
  }


@pytest.mark.parametrize('num_texts', [1, 2])
def test_equals_pytorch_with_its_gradient(torch, num_texts):
  batch = cases.make_batch(num_texts)
  layers = make_theirs(torch, num_texts)
  texts = reference.make_texts(torch, batch)
  added = reference.make_added(torch, batch)
  expected_loss, expected = compute(
    torch, layers, texts, added, torch.tensor(cases.LABELS)
  )
  expected_loss.backward()

  step = cases.make_step(MODEL)
  params = params_of(layers)
  loss, logits, (by_params, by_x, by_added) = step(params, batch)
  np.testing.assert_allclose(
    logits, expected.detach().numpy(), rtol=0, atol=1e-5
  )
  assert abs(loss - expected_loss.item()) < 1e-4
  cases.assert_equal_trees(by_params, params_of(layers, gradients=True), 1e-4)
  for found, tensors in (
    (by_x, [text['vectors'] for text in texts]),
    (by_added, added),
  ):
    expected = reference.gradient_of(tensors, batch)
    assert np.abs(expected).max() > 1e-2
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)

  # An empty text makes no NaN, and changes only its own example.
  found = step(params, batch.with_an_empty_text())
  assert cases.is_finite(found)
  np.testing.assert_allclose(found[1][1:], logits[1:], rtol=0, atol=1e-5)
  assert np.abs(found[1][0] - logits[0]).max() > 1e-3


class TwoTasks(nn.Module):
  """A classifier for single texts and a score for pairs, on one encoder."""

  def setup(self):
    self.shared = MODEL.clone(parent=None)
    self.classes = bilstm_attention.Classifier(3, hidden_dim=9)
    self.score = bilstm_attention.Classifier(1, has_hidden=False)

  def __call__(self, single, pair):
    of_single = self.shared.encode(*single, train=False)
    of_pair = self.shared.encode(*pair, train=False)
    return self.classes(of_single), self.score(of_pair)


def test_tasks_share_the_encoder():
  single = cases.make_batch(1, with_added=False)
  pair = cases.make_batch(2, with_added=False)
  shapes = jax.eval_shape(
    TwoTasks().init, jax.random.key(0), single.inputs, pair.inputs
  )['params']
  assert {name: {*part} for name, part in shapes.items()} == {
    'shared': {'encoder', 'pair_encoder'},
    'classes': {'hidden', 'logits'},
    'score': {'logits'},
  }
  logits = jax.eval_shape(
    lambda params: TwoTasks().apply(
      {'params': params}, single.inputs, pair.inputs
    ),
    nn.unbox(shapes),
  )
  assert [leaf.shape for leaf in logits] == [(4, 3), (4, 1)]


def test_drops_in_training_without_added_vectors():
  batch = cases.make_batch(2, with_added=False)
  first, second = cases.drop_twice(
    MODEL, cases.make_params(MODEL, batch), batch
  )
  assert np.isfinite(first).all()
  assert np.abs(first - second).min() > 1e-3
