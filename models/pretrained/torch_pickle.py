"""PyTorch's files of weights, without PyTorch, and without running anything.

They are pickles, which can name any function of Python to be called. Those of
plain weights name five or so: here these have stand-ins, and any other name is
refused. `torch.save` writes a zip archive since 2020; before, one pickle after
the other and then the numbers.
"""

import collections
import pickle
import struct
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import jax.numpy as jnp
import numpy as np
from etils import epath

from models.pretrained.strict import Entry

# What an old file begins with, pickled (torch/serialization.py).
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
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


class _Storage(NamedTuple):
  """Numbers in a row, somewhere in the file."""

  key: str
  dtype: np.dtype
  size: int


class _Tensor(NamedTuple):
  """What a file tells of an array; strides and offset count numbers."""

  storage: _Storage
  offset: int
  shape: tuple[int, ...]
  strides: tuple[int, ...]


class _Refused(Exception):
  """A file names what plain weights do not need."""


def _rebuild_tensor(
  storage: _Storage, offset: int, shape: tuple, strides: tuple, *_: Any
) -> _Tensor:
  sizes = (offset, *shape, *strides)
  if not (
    isinstance(storage, _Storage)
    and len(shape) == len(strides)
    and all(type(size) is int and size >= 0 for size in sizes)
  ):
    raise ValueError(f'no shape and strides of an array: {sizes}')
  return _Tensor(storage, offset, tuple(shape), tuple(strides))


# All that a pickle may name -> what it gets. A storage's class is its dtype's
# name only: strings cannot be called or changed.
ADMITTED = {
  'collections.OrderedDict': collections.OrderedDict,
  'torch._utils._rebuild_tensor_v2': _rebuild_tensor,
  'torch._utils._rebuild_parameter': lambda data, *_: data,
} | {f'torch.{name}': dtype for name, dtype in DTYPES.items()}


class _Unpickler(pickle.Unpickler):
  """Reads what `ADMITTED` and plain values make up."""

  def find_class(self, module: str, name: str) -> Any:
    if f'{module}.{name}' not in ADMITTED:
      raise _Refused(f'{module}.{name}')
    return ADMITTED[f'{module}.{name}']

  def persistent_load(self, pid: Any) -> _Storage:
    kind, dtype, key, _, size, *view = pid
    if kind != 'storage' or any(part is not None for part in view):
      raise _Refused(f'a {kind} that is part of another')
    return _Storage(str(key), jnp.dtype(dtype), int(size))


def entries(file: epath.Path) -> dict[str, Entry]:
  """Returns name -> entry of a state dict that `torch.save` wrote.

  Args:
    file: local, a zip archive or of the older format.

  Raises:
    ValueError: if it is damaged, or holds more than names and arrays.
  """
  try:
    with file.open('rb') as data:
      if zipfile.is_zipfile(data):
        state, offsets = _read_archive(data)
      else:
        state, offsets = _read_old(data)
      return dict(_entries(file, state, offsets, data.seek(0, 2)))
  except _Refused as error:
    raise ValueError(
      f'{file} is no plain file of weights, and is not opened: it would run'
      f' {error}. If you trust it, open it with PyTorch and save its'
      ' state_dict() alone, best as model.safetensors'
    ) from error
  # A damaged pickle raises about anything.
  except (
    *(pickle.UnpicklingError, zipfile.BadZipFile, struct.error, EOFError),
    *(ValueError, TypeError, LookupError, AttributeError, OverflowError),
  ) as error:
    raise ValueError(
      f'{file} is damaged or no state dict of PyTorch, copy it again: {error}'
    ) from error


def _entries(
  file: epath.Path, state: Any, offsets: dict[str, int], end: int
) -> Iterator[tuple[str, Entry]]:
  """Yields names and entries of a state dict.

  Args:
    file: the file.
    state: what its pickle holds.
    offsets: key of a storage -> where its numbers begin.
    end: the file's length.

  Raises:
    ValueError: if the file does not hold them all.
  """
  if not isinstance(state, dict):
    raise ValueError(f'it holds a {type(state).__name__}, no names and arrays')
  others = [name for name in state if not isinstance(state[name], _Tensor)]
  if others:
    raise ValueError(
      f'{", ".join(map(str, others[:5]))} are no arrays: of a whole training,'
      ' save the state_dict() of the model alone'
    )
  for name, tensor in state.items():
    storage = tensor.storage
    start = offsets[storage.key]
    last = sum(
      (n - 1) * k for n, k in zip(tensor.shape, tensor.strides, strict=True)
    )
    if (
      0 not in tensor.shape and tensor.offset + last >= storage.size
    ) or start + storage.size * storage.dtype.itemsize > end:
      raise ValueError(f'{name} goes beyond its end')

    def read(tensor: _Tensor = tensor, start: int = start) -> np.ndarray:
      if 0 in tensor.shape:
        return np.zeros(tensor.shape, tensor.storage.dtype)
      numbers = np.memmap(
        file, tensor.storage.dtype, 'r', start, (tensor.storage.size,)
      )
      return np.lib.stride_tricks.as_strided(
        numbers[tensor.offset :],
        tensor.shape,
        [k * numbers.itemsize for k in tensor.strides],
        writeable=False,
      )

    yield name, Entry(tensor.shape, storage.dtype, read)


def _read_archive(data: BinaryIO) -> tuple[Any, dict[str, int]]:
  """Returns what a zip archive's pickle holds, and where its numbers begin."""
  with zipfile.ZipFile(data) as archive:
    infos = {info.filename: info for info in archive.infolist()}
    pickles = [name for name in infos if name.endswith('/data.pkl')]
    if len(pickles) != 1:
      raise ValueError(f'{len(pickles)} data.pkl in the archive, expected one')
    root = pickles[0].removesuffix('data.pkl')
    if f'{root}byteorder' in infos:
      _check_order(archive.read(f'{root}byteorder') == b'little')
    with archive.open(pickles[0]) as opened:
      state = _Unpickler(opened).load()
  offsets = {}
  for name, info in infos.items():
    if info.compress_type != zipfile.ZIP_STORED:
      raise ValueError(f'{name} is compressed, which torch.save never does')
    # The name and what follows stand between its header, 30 bytes, and it.
    data.seek(info.header_offset + 26)
    lengths = struct.unpack('<HH', data.read(4))
    begin = info.header_offset + 30 + sum(lengths)
    offsets[name.removeprefix(f'{root}data/')] = begin
  return state, offsets


def _read_old(data: BinaryIO) -> tuple[Any, dict[str, int]]:
  """Returns what the pickles of an old file hold, and where numbers begin."""
  data.seek(0)
  if [_Unpickler(data).load() for _ in range(2)] != [MAGIC, PROTOCOL]:
    raise ValueError('it begins as neither of the formats of torch.save does')
  _check_order(_Unpickler(data).load()['little_endian'])
  unpickler = _OldUnpickler(data)
  state = unpickler.load()
  offsets = {}
  for key in _Unpickler(data).load():
    (size,) = struct.unpack('<q', data.read(8))
    storage = unpickler.storages[str(key)]
    if size != storage.size:
      raise ValueError(f'a row of {size} numbers, expected {storage.size}')
    offsets[storage.key] = data.tell()
    data.seek(size * storage.dtype.itemsize, 1)
  return state, offsets


class _OldUnpickler(_Unpickler):
  """Remembers the storages, which lie behind the pickles, one by one."""

  def __init__(self, data: BinaryIO):
    super().__init__(data)
    self.storages: dict[str, _Storage] = {}

  def persistent_load(self, pid: Any) -> _Storage:
    storage = super().persistent_load(pid)
    return self.storages.setdefault(storage.key, storage)


def _check_order(little: bool) -> None:
  if not little:
    raise ValueError('its numbers begin with their high bytes')
