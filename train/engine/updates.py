"""Training steps that change a few rows of large tables, without an optimiser.

The gradient of a whole table of word vectors is zero except for the rows of a
batch. So the objective itself (of word2vec or GloVe) says which rows change,
and how. A step makes several updates, one after the other, each from another
part of its batch; few bytes move, however large the tables are.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models.layers import Params
from train.engine import sharding
from train.engine.optim import Schedule
from train.engine.state import TRAIN_STREAM, TrainState
from train.engine.steps import Batch, Objective, Report, TrainStep, row_keys
from train.host import device

# Parameters, statistics, and whether all updates until here were finite.
_SoFar = tuple[Params, optax.OptState, jax.Array]


class RowUpdates(Objective):
  """An objective that computes its updates itself, without an optimiser.

  Attributes:
    num_updates: the number of parts of a batch that each make an `update`.
  """

  num_updates: int

  def update(
    self,
    params: Params,
    statistics: optax.OptState,
    batch: Batch,
    rate: jax.Array,
    good: jax.Array,
  ) -> tuple[Params, optax.OptState, jax.Array]:
    """Returns (parameters, statistics, squared norm of the update).

    Where `good` is False, parameters and statistics stay as they are.
    """
    raise NotImplementedError

  def statistics(self, params: Params) -> optax.OptState:
    """Returns the initial statistics, which each `update` changes."""
    del params
    return optax.EmptyState()

  @property
  def optimizer(self) -> optax.GradientTransformation:
    """An optimiser that initialises the statistics, and has no update."""
    return optax.GradientTransformation(self.statistics, None)

  def make_step(
    self,
    model: nn.Module,
    tx: optax.GradientTransformation,
    schedule: Schedule,
    **settings: Any,
  ) -> TrainStep:
    """Returns the training step; takes what `make_train_step` takes."""
    del tx
    return make_update_step(model, self, schedule, **settings)


def make_update_step(
  model: nn.Module,
  objective: RowUpdates,
  schedule: Schedule,
  *,
  seed: int,
  log_every: int,
  mesh: Mesh,
  state_shardings: TrainState,
  **unused: Any,
) -> TrainStep:
  """Returns the jitted (state, host batch[, seed]) -> (state, report).

  It takes the settings of `steps.make_train_step` and ignores the `unused`
  ones. The report has the losses and metrics just before the last update of the
  step; its `grad_norm` is the root mean square of the norms that the updates
  have at a rate of 1. An update that is not finite changes nothing, and no
  update after it changes anything.
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

  def step_fn(
    state: TrainState, host_batch: Batch, seed: int | jax.Array = seed
  ) -> tuple[TrainState, Report]:
    rows = jnp.arange(next(iter(host_batch.values())).shape[0])
    batch = objective.transform(
      host_batch, row_keys(seed, TRAIN_STREAM, state.step, rows)
    )
    batch = jax.tree.map(split, batch)
    learning_rate = schedule(state.step)

    def make(so_far: _SoFar, part: Batch) -> tuple[_SoFar, jax.Array]:
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
