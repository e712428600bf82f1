"""Files of weights: which arrays they hold, none of them read yet.

Remote files are copied first, for as long as the program runs: their readers
go to and fro in them.
"""

import atexit
import contextlib
import functools
import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator

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
