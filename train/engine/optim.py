"""Optimisers and learning-rate schedules as the three papers released them.

Source of `linear` and `bert_adam`: google-research/bert, optimization.py; of
`cosine` and `gpt_adam`: openai/finetune-transformer-lm, opt.py.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from models.layers import Params
from train.engine import averages

Schedule = Callable[[jax.typing.ArrayLike], jax.Array]  # step -> rate
Mask = Mapping[str, Any]  # a tree like the parameters', of bool
# (steps, length, global batch, 'continue' | 'restart')
Phase = tuple[int, int, int, str]

OPTIMIZERS = (
  'bert_adam',
  'gpt_adam',
  'adamw',
  'stable_adamw',
  'muon',
  'lamb',
  'adafactor',
  'adagrad',
  'adadelta',
  'sgd',
)
SCHEDULES = (
  'linear',
  'gpt_linear',
  'cosine',
  'constant',
  'wsd',
  'staircase',
  'inverse',
)

# Of `staircase`: factor and its steps (kentonl/e2e-coref, experiments.conf).
STAIRCASE = (0.999, 100)

# Of `inverse`: growth of the rate's divisor with each token read (Bengio et al.
# 2003, section 2.1).
INVERSE = 1e-8

# Adagrad's initial sum of squared gradients (bilm-tf, training.py's default).
ADAGRAD_ACCUMULATOR = 1.0

# Decay of Adadelta's averages (Zeiler 2012, section 4.1).
ADADELTA_DECAY = 0.95

# Of Muon: decay of the mean of gradients, and the RMS of a matrix's update, as
# Adam's, so that its rates serve (Liu et al. 2025, "Muon is Scalable for LLM
# Training", section 2.2).
MUON_DECAY, MUON_RMS = 0.95, 0.2

# Last names of parameters without weight decay: layer norms, biases and layer
# averages (models/scalar_mix.py), which may have an L2 loss of their own
# (task.mix_l2).
UNDECAYED = ('bias', 'scale', 'mix_weights', 'mix_scale')

# Logical axes along which one parameter stacks several published matrices.
STACKED = ('layers', 'qkv', 'towers')


def make_schedule(
  optim_config: ml_collections.ConfigDict, phases: Sequence[Phase]
) -> Schedule:
  """Returns the learning rate (float32) as a function of the step (from 0).

  The decay (`linear`: BERT, `cosine`: GPT) runs from step 0 to the last step of
  its phases and reaches 0; `constant` (ELMo) stays; `wsd` stays until the last
  `optim.decay_share` of them, in which it falls by the root of the steps taken
  (Haegele et al. 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed
  Training Durations", equation 1); `staircase` multiplies the
  rate by 0.999 after every 100 steps (Lee et al. 2017), and `inverse` divides
  it by 1 + 1e-8 times the tokens read (Bengio et al. 2003). During warm-up the
  rate is `peak * step / warmup_steps` instead, so it jumps a little where they
  meet: at step `warmup_steps`, BERT's release decays and GPT's is at the peak.
  In `gpt_linear`, GPT's fine-tuning, the warm-up multiplies the decay. Step 0
  has rate 0, but for a constant rate without warm-up.

  Phases marked 'continue' share the schedule of the phase before. 'restart'
  begins another with its own warm-up, to the next of `optim.restarts`, or to
  the same peak where there are none. Raises ValueError for impossible numbers.
  """
  kind_of_decay = optim_config.schedule
  if kind_of_decay not in SCHEDULES:
    raise ValueError(
      f'optim.schedule is {kind_of_decay!r}, expected one of {SCHEDULES}'
    )
  if not phases:
    raise ValueError('train.phases is empty, expected at least one phase')
  starts, totals = [], []
  first_step = 0
  for i, (steps, _, _, kind, *_) in enumerate(phases):
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
  peaks, warmups = zip(*_peaks(optim_config, len(starts)), strict=True)

  def schedule(step):
    current = jnp.sum(jnp.asarray(step) >= np.array(starts)) - 1
    local = step - jnp.asarray(starts)[current]
    total = jnp.asarray(totals, jnp.float32)[current]
    peak = jnp.asarray(peaks, jnp.float32)[current]
    warmup = jnp.asarray(warmups, jnp.float32)[current]
    left = jnp.maximum(total - local, 0) / total
    if kind_of_decay == 'constant':
      left = jnp.ones_like(left)
    elif kind_of_decay == 'wsd':
      share = optim_config.decay_share
      left = 1 - jnp.sqrt(jnp.maximum(1 - left / share, 0))
    elif kind_of_decay == 'staircase':
      factor, steps = STAIRCASE
      left = jnp.float32(factor) ** (local // steps)
    elif kind_of_decay == 'inverse':
      left = 1 / (1 + INVERSE * _tokens_read(phases, step))
    elif kind_of_decay == 'cosine':
      left = (1 - jnp.cos(jnp.pi * left)) / 2
    decayed = peak * left
    warmed = local / jnp.maximum(warmup, jnp.finfo(jnp.float32).tiny)
    if kind_of_decay == 'gpt_linear':
      return decayed * jnp.minimum(warmed, 1) if any(warmups) else decayed
    is_warm = local < warmup
    if kind_of_decay == 'cosine':  # openai/finetune-transformer-lm, opt.py
      is_warm |= (local == warmup) & (warmup > 0)
    return jnp.where(is_warm, peak * warmed, decayed)

  return schedule


def _tokens_read(
  phases: Sequence[Phase], step: jax.typing.ArrayLike
) -> jax.Array:
  """Returns the tokens of all steps before a step, float32."""
  total, first_step = jnp.float32(0), 0
  for steps, length, rows, *_ in phases:
    done = jnp.clip(step - first_step, 0, steps)
    total += jnp.asarray(done, jnp.float32) * (length * rows)
    first_step += steps
  return total


def _peaks(
  optim_config: ml_collections.ConfigDict, count: int
) -> list[tuple[float, int]]:
  """Returns (learning rate, warm-up steps) of each of `count` schedules."""
  first = (optim_config.learning_rate, optim_config.warmup_steps)
  restarts = list(optim_config.restarts)
  if restarts and len(restarts) != count - 1:
    raise ValueError(
      f'optim.restarts has {len(restarts)} entries, but train.phases has'
      f" {count - 1} 'restart' after the first phase: give each of them its"
      ' (learning_rate, warmup_steps), or none'
    )
  for i, entry in enumerate(restarts):
    if not isinstance(entry, tuple | list) or len(entry) != 2:
      raise ValueError(
        f'optim.restarts[{i}] is {entry!r}, expected'
        ' (learning_rate, warmup_steps)'
      )
  peaks = [first, *map(tuple, restarts or [first] * (count - 1))]
  for i, (peak, warmup_steps) in enumerate(peaks):
    where = f'optim.restarts[{i - 1}]: ' if i else 'optim.'
    if peak < 0:
      raise ValueError(f'{where}learning_rate is {peak}, expected 0 or more')
    if warmup_steps < 0:
      raise ValueError(f'{where}warmup_steps is {warmup_steps}, expected >= 0')
  return peaks


def scale_by_uncorrected_adam(
  b1: float, b2: float, eps: float
) -> optax.GradientTransformation:
  """Adam's direction without bias correction, m / (sqrt(v) + eps).

  Its first step is (1 - b1) / sqrt(1 - b2) times the rate: 3.2 times in BERT.
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


def _correction(step: jax.typing.ArrayLike, b1: float, b2: float) -> jax.Array:
  count = jnp.asarray(step, jnp.float32) + 1
  return jnp.sqrt(1 - b2**count) / (1 - b1**count)


def decay_mask(params: Params) -> Mask:
  """Returns where weight decay applies.

  Averages of layers have none: it would draw them to the plain mean, and their
  scale to 0.
  """
  return jax.tree_util.tree_map_with_path(
    lambda path, _: path[-1].key not in UNDECAYED, params
  )


def as_matrices(
  array: jax.Array, names: Sequence[str], vocab_size: int | None
) -> jax.Array:
  """Returns a parameter as published matrices, [matrices, in, out].

  Layers, query, key and value are separate; heads are joined, and padding of
  the vocabulary is cut. With `names` [layers, embed, qkv, heads, head] the
  result is [layers * qkv, embed, heads * head]; vectors are [vectors, width].
  """
  for name in {'vocab', 'words'} & set(names):
    array = jax.lax.slice_in_dim(array, 0, vocab_size, axis=names.index(name))
  stacked = [i for i, name in enumerate(names) if name in STACKED]
  shape = [math.prod(array.shape[i] for i in stacked)]
  for name, size in zip(names, array.shape, strict=True):
    if name == 'head':
      shape[-1] *= size
    elif name not in STACKED:
      shape.append(size)
  return jnp.moveaxis(array, stacked, range(len(stacked))).reshape(shape)


def scale_by_muon(
  axes: Mapping[str, Sequence[str]], adam: optax.GradientTransformation
) -> optax.GradientTransformation:
  """Muon for the matrices of the layers, and `adam` for all else.

  The mean of a matrix's gradients is made orthogonal (Jordan et al. 2024) and
  scaled to Adam's RMS. `axes` are as in `per_matrix`: layers, query, key and
  value and the halves of a gated MLP are matrices of their own, each of which
  lies on one device while it is made orthogonal.
  """

  def names_of(path: tuple) -> Sequence[str] | None:
    """Returns the axes of a parameter with matrices of layers, else None."""
    names = axes[jax.tree_util.keystr(path, simple=True, separator='/')]
    if names[0] != 'layers' or path[-1].key != 'kernel':
      return None
    return ['layers' if name == 'gates' else name for name in names]

  def label(params: Params) -> Any:
    return jax.tree_util.tree_map_with_path(
      lambda path, _: 'adam' if names_of(path) is None else 'muon', params
    )

  def init(params: Params) -> optax.contrib.MuonState:
    return optax.contrib.MuonState(
      count=jnp.zeros((), jnp.int32),
      mu=optax.tree.zeros_like(params),
      ns_coeffs=one.init(jnp.zeros((1, 1))).ns_coeffs,
    )

  def update(
    updates: Params, state: optax.contrib.MuonState, params: Params = None
  ) -> tuple[Params, optax.contrib.MuonState]:
    del params
    mu = optax.tree.update_moment(updates, state.mu, MUON_DECAY, 1)
    count = optax.safe_increment(state.count)
    later = optax.safe_increment(count)
    ahead = jax.tree.map(  # Nesterov's
      lambda m, g: MUON_DECAY * m + (1 - MUON_DECAY) * g,
      optax.tree.bias_correction(mu, MUON_DECAY, later),
      optax.tree.bias_correction(updates, MUON_DECAY, count),
    )
    turned = jax.tree_util.tree_map_with_path(turn, ahead)
    return turned, state._replace(count=count, mu=mu)

  # With beta 0 it keeps no mean, and makes a matrix orthogonal.
  one = optax.contrib.scale_by_muon(beta=0.0, nesterov=False)

  def view_of(path: tuple) -> Callable[[jax.Array], jax.Array]:
    return functools.partial(as_matrices, names=names_of(path), vocab_size=None)

  def turn(path: tuple, mean: jax.Array) -> jax.Array:
    matrices = view_of(path)(mean)
    turned = jax.vmap(lambda m: one.update(m, one.init(m))[0])(
      _on_devices(matrices)
    )[: len(matrices)]
    return jax.linear_transpose(view_of(path), mean)(turned)[0]

  def rescale(path: tuple, turned: jax.Array) -> jax.Array:
    _, *widths = jax.eval_shape(view_of(path), turned).shape
    return turned * (MUON_RMS * math.sqrt(max(widths)))

  muon = optax.chain(
    optax.GradientTransformation(init, update),
    optax.stateless(
      lambda turned, _: jax.tree_util.tree_map_with_path(rescale, turned)
    ),
  )
  return optax.partition({'muon': muon, 'adam': adam}, label)


def _on_devices(matrices: jax.Array) -> jax.Array:
  """Returns matrices [M, in, out] spread over the mesh, each on one device.

  Zeros at the end fill M up to a multiple of the devices.
  """
  mesh = jax.sharding.get_abstract_mesh()
  if mesh.empty or mesh.size == 1:
    return matrices
  missing = -len(matrices) % mesh.size
  return jax.lax.with_sharding_constraint(
    jnp.pad(matrices, [(0, missing), (0, 0), (0, 0)]),
    jax.sharding.PartitionSpec(mesh.axis_names),
  )


class PerMatrix(NamedTuple):
  """A transform's state for one parameter, stacked over its matrices."""

  state: optax.OptState


def per_matrix(
  tx: optax.GradientTransformation,
  axes: Mapping[str, Sequence[str]],
  vocab_size: int | None,
) -> optax.GradientTransformation:
  """Runs `tx`, a transform of a single array, on every published matrix.

  `axes` maps each 'path/of/parameter' to its logical axis names; `vocab_size`
  is V, unpadded: padding gets no update.
  """

  def view_of(path):
    where = jax.tree_util.keystr(path, simple=True, separator='/')
    if where not in axes:
      raise ValueError(
        f'parameter {where} has no logical axis names here, so its matrices'
        ' are unknown: pass those of every parameter to make_optimizer'
      )
    return functools.partial(
      as_matrices, names=tuple(axes[where]), vocab_size=vocab_size
    )

  def init(params):
    return jax.tree_util.tree_map_with_path(
      lambda path, param: PerMatrix(jax.vmap(tx.init)(view_of(path)(param))),
      params,
    )

  def update(updates, state, params):
    def update_one(path, update, old, param):
      view = view_of(path)
      matrices, new = jax.vmap(tx.update)(view(update), old.state, view(param))
      # A view moves, joins and cuts; its transpose fills the cuts with zeros.
      return jax.linear_transpose(view, update)(matrices)[0], PerMatrix(new)

    pairs = jax.tree_util.tree_map_with_path(update_one, updates, state, params)
    return tuple(
      jax.tree.map(lambda _, pair, i=i: pair[i], updates, pairs) for i in (0, 1)
    )

  return optax.GradientTransformation(init, update)


def make_optimizer(
  optim_config: ml_collections.ConfigDict,
  schedule: Schedule,
  axes: Mapping[str, Sequence[str]] | None = None,
  vocab_size: int | None = None,
) -> optax.GradientTransformation:
  """Returns the optimiser `optim.name`; an unknown one is a ValueError.

  The gradient is clipped by its global norm; then the update is
  `rate * (direction + weight_decay * p)`, without decay of norms, biases and
  averages of layers:

  - bert_adam: direction m / (sqrt(v) + epsilon), without bias correction.
  - gpt_adam: the same, with the correction as a factor of the rate: it also
    scales the decay, and epsilon stands outside of it.
  - adamw: corrected as usual.
  - stable_adamw: adamw, the step of each matrix divided by its RMS of g /
    sqrt(v) where this exceeds 1, see `update_clipping`.
  - muon: adamw, but for the matrices of the layers, see `scale_by_muon`.
  - lamb: adamw's sum, scaled to the norm of each matrix (You et al. 2020,
    algorithm 2). Undecayed parameters are not scaled, as in tensorflow_addons'
    lamb.py, which the paper names, google-research/albert and NVIDIA's apex.
  - adafactor: no m, and v factored into rows and columns where both are 128 or
    more; updates are clipped to an RMS of 1 and scaled by the matrix's RMS, so
    rates are relative (Shazeer and Stern 2018).
  - adagrad: g / sqrt(1 + sum of all g^2), as ELMo was released.
  - adadelta: g times the RMS of past updates over that of past gradients
    (Zeiler 2012), so a rate of 1 is usual.
  - sgd: g.

  adafactor, adagrad and sgd use no beta1, beta2 or epsilon, adadelta only the
  last: 1e-6 in Zeiler's paper, 1e-8 in TensorFlow. stable_adamw, lamb, muon and
  adafactor need `axes`, 'path/of/parameter' -> logical axis names, and
  `vocab_size`, unpadded (None where nothing is padded). With `optim.average`
  the state has averages of the parameters, see `averages`.
  """
  c = optim_config
  if c.name not in OPTIMIZERS:
    raise ValueError(f'optim.name is {c.name!r}, expected one of {OPTIMIZERS}')
  if c.clip_norm <= 0:
    raise ValueError(f'optim.clip_norm is {c.clip_norm}, expected > 0')
  decay = getattr(c, 'average', 0.0)  # a key of some configs
  if not 0 <= decay < 1:
    raise ValueError(f'optim.average is {decay}, expected 0 to below 1')
  each = functools.partial(per_matrix, axes=axes or {}, vocab_size=vocab_size)
  if c.name == 'adafactor':
    direction = each(
      optax.chain(
        optax.scale_by_factored_rms(),
        optax.clip_by_block_rms(1.0),
        optax.scale_by_param_block_rms(),
      )
    )
  elif c.name == 'adagrad':
    direction = optax.scale_by_rss(ADAGRAD_ACCUMULATOR, eps=0.0)
  elif c.name == 'adadelta':
    direction = optax.scale_by_adadelta(rho=ADADELTA_DECAY, eps=c.epsilon)
  elif c.name == 'sgd':
    direction = optax.identity()
  else:
    corrected = c.name not in ('bert_adam', 'gpt_adam')
    adam = optax.scale_by_adam if corrected else scale_by_uncorrected_adam
    direction = adam(b1=c.beta1, b2=c.beta2, eps=c.epsilon)
    if c.name == 'muon':
      direction = scale_by_muon(axes or {}, direction)
  decayed = optax.add_decayed_weights(c.weight_decay, mask=decay_mask)
  if c.name == 'stable_adamw':
    from train.engine import update_clipping

    direction = update_clipping.scale_by_stable_adam(
      direction, decayed, each, b2=c.beta2, eps=c.epsilon
    )
    decayed = optax.identity()

  def rate(step):
    if c.name != 'gpt_adam':
      return schedule(step)
    return schedule(step) * _correction(step, c.beta1, c.beta2)

  scaled = []
  if c.name == 'lamb':
    scaled = [optax.masked(each(optax.scale_by_trust_ratio()), decay_mask)]
  return optax.chain(
    optax.clip_by_global_norm(c.clip_norm),
    direction,
    decayed,
    *scaled,
    optax.scale_by_learning_rate(rate),
    *([averages.average(decay)] if decay else []),
  )
