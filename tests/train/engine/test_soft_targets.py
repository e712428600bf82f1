"""Distances to a teacher are those of plain loops and of PyTorch."""

import jax
import numpy as np
import pytest

from train.engine import soft_targets


def log_softmax(x):
  x = np.asarray(x, np.float64)
  x = x - x.max(axis=-1, keepdims=True)
  return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def kl(ours, theirs, temperature):
  """KL(teacher || student) of one pair of logits, times T^2, in float64."""
  log_theirs = log_softmax(np.asarray(theirs) / temperature)
  log_ours = log_softmax(np.asarray(ours) / temperature)
  return temperature**2 * sum(
    np.exp(t) * (t - s) for t, s in zip(log_theirs, log_ours, strict=True)
  )


@pytest.mark.parametrize('temperature', [0.5, 1.0, 4.0])
def test_the_divergence_is_that_of_torch_and_of_a_loop(torch, temperature):
  rng = np.random.default_rng(0)
  ours, theirs = rng.normal(size=(2, 5, 7)).astype(np.float32) * 4
  found = soft_targets.divergence(ours, theirs, temperature)
  expected = [kl(*pair, temperature) for pair in zip(ours, theirs, strict=True)]
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
  reference = torch.nn.functional.kl_div(
    torch.log_softmax(torch.tensor(ours) / temperature, -1),
    torch.softmax(torch.tensor(theirs) / temperature, -1),
    reduction='none',
  ).sum(-1)
  np.testing.assert_allclose(
    found, reference.numpy() * temperature**2, rtol=1e-5, atol=1e-6
  )


def test_gradients_do_not_fall_with_the_temperature():
  """Of much T they are those of squared distances over K (Hinton et al.)."""
  rng = np.random.default_rng(1)
  ours, theirs = rng.normal(size=(2, 6)).astype(np.float64)
  ours, theirs = ours - ours.mean(), theirs - theirs.mean()
  gradient = jax.grad(soft_targets.divergence)(
    ours.astype(np.float32), theirs.astype(np.float32), 1e3
  )
  np.testing.assert_allclose(gradient, (ours - theirs) / 6, atol=2e-3)


def test_an_impossible_class_of_the_teacher_costs_nothing():
  theirs = np.array([0.0, -1e30], np.float32)
  found = soft_targets.divergence(np.zeros(2, np.float32), theirs, 1.0)
  np.testing.assert_allclose(found, np.log(2), rtol=1e-6)


def test_directions_are_torch_s_cosine_loss(torch):
  rng = np.random.default_rng(0)
  ours, theirs = rng.normal(size=(2, 6, 5)).astype(np.float32)
  found = soft_targets.directions(ours, theirs)
  expected = torch.nn.functional.cosine_embedding_loss(
    torch.tensor(ours), torch.tensor(theirs), torch.ones(6), reduction='none'
  )
  np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)
  products = [
    1 - a @ b / np.sqrt((a @ a) * (b @ b))
    for a, b in zip(*np.float64([ours, theirs]), strict=True)
  ]
  np.testing.assert_allclose(found, products, atol=1e-6)
