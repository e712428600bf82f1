"""HDF5 files of weights: arrays of numbers that lie in the file itself.

References to other files and sizes without numbers are refused.
"""

import contextlib
import functools
import math
import os
from collections.abc import Iterator

import h5py
import numpy as np
from etils import epath

from models.pretrained.strict import Entry
from models.pretrained.weight_files import local

# Most bytes of arrays per byte of the file; compressed weights save a tenth.
MAX_EXPANSION = 4


def entries(file: epath.Path) -> dict[str, Entry]:
  """Returns name -> entry of an HDF5 file; ValueError unless plain numbers."""
  found, file = {}, local(file)
  with _open(file) as opened:
    room = MAX_EXPANSION * os.path.getsize(file)
    for name, dataset in _datasets(opened):
      shape, dtype = _check(name, dataset)
      room -= dtype.itemsize * max(
        map(math.prod, (shape, dataset.chunks or ()))
      )
      if room < 0:
        sizes = ' x '.join(f'{n:,}' for n in shape[:8])
        raise ValueError(
          f'{name[:80]} is {sizes}, more numbers than the file can hold'
        )
      found[name] = Entry(shape, dtype, functools.partial(_read, file, name))
  return found


def _datasets(opened: h5py.File) -> Iterator[tuple[str, h5py.Dataset]]:
  """Yields the data sets of a file and their paths."""
  groups = [('', opened['/'])]
  seen = set()  # a group may be in itself
  while groups:
    prefix, group = groups.pop()
    for part in group:
      name = prefix + part
      link = group.get(part, getlink=True)
      if not isinstance(link, h5py.HardLink):
        raise ValueError(f'{name[:80]} is a link to something else')
      node = group[part]
      place = h5py.h5o.get_info(node.id).addr
      if place in seen:
        continue
      seen.add(place)
      if isinstance(node, h5py.Group):
        groups.append((f'{name}/', node))
      elif isinstance(node, h5py.Dataset):
        yield name, node


def _check(
  name: str, dataset: h5py.Dataset
) -> tuple[tuple[int, ...], np.dtype]:
  """Returns shape and dtype of an array, checked to lie in the file."""
  settings = dataset.id.get_create_plist()
  if dataset.is_virtual or settings.get_external_count():
    raise ValueError(f'the numbers of {name[:80]} are in another file')
  if dataset.dtype.kind not in 'fiub':
    raise ValueError(f'{name[:80]} holds {dataset.dtype}, expected numbers')
  if dataset.shape is None:
    raise ValueError(f'{name[:80]} holds nothing')
  return dataset.shape, dataset.dtype


def _read(file: epath.Path, name: str) -> np.ndarray:
  with _open(file) as opened:
    return opened[name][()]


@contextlib.contextmanager
def _open(file: epath.Path) -> Iterator[h5py.File]:
  try:
    with file.open('rb') as data, h5py.File(data, 'r') as opened:
      yield opened
  # It raises each of these, depending on where a file ends.
  except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
    raise ValueError(
      f'{file} is damaged or no HDF5 file of plain arrays: {error}. Copy it'
      ' again, or write the arrays alone into a new one'
    ) from error
