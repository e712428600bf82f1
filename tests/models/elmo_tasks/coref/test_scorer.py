"""Starts of the scores' layers, and dropout by the places of rows."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from models import dropout
from models.elmo_tasks.coref import scorer


def test_starts_are_those_of_the_programs():
  fan_in, fan_out, shape = 60, 40, (60, 40)
  variance = 2 / (fan_in + fan_out)  # of both: Glorot uniform, Xavier normal
  limits = {'tensorflow': math.sqrt(3 / fan_out), 'allennlp': fan_in**-0.5}
  for start, limit in limits.items():
    kernel_init, bias_init = scorer.STARTS[start](fan_in, fan_out)
    kernel = np.asarray(kernel_init(jax.random.key(0), shape))
    assert abs(kernel.var() / variance - 1) < 0.1
    is_bounded = np.abs(kernel).max() <= math.sqrt(3 * variance)
    assert is_bounded == (start == 'tensorflow')
    bias = np.abs(bias_init(jax.random.key(1), (fan_out,)))
    assert 0.8 * limit < bias.max() <= limit


def test_masks_of_dropout_are_by_row_and_number():
  rate, F = 0.25, 200
  seeds = dropout.draw_seeds(jax.random.key(0), (1,))
  rows = jnp.array([[0, 7, 7, 4096]])
  drop = scorer.Drop(seeds, rows, rate)
  x = jnp.ones((1, 4, F))
  first, second = np.asarray(drop(x, 0))[0], np.asarray(drop(x, 1))[0]
  np.testing.assert_allclose(np.unique(first), [0, 1 / (1 - rate)], rtol=1e-6)
  assert abs((first == 0).mean() - rate) < 0.1
  np.testing.assert_array_equal(first[1], first[2])
  both = np.concatenate([first, second])
  for i, j in ((0, 1), (0, 3), (0, 4), (3, 4), (0, 7)):
    # Independent masks are equal at 0.75^2 + 0.25^2 of the places.
    assert abs((both[i] == both[j]).mean() - 0.625) < 0.15
  plain = scorer.drop_features(drop._replace(with_features=False), x)
  np.testing.assert_array_equal(plain, x)
