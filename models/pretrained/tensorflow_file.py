"""TensorFlow's checkpoints: an index of names, and files of numbers.

TensorFlow aborts the program at a damaged index, and allocates memory for any
shape. So the index is first read here and checked against the files.
"""

import contextlib
import functools
import glob
import math
import re
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from etils import epath

from models.pretrained import weight_files
from models.pretrained.strict import Entry
from models.pretrained.weight_files import local, plain

# Variables of training: steps, and an optimiser's moments of each weight.
OPTIMIZER = re.compile(
  r'global_step|beta[12]_power|.*/(adam_[mv]|lamb_[mv]|Adam|Adam_1)'
)
MAX_INDEX = 4 << 20  # BERT-Large with its optimiser's variables has 60 KB
MAX_KEY = 1000  # letters of a name
# The end of a table (tensorflow/core/lib/io/format.h).
FOOTER, MAGIC = 48, 0xDB4775248B80FB57


def index_of(folder: epath.Path) -> epath.Path | None:
  """Returns the index of a folder's TensorFlow checkpoint; None without one.

  Raises ValueError if there are several, and no file `checkpoint` names one.
  """
  found = weight_files.find(folder, '*.ckpt*.index')
  if len(found) < 2:
    return found[0] if found else None
  names = [file.name for file in found]
  state = folder / 'checkpoint'
  if state.exists():
    named = re.search(
      rb'^model_checkpoint_path: "(?:.*/)?(.*)"', state.read_bytes(), re.M
    )
    named = named and f'{named[1].decode(errors="replace")}.index'
    if named in names:
      return folder / named
  raise ValueError(
    f'{folder} has several checkpoints, and no file named checkpoint that tells'
    f' which one: leave one of {", ".join(names)} with its data'
  )


def _parts_of(index: epath.Path) -> list[epath.Path]:
  """Returns the files PREFIX.data-00000-of-00001 and so on of an index."""
  prefix = index.name.removesuffix('.index')
  parts = weight_files.find(
    index.parent, f'{glob.escape(prefix)}.data-?????-of-?????'
  )
  count = int(parts[0].name[-5:]) if parts else 1
  expected = [f'{prefix}.data-{i:05}-of-{count:05}' for i in range(count)]
  names = [part.name for part in parts]
  missing = [name for name in expected if name not in names]
  if missing:
    raise FileNotFoundError(
      f'{index} has no data beside it, missing: {", ".join(missing)}'
    )
  return parts


def entries(index: epath.Path) -> dict[str, Entry]:
  """Returns name -> entry of a TensorFlow checkpoint from its PREFIX.index."""
  try:
    import tensorflow as tf
  except ModuleNotFoundError:
    raise ValueError(
      f'{index}: a checkpoint of TensorFlow, which is not installed: pip'
      ' install tensorflow-cpu'
    ) from None

  shown = index
  # TensorFlow takes a path for a pattern.
  parts = [plain(local(part)) for part in _parts_of(index)]
  index = plain(local(index))

  @contextlib.contextmanager
  def named() -> Iterator[None]:
    found = ValueError, RuntimeError, TypeError, IndexError, struct.error
    try:
      yield
    except (tf.errors.OpError, *found) as error:
      raise ValueError(
        f'{shown} or {", ".join(part.name for part in parts)} is damaged, copy'
        f' them again: {error}'
      ) from error

  with named():
    _check(index, parts)
    reader = tf.train.load_checkpoint(str(index).removesuffix('.index'))
    dtypes = reader.get_variable_to_dtype_map()
    shapes = reader.get_variable_to_shape_map()
  lock = threading.Lock()  # the reader is for one thread at a time

  def read(name: str) -> np.ndarray:
    with lock, named():
      return reader.get_tensor(name)

  return {
    name: Entry(
      tuple(shapes[name]),
      np.dtype(dtypes[name].as_numpy_dtype),
      functools.partial(read, name),
    )
    for name in sorted(shapes)
  }


def _check(index: epath.Path, parts: Sequence[epath.Path]) -> None:
  """Checks that an index and its files belong together."""
  from tensorflow.core.protobuf import tensor_bundle_pb2 as protobuf

  lengths = [part.stat().length for part in parts]
  found = _table(index)
  key, value = next(found, (None, b''))
  if key != b'':
    raise ValueError('the index has no header')
  header = _parse(protobuf.BundleHeaderProto, value, 'the header')
  if header.num_shards != len(parts) or header.endianness != header.LITTLE:
    raise ValueError(
      f'the index is of {header.num_shards} files of numbers, low bytes first:'
      f' {header.endianness == header.LITTLE}; expected {len(parts)}, True'
    )
  for key, value in found:
    name = key.decode(errors='replace')[:80]
    _check_entry(name, _parse(protobuf.BundleEntryProto, value, name), lengths)


def _check_entry(name: str, entry: Any, lengths: Sequence[int]) -> None:
  """Checks that an array lies in its file."""
  import tensorflow as tf

  try:
    dtype = tf.dtypes.as_dtype(entry.dtype)
  except TypeError as error:
    raise ValueError(f'{name}: {error}') from None
  if dtype != dtype.base_dtype:  # of a variable's address, not of numbers
    raise ValueError(f'{name} holds {dtype.name}')
  shape = [axis.size for axis in entry.shape.dim]
  if entry.shape.unknown_rank or any(size < 0 for size in shape):
    raise ValueError(f'{name} has no shape')
  if dtype.is_floating or dtype.is_integer or dtype.is_bool:
    num_bytes = math.prod(shape) * dtype.size
    size = math.prod(n or 1 for n in shape) * dtype.size
    if size > sum(lengths) and (0 not in shape or size >= 1 << 60):
      raise ValueError(
        f'{name} takes {size:,} bytes, the files of numbers have'
        f' {sum(lengths):,} bytes'
      )
    # Parts of an array have entries of their own.
    if not entry.slices and entry.size != num_bytes:
      raise ValueError(
        f'{name} has {entry.size:,} bytes, expected {num_bytes:,}'
      )
  begin, end = entry.offset, entry.offset + entry.size
  shard = entry.shard_id
  if not 0 <= shard < len(lengths) or not 0 <= begin <= end <= lengths[shard]:
    raise ValueError(
      f'{name} lies at bytes {begin:,} to {end:,} of file {shard}, which are'
      ' not there'
    )


def _parse(kind: Any, value: bytes, name: str) -> Any:
  from google.protobuf import message

  try:
    return kind.FromString(value)
  except message.DecodeError as error:
    raise ValueError(f'{name}: {error}') from None


def _table(index: epath.Path) -> Iterator[tuple[bytes, bytes]]:
  """Yields keys and values of a table in LevelDB's format."""
  if index.stat().length > MAX_INDEX:
    raise ValueError(f'the index has more than {MAX_INDEX:,} bytes')
  content = index.read_bytes()
  footer = content[-FOOTER:]
  if len(footer) < FOOTER or footer[-8:] != struct.pack('<Q', MAGIC):
    raise ValueError('the index is cut off or of another format')
  _, place = _handle(footer, 0)
  handle, _ = _handle(footer, place)
  for _, value in _block(content, *handle):
    block, _ = _handle(value, 0)
    yield from _block(content, *block)


def _block(
  content: bytes, begin: int, size: int
) -> Iterator[tuple[bytes, bytes]]:
  """Yields keys and values of a block; each key is stored as a difference."""
  end = begin + size
  if end >= len(content) or content[end]:
    raise ValueError('a part of the index is compressed or cut off')
  block = content[begin:end]
  (num_restarts,) = struct.unpack('<I', block[-4:])
  end = len(block) - 4 * (1 + num_restarts)
  key, place = b'', 0
  while place < end:
    shared, place = _varint(block, place)
    rest, place = _varint(block, place)
    length, place = _varint(block, place)
    if shared > len(key) or shared + rest > MAX_KEY or length > end:
      raise ValueError(f'a name of {shared + rest:,} letters in the index')
    key = key[:shared] + block[place : place + rest]
    place += rest + length
    if place > end:
      raise ValueError('a part of the index is cut off')
    yield key, block[place - length : place]


def _handle(content: bytes, place: int) -> tuple[tuple[int, int], int]:
  """Returns (begin, size) of a block, and the end of its handle."""
  begin, place = _varint(content, place)
  size, place = _varint(content, place)
  return (begin, size), place


def _varint(content: bytes, place: int) -> tuple[int, int]:
  value = 0
  for shift in range(0, 70, 7):
    byte = content[place]
    value |= (byte & 127) << shift
    place += 1
    if byte < 128:
      return value, place
  raise ValueError('a number without end in the index')
