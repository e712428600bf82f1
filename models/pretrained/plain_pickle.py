"""Pickles of plain weights, read without running anything.

A pickle is a program that can call any function. Instructions, names and
arguments that `torch.save` does not write for plain arrays are refused.
"""

import pickle
import pickletools
from typing import Any, BinaryIO, NamedTuple

import jax.numpy as jnp
import numpy as np

MAX_BYTES = 1 << 21  # GPT-2 XL's pickle has 90 KB; in memory 100 times as much
MAX_AXES = 64  # NumPy's limit
DTYPES = {
  'DoubleStorage': 'float64',
  'FloatStorage': 'float32',
  'HalfStorage': 'float16',
  'BFloat16Storage': 'bfloat16',
  'LongStorage': 'int64',
  'IntStorage': 'int32',
  'ShortStorage': 'int16',
  'CharStorage': 'int8',
  'ByteStorage': 'uint8',
  'BoolStorage': 'bool',
}


class Refused(Exception):
  """A pickle would do something that plain weights do not need."""


class Storage(NamedTuple):
  """A row of numbers in the file."""

  key: str
  dtype: np.dtype
  size: int


class Tensor(NamedTuple):
  """The description of an array; strides and offset count numbers."""

  storage: Storage
  offset: int
  shape: tuple[int, ...]
  strides: tuple[int, ...]


def _is_size(value: Any) -> bool:
  return type(value) is int and value >= 0


def _rebuild_tensor(
  storage: Storage, offset: int, shape: tuple, strides: tuple, *_: Any
) -> Tensor:
  # No values in messages: nested tuples of a few bytes can print without end.
  if not (
    type(storage) is Storage
    and type(shape) is type(strides) is tuple
    and len(shape) == len(strides)
  ):
    raise ValueError('a tensor without numbers, shape and strides')
  if len(shape) > MAX_AXES:
    raise ValueError(f'a tensor of {len(shape):,} axes')
  if not all(map(_is_size, (offset, *shape, *strides))):
    raise ValueError('a tensor whose offset, shape and strides are no sizes')
  last = sum((n - 1) * k for n, k in zip(shape, strides, strict=True))
  if 0 not in shape and offset + last >= storage.size:
    raise ValueError(
      f'a tensor that goes beyond the end of its {storage.size:,} numbers'
    )
  strides = tuple(  # strides of axes of one number are never used
    k if n > 1 else 0 for n, k in zip(shape, strides, strict=True)
  )
  return Tensor(storage, offset, shape, strides)


def _ordered_dict(pairs: list | None = None) -> dict:
  """Returns the dict of pairs, an argument that only Python 2 wrote."""
  if pairs is None:
    return {}
  if type(pairs) is not list:
    raise ValueError('an OrderedDict of no list of pairs')
  # Emptied: a list used over and over would take quadratic time.
  taken = pairs[:]
  pairs.clear()
  for name, _ in taken:
    _check_name(name)
  return dict(taken)


ADMITTED = {  # names that a pickle may use -> our function or dtype
  'collections.OrderedDict': _ordered_dict,
  'torch._utils._rebuild_tensor_v2': _rebuild_tensor,
  'torch._utils._rebuild_parameter': lambda data, *_: data,
} | {f'torch.{name}': jnp.dtype(dtype) for name, dtype in DTYPES.items()}
MAX_ARGUMENTS = 8  # `_rebuild_tensor_v2` has 7 at most

# Instructions of plain weights, by Python 2 and 3, in any pickle protocol.
INSTRUCTIONS = (
  'PROTO',
  'FRAME',
  'STOP',
  'MARK',
  'NONE',
  'NEWTRUE',
  'NEWFALSE',
  'BININT',
  'BININT1',
  'BININT2',
  'LONG1',
  'BINFLOAT',
  'BINUNICODE',
  'SHORT_BINUNICODE',
  'BINSTRING',
  'SHORT_BINSTRING',
  'EMPTY_TUPLE',
  'TUPLE',
  'TUPLE1',
  'TUPLE2',
  'TUPLE3',
  'EMPTY_LIST',
  'APPEND',
  'APPENDS',
  'EMPTY_DICT',
  'SETITEM',
  'SETITEMS',
  'BINPUT',
  'LONG_BINPUT',
  'MEMOIZE',
  'BINGET',
  'LONG_BINGET',
  'GLOBAL',
  'STACK_GLOBAL',
  'REDUCE',
  'BUILD',
  'BINPERSID',
)


class _Dispatch(dict):
  """Byte of an admitted instruction -> method."""

  def __missing__(self, byte: int) -> Any:
    known = pickletools.code2op.get(chr(byte))
    raise ValueError(
      f'{known.name if known else byte} is no instruction of plain weights'
    )


class Unpickler(pickle._Unpickler):
  """Reads pickles of plain values and the names of `ADMITTED`."""

  # Based on the reader in Python: the one in C allocates any amount of memory.
  dispatch = _Dispatch()

  def __init__(self, data: BinaryIO):
    super().__init__(_Bounded(data))
    self.storages: dict[str, Storage] = {}

  def find_class(self, module: str, name: str) -> Any:
    """Returns our function or dtype for an admitted name."""
    if f'{module}.{name}' not in ADMITTED:
      raise Refused(f'run {module}.{name}'[:80])
    return ADMITTED[f'{module}.{name}']

  def persistent_load(self, pid: Any) -> Storage:
    """Returns the storage of ('storage', class, key, device, size, view)."""
    if type(pid) is not tuple or not 5 <= len(pid) <= 6 or pid[0] != 'storage':
      raise ValueError('a reference that is none to a storage')
    _, dtype, key, _, size, *view = pid
    if any(part is not None for part in view):
      raise Refused('need a storage that is part of another')
    if not isinstance(dtype, np.dtype):
      raise ValueError('text or tuple as the dtype of a storage')
    if type(key) is not str or not _is_size(size):
      raise ValueError('no key or no size of a storage')
    storage = self.storages.setdefault(key, Storage(key, dtype, size))
    if storage != (key, dtype, size):
      raise ValueError(f'storage {key[:80]} as rows of two kinds')
    return storage

  def load_long_binput(self) -> None:
    """Memorises a value; Python 3 counts the places from 0, 2 from 1."""
    place = int.from_bytes(self.read(4), 'little')
    if place > len(self.memo) + 1:
      raise ValueError(f'place {place:,} of a memo of {len(self.memo):,}')
    self.memo[place] = self.stack[-1]

  def load_setitem(self) -> None:
    """Sets a value of a dict."""
    _check_name(self.stack[-2])
    super().load_setitem()

  def load_setitems(self) -> None:
    """Sets values of a dict."""
    for name in self.stack[::2]:
      _check_name(name)
    super().load_setitems()

  def load_reduce(self) -> None:
    """Calls an admitted function."""
    if type(self.stack[-1]) is not tuple or len(self.stack[-1]) > MAX_ARGUMENTS:
      raise ValueError('a call with no tuple of a few arguments')
    super().load_reduce()

  def load_build(self) -> None:
    """Drops `_metadata`, the versions of modules, from a state dict."""
    self.stack.pop()
    if type(self.stack[-1]) is not dict:
      kind = type(self.stack[-1]).__name__
      raise Refused(f'change an attribute of a {kind}')


for _opcode in pickletools.opcodes:
  if _opcode.name in INSTRUCTIONS:
    _byte = ord(_opcode.code)
    _method = pickle._Unpickler.dispatch[_byte].__name__
    Unpickler.dispatch[_byte] = getattr(Unpickler, _method)


class _Bounded:
  """The next `MAX_BYTES` of a file; reading beyond their end is an error."""

  def __init__(self, data: BinaryIO):
    self._data = data
    self._left = MAX_BYTES

  def read(self, size: int) -> bytes:
    if size > self._left:
      raise ValueError(
        f'a pickle that is cut off or beyond {MAX_BYTES:,} bytes'
      )
    return self._take(self._data.read(size), size)

  def readline(self) -> bytes:
    return self._take(self._data.readline(self._left), 1)

  def _take(self, found: bytes, size: int) -> bytes:
    if len(found) < size:
      raise ValueError('a pickle that is cut off')
    self._left -= len(found)
    return found


def _check_name(name: Any) -> None:
  """Checks that a key of a dict is cheap to hash and to compare."""
  if type(name) is str or (type(name) is int and -(2**31) <= name < 2**31):
    return
  kind = 'number beyond 32 bits' if type(name) is int else type(name).__name__
  raise ValueError(f'a {kind} as a name')
