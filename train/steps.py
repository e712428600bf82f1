"""The jitted steps: host batch in, new state or evaluation sums out."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from data import transforms
from train import sharding
from train.state import EVAL_STREAM, TRAIN_STREAM, TrainState

Batch = Mapping[str, jax.Array]
Sums = dict[str, tuple[jax.Array, jax.Array]]  # name -> (sum, weight)


class Objective(NamedTuple):
  """What a model is trained for, as pure functions.

  Attributes:
    transform: (host batch, keys [B]) -> model batch; row by row.
    inputs: model batch -> positional arguments of the module.
    weights: model batch -> {loss: what its sum over the global batch is
      divided by}, at least 1.
    losses: (outputs, model batch) -> ({loss: (sum, weight)}, {metric: (sum,
      weight)}), the second for reading only.
    loss_names: the names of the losses, in nats; the first is that of tokens.
    metric_names: the names of the other metrics.
    targets: model batch -> (token ids, weights) of the first loss.
    perplexity: what its exponential is called.
  """

  transform: Callable[[Batch, jax.Array], dict[str, jax.Array]]
  inputs: Callable[[Batch], tuple]
  weights: Callable[[Batch], dict[str, jax.Array]]
  losses: Callable[[Any, Batch], tuple[Sums, Sums]]
  loss_names: tuple[str, ...]
  metric_names: tuple[str, ...]
  targets: Callable[[Batch], tuple[jax.Array, jax.Array]]
  perplexity: str


def row_keys(seed: int, stream: int, step: Any, rows: jax.Array) -> jax.Array:
  """Returns one key a row [B], a function of (seed, stream, step, row)."""
  key = jax.random.fold_in(jax.random.key(seed), stream)
  return transforms.row_keys(jax.random.fold_in(key, step), rows)


def make_train_step(
  model: nn.Module,
  objective: Objective,
  tx: optax.GradientTransformation,
  schedule: Callable[[jax.Array], jax.Array],
  *,
  seed: int,
  micro_batches: int,
  log_every: int,
  mesh: Mesh,
  state_shardings: TrainState,
) -> Callable[[TrainState, Batch], tuple[TrainState, dict[str, jax.Array]]]:
  """Returns the jitted step (state, host batch) -> (state, metrics).

  The transforms run on the whole global batch, before it is split into micro-
  batches: every loss's total weight is known before the first of them, and the
  accumulated gradient is that of sum_k loss_k / total_weight_k exactly.

  The metrics are {name: (sum, weight) since the last row}, and `loss`,
  `grad_norm`, `learning_rate`, `nonfinite_step` of this step.
  """

  def loss_of(params: Any, batch: Batch, totals: Any, rng: jax.Array) -> Any:
    outputs = model.apply(
      {'params': params},
      *objective.inputs(batch),
      train=True,
      rngs={'dropout': rng},
    )
    losses, metrics = objective.losses(outputs, batch)
    loss = sum(total / totals[name] for name, (total, _) in losses.items())
    sums = {name: jnp.stack(pair) for name, pair in (losses | metrics).items()}
    return loss, sums

  def step_fn(state: TrainState, host_batch: Batch) -> Any:
    rows = jnp.arange(next(iter(host_batch.values())).shape[0])
    batch = objective.transform(
      host_batch, row_keys(seed, TRAIN_STREAM, state.step, rows)
    )
    totals = objective.weights(batch)
    # No row has the number -1: dropout's keys differ from every row's.
    rng = row_keys(seed, TRAIN_STREAM, state.step, jnp.array([-1]))[0]

    grad_fn = jax.value_and_grad(loss_of, has_aux=True)
    if micro_batches == 1:
      (loss, sums), grads = grad_fn(state.params, batch, totals, rng)
    else:
      split = _split(batch, micro_batches, mesh)

      def add(carry: Any, part: Any) -> Any:
        index, micro_batch = part
        micro_rng = jax.random.fold_in(rng, index)
        (loss, sums), grads = grad_fn(
          state.params, micro_batch, totals, micro_rng
        )
        return jax.tree.map(jnp.add, carry, ((loss, sums), grads)), None

      parts = (jnp.arange(micro_batches), split)
      first = jax.tree.map(lambda leaf: leaf[0], parts)
      zeros = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(grad_fn, state.params, first[1], totals, rng),
      )
      ((loss, sums), grads), _ = jax.lax.scan(add, zeros, parts)

    grad_norm = optax.tree_utils.tree_norm(grads)
    updates, opt_state = tx.update(grads, state.opt_state, state.params)
    finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
    good = finite & (state.nonfinite_step < 0)
    params = optax.apply_updates(state.params, updates)
    # A step that is not finite changes nothing: the run stops at the next
    # logged row with the parameters that made it still at hand.
    params, opt_state = jax.tree.map(
      functools.partial(jnp.where, good),
      (params, opt_state),
      (state.params, state.opt_state),
    )
    new_row = state.step % log_every == 0
    metrics = jax.tree.map(
      lambda old, new: jnp.where(new_row, new, old + new), state.metrics, sums
    )
    nonfinite_step = jnp.where(
      (state.nonfinite_step < 0) & ~finite, state.step, state.nonfinite_step
    )
    report = {
      'sums': metrics,
      'loss': loss,
      'grad_norm': grad_norm,
      'learning_rate': schedule(state.step),
      'nonfinite_step': nonfinite_step,
    }
    state = TrainState(
      step=state.step + 1,
      params=params,
      opt_state=opt_state,
      metrics=metrics,
      nonfinite_step=nonfinite_step,
    )
    return state, report

  return jax.jit(
    step_fn,
    donate_argnums=0,
    out_shardings=(state_shardings, NamedSharding(mesh, PartitionSpec())),
  )


def make_eval_step(
  model: nn.Module,
  objective: Objective,
  *,
  baseline: Callable[..., tuple[jax.Array, jax.Array]],
  mesh: Mesh,
) -> Callable[[Any, Batch], dict[str, jax.Array]]:
  """Returns the jitted (params, host batch) -> {name: [2] (sum, weight)}.

  The draws of a row depend on its `example_ids` only, never on the batch or
  the run's seed: runs are scored on the same pairs and masks.

  Args:
    model: the module.
    objective: the objective.
    baseline: (token ids, weights) -> (sum, weight) of the loss of a predictor
      that knows nothing but token frequencies; reported as `baseline`.
    mesh: the mesh.
  """

  def eval_step(params: Any, host_batch: Batch) -> dict[str, jax.Array]:
    keys = row_keys(0, EVAL_STREAM, 0, host_batch['example_ids'])
    batch = objective.transform(host_batch, keys)
    outputs = model.apply(
      {'params': params}, *objective.inputs(batch), train=False
    )
    losses, metrics = objective.losses(outputs, batch)
    sums = losses | metrics | {'baseline': baseline(*objective.targets(batch))}
    return {name: jnp.stack(pair) for name, pair in sums.items()}

  return jax.jit(eval_step, out_shardings=NamedSharding(mesh, PartitionSpec()))


@jax.jit
def all_finite(params: Any) -> jax.Array:
  """Returns whether every parameter is finite, bool scalar."""
  leaves = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(params)]
  return jnp.stack(leaves).all()


def make_gradient_norms(
  model: nn.Module, objective: Objective, *, seed: int
) -> Callable[[Any, Batch, Any], tuple[Any, Any]]:
  """Returns (params, host batch, step) -> (losses, gradient norms).

  For the report of a step that was not finite: the mean of each loss, and the
  norm of every parameter's gradient, without dropout.
  """

  def norms(params: Any, host_batch: Batch, step: Any) -> Any:
    rows = jnp.arange(next(iter(host_batch.values())).shape[0])
    batch = objective.transform(
      host_batch, row_keys(seed, TRAIN_STREAM, step, rows)
    )

    def loss_of(params: Any) -> Any:
      outputs = model.apply(
        {'params': params}, *objective.inputs(batch), train=False
      )
      losses, _ = objective.losses(outputs, batch)
      means = {
        name: total / jnp.maximum(weight, 1.0)
        for name, (total, weight) in losses.items()
      }
      return sum(means.values()), means

    grads, means = jax.grad(loss_of, has_aux=True)(params)
    return means, jax.tree.map(jnp.linalg.norm, grads)

  return jax.jit(norms)


def _split(batch: Batch, parts: int, mesh: Mesh) -> dict[str, jax.Array]:
  """[B, ...] -> [parts, B / parts, ...]; row r goes to part r % parts.

  Taking every parts-th row leaves each row on the device that holds it.
  """
  place = NamedSharding(mesh, PartitionSpec(None, *sharding.BATCH))

  def split(array: jax.Array) -> jax.Array:
    array = array.reshape(-1, parts, *array.shape[1:]).swapaxes(0, 1)
    return jax.lax.with_sharding_constraint(array, place)

  return {name: split(array) for name, array in batch.items()}
