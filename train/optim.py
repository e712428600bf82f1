"""BERT's optimiser and learning-rate schedule, as released.

Source: google-research/bert, optimization.py.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

Schedule = Callable[[Any], Any]
# (steps, length, global batch, 'continue' | 'restart')
Phase = tuple[int, int, int, str]

# Last names of parameters that weight decay spares: of layer norms and biases.
UNDECAYED = ('bias', 'scale')


def make_schedule(optim_config: Any, phases: Sequence[Phase]) -> Schedule:
  """Returns BERT's learning rate: linear decay to 0, its start replaced.

  The decay runs from step 0 to the last step of its phases; during warm-up the
  rate is `peak * step / warmup_steps` instead, so that it jumps a little where
  the two meet. Step 0 has rate 0. (A decay that starts after the warm-up, or a
  warm-up that multiplies it, is another schedule.)

  Args:
    optim_config: with `learning_rate` (the peak) and `warmup_steps`.
    phases: of the run; those marked 'continue' share the schedule of the one
      before, 'restart' begins a new one with a warm-up of its own.

  Returns:
    A function of the step (int, 0 for the first update) -> float32 rate.

  Raises:
    ValueError: if a number makes no sense or a phase's last entry is unknown.
  """
  peak = optim_config.learning_rate
  warmup_steps = optim_config.warmup_steps
  if peak < 0:
    raise ValueError(f'optim.learning_rate is {peak}, expected 0 or more')
  if warmup_steps < 0:
    raise ValueError(f'optim.warmup_steps is {warmup_steps}, expected >= 0')
  if not phases:
    raise ValueError('train.phases is empty, expected at least one phase')

  starts, totals = [], []
  first_step = 0
  for i, (steps, _, _, kind) in enumerate(phases):
    if steps <= 0:
      raise ValueError(f'train.phases[{i}] has {steps} steps, expected > 0')
    if kind not in ('continue', 'restart'):
      raise ValueError(
        f"train.phases[{i}] ends in {kind!r}, expected 'continue' or 'restart'"
      )
    if kind == 'restart' or not starts:
      starts.append(first_step)
      totals.append(0)
    totals[-1] += steps
    first_step += steps

  def schedule(step):
    current = jnp.sum(jnp.asarray(step) >= np.array(starts)) - 1
    local = step - jnp.asarray(starts)[current]
    total = jnp.asarray(totals, jnp.float32)[current]
    decayed = peak * (jnp.maximum(total - local, 0) / total)
    if not warmup_steps:
      return decayed
    warming = peak * (local / jnp.float32(warmup_steps))
    return jnp.where(local < warmup_steps, warming, decayed)

  return schedule


def scale_by_uncorrected_adam(
  b1: float, b2: float, eps: float
) -> optax.GradientTransformation:
  """Adam's direction without bias correction, m / (sqrt(v) + eps).

  Early steps are therefore larger: the first one is (1 - b1) / sqrt(1 - b2),
  3.2 times the rate with BERT's numbers, where Adam's is 1.

  Args:
    b1: decay of the first moment.
    b2: decay of the second moment.
    eps: added outside of the root.
  """

  def init(params):
    return optax.ScaleByAdamState(
      count=jnp.zeros([], jnp.int32),
      mu=jax.tree.map(jnp.zeros_like, params),
      nu=jax.tree.map(jnp.zeros_like, params),
    )

  def update(updates, state, params=None):
    del params
    mu = optax.tree.update_moment(updates, state.mu, b1, 1)
    nu = optax.tree.update_moment(updates, state.nu, b2, 2)
    updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu, nu)
    count = optax.safe_increment(state.count)
    return updates, optax.ScaleByAdamState(count=count, mu=mu, nu=nu)

  return optax.GradientTransformation(init, update)


def decay_mask(params: Any) -> Any:
  """Returns a tree like `params`: True where weight decay applies.

  Embeddings decay; layer norms and biases do not.
  """
  return jax.tree_util.tree_map_with_path(
    lambda path, _: path[-1].key not in UNDECAYED, params
  )


def make_optimizer(
  optim_config: Any, schedule: Schedule
) -> optax.GradientTransformation:
  """Returns BERT's AdamW.

  The whole gradient is clipped by its global norm; then the update is
  `rate * (m / (sqrt(v) + epsilon) + weight_decay * p)`.

  Args:
    optim_config: with beta1, beta2, epsilon, weight_decay, clip_norm,
      bias_correction.
    schedule: of `make_schedule`.
  """
  c = optim_config
  if c.clip_norm <= 0:
    raise ValueError(f'optim.clip_norm is {c.clip_norm}, expected > 0')
  adam = optax.scale_by_adam if c.bias_correction else scale_by_uncorrected_adam
  return optax.chain(
    optax.clip_by_global_norm(c.clip_norm),
    adam(b1=c.beta1, b2=c.beta2, eps=c.epsilon),
    optax.add_decayed_weights(c.weight_decay, mask=decay_mask),
    optax.scale_by_learning_rate(schedule),
  )
