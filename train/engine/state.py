"""The training state: everything that a checkpoint holds."""

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models.layers import Params
from train.engine import averages, optim, sharding, shards
from train.host import processes


@flax.struct.dataclass
class TrainState:
  """The state that each training step turns into the next.

  Attributes:
    step: int32 scalar, steps done.
    params: tree of float32 arrays.
    opt_state: the optimiser's state.
    carry: name -> array [B, ...], outputs passed to the next step as memory.
    metrics: name -> float32 [2], (sum, weight) since the last logged row.
    nonfinite_step: int32 scalar, the first step with a loss or gradient not
      finite, -1 for none. From it on params, opt_state and carry are frozen.
  """

  step: jax.Array
  params: Params
  opt_state: optax.OptState
  carry: dict[str, jax.Array]
  metrics: dict[str, jax.Array]
  nonfinite_step: jax.Array

  @property
  def scored(self) -> Params:
    """The parameters to score and to keep: their averages, if it has any."""
    return averages.read(self.opt_state, self.params)

  def begin_with(self, params: Params) -> 'TrainState':
    """Returns the state of step 0 with other parameters."""
    return self.replace(
      params=params, opt_state=averages.begin(self.opt_state, params)
    )


Init = Callable[[jax.Array], TrainState]  # of a random key


def init_params(
  model: nn.Module,
  dummy_inputs: tuple,
  rng: jax.Array,
  method: str = '__call__',
) -> Params:
  """Returns freshly drawn parameters, boxed with their logical axis names."""
  zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), dummy_inputs)
  return model.init(rng, *zeros, train=False, method=method)['params']


def abstract_params(
  model: nn.Module, dummy_inputs: tuple, method: str = '__call__'
) -> Params:
  """Returns the shapes of `init_params` as boxed ShapeDtypeStructs.

  Equal modules are traced once for equal inputs.
  """
  leaves, structure = jax.tree.flatten(dummy_inputs)
  inputs = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
  return _abstract_params(model, inputs, structure, method)


@functools.lru_cache(maxsize=16)
def _abstract_params(
  model: nn.Module,
  inputs: tuple,
  structure: jax.tree_util.PyTreeDef,
  method: str,
) -> Params:
  rng = jax.eval_shape(lambda: jax.random.key(0))
  dummy = structure.unflatten(jax.ShapeDtypeStruct(*each) for each in inputs)
  return jax.eval_shape(
    functools.partial(init_params, model, dummy, method=method), rng
  )


def abstract_state(
  model: nn.Module,
  dummy_inputs: tuple,
  tx: optax.GradientTransformation,
  metric_names: tuple[str, ...],
  mesh: Mesh,
  rules: sharding.Rules,
  method: str = '__call__',
  carry: dict[str, jax.ShapeDtypeStruct] | None = None,
  adjust: Callable[[Params], Params] = lambda params: params,
  encoder: nn.Module | None = None,
) -> tuple[Init, TrainState, TrainState, shards.Placements]:
  """Returns (init, shapes, shardings, placements); nothing is computed.

  The shapes are ShapeDtypeStructs with the shardings, the placements come from
  `shards.place`. `encoder` is the module with the layers if it is not `model`.
  `dummy_inputs` are the arguments of the module's `method`, `carry` the shapes
  of the memory (zeros at first); `adjust` turns fresh into initial parameters.
  """
  carry = carry or {}

  def init(rng: jax.Array) -> TrainState:
    return begin(init_params(model, dummy_inputs, rng, method))

  def begin(fresh: Params) -> TrainState:
    params = adjust(nn.meta.unbox(fresh))
    return TrainState(
      step=jnp.zeros((), jnp.int32),
      params=params,
      opt_state=tx.init(params),
      carry={
        name: jnp.zeros(leaf.shape, leaf.dtype) for name, leaf in carry.items()
      },
      metrics={name: jnp.zeros(2, jnp.float32) for name in metric_names},
      nonfinite_step=jnp.full((), -1, jnp.int32),
    )

  boxed = abstract_params(model, dummy_inputs, method)
  placements = shards.place(boxed, mesh, rules, encoder or model)
  params_shardings = jax.tree.map(
    lambda place: place.kept,
    placements,
    is_leaf=lambda leaf: isinstance(leaf, shards.Placement),
  )
  shapes = jax.eval_shape(begin, boxed)
  replicated = NamedSharding(mesh, PartitionSpec())

  def place_statistics(
    statistics: optax.OptState,
    param: jax.ShapeDtypeStruct,
    place: NamedSharding,
  ) -> optax.OptState:
    # Moments are sharded like their parameter; small factors are replicated.
    return jax.tree.map(
      lambda leaf: place if leaf.shape == param.shape else replicated,
      statistics,
    )

  shardings = TrainState(
    step=replicated,
    params=params_shardings,
    opt_state=optax.tree_utils.tree_map_params(
      tx,
      place_statistics,
      shapes.opt_state,
      shapes.params,
      params_shardings,
      transform_non_params=lambda _: replicated,
      # Nodes that stand for one parameter without being one array.
      is_leaf=lambda node: isinstance(node, optim.PerMatrix | optax.MaskedNode),
    ),
    carry={name: NamedSharding(mesh, sharding.BATCH) for name in carry},
    metrics={name: replicated for name in metric_names},
    nonfinite_step=replicated,
  )
  shapes = jax.tree.map(
    lambda leaf, place: jax.ShapeDtypeStruct(
      leaf.shape, leaf.dtype, sharding=place
    ),
    shapes,
    shardings,
  )
  return init, shapes, shardings, placements


def create_state(init: Init, shardings: TrainState, seed: int) -> TrainState:
  """Initialises the state shard by shard, never whole on one device."""
  rng = jax.random.fold_in(jax.random.key(seed), INIT_STREAM)
  return jax.jit(init, out_shardings=shardings)(rng)


# Streams of random numbers of a run: fold_in(key(seed), stream).
INIT_STREAM, TRAIN_STREAM, EVAL_STREAM = range(3)


def digest(tree: Any) -> str:
  """Returns the SHA-256 of a tree of arrays; all processes call it."""
  leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
  named = {
    jax.tree_util.keystr(path, simple=True, separator='/'): leaf
    for path, leaf in leaves
  }
  sha = hashlib.sha256()
  for path in sorted(named):
    array = processes.to_host(named[path])
    little = array.astype(array.dtype.newbyteorder('<'), copy=False)
    sha.update(f'{path} {array.dtype.name} {array.shape}\n'.encode())
    sha.update(np.ascontiguousarray(little).tobytes())
  return sha.hexdigest()


def checksums(tree: Any) -> dict[str, int]:
  """Returns path -> checksum, equal on any mesh; all processes call it."""
  named = {
    jax.tree_util.keystr(path, simple=True, separator='/'): leaf
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
  }
  # One by one: concurrent collectives can deadlock on a CPU, and one program of
  # all leaves takes long to compile.
  return {
    path: int(processes.to_host(_checksum(leaf)))
    for path, leaf in named.items()
  }


@jax.jit
def _checksum(leaf: jax.Array) -> jax.Array:
  """Returns the sum, modulo 2^32, of all hashed (word, position) pairs."""
  unsigned = jnp.dtype(f'uint{8 * leaf.dtype.itemsize}')
  words = jax.lax.bitcast_convert_type(leaf, unsigned).astype(jnp.uint32)
  place, stride = jnp.uint32(0), 1
  for axis in reversed(range(leaf.ndim)):
    index = jax.lax.broadcasted_iota(jnp.uint32, leaf.shape, axis)
    place = place + index * np.uint32(stride % 2**32)
    stride *= leaf.shape[axis]
  # A bijection at each position, so one change always shows; mixed twice, lest
  # equal flips in two words cancel. Factors: golden ratio, MurmurHash3.
  words ^= place * np.uint32(0x9E3779B9)
  for factor in (0x85EBCA6B, 0xC2B2AE35):
    words = (words ^ (words >> 16)) * np.uint32(factor)
  return words.sum(dtype=jnp.uint32)


def num_bytes(shapes: Any) -> int:
  """Returns the bytes of a sharded abstract tree on one device."""
  total = 0
  for leaf in jax.tree.leaves(shapes):
    shape = leaf.sharding.shard_shape(leaf.shape)
    total += int(np.prod(shape, dtype=np.int64)) * leaf.dtype.itemsize
  return total
