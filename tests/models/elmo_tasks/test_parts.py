"""Dropout, pooling, attention and maxouts of ELMo's task models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from models import initial
from models.elmo_tasks import parts

MASK = np.array([[True, True, False], [False, False, False]])
X = np.array([[[1, -4], [3, -2], [9, 9]], [[5, 5], [6, 6], [7, 7]]], np.float32)


def test_variational_dropout_has_one_mask_a_text():
  x = jnp.ones((200, 3, 4, 50))
  found = parts.VariationalDropout(0.5).apply(
    {}, x, rngs={'dropout': jax.random.key(0)}
  )
  np.testing.assert_array_equal(found, found[:, :, :1].repeat(4, axis=2))
  assert set(np.unique(found)) == {0.0, 2.0}
  masks = np.asarray(found[:, :, 0]).reshape(-1, 50)
  assert len(np.unique(masks, axis=0)) == len(masks)
  # 30,000 draws: five deviations of 0.0058.
  assert abs(masks.mean() - 1) < 0.029
  assert parts.VariationalDropout(0.0).apply({}, x) is x


def test_pooling_is_of_real_words():
  np.testing.assert_array_equal(parts.max_pool(X, MASK), [[3, -2], [0, 0]])
  np.testing.assert_array_equal(parts.mean_pool(X, MASK), [[2, -3], [0, 0]])


def test_attention_is_of_real_words():
  keys = np.where(MASK[..., None], X, np.nan)
  found = parts.attend(X, parts.zero_padding(keys, MASK), MASK)
  weights = np.exp(X[0] @ X[0, :2].T)
  weights /= weights.sum(axis=1, keepdims=True)
  np.testing.assert_allclose(found[0], weights @ X[0, :2], rtol=1e-5)
  assert not found[1].any()


def test_masked_softmax_is_allennlps():
  logits = np.array([[1.0, 2.0, 50.0]], np.float32)
  mask = np.array([[True, True, False]])
  # Padding takes part as 0 before the shares are scaled to 1.
  shares = np.exp([1.0, 2.0, 0.0]) / np.exp([1.0, 2.0, 0.0]).sum()
  expected = [*(shares[:2] / (shares[:2].sum() + 1e-13)), 0]
  found = parts.masked_softmax(logits, mask)
  np.testing.assert_allclose(found, [expected], rtol=1e-6)
  assert not parts.masked_softmax(logits, ~mask & False).any()


class Layers(nn.Module):
  """The parts that have parameters."""

  @nn.compact
  def __call__(self, x, mask):
    pooled = parts.attentive_pool(x, mask, 'pooling')
    return pooled, parts.maxout(pooled, 3, 4, name='maxout')


def test_attentive_pooling_and_maxout():
  model = Layers()
  params = nn.unbox(model.init(jax.random.key(0), X, MASK)['params'])
  pooled, found = model.apply({'params': params}, X, MASK)
  scores = X[0, :2] @ params['pooling']['kernel'][:, 0]
  weights = np.exp(scores + params['pooling']['bias'])
  np.testing.assert_allclose(
    pooled[0], weights / weights.sum() @ X[0, :2], rtol=1e-4
  )
  assert not pooled[1].any()
  kernel, bias = params['maxout']['kernel'], params['maxout']['bias']
  assert kernel.shape == (2, 3, 4)
  expected = (np.einsum('BD,DFP->BFP', pooled, kernel) + bias).max(axis=-1)
  np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_wrong_texts_are_named():
  with pytest.raises(ValueError, match=r'\(4, 3, 7, 5\), expected \[B, 2, T'):
    parts.check_texts((4, 3, 7, 5), 2, 'this model')


@pytest.mark.parametrize('start', ['torch', 'orthogonal'])
def test_lstms_start_as_pytorchs(torch, start):
  inputs, F = 30, 40
  drawn = [
    draw(jax.random.key(i), shape)
    for i, (draw, shape) in enumerate(
      zip(
        initial.LSTMS[start](inputs, F, F),
        [(2, inputs, 4, F), (2, F, 4, F), (2, 4, F)],
        strict=True,
      )
    )
  ]
  kernel, recurrent, bias = map(np.asarray, drawn)
  if start == 'torch':
    layer = torch.nn.LSTM(inputs, F)
    limit = float(layer.weight_ih_l0.detach().abs().max())
    for found in (kernel, recurrent):
      assert abs(np.abs(found).max() / limit - 1) < 0.02
    bias = bias + np.array([0, 0, 1, 0])[:, None]  # added at run time
    assert limit < np.abs(bias).max() < 2.05 * limit
    assert abs(bias.mean()) < 0.05
    return
  theirs = torch.nn.init.xavier_uniform_(torch.empty(4 * F, inputs))
  limit = float(theirs.abs().max())
  assert abs(np.abs(kernel).max() / limit - 1) < 0.02
  for matrix in recurrent.reshape(2, F, 4 * F):
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(F), atol=1e-4)
  assert not bias.any()
