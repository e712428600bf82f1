"""Vectors of a file's lines, computed once and kept in a folder.

Shapes: N line, D the vectors' width.
"""

import hashlib
import json
import os
import pathlib

import numpy as np
from etils import epath

from data import storage
from data.store import folders
from data.text import text_files
from train.host import console, files
from train.vectors import text_counts, vector_cache
from train.vectors.request import Request
from train.vectors.trained_model import TrainedModel

META_FILE, VECTORS_FILE = 'index.json', 'vectors.bin'
DTYPE = np.dtype('<f4')
VERSION = 1


def open_index(
  found: TrainedModel,
  file: epath.PathLike,
  request: Request,
  folder: str | os.PathLike,
) -> np.ndarray:
  """Returns the vectors [N, D] of a file's lines, float32, mapped from a disk.

  They are computed and written to `folder` if it is not there. `request` is of
  sentences. Raises ValueError for a folder that holds something else, of other
  weights, lines or pooling, or is damaged; OSError if the disk is full.
  """
  target = pathlib.Path(folder).expanduser()
  expected = {
    'version': VERSION,
    'weights': vector_cache.digest_of(found),
    'lines': _sha256_of_lines(file),
    'request': _settings_of(found, request),
  }
  if not target.exists():
    if not target.parent.is_dir():
      raise FileNotFoundError(f'{target}: there is no folder {target.parent}')
    folders.remove_leftovers(target.parent)
    with folders.exclusive(target):
      if not target.exists():  # another process may have made it
        _make(found, file, request, target, expected)
  meta = _checked(target, expected)
  return np.memmap(
    target / VECTORS_FILE, DTYPE, 'r', shape=tuple(meta['shape'])
  )


def _sha256_of_lines(file: epath.PathLike) -> str:
  sha = hashlib.sha256()
  for line in text_counts.lines(file):
    sha.update(f'{line}\n'.encode())
  return sha.hexdigest()


def _settings_of(
  found: TrainedModel, request: Request
) -> dict[str, files.Json]:
  """Returns what else the vectors depend on."""
  plan = found.plan(request)
  return {
    'pool': plan.pool,
    'prompt': plan.form.prompt if plan.form else '',
    'layers': json.loads(json.dumps(plan.choice)),
    'normalize': plan.normalize,
    'window': plan.window,
    'stride': plan.stride,
  }


def _checked(
  target: pathlib.Path, expected: dict[str, files.Json]
) -> dict[str, files.Json]:
  """Returns what a folder says of its vectors; ValueError if it misfits."""
  cure = 'expected an index of this file by these weights; name another folder'
  try:
    meta = text_files.read_json(target / META_FILE)
    size = (target / VECTORS_FILE).stat().st_size
    rows, width = meta['shape']
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise ValueError(
      f'{target} is no index of lines ({error}); {cure}'
    ) from None
  for key, value in expected.items():
    if meta.get(key) != value:
      raise ValueError(
        f'{target} was made with other {key}: {meta.get(key)}, found {value};'
        f' {cure}'
      )
  wanted = rows * width * DTYPE.itemsize
  damage = folders.find_damage(target)
  if size != wanted:
    damage = f'{VECTORS_FILE} has {size:,} bytes, expected {wanted:,}'
  if damage:
    raise ValueError(f'{target}: {damage}; remove it, and it is made anew')
  return meta


def _make(
  found: TrainedModel,
  file: epath.PathLike,
  request: Request,
  target: pathlib.Path,
  meta: dict[str, files.Json],
) -> None:
  """Computes and writes the vectors of all lines; all or nothing."""
  count = text_counts.count_lines(file)
  shape = count, found.dim
  num_bytes = count * found.dim * DTYPE.itemsize
  storage.check_space(
    target.parent, num_bytes, 'the vectors of lines', 'name another folder'
  )
  with folders.new_folder(target) as partial:
    vectors_ND = np.memmap(partial / VECTORS_FILE, DTYPE, 'w+', shape=shape)
    with console.ProgressBar(0, count) as bar:
      numbered = found.numbered_vectors(text_counts.lines(file), request)
      for done, (number, vectors) in enumerate(numbered, 1):
        vectors_ND[number] = vectors.array
        if done % 1000 == 0 or done == count:
          bar.update(done)
    vectors_ND.flush()
    about = {**meta, 'shape': shape, 'of': [str(found.folder), str(file)]}
    (partial / META_FILE).write_text(json.dumps(about, indent=2) + '\n')
    folders.seal(partial)
  console.say(f'vectors of {count:,} lines: {num_bytes:,} bytes in {target}')
