"""Exponential averages of the parameters, kept in the optimiser's state."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from models.layers import Params


class Averages(NamedTuple):
  """Averages of the parameters over the steps, the state of `average`."""

  params: Params


def average(decay: float) -> optax.GradientTransformation:
  """Changes no update; its state is decay * average + (1 - decay) * parameters.

  As TensorFlow's ExponentialMovingAverage, it begins with the parameters.
  """

  def update(updates, state, params):
    averages = jax.tree.map(
      lambda old, param, change: old + (1 - decay) * (param + change - old),
      state.params,
      params,
      updates,
    )
    return updates, Averages(averages)

  return optax.GradientTransformation(Averages, update)


def read(opt_state: optax.OptState, params: Params) -> Params:
  """Returns the averages that a state has; without averages, `params`.

  Parameters that are not trained have no average and are returned as they are.
  """
  found = jax.tree.leaves(opt_state, is_leaf=_is_averages)
  found = [state.params for state in found if _is_averages(state)]
  if not found:
    return params
  return jax.tree.map(
    lambda mean, param: param if isinstance(mean, optax.MaskedNode) else mean,
    found[0],
    params,
    is_leaf=lambda node: isinstance(node, optax.MaskedNode),
  )


def begin(opt_state: optax.OptState, params: Params) -> optax.OptState:
  """Returns a state whose averages, if it has any, are copies of `params`."""

  def copied(state):
    if not _is_averages(state):
      return state
    return Averages(
      jax.tree.map(
        lambda mean, param: (
          mean if isinstance(mean, optax.MaskedNode) else jnp.copy(param)
        ),
        state.params,
        params,
        is_leaf=lambda node: isinstance(node, optax.MaskedNode),
      )
    )

  return jax.tree.map(copied, opt_state, is_leaf=_is_averages)


def _is_averages(node: optax.OptState) -> bool:
  return isinstance(node, Averages)
