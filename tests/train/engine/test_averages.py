"""Averages of the parameters over the steps, and the rate's staircase."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs import base
from configs.sections import task_models as task_models_section
from train.engine import averages, optim, state


def make(decay, **changes):
  config = task_models_section.get_config().optim
  config.update({'average': decay, 'learning_rate': 0.1, **changes})
  return optim.make_optimizer(config, lambda step: 0.1)


def run(tx, steps=7, moving=None):
  """Returns the parameters after each step, and the last state."""
  params = {'a': jnp.arange(3.0), 'b': jnp.ones((2, 2))}
  if moving:
    tx = optax.masked(tx, moving)
  opt_state = tx.init(params)
  history = [params]
  for i in range(steps):
    grads = jax.tree.map(lambda x, i=i: jnp.sin(x + i), params)
    if moving:
      grads = jax.tree.map(lambda g, m: g * m, grads, moving)
    updates, opt_state = tx.update(grads, opt_state, params)
    params = optax.apply_updates(params, updates)
    history.append(params)
  return history, opt_state


def test_averages_follow_the_parameters():
  history, opt_state = run(make(0.9))
  expected = np.array(history[0]['a'], np.float64)
  for params in history[1:]:
    expected = 0.9 * expected + 0.1 * np.array(params['a'], np.float64)
  found = averages.read(opt_state, history[-1])
  np.testing.assert_allclose(found['a'], expected, rtol=1e-6)
  assert np.abs(found['a'] - history[-1]['a']).max() > 1e-3
  # The steps themselves are those without averages.
  plain, plain_state = run(make(0.0))
  np.testing.assert_array_equal(plain[-1]['b'], history[-1]['b'])
  assert averages.read(plain_state, plain[-1]) is plain[-1]


def test_what_is_not_trained_has_no_average():
  history, opt_state = run(make(0.5), moving={'a': True, 'b': False})
  found = averages.read(opt_state, history[-1])
  assert found['b'] is history[-1]['b']
  np.testing.assert_array_equal(found['b'], history[0]['b'])
  assert np.abs(found['a'] - history[-1]['a']).max() > 1e-3


@pytest.mark.parametrize('moving', [None, {'a': True, 'b': False}])
def test_averages_begin_with_the_weights_of_step_0(moving):
  tx = make(0.99)
  tx = optax.masked(tx, moving) if moving else tx
  drawn = {'a': jnp.zeros(2), 'b': jnp.zeros(3)}
  loaded = {'a': jnp.ones(2), 'b': jnp.full(3, 2.0)}
  created = state.TrainState(
    step=jnp.int32(0),
    params=drawn,
    opt_state=tx.init(drawn),
    carry={},
    metrics={},
    nonfinite_step=jnp.int32(-1),
  )
  begun = created.begin_with(loaded)
  assert jax.tree.structure(begun) == jax.tree.structure(created)
  for name in loaded:
    np.testing.assert_array_equal(begun.scored[name], loaded[name])
    np.testing.assert_array_equal(begun.params[name], loaded[name])


@pytest.mark.parametrize('decay', [-0.1, 1.0])
def test_impossible_decays_are_refused(decay):
  with pytest.raises(ValueError, match='optim.average'):
    make(decay)


def test_the_staircase_falls_every_100_steps():
  config = base.get_config().optim
  config.update(schedule='staircase', learning_rate=1e-3, warmup_steps=0)
  schedule = optim.make_schedule(config, ((1000, 8, 1, 'continue'),))
  steps = np.array([0, 1, 99, 100, 199, 200, 999])
  # kentonl/e2e-coref: tf.train.exponential_decay(..., staircase=True).
  expected = 1e-3 * 0.999 ** np.array([0, 0, 0, 1, 1, 2, 9])
  np.testing.assert_allclose([schedule(s) for s in steps], expected, rtol=1e-6)
