"""Where parameters lie between two steps, and inside of a step.

Between steps, each device of the axis 'data' keeps a share of every large
parameter and of its optimiser's state, and updates only this share. A step
gathers the parameters once, the matrices of layers in the model's dtype, and
scatters the gradients (Rajbhandari et al. 2020, ZeRO).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models.layers import Params
from models.transformer import stack
from models.transformer.stack import Split
from train.engine import sharding
from train.engine.sharding import MeshAxes, Rules

LEAST_SIZE = 2**16  # elements of a parameter that is shared out
# Logical axes that are one axis of a matrix inside of a step, where none of
# them is sharded.
JOINED = ('qkv', 'heads', 'head')
# Never gathered whole: a step reads some of its rows.
BY_ROWS = 'words'


class Placement(NamedTuple):
  """Where a parameter lies between two steps, and inside of a step.

  Attributes:
    kept: its sharding between steps.
    shape: inside of a step.
    dtype: inside of a step.
    share: sharding of this shape, split as between steps.
    whole: sharding inside of a step.
    unrolled: layers that a step takes out of the stack, see `stack.Split`.
  """

  kept: NamedSharding
  shape: tuple[int, ...]
  dtype: jax.typing.DTypeLike
  share: NamedSharding
  whole: NamedSharding
  unrolled: int


Placements = Mapping[str, Any]  # a tree like the parameters', of Placement


def place(
  abstract_params: Params,
  mesh: Mesh,
  rules: Rules,
  model: nn.Module,
) -> Placements:
  """Returns the Placement of every parameter.

  Args:
    abstract_params: boxed, with logical axes, see `sharding`.
    mesh: of the run.
    rules: logical axis -> axis of the mesh.
    model: the module with the layers; its fields say their dtype inside of a
      step, and how many stand outside of the loop.
  """
  dtype = getattr(model, 'dtype', jnp.float32)
  unrolled = stack.count_unrolled(model)
  shardings = sharding.parameter_shardings(abstract_params, mesh, rules)

  def place_one(
    path: jax.tree_util.KeyPath,
    boxed: nn.LogicallyPartitioned,
    by_rules: NamedSharding,
  ) -> Placement:
    names, shape, spec = boxed.names, boxed.value.shape, tuple(by_rules.spec)
    groups = _group(names, spec, mesh)
    joined = tuple(math.prod(shape[i] for i in group) for group in groups)
    specs = tuple(spec[group[0]] for group in groups)
    split = specs
    where = jax.tree_util.keystr(path, simple=True, separator='/')
    stacked = names[:1] == ('layers',) and 'layers' in where.split('/')
    large = math.prod(shape) >= LEAST_SIZE
    if large and BY_ROWS not in names and mesh.shape['data'] > 1:
      alone = [len(group) == 1 for group in groups]
      if stacked and unrolled:
        alone[0] = False  # layers are taken out of every share
      split = _spread(joined, specs, alone, mesh)
    kept = list(spec)
    for group, axes in zip(groups, split, strict=True):
      if len(group) == 1:
        kept[group[0]] = axes
    cast = stacked and '_norm/' not in where
    if stacked and len(groups) == 2:
      # A row for each layer, so that a layer reads it where it lies.
      joined = (joined[0], 1, joined[1])
      split, specs = ((one[0], None, one[1]) for one in (split, specs))
    return Placement(
      kept=NamedSharding(mesh, PartitionSpec(*kept)),
      shape=joined,
      dtype=dtype if cast else boxed.value.dtype,
      share=NamedSharding(mesh, PartitionSpec(*split)),
      whole=NamedSharding(mesh, PartitionSpec(*specs)),
      unrolled=unrolled if stacked else 0,
    )

  return jax.tree_util.tree_map_with_path(
    place_one,
    abstract_params,
    shardings,
    is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned),
  )


def _group(
  names: Sequence[str], spec: Sequence[MeshAxes], mesh: Mesh
) -> list[list[int]]:
  """Returns the axes of a parameter, in groups that a step joins."""
  groups: list[list[int]] = []
  for i, name in enumerate(names):
    unsplit = all(_parts(spec[j], mesh) == 1 for j in (i, i - 1))
    if i and unsplit and {name, names[i - 1]} <= {*JOINED}:
      groups[-1].append(i)
    else:
      groups.append([i])
  return groups


def _parts(axes: MeshAxes, mesh: Mesh) -> int:
  axes = (axes,) if isinstance(axes, str) else axes or ()
  return math.prod(mesh.shape[axis] for axis in axes)


def _spread(
  shape: Sequence[int],
  spec: Sequence[MeshAxes],
  may: Sequence[bool],
  mesh: Mesh,
) -> tuple[MeshAxes, ...]:
  """Returns the spec with 'data' on the axis that it splits best, if any.

  Best is the share with the least padding to the tiles of a TPU, 8 x 128.
  """
  best = math.inf, tuple(spec)
  for i, axes in enumerate(spec):
    axes = (axes,) if isinstance(axes, str) else tuple(axes or ())
    split = (*spec[:i], (*axes, 'data'), *spec[i + 1 :])
    share = [n // _parts(a, mesh) for n, a in zip(shape, split, strict=True)]
    *outer, rows, columns = 1, *share
    size = math.prod(outer) * -(-rows // 8) * 8 * -(-columns // 128) * 128
    if may[i] and not shape[i] % _parts(split[i], mesh):
      best = min(best, (size, split), key=lambda pair: pair[0])
  return best[1]


def gather(params: Params, placements: Placements) -> Params:
  """Returns the parameters as a step reads them."""

  def one(leaf: jax.Array, place: Placement) -> jax.Array | Split:
    if not place.unrolled:
      return _gather(leaf, place.shape, place.dtype, place.share, place.whole)
    count, shape = len(leaf) - place.unrolled, place.shape[1:]
    share, whole = _of_layer(place.share), _of_layer(place.whole)
    loop = leaf[:count]
    return Split(
      _gather(loop, (count, *shape), place.dtype, place.share, place.whole),
      tuple(
        _gather(layer, shape, place.dtype, share, whole)
        for layer in leaf[count:]
      ),
    )

  return jax.tree.map(one, params, placements)


def _gather(
  leaf: jax.Array,
  shape: Sequence[int],
  dtype: jax.typing.DTypeLike,
  share: NamedSharding,
  whole: NamedSharding,
) -> jax.Array:
  return _constrain(_constrain(leaf.astype(dtype).reshape(shape), share), whole)


def scatter(
  gradients: Params, params: Params, placements: Placements
) -> Params:
  """Returns the gradients of `gather`'s result as those of `params`."""

  def one(
    leaf: jax.Array, place: Placement, gradient: jax.Array | Split
  ) -> jax.Array:
    if place.unrolled:
      of_layer = _of_layer(place.share)
      last = [_constrain(layer, of_layer)[None] for layer in gradient.last]
      loop = _constrain(gradient.loop, place.share)
      gradient = jnp.concatenate([loop, *last])
    share = _constrain(gradient, place.share)
    share = share.reshape(leaf.shape).astype(leaf.dtype)
    return _constrain(share, place.kept)

  return jax.tree.map(one, params, placements, gradients)


_constrain = jax.lax.with_sharding_constraint


def _of_layer(stacked: NamedSharding) -> NamedSharding:
  """Returns the sharding of one layer of a stack."""
  return NamedSharding(stacked.mesh, PartitionSpec(*stacked.spec[1:]))
