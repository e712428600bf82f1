"""The memory that the compiled steps of a run need, and the memory left."""

import pathlib
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
import psutil
from jax.sharding import Mesh, NamedSharding

from train.engine import sharding, state
from train.host import console, huge_pages

GIB = 2**30
# Resident, measured with TensorFlow 2.21: it is imported with the first batch.
TENSORFLOW_BYTES = 0.55e9
# The libraries' threads and buffers, by the peaks of results/README.md's runs.
RUNTIME_BYTES = 0.35e9

SMALLER_STEP = (
  'Pass --config.train.micro_batches={} or more, or a smaller'
  ' train.global_batch'
)
SMALLER_EVALUATION = 'Pass a smaller --config.eval.global_batch'


class CompiledProgram(NamedTuple):
  """The memory of a compiled step.

  Attributes:
    label: the step, for messages.
    temporary: bytes on a device while it runs, without arguments; 0 if unknown.
    kept: bytes of the process that the compiled program itself takes.
    remedy: the keys that make it smaller, for messages.
  """

  label: str
  temporary: int
  kept: int
  remedy: str


class Plan(NamedTuple):
  """The memory that a run needs.

  Attributes:
    shapes: the sharded state's.
    programs: the largest compiled steps of the run.
    num_devices: of this process.
    host: whether the devices use the process's own memory (CPUs).
    later: bytes still to come: smaller programs, data libraries, threads.
  """

  shapes: state.TrainState
  programs: Sequence[CompiledProgram]
  num_devices: int
  host: bool
  later: float

  @property
  def largest(self) -> CompiledProgram:
    """The program with the most temporary bytes."""
    return max(self.programs, key=lambda program: program.temporary)

  @property
  def state_bytes(self) -> int:
    """Bytes of the state on one device."""
    return state.num_bytes(self.shapes)

  @property
  def device_bytes(self) -> int:
    """Bytes of one device at the peak."""
    return self.state_bytes + self.largest.temporary

  @property
  def slack(self) -> float:
    """Bytes that the heap may keep free between programs, see `huge_pages`."""
    return self.num_devices * self.largest.temporary / 4

  @property
  def coming_bytes(self) -> float:
    """Bytes that the process will still take, on a CPU."""
    return self.num_devices * self.device_bytes + self.slack + self.later


def compile_program(
  label: str, remedy: str, lowered: jax.stages.Lowered, before: int
) -> CompiledProgram:
  """Compiles a lowered step (JAX reuses it later) and reads its memory.

  `before` are the process's resident bytes before the step was lowered. Raises
  ValueError if the compiler finds that the step does not fit a device.
  """
  try:
    found = lowered.compile().memory_analysis()
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    raise ValueError(
      f'the {label} does not fit a device: {str(error).splitlines()[0]}.'
      f' {remedy}'
    ) from error
  temporary = 0
  if found is not None:  # some compilers do not tell
    outputs = found.output_size_in_bytes - found.alias_size_in_bytes
    temporary = found.temp_size_in_bytes + outputs
  return CompiledProgram(
    label,
    temporary=temporary,
    kept=max(0, huge_pages.resident_bytes() - before),
    remedy=remedy,
  )


def batch_shapes(
  shapes: Mapping[str, jax.ShapeDtypeStruct | np.ndarray], mesh: Mesh
) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns a global batch's shapes and dtypes, with shardings on the mesh."""
  place = NamedSharding(mesh, sharding.BATCH)
  return {
    name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)
    for name, leaf in shapes.items()
  }


def plan(
  shapes: state.TrainState,
  programs: Sequence[CompiledProgram],
  mesh: Mesh,
  *,
  loader: str,
  num_later: int = 0,
) -> Plan:
  """Returns the memory that a run with the largest steps `programs` needs.

  `loader` is `data.loader`; `num_later` smaller steps are compiled later.
  """
  local = [
    device
    for device in mesh.devices.flat
    if device.process_index == jax.process_index()
  ]
  later = RUNTIME_BYTES
  later += num_later * statistics.mean(program.kept for program in programs)
  if loader == 'tf' and 'tensorflow' not in sys.modules:
    later += TENSORFLOW_BYTES
  return Plan(
    shapes=shapes,
    programs=programs,
    num_devices=len(local),
    host=mesh.devices.flat[0].platform == 'cpu',
    later=later,
  )


def check_memory(found: Plan) -> None:
  """Checks that the machine has the memory for a run, else ValueError."""
  there = available_bytes() if found.host else device_limit()
  needed = found.coming_bytes if found.host else found.device_bytes
  if there is None or needed <= there:
    return
  whose = 'this machine has left' if found.host else 'a device has'
  raise ValueError(
    f'the run needs {gib(needed)} of memory, {whose} {gib(there)}: parameters'
    f' and optimiser {gib(found.state_bytes)}, {found.largest.label}'
    f' {gib(found.largest.temporary)}. {found.largest.remedy}'
  )


def device_limit() -> int | None:
  """Returns the bytes of a device that JAX may use; None if unknown."""
  found = jax.local_devices()[0].memory_stats() or {}
  return found.get('bytes_limit')


def available_bytes() -> int:
  """Returns bytes left in memory and swap, in the limits of control groups."""
  machine = psutil.virtual_memory().available + psutil.swap_memory().free
  return int(min([machine, *_group_limits()]))


def _group_limits(
  entries: str = '/proc/self/cgroup', root: str = '/sys/fs/cgroup'
) -> Iterable[int]:
  """Yields the free bytes of each control group of the process."""
  try:
    lines = pathlib.Path(entries).read_text().splitlines()
  except OSError:  # not Linux
    return
  for line in lines:
    if line.startswith('0::/'):  # control groups, version 2
      name = line.removeprefix('0::/')
      for group in (name, *map(str, pathlib.PurePath(name).parents)):
        try:
          yield _group_left(pathlib.Path(root, group))
        except (OSError, ValueError):  # no limit, as at the root
          continue


def _group_left(folder: pathlib.Path) -> int:
  """Returns the bytes that a control group can still give."""
  limit = int((folder / 'memory.max').read_text())
  used = int((folder / 'memory.current').read_text())
  lines = (folder / 'memory.stat').read_text().splitlines()
  figures = dict(line.split() for line in lines)
  cached = int(figures['active_file']) + int(figures['inactive_file'])
  return max(0, limit - used + cached)


def print_plan(found: Plan) -> None:
  """Prints the memory that a run needs, and the memory left."""
  rows = [('parameters, optimiser', gib(found.state_bytes))]
  rows += [(p.label, gib(p.temporary)) for p in found.programs]
  if not found.host:
    rows.append(('in all', in_all(found)))
    console.table(rows, 'Memory of one device, by the compiled steps')
    return
  process = psutil.Process().memory_info().rss
  rows += [
    ('the program and its data', gib(process + found.later)),
    ('between the steps', gib(found.slack)),
    ('in all', in_all(found)),
  ]
  each = '' if found.num_devices == 1 else f', {found.num_devices} devices'
  console.table(rows, f'Memory of this process, by the compiled steps{each}')


def in_all(found: Plan) -> str:
  """Returns the memory of a run and its limit, of a device or the process."""
  if found.host:
    process = psutil.Process().memory_info().rss
    limit = process + available_bytes()
    return f'{gib(process + found.coming_bytes)} of {gib(limit)}'
  limit = device_limit()
  of = '' if limit is None else f' of {gib(limit)}'
  return gib(found.device_bytes) + of


def gib(num_bytes: float | None) -> str:
  """Returns bytes as text, in MiB or GiB."""
  if num_bytes is None:
    return 'unknown'
  small = num_bytes < GIB
  return (
    f'{num_bytes / 2**20:.1f} MiB' if small else f'{num_bytes / GIB:.2f} GiB'
  )
