"""StableAdamW: AdamW with shorter steps where gradients grow suddenly.

Wortsman et al. 2023, "Stable and low-precision training for large-scale
vision-language models", algorithm 2, after Adafactor's clipping of updates.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax


def scale_by_stable_adam(
  adam: optax.GradientTransformation,
  decay: optax.GradientTransformation,
  each: Callable[[optax.GradientTransformation], optax.GradientTransformation],
  *,
  b2: float,
  eps: float,
) -> optax.GradientTransformation:
  """Divides directions with their decay by max(1, RMS) of g / sqrt(v).

  v is the corrected mean of squares, the present gradient g among them, and at
  least eps^2 here.

  Args:
    adam: gives directions; its state has `count` and `nu`.
    decay: adds the decay to them.
    each: makes a transform of all parameters from one of a single matrix, over
      which the RMS is; see `optim.per_matrix`.
    b2: decay of the mean of squares.
    eps: as in the direction.
  """
  share = each(optax.stateless(lambda squares, _: _share(squares)))

  def update(
    updates: optax.Updates, state: optax.OptState, params: optax.Params
  ) -> tuple[optax.Updates, optax.OptState]:
    directions, new = adam.update(updates, state, params)
    directions, _ = decay.update(directions, decay.init(params), params)
    correction = 1 - b2 ** new.count.astype(jnp.float32)
    squares = jax.tree.map(
      lambda g, v: jnp.square(g) / jnp.maximum(v / correction, eps**2),
      updates,
      new.nu,
    )
    shares, _ = share.update(squares, share.init(params), params)
    return jax.tree.map(jnp.multiply, directions, shares), new

  return optax.GradientTransformation(adam.init, update)


def _share(squares: jax.Array) -> jax.Array:
  """Returns 1 / max(1, RMS) at each place of a matrix."""
  rms = jnp.sqrt(jnp.mean(squares))
  return jnp.full_like(squares, 1 / jnp.maximum(1, rms))
