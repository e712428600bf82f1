"""ELMo's optimiser and its rate, against the formula in NumPy."""

import math

import jax
import numpy as np
import optax

from train.engine import optim
from train.run import settings

PHASES = ((6, 20, 4, 'continue'),)


def elmo_config(**changes):
  config = settings.load_config('elmo_tiny').optim.copy_and_resolve_references()
  with config.unlocked():
    config.update(changes)
  return config


def numpy_adagrad(params, gradients, rate, clip_norm):
  """In float64; the sum of squares begins at 1 (bilm-tf, training.py)."""
  params = {name: np.float64(value) for name, value in params.items()}
  sums = {name: np.ones_like(value) for name, value in params.items()}
  clipped = 0
  for gradient in gradients:
    norm = math.sqrt(sum((np.float64(g) ** 2).sum() for g in gradient.values()))
    factor = clip_norm / norm if norm > clip_norm else 1.0
    clipped += factor < 1
    for name in params:
      g = gradient[name] * factor
      sums[name] = sums[name] + g**2
      params[name] = params[name] - rate * g / np.sqrt(sums[name])
  return params, sums, clipped


def test_adagrad_against_numpy():
  config = elmo_config()
  assert (config.name, config.weight_decay) == ('adagrad', 0.0)
  assert (config.learning_rate, config.clip_norm) == (0.2, 10.0)
  rng = np.random.default_rng(0)

  def draw(scale):
    shapes = {'kernel': (3, 4), 'bias': (4,)}
    return {
      name: rng.normal(0, scale, shape).astype(np.float32)
      for name, shape in shapes.items()
    }

  params = draw(1.0)
  gradients = [draw(scale) for scale in (0.1, 20.0, 1.0, 1e-4, 5.0, 0.0)]
  expected, sums, clipped = numpy_adagrad(params, gradients, 0.2, 10.0)
  assert 0 < clipped < len(gradients)
  tx = optim.make_optimizer(config, optim.make_schedule(config, PHASES))
  opt_state = tx.init(params)
  step = jax.jit(tx.update)
  for gradient in gradients:
    updates, opt_state = step(gradient, opt_state, params)
    params = optax.apply_updates(params, updates)
  found_sums = optax.tree_utils.tree_get(opt_state, 'sum_of_squares')
  for name in params:
    np.testing.assert_allclose(params[name], expected[name], rtol=0, atol=1e-6)
    np.testing.assert_allclose(found_sums[name], sums[name], rtol=1e-6)


def test_a_constant_rate_is_there_from_the_first_step():
  steps = np.arange(8)
  rates = jax.vmap(optim.make_schedule(elmo_config(), PHASES))(steps)
  np.testing.assert_array_equal(rates, np.full(8, np.float32(0.2)))
  warming = jax.vmap(optim.make_schedule(elmo_config(warmup_steps=4), PHASES))(
    steps
  )
  np.testing.assert_allclose(warming, 0.2 * np.minimum(steps / 4, 1), rtol=1e-6)
