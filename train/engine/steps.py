"""The jitted steps: host batch in, new state or evaluation sums out."""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from data.examples import transforms
from models.layers import Params
from train.engine import sharding, shards
from train.engine.objectives import Batch
from train.engine.optim import Schedule
from train.engine.state import EVAL_STREAM, TRAIN_STREAM, TrainState
from train.host import device

Outputs = Mapping[str, jax.Array]  # of a module, by name
Sums = dict[str, tuple[jax.Array, jax.Array]]  # name -> (sum, weight)
# Of a training step: name -> figure, and `sums`, name -> [2] (sum, weight).
Report = dict[str, jax.Array | dict[str, jax.Array]]
# (state, host batch[, seed[, rate]]) -> (state, report)
TrainStep = Callable[..., tuple[TrainState, Report]]
# (parameters, host batch, memory) -> (name -> [2] (sum, weight), memory)
EvalStep = Callable[[Params, Batch, Batch], tuple[dict[str, jax.Array], Batch]]
# (parameters, host batch, memory, step) -> (losses, norm of each parameter)
GradientNorms = Callable[
  [Params, Batch, Batch, int], tuple[dict[str, jax.Array], Params]
]
# Loss, sums and gradients of the micro-batches until here.
_SoFar = tuple[jax.Array, dict[str, jax.Array], Params]


class Objective:
  """What a model is trained on: pure functions of a batch, one class each.

  Attributes:
    loss_names: the losses, in nats.
    metric_names: the other metrics.
    perplexities: loss of tokens -> name of its exponential, '...perplexity'.
    method: name of the module's method that takes the inputs.
    optimizer: replaces the optimiser of the config, unless it is None.
  """

  loss_names: tuple[str, ...]
  metric_names: tuple[str, ...] = ()
  perplexities: Mapping[str, str] = MappingProxyType({})
  method = '__call__'
  optimizer: optax.GradientTransformation | None = None

  def transform(self, host_batch: Batch, keys_B: jax.Array) -> Batch:
    """Returns the model batch of a host batch, row by row."""
    raise NotImplementedError

  def transform_at(
    self, host_batch: Batch, keys_B: jax.Array, step: jax.Array
  ) -> Batch:
    """Returns `transform` in training, where it may change with the step."""
    del step
    return self.transform(host_batch, keys_B)

  def inputs(self, batch: Batch) -> tuple:
    """Returns the positional arguments of the module."""
    raise NotImplementedError

  def weights(self, batch: Batch) -> dict[str, jax.Array]:
    """Returns the divisor of each loss's global sum, at least 1."""
    raise NotImplementedError

  def losses(self, outputs: Outputs, batch: Batch) -> tuple[Sums, Sums]:
    """Returns the losses and the metrics, which have no gradient."""
    raise NotImplementedError

  def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Returns (token ids, weights) for the unigram baseline."""
    raise NotImplementedError

  def carry(self, outputs: Outputs) -> dict[str, jax.Array]:
    """Returns the memory, arrays [B, ...] that join the next batch."""
    del outputs
    return {}

  def apply(
    self,
    model: nn.Module,
    params: Params,
    batch: Batch,
    rngs: Mapping[str, jax.Array] | None = None,
  ) -> Outputs:
    """Returns the module's outputs; with `rngs`, stream -> key, in training."""
    return model.apply(
      {'params': params},
      *self.inputs(batch),
      train=rngs is not None,
      rngs=rngs,
      method=self.method,
    )

  def make_step(
    self,
    model: nn.Module,
    tx: optax.GradientTransformation,
    schedule: Schedule,
    **settings: Any,
  ) -> TrainStep:
    """Returns the training step; takes what `make_train_step` takes."""
    return make_train_step(model, self, tx, schedule, **settings)


def row_keys(
  seed: int | jax.Array,
  stream: int,
  step: int | jax.Array,
  rows: jax.Array,
) -> jax.Array:
  """Returns a key for each row, [B], by (seed, stream, step, row)."""
  key = jax.random.fold_in(jax.random.key(seed), stream)
  return transforms.row_keys(jax.random.fold_in(key, step), rows)


def make_train_step(
  model: nn.Module,
  objective: Objective,
  tx: optax.GradientTransformation,
  schedule: Schedule,
  *,
  seed: int,
  micro_batches: int,
  log_every: int,
  mesh: Mesh,
  state_shardings: TrainState,
  placements: shards.Placements,
) -> TrainStep:
  """Returns the jitted (state, host batch[, seed[, rate]]) -> (state, report).

  A seed given as an array replaces `seed`: runs of several seeds share a
  program. `rate`, a float32 scalar, multiplies the schedule's learning rate.
  The transforms run on the whole global batch before it is split, so every
  loss's total weight is known and the accumulated gradient is exactly that of
  sum_k loss_k / total_weight_k. The report has `sums`, {name: (sum, weight)
  since the last row}, and `loss`, `grad_norm`, `learning_rate` and
  `nonfinite_step`. `placements`, of `shards.place`, say where the parameters
  lie inside of a step, which is not where they lie between steps.
  """

  def loss_of(
    params: Params,
    batch: Batch,
    totals: Mapping[str, jax.Array],
    rngs: Mapping[str, jax.Array],
  ) -> tuple[jax.Array, tuple[dict[str, jax.Array], Batch]]:
    outputs = objective.apply(model, params, batch, rngs)
    losses, metrics = objective.losses(outputs, batch)
    loss = sum(total / totals[name] for name, (total, _) in losses.items())
    sums = {name: jnp.stack(pair) for name, pair in (losses | metrics).items()}
    return loss, (sums, objective.carry(outputs))

  def step_fn(
    state: TrainState,
    host_batch: Batch,
    seed: int | jax.Array = seed,
    rate: jax.Array | None = None,
  ) -> tuple[TrainState, Report]:
    rows = jnp.arange(next(iter(host_batch.values())).shape[0])
    keys = row_keys(seed, TRAIN_STREAM, state.step, rows)
    batch = objective.transform_at(host_batch, keys, state.step)
    totals = objective.weights(batch)
    batch |= state.carry
    # No row is below 0, so no row has these keys. Samples are the same for all
    # micro-batches, dropout is not.
    dropout_rng, samples_rng = row_keys(
      seed, TRAIN_STREAM, state.step, jnp.array([-1, -2])
    )
    rngs = {'dropout': dropout_rng, 'samples': samples_rng}

    grad_fn = jax.value_and_grad(loss_of, has_aux=True)
    whole = shards.gather(state.params, placements)

    def scatter(gradients: Params) -> Params:
      return shards.scatter(gradients, state.params, placements)

    if micro_batches == 1:
      (loss, (sums, carry)), grads = grad_fn(whole, batch, totals, rngs)
      grads = scatter(grads)
    else:
      split = _split(batch, micro_batches, mesh)

      def add(
        so_far: _SoFar, part: tuple[jax.Array, Batch]
      ) -> tuple[_SoFar, Batch]:
        index, micro_batch = part
        micro_rng = jax.random.fold_in(dropout_rng, index)
        (loss, (sums, carry)), grads = grad_fn(
          whole, micro_batch, totals, rngs | {'dropout': micro_rng}
        )
        new = loss, sums, scatter(grads)
        return jax.tree.map(jnp.add, so_far, new), carry

      parts = (jnp.arange(micro_batches), split)
      first = jax.tree.map(lambda leaf: leaf[0], parts)
      (loss, (sums, _)), _ = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(grad_fn, whole, first[1], totals, rngs),
      )
      grads = jax.tree.map(jnp.zeros_like, state.params)
      (loss, sums, grads), carries = jax.lax.scan(
        add, (loss, sums, grads), parts
      )
      carry = _join(carries)

    grad_norm = optax.tree_utils.tree_norm(grads)
    updates, opt_state = tx.update(grads, state.opt_state, state.params)
    learning_rate = schedule(state.step)
    if rate is not None:  # every optimiser's updates are linear in the rate
      updates = jax.tree.map(lambda update: rate * update, updates)
      learning_rate = rate * learning_rate
    finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
    good = finite & (state.nonfinite_step < 0)
    params = optax.apply_updates(state.params, updates)
    # A bad step changes nothing: the report has the parameters that caused it.
    params, opt_state, carry = jax.tree.map(
      functools.partial(jnp.where, good),
      (params, opt_state, carry),
      (state.params, state.opt_state, state.carry),
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
      'learning_rate': learning_rate,
      'nonfinite_step': nonfinite_step,
    }
    state = TrainState(
      step=state.step + 1,
      params=params,
      opt_state=opt_state,
      carry=carry,
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


def make_eval_step(
  model: nn.Module,
  objective: Objective,
  *,
  baseline: Callable[..., tuple[jax.Array, jax.Array]],
  mesh: Mesh,
) -> EvalStep:
  """Returns the jitted (params, host batch, memory) -> (sums, memory).

  The sums are {name: [2] (sum, weight)}; where losses are of tokens, one more
  is `baseline` of (token ids, weights). The memory passes from batch to batch.
  A row's draws depend on its `example_ids` only: all runs are scored alike.
  """

  def eval_step(
    params: Params, host_batch: Batch, carry: Batch
  ) -> tuple[dict[str, jax.Array], Batch]:
    keys = row_keys(0, EVAL_STREAM, 0, host_batch['example_ids'])
    batch = objective.transform(host_batch, keys) | carry
    outputs = objective.apply(model, params, batch)
    losses, metrics = objective.losses(outputs, batch)
    sums = losses | metrics
    if objective.perplexities:
      sums['baseline'] = baseline(*objective.targets(batch))
    sums = {name: jnp.stack(pair) for name, pair in sums.items()}
    return sums, objective.carry(outputs)

  return jax.jit(
    eval_step,
    out_shardings=(
      NamedSharding(mesh, PartitionSpec()),
      NamedSharding(mesh, sharding.BATCH),
    ),
    compiler_options=device.compiler_options(mesh),
  )


@jax.jit
def all_finite(params: Params) -> jax.Array:
  """Returns whether every parameter is finite, bool scalar."""
  leaves = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(params)]
  return jnp.stack(leaves).all()


def make_gradient_norms(
  model: nn.Module, objective: Objective, *, seed: int
) -> GradientNorms:
  """Returns (params, host batch, carry, step) -> (losses, gradient norms).

  It computes each loss's mean and the norm of each parameter's gradient,
  without dropout.
  """

  def norms(
    params: Params, host_batch: Batch, carry: Batch, step: jax.Array
  ) -> tuple[dict[str, jax.Array], Params]:
    rows = jnp.arange(next(iter(host_batch.values())).shape[0])
    keys = row_keys(seed, TRAIN_STREAM, step, rows)
    batch = objective.transform_at(host_batch, keys, step)
    batch |= carry

    def loss_of(params: Params) -> tuple[jax.Array, dict[str, jax.Array]]:
      outputs = objective.apply(model, params, batch)
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
  """[B, ...] -> [parts, B / parts, ...]; rows stay on their devices."""
  place = NamedSharding(mesh, PartitionSpec(None, *sharding.BATCH))

  def split(array: jax.Array) -> jax.Array:
    array = array.reshape(-1, parts, *array.shape[1:]).swapaxes(0, 1)
    return jax.lax.with_sharding_constraint(array, place)

  return {name: split(array) for name, array in batch.items()}


def _join(batches: dict[str, jax.Array]) -> dict[str, jax.Array]:
  return {
    name: array.swapaxes(0, 1).reshape(-1, *array.shape[2:])
    for name, array in batches.items()
  }
