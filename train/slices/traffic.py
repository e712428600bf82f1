"""What a program compiled for a GPU moves through memory, kernel by kernel.

A kernel reads its operands from memory and writes its results there, but for
what the cache still holds: so the bytes are nearly a lower bound of the
traffic. Where a kernel reads or writes a slice of an array, the slice counts.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from train.slices import hlo

# Operations that move nothing, or whose computations are looked into.
_FREE = frozenset(
  'after-all bitcast call conditional constant get-tuple-element opt-barrier'
  ' parameter partition-id replica-id tuple while iota'.split()
)
_LINE = re.compile(r'\s*(ROOT )?%([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)')
_USED = re.compile(r'%([\w.\-]+)')


class Traffic(NamedTuple):
  """What a step does on one device.

  Attributes:
    bytes: read from memory and written to it.
    kernels: how many are started.
  """

  bytes: int = 0
  kernels: int = 0

  def __add__(self, other: 'Traffic') -> 'Traffic':
    return Traffic(self.bytes + other.bytes, self.kernels + other.kernels)

  def repeated(self, times: int) -> 'Traffic':
    """Returns the traffic of so many runs."""
    return Traffic(self.bytes * times, self.kernels * times)


class Instruction(NamedTuple):
  """A line of a computation.

  Attributes:
    name: of its result.
    kind: the type of its result, as text.
    opcode: for example fusion.
    operands: names.
    line: the whole.
    is_root: whether the computation returns it.
  """

  name: str
  kind: str
  opcode: str
  operands: tuple[str, ...]
  line: str
  is_root: bool


def measure(text: str) -> Traffic:
  """Returns the traffic of a program printed by `compiled.as_text()`.

  Operations of a loop count as often as it runs, once where that depends on the
  data; of a conditional all branches count.
  """
  lines_of, entry = hlo.computations(text)

  def visit(name: str) -> Traffic:
    operations = _operations(lines_of[name])
    sizes = {each.name: hlo.num_bytes(each.kind) for each in operations}
    total = Traffic()
    for each in operations:
      called = _called(each.line)
      if each.opcode == 'while':
        times = hlo.trips(each.line, lines_of) or 1
        total += visit(called['body'][0]).repeated(times)
      elif each.opcode in ('call', 'conditional', 'async-start'):
        for computation in sum(called.values(), []):
          total += visit(computation)
      elif each.opcode not in _FREE and not each.opcode.endswith('-done'):
        total += Traffic(_moved(each, sizes, called, lines_of), 1)
    return total

  return visit(entry)


def _operations(lines: list[str]) -> list[Instruction]:
  found = []
  for line in lines:
    if match := _LINE.match(line):
      root, name, kind, opcode, rest = match.groups()
      operands = tuple(_USED.findall(rest.split('), ')[0]))
      found.append(Instruction(name, kind, opcode, operands, line, bool(root)))
  return found


def _called(line: str) -> dict[str, list[str]]:
  """Returns the computations that an operation calls, by their role."""
  roles = r'(calls|to_apply|body|branch_computations|\w+_computation)='
  return {
    role: _USED.findall(names)
    for role, names in re.findall(
      roles + r'\{?((?:%[\w.\-]+(?:, )?)+)\}?', line
    )
  }


def _moved(
  operation: Instruction,
  sizes: Mapping[str, int],
  called: Mapping[str, list[str]],
  lines_of: Mapping[str, list[str]],
) -> int:
  """Returns the bytes that a kernel reads and writes."""
  if operation.opcode == 'fusion':
    return _moved_inside(_operations(lines_of[called['calls'][0]]))
  if operation.opcode == 'dynamic-update-slice':
    return 2 * sizes.get(operation.operands[1], 0)
  written = hlo.num_bytes(operation.kind)
  if operation.opcode in ('dynamic-slice', 'slice', 'gather'):
    return 2 * written
  # An array that is passed several times is read in parts.
  return written + sum(sizes.get(name, 0) for name in {*operation.operands})


def _moved_inside(operations: list[Instruction]) -> int:
  """Returns the bytes that a fused computation reads and writes."""
  by_name = {each.name: each for each in operations}
  users: dict[str, list[Instruction]] = {}
  for each in operations:
    for name in each.operands:
      users.setdefault(name, []).append(each)

  def read(name: str) -> int:
    """Returns what is read of an array: all, or slices of it."""
    total, whole = 0, hlo.num_bytes(by_name[name].kind)
    for user in users.get(name, ()):
      first = user.operands[0] == name
      if first and user.opcode in ('dynamic-slice', 'slice', 'gather'):
        total += hlo.num_bytes(user.kind)
      elif first and user.opcode == 'bitcast':
        total += read(user.name)
      elif not (first and user.opcode == 'dynamic-update-slice'):
        return whole
    return min(total, whole)

  def written(name: str) -> int:
    """Returns what is written of a result: all, or an updated slice."""
    each = by_name[name]
    if each.opcode == 'tuple':
      return sum(map(written, each.operands))
    if each.opcode == 'bitcast':
      return written(each.operands[0])
    if each.opcode == 'dynamic-update-slice':
      return hlo.num_bytes(by_name[each.operands[1]].kind)
    return hlo.num_bytes(each.kind)

  parameters = [e.name for e in operations if e.opcode == 'parameter']
  (root,) = (each.name for each in operations if each.is_root)
  return sum(map(read, parameters)) + written(root)
