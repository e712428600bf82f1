"""Arrays of a flax_model.msgpack, by the names that PyTorch's files have.

Versions 3 and 4 of transformers wrote such files for their Flax classes. They
hold maps inside maps, in the format of `flax.serialization`: an array is an
extension of kind 1 with its shape, the name of its dtype and its bytes, and one
of over 2^30 bytes lies in parts. A kernel is the transpose of PyTorch's weight,
for dense layers and for GPT-2's, whose class turns it once more.
"""

import functools
import math
import mmap
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import msgpack
import numpy as np
from etils import epath

from models.pretrained.strict import Entry

ARRAY = 1  # kind of the extension
CHUNKS = '__msgpack_chunked_array__'  # marks the map of an array in parts
MAX_DEPTH = 50
HEAD_BYTES = 512  # what is before an array's bytes is shorter
# First byte of an extension -> bytes of its length, before those of its kind.
_LENGTHS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED = range(0xD4, 0xD9)  # an extension of 1, 2, 4, 8 or 16 bytes
_BINARY = {0xC4: 1, 0xC5: 2, 0xC6: 4}
# Flax's names of a layer's arrays -> PyTorch's.
_NAMES = {'kernel': 'weight', 'scale': 'weight', 'embedding': 'weight'}


def entries(file: epath.Path) -> dict[str, Entry]:
  """Returns PyTorch's name -> entry of a local file; ValueError if damaged."""
  try:
    with open(file, 'rb') as opened:
      data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
      # 0 is as much as there may be; a name is short, an array large.
      unpacker = msgpack.Unpacker(opened, raw=False, max_buffer_size=0)
      found = dict(_walk(data, unpacker))
      if unpacker.tell() != len(data):
        raise ValueError(
          f'{len(data) - unpacker.tell():,} bytes follow its end'
        )
      return found
  except (
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    msgpack.exceptions.UnpackException,
  ) as error:
    raise ValueError(
      f'{file} is damaged or no file of Flax, copy it again: {error}'
    ) from error


def _walk(
  data: mmap.mmap,
  unpacker: msgpack.Unpacker,
  path: tuple[str, ...] = (),
) -> Iterator[tuple[str, Entry]]:
  """Yields the arrays of a map, which begins where the unpacker stands."""
  if len(path) > MAX_DEPTH:
    raise ValueError(f'more than {MAX_DEPTH} maps inside one another')
  for _ in range(unpacker.read_map_header()):
    key = unpacker.unpack()
    if not isinstance(key, str):
      raise ValueError(f'a name is {str(key)[:40]}, expected a text')
    inside = (*path, *key.split('/'))
    start = unpacker.tell()
    if key == CHUNKS:
      yield from _joined(path, data, unpacker)
      return
    if data[start] in _LENGTHS or data[start] in _FIXED:
      unpacker.skip()
      yield _named(inside, _array(data, start, unpacker.tell()))
    else:
      yield from _walk(data, unpacker, inside)


def _joined(
  path: tuple[str, ...], data: mmap.mmap, unpacker: msgpack.Unpacker
) -> Iterator[tuple[str, Entry]]:
  """Yields the array of a map behind its mark: its shape and its parts."""
  unpacker.skip()
  shape, parts = None, []
  for _ in range(2):
    key = unpacker.unpack()
    if key == 'shape':
      found = unpacker.unpack()
      shape = tuple(found[str(i)] for i in range(len(found)))
    elif key == 'chunks':
      for _ in range(unpacker.read_map_header()):
        unpacker.skip()
        start = unpacker.tell()
        unpacker.skip()
        parts.append(_array(data, start, unpacker.tell()))
    else:
      raise ValueError(f'{"/".join(path)} has {key!r}, expected its parts')
  if shape is None or not parts:
    raise ValueError(f'{"/".join(path)} has no shape or no parts')
  _check_shape(shape)
  if sum(math.prod(part.shape) for part in parts) != math.prod(shape):
    raise ValueError(f'the parts of {"/".join(path)} are not of {shape}')

  def read() -> np.ndarray:
    flat = np.concatenate([part.read().ravel() for part in parts])
    return flat.reshape(shape)

  yield _named(path, Entry(shape, parts[0].dtype, read))


def _array(data: mmap.mmap, start: int, end: int) -> Entry:
  """Returns the array of an extension between two places of a file."""
  first = data[start]
  place = start + 1 + _LENGTHS.get(first, 0)
  if data[place] != ARRAY:
    raise ValueError(f'an extension of kind {data[place]}, expected an array')
  place += 1
  head = msgpack.Unpacker(raw=False)
  head.feed(data[place : min(place + HEAD_BYTES, end)])
  if head.read_array_header() != 3:
    raise ValueError('an array without shape, dtype and bytes')
  shape, name = tuple(head.unpack()), head.unpack()
  _check_shape(shape)
  place += head.tell()
  place += 1 + _BINARY[data[place]]
  if not isinstance(name, str):
    raise ValueError(f'a dtype is {str(name)[:40]}, expected a name')
  dtype = jnp.dtype(name)
  if dtype.hasobject or not dtype.itemsize:
    raise ValueError(f'an array is of {dtype}, expected numbers')
  if end - place != math.prod(shape) * dtype.itemsize:
    raise ValueError(
      f'{end - place:,} bytes of an array {shape} of {dtype}, expected'
      f' {math.prod(shape) * dtype.itemsize:,}'
    )
  read = functools.partial(_read, data, place, shape, dtype)
  return Entry(shape, dtype, read)


def _read(
  data: mmap.mmap, place: int, shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
  flat = np.frombuffer(data, dtype, math.prod(shape), place)
  return flat.reshape(shape)


def _check_shape(shape: tuple[Any, ...]) -> None:
  if not all(type(size) is int and 0 <= size < 2**31 for size in shape):
    raise ValueError(f'a shape is {str(shape)[:80]}, expected sizes')


def _named(path: tuple[str, ...], entry: Entry) -> tuple[str, Entry]:
  """Returns PyTorch's name of an array, and the array as PyTorch has it."""
  *layers, last = path
  name = '.'.join((*layers, _NAMES.get(last, last)))
  if last != 'kernel':
    return name, entry
  read = entry.read
  return name, Entry(entry.shape[::-1], entry.dtype, lambda: read().T)
