"""The TPU compiler's own estimate of where a step's time goes.

The text of a program compiled for a TPU carries, with each fused operation, the
cycles that the compiler's cost model expects of it. Their sum, the operations
of a loop as often as it runs, is the only clock for a TPU without one. It is no
measurement: time on the links, starting operations and waiting for memory that
is fetched in advance are not in it. But it is of one kind for every program.

A Pallas kernel brings its own estimate, the cycles of one call on one core:
`pl.pallas_call(..., metadata={'estimated_cycles': '1234'})`. A chip of v4 or
v5p shares its calls between two cores.
"""

import collections
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from train.slices import hlo

# Kinds of work, by the name of an operation in the Python code: the first that
# fits counts. A fusion around a matrix product has the product's name.
KINDS = {
  'dropout': r'[Dd]ropout|\.drop/',
  'projections': r'/attention/(qkv|out)[./]|/mlp[./]'
  r'|/attention/(dot_general|add|reduce_sum)$',
  # And cutting the layers' parameters out of their stack, where no loop does.
  'loop bookkeeping': r'dynamic_(update_)?(index_in_dim|slice)|/while$'
  r'|(jvp\(\w+\)+|/while/body)/([\w.]+/)?'
  r'(slice|squeeze|concatenate|broadcast_in_dim)$',
  'attention': r'/attention/',
  'norms': r'norm/',
  'embeddings': r'/embeddings/|_encode_once/',
  # Of a language model, and of a task model's BiLSTMs.
  'recurrence': r'/run_streams/|\.run_streams/|/body/\w+/layer_\d+/while/body/',
  'head': r'/(mlm|nsp|pooler)/|tokens\.attend|softmax\.|jvp\(\)'
  r'|take_along_axis',
  # The rest of a step outside of the loss and the drawing of examples.
  'optimiser': r'^(?!.*(jvp|vmap|row_keys)\W)(jit\(|state\.)',
}
REST = 'rest'
KERNEL = 'kernel'  # of Pallas

# In the name of a loop that ends with the data: how often it runs at most.
_AT_MOST = re.compile(r'/at_most_(\d+)_times/')

# Operations that take time, for which the compiler has no estimate.
_WITHOUT = ('fusion', 'gather', 'scatter', 'sort', 'reduce-window')
_USED = re.compile(r'%([\w.\-]+)')
# Names of computations follow; operations may have the same names.
_CALLS = re.compile(r', (?:calls|to_apply|condition|body|branch_\w+)=')


class NoEstimateError(ValueError):
  """A program, or a part of it, has no estimate; the message says which."""


class Operation(NamedTuple):
  """An operation of a step on one device.

  Attributes:
    name: its name in the Python code; without one the name of the operation
      that reads its result.
    label: its name in the compiled program, unnumbered; KERNEL of a kernel.
    cycles: the estimate of all its runs; None: the compiler has none.
    times: how often a step runs it.
  """

  name: str
  label: str
  cycles: int | None
  times: int

  @property
  def kind(self) -> str:
    """The kind of work: a key of KINDS, or REST."""
    fits = (kind for kind, name in KINDS.items() if re.search(name, self.name))
    return next(fits, REST)

  def repeated(self, trips: int) -> 'Operation':
    """Returns the operation in a loop of so many trips."""
    cycles = None if self.cycles is None else self.cycles * trips
    return self._replace(cycles=cycles, times=self.times * trips)


class Estimate(NamedTuple):
  """The compiler's estimate of a step on one device.

  Attributes:
    by_kind: cycles of each kind of work, the largest first.
    bounded: names of the loops that depend on the data, counted as often as
      they run at most.
    left_out: number of operations without an estimate, by name.
  """

  by_kind: dict[str, int]
  bounded: list[str]
  left_out: dict[str, int]

  @property
  def cycles(self) -> int:
    """Cycles of the step."""
    return sum(self.by_kind.values())


def estimate(text: str, num_cores: int = 1) -> Estimate:
  """Returns the estimate of a program printed by `compiled.as_text()`.

  The cores of a device share the calls of a kernel; the compiler's own figures
  are of all of them.

  Raises:
    NoEstimateError: if the program has no estimates, a kernel has none, or a
      loop's number of repetitions is not known.
  """
  operations, bounded = find_operations(text)
  by_kind, left_out = collections.Counter(), collections.Counter()
  for operation in operations:
    if operation.cycles is not None:
      shares = num_cores if operation.label == KERNEL else 1
      by_kind[operation.kind] += operation.cycles // shares
    elif operation.label == KERNEL:
      raise NoEstimateError(
        f'kernel {operation.name}: no estimate of its cycles; pass pallas_call'
        " metadata={'estimated_cycles': '...'}"
      )
    else:
      left_out[operation.label] += operation.times
  if not by_kind.total():
    raise NoEstimateError(
      "the compiled program has no 'estimated_cycles': this compiler estimates"
      ' nothing for this generation of TPU'
    )
  return Estimate(
    dict(by_kind.most_common()), bounded, dict(left_out.most_common())
  )


def find_operations(text: str) -> tuple[list[Operation], list[str]]:
  """Returns a step's operations, and the loops that depend on the data.

  A conditional counts its branch with the most cycles.
  """
  lines_of, entry = hlo.computations(text)
  bounded = []

  def visit(computation: str, outer: str) -> list[Operation]:
    """Returns the operations of a computation in the operation `outer`."""
    lines = lines_of[computation]
    users = _first_users(lines)
    found = []
    for line in lines:
      opcode = _opcode(line)
      name = _name(line, lines_of) or _name_of_user(line, users) or outer
      cycles = _cycles(line)
      if cycles is not None:
        found.append(Operation(name, _label(line), cycles, 1))
      elif opcode == 'while':
        trips = hlo.trips(line, lines_of)
        if trips is None:
          trips = _most_trips(name)
          bounded.append(name)
        body = re.search(r'body=%([\w.\-]+)', line)[1]
        found += [inner.repeated(trips) for inner in visit(body, name)]
      elif opcode in ('conditional', 'call'):
        branches = [visit(branch, name) for branch in _branches(line)]
        found += max(branches, key=_total)
      elif _takes_time(line, opcode, lines_of):
        found.append(Operation(name, _label(line), None, 1))
    return found

  return visit(entry, 'jit(step)/results'), bounded


def _opcode(line: str) -> str:
  found = re.search(r' = .*? ([a-z][\w\-]*)\(', line)
  return found[1] if found else ''


def _label(line: str) -> str:
  if 'custom_call_target="tpu_custom_call"' in line:
    return KERNEL
  return re.sub(
    r'(_custom)?(_fusion)?(\.\d+|\.clone)*$', '', _USED.search(line)[1]
  )


def _cycles(line: str) -> int | None:
  """Returns the estimate of one run; a kernel's stands in its metadata.

  Operations that take a kernel's results apart repeat its metadata.
  """
  where = 'kernel_metadata=' if _label(line) == KERNEL else 'backend_config='
  found = re.search(r'"estimated_cycles":\s*"(\d+)"', line.partition(where)[2])
  return int(found[1]) if found else None


def _called(line: str) -> str:
  """Returns the computation of a fusion; '' if it is none."""
  found = re.search(r' calls=%([\w.\-]+)', line)
  return found[1] if found else ''


def _name(line: str, lines_of: Mapping[str, list[str]]) -> str:
  """Returns the name in the Python code, '' if it is the compiler's own."""
  found = re.search(r'op_name="([^"]*)"', line)
  name = found[1] if found and re.search(r'[/\[]', found[1]) else ''
  if _opcode(line) == 'fusion':
    return _name_of_product(_called(line), lines_of) or name
  return name


def _name_of_product(
  computation: str, lines_of: Mapping[str, list[str]]
) -> str:
  """Returns the name of the matrix product in a fusion, '' without one."""
  for line in lines_of.get(computation, ()):
    name = ''
    if _opcode(line) in ('convolution', 'dot'):
      name = _name(line, lines_of)
    elif _opcode(line) == 'fusion':
      name = _name_of_product(_called(line), lines_of)
    if name:
      return name
  return ''


def _first_users(lines: Iterable[str]) -> dict[str, str]:
  """Returns the first operation that reads each operation's result."""
  users = {}
  for line in lines:
    _, *read = _USED.findall(_CALLS.split(line)[0])
    for operand in read:
      users.setdefault(operand, line)
  return users


def _name_of_user(line: str, users: Mapping[str, str]) -> str:
  """Returns the name of the first named operation that reads the result."""
  while following := users.get(_USED.search(line)[1]):
    line = following
    if name := _name(line, {}):
      return name
  return ''


def _most_trips(name: str) -> int:
  if most := _AT_MOST.search(name):
    return int(most[1])
  raise NoEstimateError(
    f'loop {name}: its number of repetitions depends on the data; trace it in'
    " jax.named_scope('at_most_N_times')"
  )


def _branches(line: str) -> list[str]:
  roles = r'(?:branch_computations=\{|(?:true|false)_computation=|to_apply=)'
  found = re.findall(rf'{roles}((?:%[\w.\-]+(?:, )?)+)', line)
  return _USED.findall(' '.join(found))


def _total(operations: Iterable[Operation]) -> int:
  return sum(operation.cycles or 0 for operation in operations)


def _takes_time(
  line: str, opcode: str, lines_of: Mapping[str, list[str]]
) -> bool:
  """Returns whether an operation takes time besides the time of the links."""
  computation = lines_of.get(_called(line), [])
  on_links = 'async-collective' in line or hlo.has_collective(computation)
  return _label(line) == KERNEL or (opcode in _WITHOUT and not on_links)
