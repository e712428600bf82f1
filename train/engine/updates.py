"""Objectives that change rows of tables, and their step without an optimiser.

The gradient of a whole table would be zero but for the rows of a batch: such an
objective says which rows change, and how. A step makes several updates, each of
other rows of its batch and one after the other, so that few bytes of the tables
move, however large they are.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models.layers import Params
from train.engine import sharding
from train.engine.state import TRAIN_STREAM, TrainState
from train.engine.steps import Batch, Objective, row_keys
from train.host import device


class RowUpdates(Objective):
  """An objective whose updates are not those of gradients and an optimiser.

  Attributes:
    num_updates: the number of parts of a batch that each make an `update`.
  """

  num_updates: int

  def update(
    self,
    params: Params,
    statistics: Any,
    batch: Batch,
    rate: jax.Array,
    good: jax.Array,
  ) -> tuple[Any, Any, jax.Array]:
    """Returns (parameters, statistics, squared norm); not `good`: the same."""
    raise NotImplementedError

  def statistics(self, params: Params) -> Any:
    """Returns the state of the optimiser that `update` changes, at first."""
    del params
    return optax.EmptyState()

  @property
  def optimizer(self) -> optax.GradientTransformation:
    """The state alone: `make_step` takes no gradients."""
    return optax.GradientTransformation(self.statistics, None)

  def make_step(self, *parts: Any, **settings: Any) -> Callable[..., Any]:
    """Returns the training step, see `make_update_step`."""
    model, _, schedule = parts
    return make_update_step(model, self, schedule, **settings)


def make_update_step(
  model: nn.Module,
  objective: RowUpdates,
  schedule: Callable[[jax.Array], jax.Array],
  *,
  seed: int,
  log_every: int,
  mesh: Mesh,
  state_shardings: TrainState,
  **unused: Any,
) -> Callable[..., tuple[TrainState, dict[str, jax.Array]]]:
  """Returns the jitted (state, host batch[, seed]) -> (state, metrics).

  As `steps.make_train_step`, whose other settings are unused here. Losses and
  metrics are of the last of the step's updates, before it; `grad_norm` is the
  root mean square of the updates' norms, at a rate of 1. An update that is not
  finite changes nothing, and none changes anything after it.
  """
  del unused
  parts = objective.num_updates

  def split(array: jax.Array) -> jax.Array:
    """[B, ...] -> [parts, B / parts, ...]; a single row is on all devices."""
    array = array.reshape(-1, parts, *array.shape[1:]).swapaxes(0, 1)
    divides = array.shape[1] % sharding.batch_parts(mesh) == 0
    axes = sharding.BATCH if divides else ()
    place = NamedSharding(mesh, PartitionSpec(None, *axes))
    return jax.lax.with_sharding_constraint(array, place)

  def step_fn(state: TrainState, host_batch: Batch, seed: Any = seed) -> Any:
    rows = jnp.arange(next(iter(host_batch.values())).shape[0])
    batch = objective.transform(
      host_batch, row_keys(seed, TRAIN_STREAM, state.step, rows)
    )
    batch = jax.tree.map(split, batch)
    learning_rate = schedule(state.step)

    def make(so_far: Any, part: Any) -> Any:
      *changed, good = so_far
      *changed, square = objective.update(*changed, part, learning_rate, good)
      return (*changed, good & jnp.isfinite(square)), square

    begun = state.params, state.opt_state, state.nonfinite_step < 0
    (params, statistics, good), squares = jax.lax.scan(
      make, begun, jax.tree.map(lambda array: array[:-1], batch)
    )
    last = jax.tree.map(lambda array: array[-1], batch)
    outputs = objective.apply(model, params, last)
    losses, others = objective.losses(outputs, last)
    totals = objective.weights(last)
    (params, statistics, good), square = make((params, statistics, good), last)
    sums = {name: jnp.stack(pair) for name, pair in (losses | others).items()}
    new_row = state.step % log_every == 0
    metrics = jax.tree.map(
      lambda old, new: jnp.where(new_row, new, old + new), state.metrics, sums
    )
    begins_bad = ~good & (state.nonfinite_step < 0)
    nonfinite_step = jnp.where(begins_bad, state.step, state.nonfinite_step)
    report = {
      'sums': metrics,
      'loss': sum(total / totals[name] for name, (total, _) in losses.items()),
      'grad_norm': jnp.sqrt((squares.sum() + square) / parts),
      'learning_rate': learning_rate,
      'nonfinite_step': nonfinite_step,
    }
    state = state.replace(
      step=state.step + 1,
      params=params,
      opt_state=statistics,
      metrics=metrics,
      nonfinite_step=nonfinite_step,
    )
    return state, report

  return jax.jit(
    step_fn,
    donate_argnums=0,
    out_shardings=(state_shardings, NamedSharding(mesh, PartitionSpec())),
    compiler_options=device.compiler_options(mesh),
  )
