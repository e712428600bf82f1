"""Reads the text of a compiled program: its loops and its collectives."""

import collections
import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

KINDS = (
  'all-reduce',
  'all-gather',
  'reduce-scatter',
  'all-to-all',
  'collective-permute',
)
_SHAPE = re.compile(r'([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]')
_OPERATION = re.compile(
  rf'= (?P<type>.+?) (?P<kind>{"|".join(KINDS)})(?P<start>-start)?\('
)
_CALLED = re.compile(
  r'(calls|to_apply|body|condition|branch_computations|called_computations)='
  r'\{?((?:%[\w.\-]+(?:, )?)+)\}?'
)


class Collective(NamedTuple):
  """One collective operation of a step.

  Attributes:
    kind: one of KINDS.
    shapes: (type, dimensions) of each result on a device.
    group: number of devices that take part.
    times: how often a step runs it, loops included.
    name: name of the operation in the Python code.
  """

  kind: str
  shapes: tuple[tuple[str, tuple[int, ...]], ...]
  group: int
  times: int
  name: str

  @property
  def bytes(self) -> int:
    """Bytes of the results on a device, over a whole step."""
    return self.times * sum(
      math.prod(dimensions) * _item_bytes(kind)
      for kind, dimensions in self.shapes
    )

  @property
  def sent_bytes(self) -> float:
    """Fewest bytes that a device must send, over a whole step."""
    others = (self.group - 1) / self.group
    factor = {
      'all-reduce': 2 * others,
      'all-gather': others,
      'reduce-scatter': self.group - 1,  # its result is a part
      'all-to-all': others,
      'collective-permute': 1,
    }[self.kind]
    return factor * self.bytes


def collectives(text: str, num_devices: int) -> list[Collective]:
  """Returns the collectives of a program printed by `compiled.as_text()`.

  An operation in several fusions counts once; in a loop, once a repetition.
  """
  lines_of, entry = computations(text)
  found: dict[str, Collective] = {}

  def visit(name: str, times: int | None, loop: str) -> None:
    for line in lines_of.get(name, ()):
      operation = _OPERATION.search(line)
      if operation:
        if times is None:
          raise ValueError(f'loop {loop}: no number of repetitions is found')
        channel = re.search(r'channel_id=(\d+)', line)
        found[channel[1] if channel else line] = _collective(
          operation, line, times, num_devices
        )
      for role, names in _CALLED.findall(line):
        for called in re.findall(r'%([\w.\-]+)', names):
          inner, inner_loop = times, loop
          if role == 'body':
            inner_loop = called
            repeated = trips(line, lines_of)
            inner = None if None in (times, repeated) else times * repeated
          visit(called, inner, inner_loop)

  visit(entry, 1, '')
  return list(found.values())


def total_bytes(some: Iterable[Collective]) -> dict[str, int]:
  """Returns the bytes of all results by kind."""
  totals = collections.Counter()
  for collective in some:
    totals[collective.kind] += collective.bytes
  return dict(totals)


def computations(text: str) -> tuple[dict[str, list[str]], str]:
  """Returns the operations of each computation, and the name of the entry.

  Each operation is one line; the text breaks the lines of kernels.
  """
  lines_of: dict[str, list[str]] = {}
  entry = name = ''
  for line in text.splitlines():
    if head := re.match(r'(ENTRY )?%([\w.\-]+) \(.*\{$', line):
      name = head[2]
      lines_of[name] = []
      entry = name if head[1] else entry
    elif line == '}':
      name = ''
    elif name and re.match(r' +(ROOT )?%', line):
      lines_of[name].append(line)
    elif name and lines_of[name]:
      lines_of[name][-1] += line
  return lines_of, entry


def num_bytes(kind: str) -> int:
  """Returns the bytes of all arrays in the text of a type."""
  return sum(
    math.prod(map(int, filter(None, dimensions.split(',')))) * _item_bytes(name)
    for name, dimensions in _SHAPE.findall(kind)
  )


def trips(line: str, lines_of: Mapping[str, list[str]]) -> int | None:
  """Returns how often a `while` runs: the constant that it counts up to.

  None if it counts up to a number that depends on the data.
  """
  known = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
  if known:
    return int(known[1])
  condition = re.search(r'condition=%([\w.\-]+)', line)[1]
  constants = [
    int(value)
    for inner in lines_of[condition]
    for value in re.findall(r'[su]32\[\]\S* constant\((\d+)\)', inner)
  ]
  return constants[0] if len(constants) == 1 else None


def has_collective(computation: list[str]) -> bool:
  """Returns whether a computation sends anything to other devices."""
  return any(_OPERATION.search(line) for line in computation)


def _collective(
  operation: re.Match, line: str, times: int, num_devices: int
) -> Collective:
  kind, name = operation['kind'], re.search(r'op_name="([^"]*)"', line)
  shapes = [
    (name, tuple(map(int, filter(None, dimensions.split(',')))))
    for name, dimensions in _SHAPE.findall(operation['type'])
  ]
  if operation['start'] and kind == 'collective-permute':
    shapes = shapes[1:2]  # operand, result, two counters
  elif operation['start'] and kind == 'all-gather':
    shapes = shapes[len(shapes) // 2 :]  # operands, results
  group, name = _group(line, num_devices), name[1] if name else ''
  return Collective(kind, tuple(shapes), group, times, name)


def _group(line: str, num_devices: int) -> int:
  """Returns how many devices each group has, from any of HLO's notations."""
  sizes = re.search(r'replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}', line)
  if sizes:
    axes = dict(re.findall(r"'(\w+)'=(\d+)", sizes[1]))
    return math.prod(int(axes[a]) for a in re.findall(r"'(\w+)'", sizes[2]))
  iota = re.search(r'replica_groups=\[\d+,(\d+)\]', line)
  if iota:
    return int(iota[1])
  first = re.search(r'replica_groups=\{\{([\d,]+)\}', line)
  return len(first[1].split(',')) if first else num_devices


def _item_bytes(kind: str) -> int:
  return 1 if kind == 'pred' else max(1, int(re.search(r'\d+', kind)[0]) // 8)
