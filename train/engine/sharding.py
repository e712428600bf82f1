"""The mesh, and the sharding of every array of a run."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import ml_collections
import numpy as np
from flax import linen as nn
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from models.layers import Params

AXES = ('data', 'fsdp', 'tensor')
BATCH = PartitionSpec(('data', 'fsdp'))

# A mesh axis that a dimension is split over, several of them, or none.
MeshAxes = str | Sequence[str] | None
Rules = Sequence[tuple[str, MeshAxes]]  # (logical axis, its mesh axes)


def make_mesh(
  mesh_config: ml_collections.ConfigDict,
  devices: Sequence[jax.Device] | None = None,
) -> Mesh:
  """Returns a mesh with the axes data, fsdp and tensor.

  One of the sizes may be -1: all devices that are left.
  """
  devices = jax.devices() if devices is None else devices
  sizes = [getattr(mesh_config, axis) for axis in AXES]
  asked = ', '.join(
    f'mesh.{axis}={getattr(mesh_config, axis)}' for axis in AXES
  )
  if any(size != -1 and size < 1 for size in sizes) or sizes.count(-1) > 1:
    raise ValueError(f'{asked}: sizes are positive, and at most one is -1')
  if -1 in sizes:
    sizes[sizes.index(-1)] = len(devices) // -math.prod(sizes)
  if math.prod(sizes) != len(devices):
    raise ValueError(
      f'{asked} does not multiply to the {len(devices)} devices here;'
      ' set one of them to -1 to take what is left'
    )
  return jax.make_mesh(
    tuple(sizes),
    AXES,
    axis_types=(AxisType.Auto,) * len(AXES),
    devices=devices,
  )


@contextlib.contextmanager
def scope(mesh: Mesh, rules: Rules) -> Iterator[None]:
  """Traces on `mesh` with these rules; constraints are ignored elsewhere."""
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    yield


@contextlib.contextmanager
def alone(device: jax.Device | None = None) -> Iterator[Mesh]:
  """Runs the block on a device, else this process's first; nothing sharded."""
  mesh = jax.make_mesh(
    (1,) * len(AXES),
    AXES,
    axis_types=(AxisType.Auto,) * len(AXES),
    devices=jax.local_devices()[:1] if device is None else [device],
  )
  with scope(mesh, ()):
    yield mesh


def parameter_shardings(
  abstract_params: Params, mesh: Mesh, rules: Rules
) -> Mapping[str, Any]:
  """Returns a tree like the parameters', of NamedShardings.

  `abstract_params` is a tree of boxed ShapeDtypeStructs, as `eval_shape` of
  `init` returns it; `rules` map a logical axis to a mesh axis, axes or None.
  Raises ValueError for an axis without rule or an indivisible dimension.
  """
  rules = dict(rules) | {None: None}

  def place(
    path: jax.tree_util.KeyPath, leaf: nn.LogicallyPartitioned
  ) -> NamedSharding:
    where = jax.tree_util.keystr(path, simple=True, separator='/')
    if not isinstance(leaf, nn.LogicallyPartitioned):
      raise ValueError(f'parameter {where} has no logical axis names')
    unknown = [name for name in leaf.names if name not in rules]
    if unknown or len(leaf.names) != len(leaf.value.shape):
      raise ValueError(
        f'parameter {where} of shape {leaf.value.shape} has the logical axes'
        f' {leaf.names}; mesh.rules has no rule for {unknown}'
      )
    spec = PartitionSpec(*(rules[name] for name in leaf.names))
    check_divisible(where, leaf.value.shape, spec, mesh.shape)
    return NamedSharding(mesh, spec)

  return jax.tree_util.tree_map_with_path(
    place,
    abstract_params,
    is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned),
  )


def axis_names(abstract_params: Params) -> dict[str, tuple[str, ...]]:
  """Returns 'path/of/parameter' -> the logical names of its axes."""
  leaves = jax.tree_util.tree_leaves_with_path(
    abstract_params,
    is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned),
  )
  return {
    jax.tree_util.keystr(path, simple=True, separator='/'): leaf.names
    for path, leaf in leaves
  }


def check_divisible(
  what: str,
  shape: Sequence[int],
  spec: PartitionSpec,
  mesh_shape: Mapping[str, int],
) -> None:
  """Checks that mesh axes divide the dimensions they split, else ValueError."""
  for dimension, (size, axes) in enumerate(zip(shape, spec, strict=True)):
    if axes is None:
      continue
    axes = (axes,) if isinstance(axes, str) else axes
    parts = math.prod(mesh_shape[axis] for axis in axes)
    if size % parts:
      named = ' x '.join(f'mesh.{axis}={mesh_shape[axis]}' for axis in axes)
      sizes = [n for n in range(1, size + 1) if size % n == 0]
      raise ValueError(
        f'{what}: dimension {dimension} of shape {tuple(shape)} does not'
        f' divide by {named}; sizes that would work:'
        f' {", ".join(map(str, sizes))}'
      )


def batch_parts(mesh: Mesh) -> int:
  """Returns the number of parts into which a mesh splits a batch."""
  return mesh.shape['data'] * mesh.shape['fsdp']


def local_rows(mesh: Mesh, global_batch: int) -> np.ndarray:
  """Returns the rows of a global batch that this process feeds, ascending.

  Processes that share a row, as along the tensor axis, all feed it.
  """
  places = NamedSharding(mesh, BATCH).addressable_devices_indices_map(
    (global_batch,)
  )
  spans = {rows.indices(global_batch) for (rows,) in places.values()}
  return np.concatenate([np.arange(*span) for span in sorted(spans)])


def put_batch(batch: Mapping[str, np.ndarray], mesh: Mesh) -> dict:
  """Puts this process's rows of a host batch on the mesh, as global arrays."""
  sharding = NamedSharding(mesh, BATCH)
  return {
    name: jax.make_array_from_process_local_data(sharding, array)
    for name, array in batch.items()
  }
