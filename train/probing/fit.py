"""All probes of a task, trained together on the same batches.

Shapes: M member, a probe with a seed; S seed; L layer with the embeddings, B
row, T piece of a row, D width, P target of a row, H hidden, K class.
"""

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from data.scoring import measures
from models.layers import Params
from models.probes import edge_probe
from models.probes.edge_probe import EdgeProbe
from train.host import console
from train.probing.batches import Batch, Packer
from train.probing.examples import ProbeSplit
from train.probing.plan import Member, Settings

ADAM = optax.scale_by_adam()


class Result(NamedTuple):
  """A trained probe, with the parameters of its best validation.

  Attributes:
    dev: F1, 0 to 1; `test` likewise.
    step: the step of the best validation; `steps` is the last step.
    shares: the shares of the layers, float [L], sum 1; 0 outside of the mix.
    scale: gamma of the mix.
  """

  member: Member
  dev: float
  test: float
  step: int
  steps: int
  shares: tuple[float, ...]
  scale: float


T = TypeVar('T')  # a tree of arrays


class _Stack(NamedTuple):
  """Parameters, each with a leading axis M, and the optimiser's moments."""

  params: Params
  moments: optax.OptState


class Probes:
  """The stacked probes of a task, and their training."""

  def __init__(
    self,
    module: EdgeProbe,
    width: int,
    members: Sequence[Member],
    settings: Settings,
    is_scored_K: np.ndarray,
    group: int | None = None,
  ):
    """Draws the parameters; probes of one seed start alike.

    `width` is D. `is_scored_K` marks the classes that the F1 counts. `group`
    members are computed side by side, vmapped, and the groups one after the
    other in the same program: by default 1 on a CPU, where a member's arrays
    stay in its cache, which takes a fifth less time than all together and gives
    the same bits as a member alone; else all.
    """
    self.module, self.members, self.settings = module, members, settings
    self._is_scored_K = is_scored_K
    self.seeds = tuple(sorted({member.seed for member in members}))
    layers = np.arange(module.num_layers)
    self.used_ML = jnp.array(
      [(layers >= x.first) & (layers <= x.last) for x in members]
    )
    self._place_M = jnp.array([self.seeds.index(x.seed) for x in members])
    drawn = _draw(module, width, jnp.array(self.seeds))
    params = jax.tree.map(lambda leaf: leaf[self._place_M], drawn)
    self._stack = _Stack(params, jax.vmap(ADAM.init)(params))
    if group is None:
      group = 1 if jax.default_backend() == 'cpu' else len(members)
    self._group = group

  @property
  def params(self) -> Params:
    """The current parameters, each with a leading axis M."""
    return self._stack.params

  def step(
    self, batch: Batch, number: int, rate_M: np.ndarray, moves_M: np.ndarray
  ) -> jax.Array:
    """Takes a step with members' learning rates; returns their losses [M].

    Members that do not move keep their parameters and moments.
    """
    losses_M, norms_M, gradients = _gradients(
      self.module,
      self._stack.params,
      (self.used_ML, self._place_M),
      batch,
      (jnp.array(self.seeds), number),
      group=self._group,
    )
    self._stack = _update(
      self._stack,
      gradients,
      norms_M,
      jnp.asarray(rate_M, jnp.float32),
      jnp.asarray(moves_M),
      clip_norm=self.settings.clip_norm,
      mix_factor=self.settings.mix_factor,
    )
    return losses_M

  def score(
    self, params: Params, packer: Packer, split: ProbeSplit
  ) -> np.ndarray:
    """Returns the binary micro F1 of a split by each member, float [M].

    Labels that no probe can find count as missed.
    """
    counts = [
      _count(self.module, params, self.used_ML, batch, group=self._group)
      for batch in packer.scoring(split.examples)
    ]
    right_MK, found_MK = (
      sum(map(np.asarray, each)) for each in zip(*counts, strict=True)
    )
    scored = self._is_scored_K
    gold = split.gold[scored].sum() + split.missed
    return measures.f1_of(
      right_MK[:, scored].sum(1), gold, found_MK[:, scored].sum(1)
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _draw(module: EdgeProbe, width: int, seeds: jax.Array) -> Params:
  """Returns the first parameters of each seed, with a leading axis S."""
  layers = [jnp.zeros((module.num_layers, 1, 1, width))] * module.num_spans
  spans = [jnp.zeros((1, 1, 2), jnp.int32)] * module.num_spans
  used_L = jnp.ones(module.num_layers, bool)
  return jax.vmap(
    lambda seed: module.init(jax.random.key(seed), layers, spans, used_L)[
      'params'
    ]
  )(seeds)


def _inputs(batch: Batch) -> tuple[list[jax.Array], tuple[jax.Array, ...]]:
  """Returns the layers, float32 [L, B, T, D] of each side, and the spans."""
  layers = [
    jnp.moveaxis(layers_BTLD, 2, 0).astype(jnp.float32)
    for layers_BTLD in batch.layers
  ]
  return layers, batch.spans


@functools.partial(jax.jit, static_argnums=0, static_argnames='group')
def _gradients(
  module: EdgeProbe,
  params: Params,
  members: tuple[jax.Array, jax.Array],
  batch: Batch,
  drawing: tuple[jax.Array, jax.Array],
  *,
  group: int,
) -> tuple[jax.Array, jax.Array, Params]:
  """Returns the mean losses [M], the gradients' norms [M], and the gradients.

  `members` are (used layers [M, L], place of the seed [M]), `drawing` the seeds
  and the step. Members of a seed have the same dropout masks: they differ in
  their layers alone.
  """
  layers, spans = _inputs(batch)
  seeds, number = drawing
  shape = *batch.mask.shape, module.hidden_dim
  keep_SBPH = jax.vmap(
    lambda seed: jax.random.bernoulli(
      jax.random.fold_in(jax.random.key(seed), number),
      1 - module.dropout_rate,
      shape,
    )
  )(seeds)

  def of_member(
    member: tuple[Params, jax.Array, jax.Array],
  ) -> tuple[jax.Array, jax.Array, Params]:
    params, used_L, place = member

    def mean_loss(params: Params) -> jax.Array:
      logits_BPK = module.apply(
        {'params': params}, layers, spans, used_L, keep_SBPH[place]
      )
      total, weight = edge_probe.loss(logits_BPK, batch.labels, batch.mask)
      return total / weight

    loss, gradients = jax.value_and_grad(mean_loss)(params)
    return loss, optax.tree.norm(gradients), gradients

  return _map(of_member, (params, *members), group)


def _map(function: Callable, members: tuple, group: int) -> tuple:
  """Returns `function` of each member; `group` members run side by side."""
  return lax.map(function, members, batch_size=None if group == 1 else group)


@functools.partial(
  jax.jit, static_argnames=('clip_norm', 'mix_factor'), donate_argnums=0
)
def _update(
  stack: _Stack,
  gradients: Params,
  norms_M: jax.Array,
  rate_M: jax.Array,
  moves_M: jax.Array,
  *,
  clip_norm: float,
  mix_factor: float,
) -> _Stack:
  """Returns the stack after a step of Adam, each member clipped by itself."""
  factor_M = clip_norm / jnp.maximum(norms_M, clip_norm)

  def of_member(
    old: _Stack,
    gradients: Params,
    factor: jax.Array,
    rate: jax.Array,
    moves: jax.Array,
  ) -> _Stack:
    clipped = jax.tree.map(lambda leaf: factor * leaf, gradients)
    steps, moments = ADAM.update(clipped, old.moments)

    def moved(
      path: jax.tree_util.KeyPath, leaf: jax.Array, step: jax.Array
    ) -> jax.Array:
      is_mix = path[-1].key == edge_probe.LAYER_WEIGHTS
      return leaf - rate * (mix_factor if is_mix else 1.0) * step

    params = jax.tree_util.tree_map_with_path(moved, old.params, steps)
    return _chosen(moves, _Stack(params, moments), old)

  return jax.vmap(of_member)(stack, gradients, factor_M, rate_M, moves_M)


def _chosen(condition: jax.Array, new: T, old: T) -> T:
  return jax.tree.map(lambda x, y: jnp.where(condition, x, y), new, old)


@jax.jit
def _keep(better_M: jax.Array, params: Params, best: Params) -> Params:
  """Returns the parameters of members that got better, else the best."""
  return jax.vmap(_chosen)(better_M, params, best)


@functools.partial(jax.jit, static_argnums=0, static_argnames='group')
def _count(
  module: EdgeProbe,
  params: Params,
  used_ML: jax.Array,
  batch: Batch,
  *,
  group: int,
) -> tuple[jax.Array, jax.Array]:
  """Returns how often each class is found rightly and found, int32 [M, K]."""
  layers, spans = _inputs(batch)

  def of_member(
    member: tuple[Params, jax.Array],
  ) -> tuple[jax.Array, jax.Array]:
    params, used_L = member
    logits_BPK = module.apply({'params': params}, layers, spans, used_L)
    return edge_probe.count(logits_BPK, batch.labels, batch.mask)

  return _map(of_member, (params, used_ML), group)


class Plateau:
  """The learning rate of each member by its validations, and its end."""

  def __init__(self, settings: Settings, count: int):
    """Begins with `count` members that all move."""
    self._settings = settings
    self.rate_M = np.full(count, settings.learning_rate)
    self.moves_M = np.ones(count, bool)
    self._best_M = np.full(count, -np.inf)
    self._idle_M = np.zeros(count, int)

  def validated(self, f1_M: np.ndarray) -> None:
    """Takes the F1 of a validation into account."""
    settings = self._settings
    progress_M = f1_M > self._best_M + settings.threshold
    self._best_M = np.where(progress_M, f1_M, self._best_M)
    self._idle_M = np.where(progress_M, 0, self._idle_M + 1)
    halves_M = (self._idle_M > 0) & (self._idle_M % settings.halve_after == 0)
    self.rate_M = np.where(
      halves_M & self.moves_M, self.rate_M / 2, self.rate_M
    )
    self.moves_M &= (self._idle_M < settings.stop_after) & (
      self.rate_M > settings.smallest_rate
    )


def train(
  name: str,
  probes: Probes,
  packer: Packer,
  splits: dict[str, ProbeSplit],
) -> tuple[list[Result], float]:
  """Trains all probes of a task; returns their results, and the seconds.

  `splits` are train, dev and test. After each `validate_every` steps, and the
  last, the dev F1 decides which parameters of a probe are its best, its rate
  and its end. Raises FloatingPointError if a loss is not finite.
  """
  settings, members = probes.settings, probes.members
  plateau = Plateau(settings, len(members))
  best_M = np.full(len(members), -np.inf)
  best_step_M = np.zeros(len(members), int)
  steps_M = np.zeros(len(members), int)
  best = jax.tree.map(jnp.copy, probes.params)
  losses_M = jnp.zeros(len(members))
  began, said = time.monotonic(), name
  batches = packer.training(splits['train'].examples, settings.steps)
  with console.ProgressBar(0, settings.steps) as bar:
    for number, batch in enumerate(batches, start=1):
      before_M = losses_M
      losses_M = probes.step(batch, number, plateau.rate_M, plateau.moves_M)
      steps_M += plateau.moves_M
      before_M.block_until_ready()  # the next batch is read meanwhile
      if number < settings.steps:
        bar.update(number, said)
      if number % settings.validate_every and number != settings.steps:
        continue
      _check_finite(name, members, np.asarray(losses_M), number)
      f1_M = probes.score(probes.params, packer, splits['dev'])
      better_M = (f1_M > best_M) & plateau.moves_M
      best = _keep(jnp.asarray(better_M), probes.params, best)
      best_M = np.where(better_M, f1_M, best_M)
      best_step_M[better_M] = number
      plateau.validated(f1_M)
      top = max(range(len(members)), key=best_M.__getitem__)
      said = (
        f'{name}: dev F1 {best_M[0]:.2%} of {describe(members[0])},'
        f' {best_M[top]:.2%} of {describe(members[top])}'
      )
      bar.update(number, said)
      if not plateau.moves_M.any():
        break
  test_M = probes.score(best, packer, splits['test'])
  shares_ML, scale_M = _mixes(best, probes.used_ML)
  results = [
    Result(
      member,
      float(best_M[i]),
      float(test_M[i]),
      int(best_step_M[i]),
      int(steps_M[i]),
      tuple(map(float, shares_ML[i])),
      float(scale_M[i]),
    )
    for i, member in enumerate(members)
  ]
  return results, time.monotonic() - began


def _mixes(params: Params, used_ML: jax.Array) -> tuple[np.ndarray, np.ndarray]:
  weights_ML = params[edge_probe.LAYER_WEIGHTS]
  shares_ML = jax.vmap(edge_probe.mix_shares)(weights_ML, used_ML)
  return np.asarray(shares_ML), np.asarray(params[edge_probe.LAYER_SCALE])


def describe(member: Member) -> str:
  """Returns a probe's layers as text."""
  if member.first == member.last:
    return f'layer {member.last}'
  return f'layers {member.first} to {member.last}'


def _check_finite(
  name: str, members: Sequence[Member], losses_M: np.ndarray, step: int
) -> None:
  for member, loss in zip(members, losses_M, strict=True):
    if not math.isfinite(loss):
      raise FloatingPointError(
        f'{name}, {describe(member)}, seed {member.seed}: the loss is {loss} at'
        f' step {step:,}; give a smaller --learning_rate'
      )
