"""Files of weights: which arrays they hold, none of them read yet.

Remote files are copied first, for as long as the program runs: their readers
go to and fro in them.
"""

import atexit
import bisect
import contextlib
import functools
import hashlib
import itertools
import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax.numpy as jnp
import numpy as np
import safetensors
from etils import epath

from models.pretrained import (
  config_files,
  hdf5_file,
  tensorflow_file,
  torch_pickle,
)
from models.pretrained.strict import Entry

# Their names of what numbers are made of -> NumPy's.
SAFETENSORS_DTYPES = {
  'F64': 'float64',
  'F32': 'float32',
  'F16': 'float16',
  'BF16': 'bfloat16',
  'I64': 'int64',
  'I32': 'int32',
  'I16': 'int16',
  'I8': 'int8',
  'U8': 'uint8',
  'BOOL': 'bool',
}


NUM_NPY_FILES = 10  # of GPT's release

# Variables of a checkpoint that are no weights: steps, and what an optimiser
# knows of each weight.
OPTIMIZER = re.compile(
  r'global_step|beta[12]_power|.*/(adam_[mv]|lamb_[mv]|Adam|Adam_1)'
)


def is_remote(file: epath.Path) -> bool:
  """Returns whether a path is of a storage service's."""
  return '://' in str(file)


def local(file: epath.Path) -> epath.Path:
  """Returns a file, or the copy of a remote one."""
  if not is_remote(file):
    return file
  folder = hashlib.sha256(str(file.parent).encode()).hexdigest()
  copy = _scratch() / folder / file.name
  if not copy.exists():
    copy.parent.mkdir(exist_ok=True)
    file.copy(copy)
  return copy


@functools.cache
def _scratch() -> epath.Path:
  """Returns a folder that is removed when the program ends."""
  folder = tempfile.mkdtemp(prefix='published-weights-')
  atexit.register(shutil.rmtree, folder, ignore_errors=True)
  return epath.Path(folder)


def from_safetensors(file: epath.Path) -> dict[str, Entry]:
  """Returns name -> entry of a file of that format.

  Raises:
    ValueError: if it is damaged, or holds what NumPy does not know.
  """
  entries = {}

  def read(name: str) -> np.ndarray:
    # The whole file counts as memory in use for as long as it is open.
    with _open_safetensors(file) as opened:
      return opened.get_tensor(name)

  with _open_safetensors(file) as opened:
    for name in opened.keys():
      part = opened.get_slice(name)
      dtype = SAFETENSORS_DTYPES.get(part.get_dtype(), 'object')
      entries[name] = Entry(
        tuple(part.get_shape()),
        jnp.dtype(dtype),
        functools.partial(read, name),
      )
  return entries


@contextlib.contextmanager
def _open_safetensors(file: epath.Path) -> Iterator[safetensors.safe_open]:
  try:
    with safetensors.safe_open(local(file), framework='numpy') as opened:
      yield opened
  except (safetensors.SafetensorError, OSError) as error:
    raise ValueError(
      f'{file} is damaged or no safetensors file, copy it again: {error}'
    ) from error


def from_hdf5(file: epath.Path) -> dict[str, Entry]:
  """Returns name -> entry of all data sets of an HDF5 file.

  Raises:
    ValueError: if it is damaged, no such file, or holds more than names and
      arrays of numbers.
  """
  return hdf5_file.entries(local(file))


def tensorflow_index(folder: epath.Path) -> epath.Path | None:
  """Returns the index of a folder's TensorFlow checkpoint; None without one.

  Raises:
    ValueError: if there are several, and no file `checkpoint` names one.
  """
  return tensorflow_file.index_of(folder)


def from_tensorflow(index: epath.Path) -> dict[str, Entry]:
  """Returns name -> entry of a TensorFlow checkpoint.

  Args:
    index: its file PREFIX.index, beside PREFIX.data-00000-of-00001 and so on.

  Raises:
    FileNotFoundError: if data are missing; then all that are.
    ValueError: if a file is damaged.
  """
  parts = [local(part) for part in tensorflow_file.parts_of(index)]
  return tensorflow_file.entries(local(index), parts)


def from_npy(
  folder: epath.Path, shapes: Mapping[str, Sequence[int]]
) -> dict[str, Entry]:
  """Returns name -> entry of arrays that lie in params_0.npy and so on.

  Args:
    folder: of ten such files, which hold one row of numbers between them.
    shapes: name -> shape, in the order of that row.

  Raises:
    FileNotFoundError: if files are missing; then all that are.
    ValueError: if one is damaged, or the numbers are not as many.
  """
  files = [folder / f'params_{i}.npy' for i in range(NUM_NPY_FILES)]
  missing = [file.name for file in files if not file.exists()]
  if missing:
    raise FileNotFoundError(f'{folder} lacks {", ".join(missing)}')
  parts = [_open_npy(file) for file in files]
  begins = [0, *itertools.accumulate(len(part) for part in parts)]
  sizes = [math.prod(shape) for shape in shapes.values()]
  if sum(sizes) != begins[-1]:
    raise ValueError(
      f'{folder} has {begins[-1]:,} numbers in {files[0].name} to'
      f' {files[-1].name}, expected {sum(sizes):,} by the shapes beside them'
    )

  def read(begin: int, shape: Sequence[int]) -> np.ndarray:
    end = begin + math.prod(shape)
    first = bisect.bisect(begins, begin) - 1
    last = bisect.bisect_left(begins, end)
    found = [
      parts[i][max(begin - begins[i], 0) : end - begins[i]]
      for i in range(first, last)
    ]
    return np.concatenate(found).reshape(shape)

  return {
    name: Entry(
      tuple(shape),
      parts[0].dtype,
      functools.partial(read, sum(sizes[:i]), shape),
    )
    for i, (name, shape) in enumerate(shapes.items())
  }


def _open_npy(file: epath.Path) -> np.ndarray:
  """Returns the numbers of a file in one row, none of them read yet."""
  try:
    found = np.lib.format.open_memmap(local(file), mode='r').reshape(-1)
  # Its header is an expression of Python's, which fails in any way; the
  # innermost ones, of too many brackets, as lack of memory.
  except Exception as error:
    raise ValueError(
      f'{file} is damaged or no NumPy file, copy it again: {error}'
    ) from error
  if found.dtype.kind != 'f':
    raise ValueError(f'{file} holds {found.dtype}, expected float32')
  return found


# What Hugging Face's folders may hold, the better first.
HUGGING_FACE: dict[str, Callable[[epath.Path], dict[str, Entry]]] = {
  'model.safetensors': from_safetensors,
  'pytorch_model.bin': lambda file: torch_pickle.entries(local(file)),
}
INDEX = '.index.json'  # beside a name of those: it is in several files


def hugging_face_file(folder: epath.Path) -> epath.Path | None:
  """Returns the file, or the index of files, to read a folder's weights from.

  None where it has none.
  """
  for name in HUGGING_FACE:
    for file in (folder / name, folder / (name + INDEX)):
      if file.exists():
        return file
  return None


def from_hugging_face(folder: epath.Path) -> dict[str, Entry]:
  """Returns name -> entry of a folder's weights, in one file or several.

  Raises:
    FileNotFoundError: if there are none, or some of several are missing; then
      all that are.
    ValueError: if a file is damaged.
  """
  file = hugging_face_file(folder)
  if file is None:
    raise FileNotFoundError(
      f'{folder} has a config but no weights, expected'
      f' {" or ".join(HUGGING_FACE)}, whole or in several files with an index,'
      " or a BERT's bert_model.ckpt.index with its data: fetch all of it; it"
      f' holds {listing(folder)}'
    )
  if file.name in HUGGING_FACE:
    return HUGGING_FACE[file.name](file)
  names = config_files.look_up(config_files.read(file), 'weight_map')
  if not isinstance(names, dict) or not all(
    isinstance(name, str) and '/' not in name for name in names.values()
  ):
    raise ValueError(
      f'{file}: no weight_map from names of arrays to files beside it'
    )
  shards = [folder / name for name in sorted(set(names.values()))]
  missing = [shard.name for shard in shards if not shard.exists()]
  if missing:
    raise FileNotFoundError(
      f'{folder}: {len(missing)} of the {len(shards)} files that {file.name}'
      f' names are missing: {", ".join(missing)}'
    )
  entries = {}
  for shard in shards:
    entries |= HUGGING_FACE[file.name.removesuffix(INDEX)](shard)
  return entries


def listing(folder: epath.Path) -> str:
  """Returns what lies in a folder, in words."""
  names = sorted(path.name for path in folder.iterdir())
  shown = ', '.join(names[:10])
  return (shown + (', ...' if len(names) > 10 else '')) or 'nothing'
