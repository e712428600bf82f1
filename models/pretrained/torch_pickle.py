"""PyTorch's files of weights, read without PyTorch and without running code.

`torch.save` writes a zip archive since 2020; before, one pickle after the other
and then the numbers. Sizes are checked before memory is allocated for them.
"""

import functools
import io
import math
import pickle
import struct
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from etils import epath

from models.pretrained.plain_pickle import MAX_BYTES, Refused, Tensor, Unpickler
from models.pretrained.strict import Entry

# The first two pickles of an old file (torch/serialization.py).
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
ENCRYPTED = 1  # a flag of a zip archive's member
DAMAGE = (  # errors of damaged pickles and archives
  pickle.UnpicklingError,
  zipfile.BadZipFile,
  struct.error,
  EOFError,
  ValueError,
  TypeError,
  LookupError,
  AttributeError,
  OverflowError,
  NotImplementedError,
  AssertionError,
)


class _Place(NamedTuple):
  """The place of bytes in a file."""

  begin: int
  size: int


class _File(io.BufferedReader):
  """A file that never reads more than `MAX_BYTES`, as zip archives may ask."""

  def read(self, size: int | None = -1) -> bytes:
    if size is not None and size > MAX_BYTES:
      raise ValueError(f'a part of {size:,} bytes, at most {MAX_BYTES:,} known')
    return super().read(size)


def entries(file: epath.Path) -> dict[str, Entry]:
  """Returns name -> entry of a local file's state dict, of either format."""
  try:
    with _File(io.FileIO(file)) as data:
      end = data.seek(0, 2)
      if zipfile.is_zipfile(data):
        state, places = _read_archive(data)
      else:
        state, places = _read_old(data, end)
      return dict(_entries(file, state, places, end))
  except Refused as error:
    raise ValueError(
      f'{file} is no plain file of weights, and is not opened: it would'
      f' {error}. If you trust it, open it with PyTorch and save its'
      ' state_dict() alone, best as model.safetensors'
    ) from error
  except DAMAGE as error:
    raise ValueError(
      f'{file} is damaged or no state dict of PyTorch, copy it again: {error}'
    ) from error


def _entries(
  file: epath.Path, state: Any, places: dict[str, _Place], end: int
) -> Iterator[tuple[str, Entry]]:
  """Yields names and entries of a state dict, if the file holds all numbers."""
  if not isinstance(state, dict):
    raise ValueError(f'it holds a {type(state).__name__}, no names and arrays')
  others = [name for name in state if not isinstance(state[name], Tensor)]
  if others:
    named = ', '.join(str(name)[:80] for name in others[:5])
    raise ValueError(
      f'{named} are no arrays: of a whole training,'
      ' save the state_dict() of the model alone'
    )
  for name, tensor in state.items():
    storage, short = tensor.storage, str(name)[:80]
    if storage.key not in places:
      raise ValueError(f'the numbers of {short} are not in it')
    begin, size = places[storage.key]
    if storage.size * storage.dtype.itemsize > size or begin + size > end:
      raise ValueError(f'{short} goes beyond its end')
    # With a stride of 0, a few bytes could ask for any amount of memory.
    if math.prod(n or 1 for n in tensor.shape) > end:
      raise ValueError(f'{short} has more numbers than the file has bytes')
    read = functools.partial(_read, file, tensor, begin)
    yield name, Entry(tensor.shape, storage.dtype, read)


def _read(file: epath.Path, tensor: Tensor, begin: int) -> np.ndarray:
  """Returns an array that is a view of the file."""
  if 0 in tensor.shape:
    return np.zeros(tensor.shape, tensor.storage.dtype)
  numbers = np.memmap(
    file, tensor.storage.dtype, 'r', begin, (tensor.storage.size,)
  )
  return np.lib.stride_tricks.as_strided(
    numbers[tensor.offset :],
    tensor.shape,
    [k * numbers.itemsize for k in tensor.strides],
    writeable=False,
  )


def _read_archive(data: BinaryIO) -> tuple[Any, dict[str, _Place]]:
  """Returns the content of a zip archive's pickle, and places of numbers."""
  with zipfile.ZipFile(data) as archive:
    places = _places(data, archive)
    pickles = [name for name in places if name.endswith('/data.pkl')]
    if len(pickles) != 1:
      raise ValueError(f'{len(pickles)} data.pkl in the archive, expected one')
    root = pickles[0].removesuffix('data.pkl')
    order = f'{root}byteorder'
    for name in pickles[0], order:
      if name in places and places[name].size > MAX_BYTES:
        raise ValueError(
          f'{name} has {places[name].size:,} bytes, expected {MAX_BYTES:,} at'
          ' most'
        )
    if order in places:
      _check_order(archive.read(order) == b'little')
    state = Unpickler(io.BytesIO(archive.read(pickles[0]))).load()
  folder = f'{root}data/'
  return state, {
    name.removeprefix(folder): place
    for name, place in places.items()
    if name.startswith(folder)
  }


def _places(data: BinaryIO, archive: zipfile.ZipFile) -> dict[str, _Place]:
  """Returns the places of an archive's members, stored without compression."""
  places: dict[str, _Place] = {}
  free = 0  # where the members before end
  for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
    name = info.filename[:80]
    if info.filename in places:
      raise ValueError(f'{name} is in the archive twice')
    if info.flag_bits & ENCRYPTED:
      raise ValueError(f'{name} is encrypted, which torch.save never does')
    if (
      info.compress_type != zipfile.ZIP_STORED
      or info.compress_size != info.file_size
    ):
      raise ValueError(f'{name} is compressed, which torch.save never does')
    if info.header_offset < free:
      raise ValueError(f'{name} overlaps another member of the archive')
    # Its name and extra fields follow the header of 30 bytes.
    data.seek(info.header_offset + 26)
    begin = info.header_offset + 30 + sum(struct.unpack('<HH', data.read(4)))
    free = begin + info.file_size
    if free > archive.start_dir:
      raise ValueError(f'{name} goes beyond the end of the archive')
    places[info.filename] = _Place(begin, info.file_size)
  return places


def _read_old(data: BinaryIO, end: int) -> tuple[Any, dict[str, _Place]]:
  """Returns the content of an old file's pickles, and places of numbers."""
  data.seek(0)
  if [Unpickler(data).load() for _ in range(2)] != [MAGIC, PROTOCOL]:
    raise ValueError('it begins as neither of the formats of torch.save does')
  _check_order(Unpickler(data).load()['little_endian'])
  unpickler = Unpickler(data)
  state, keys = unpickler.load(), Unpickler(data).load()
  if type(keys) is not list or not all(type(key) is str for key in keys):
    raise ValueError('no list of the keys of its storages')
  places = {}
  for key in keys:
    (size,) = struct.unpack('<q', data.read(8))
    storage = unpickler.storages[key]
    if size != storage.size:
      raise ValueError(f'a row of {size:,} numbers, expected {storage.size:,}')
    places[key] = _Place(data.tell(), size * storage.dtype.itemsize)
    if sum(places[key]) > end:
      raise ValueError(f'a row of {size:,} numbers goes beyond its end')
    data.seek(sum(places[key]))
  return state, places


def _check_order(little: bool) -> None:
  if not little:
    raise ValueError('its numbers begin with their high bytes')
