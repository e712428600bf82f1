"""Hugging Face's files of weights, and local copies of remote files.

Remote files are copied, until the program ends, because readers seek in them.
"""

import atexit
import contextlib
import fcntl
import functools
import glob
import hashlib
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator

import jax.numpy as jnp
import numpy as np
import safetensors
from etils import epath

from models.pretrained import config_files
from models.pretrained.strict import Entry

_SCRATCH = 'published-weights-'
SAFETENSORS_DTYPES = {  # names of dtypes in safetensors files -> NumPy's
  f'{letter}{bits}': f'{kind}{bits}'
  for letter, kind in {'F': 'float', 'I': 'int', 'U': 'uint'}.items()
  for bits in (8, 16, 32, 64)
} | {'BF16': 'bfloat16', 'BOOL': 'bool'}


def is_remote(file: epath.Path) -> bool:
  """Returns whether a file lies at a storage service."""
  return '://' in str(file)


def find(folder: epath.Path, pattern: str) -> list[epath.Path]:
  """Returns a folder's files that match a glob pattern, sorted.

  The folder itself may have wildcards in its name.
  """
  return sorted(epath.Path(glob.escape(str(folder))).glob(pattern))


def local(file: epath.Path) -> epath.Path:
  """Returns a file, or the local copy of a remote one, which has all bytes."""
  if not is_remote(file):
    return file
  folder = hashlib.sha256(str(file.parent).encode()).hexdigest()
  copy = _scratch() / folder / file.name
  if not copy.exists():
    copy.parent.mkdir(exist_ok=True)
    size, free = file.stat().length, shutil.disk_usage(copy.parent).free
    if size > free:  # as data.storage.check_space, which is above this room
      raise OSError(
        f'the copy of {file} needs {size:,} bytes in {_scratch().parent}, where'
        f' {free:,} are free. Make room, or set TMPDIR to another folder'
      )
    print(f'copying {file} ({size / 1e6:,.1f} MB) for a while', file=sys.stderr)
    partial = copy.with_name(f'{copy.name}.partial')
    file.copy(partial, overwrite=True)
    if partial.stat().length != size:
      raise OSError(
        f'{file} has {size:,} bytes, but its copy {partial.stat().length:,}:'
        ' the file changed meanwhile. Start again'
      )
    partial.rename(copy)
  return copy


def plain(file: epath.Path) -> epath.Path:
  """Returns a local file, or a link to it whose path is no glob pattern."""
  if not glob.has_magic(str(file)):
    return file
  folder = hashlib.sha256(os.path.abspath(file.parent).encode()).hexdigest()
  link = _scratch() / folder / file.name
  if not link.exists():
    link.parent.mkdir(exist_ok=True)
    os.symlink(os.path.abspath(file), link)
  return link


@functools.cache
def _scratch() -> epath.Path:
  """Makes our folder of copies, and removes those of programs that died.

  A living program holds a lock on its folder.
  """
  for left in pathlib.Path(tempfile.gettempdir()).glob(f'{_SCRATCH}*'):
    with contextlib.suppress(OSError):  # it lives, or is another user's
      os.close(_lock(left))
      shutil.rmtree(left, ignore_errors=True)
  while True:
    folder = tempfile.mkdtemp(prefix=_SCRATCH)
    # Between both lines, another program may take it for a dead one's.
    with contextlib.suppress(OSError):
      _lock(folder)
      break
  atexit.register(shutil.rmtree, folder, ignore_errors=True)
  return epath.Path(folder)


def _lock(folder: str | os.PathLike) -> int:
  """Locks a folder until the program ends, or its number is closed."""
  number = os.open(folder, os.O_RDONLY)
  try:
    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except OSError:
    os.close(number)
    raise
  return number


def from_safetensors(file: epath.Path) -> dict[str, Entry]:
  """Returns name -> entry of a safetensors file; ValueError if damaged."""
  entries = {}

  def read(name: str) -> np.ndarray:
    # Opened anew: an open file counts as memory in use.
    with _open_safetensors(file) as opened:
      return opened.get_tensor(name)

  with _open_safetensors(file) as opened:
    for name in opened.keys():
      part = opened.get_slice(name)
      dtype = SAFETENSORS_DTYPES.get(part.get_dtype(), 'object')
      entries[name] = Entry(
        tuple(part.get_shape()), jnp.dtype(dtype), functools.partial(read, name)
      )
  return entries


@contextlib.contextmanager
def _open_safetensors(file: epath.Path) -> Iterator[safetensors.safe_open]:
  copy = local(file)
  try:
    with safetensors.safe_open(copy, framework='numpy') as opened:
      yield opened
  except (safetensors.SafetensorError, OSError) as error:
    raise ValueError(
      f'{file} is damaged or no safetensors file, copy it again: {error}'
    ) from error


def _from_pickle(file: epath.Path) -> dict[str, Entry]:
  from models.pretrained import torch_pickle

  return torch_pickle.entries(local(file))


def _from_flax(file: epath.Path) -> dict[str, Entry]:
  from models.pretrained import flax_file

  return flax_file.entries(local(file))


# Files of weights in Hugging Face's folders and their readers, the best first.
HUGGING_FACE: dict[str, Callable[[epath.Path], dict[str, Entry]]] = {
  'model.safetensors': from_safetensors,
  'pytorch_model.bin': _from_pickle,
  'flax_model.msgpack': _from_flax,
}
INDEX = '.index.json'  # ends the name of the index of weights in several files


def hugging_face_file(folder: epath.Path) -> epath.Path | None:
  """Returns a folder's file of weights, or the index of several; or None."""
  for name in HUGGING_FACE:
    for file in (folder / name, folder / (name + INDEX)):
      if file.exists():
        return file
  return None


def from_hugging_face(folder: epath.Path) -> dict[str, Entry]:
  """Returns name -> entry of a folder's weights, in one file or several."""
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
  names = config_files.read(file).get('weight_map')
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
  """Returns the names of a folder's files, for a message."""
  names = sorted(path.name for path in folder.iterdir())
  shown = ', '.join(names[:10])
  return (shown + (', ...' if len(names) > 10 else '')) or 'nothing'
