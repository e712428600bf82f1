"""How published arrays make up our parameters, in both directions.

A format is a list of pieces, each mapping a part of a published array to a part
of a parameter. Reading and writing use the same list; every misfit is named.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import jax
import numpy as np

# Byte alignment of arrays that JAX takes over on the CPU without a copy.
ALIGNMENT = 64
# Rows to transpose at a time: their cache lines fit in a core's cache.
ROWS_AT_A_TIME = 64


class Entry(NamedTuple):
  """An array in a file, not read yet; `read` returns it."""

  shape: tuple[int, ...]
  dtype: np.dtype
  read: Callable[[], np.ndarray]


class Piece(NamedTuple):
  """A part of a published array that is a part of a parameter.

  Attributes:
    name: of the published array.
    path: 'path/of/parameter'.
    shape: of the whole published array.
    rows: the part of the published array.
    place: the part of the parameter.
    num_inputs: number of the place's input axes, its first, if the published
      array has its outputs first; 0 if the order is the same.
  """

  name: str
  path: str
  shape: tuple[int, ...]
  rows: slice = slice(None)
  place: tuple[Any, ...] = (Ellipsis,)
  num_inputs: int = 0

  def view(self, array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Returns the part of a published array, in the shape of our place."""
    k, part = self.num_inputs, array[self.rows]
    part = part.reshape(*shape[k:], *shape[:k])
    return part.transpose(
      *range(part.ndim - k, part.ndim), *range(part.ndim - k)
    )


# What programs put before the names of all arrays: PyTorch's DataParallel and
# compile, and modules that hold the model.
WRAPPERS = ('module.', '_orig_mod.', 'model.')


def unwrapped(name: str) -> str:
  """Returns a name without the prefixes of wrappers, in any order."""
  while name.startswith(WRAPPERS):
    name = name.partition('.')[2]
  return name


def rename(
  entries: Mapping[str, Entry], name_of: Callable[[str], str | None]
) -> tuple[dict[str, Entry], tuple[str, ...], list[str]]:
  """Returns entries by plain name, unused names, and a problem per duplicate.

  `name_of` maps a name in the file to its plain name; None: known but unused.
  """
  renamed: dict[str, Entry] = {}
  set_aside, problems = [], []
  for name, entry in entries.items():
    plain = name_of(unwrapped(name))
    if plain is None:
      set_aside.append(name)
    elif plain in renamed:
      problems.append(f'twice, with and without a prefix: {plain}')
    else:
      renamed[plain] = entry
  return renamed, tuple(set_aside), problems


def tie(entries: dict[str, Entry], name: str, twin: str) -> None:
  """Joins a tied twin to `name`; reading checks that both are equal."""
  if twin not in entries:
    return
  copy = entries.pop(twin)
  entry = entries.setdefault(name, copy)

  def read() -> np.ndarray:
    array = entry.read()
    if entry is not copy and not np.array_equal(
      array, copy.read(), equal_nan=True
    ):
      raise ValueError(
        f'{twin} differs from {name}, but the softmax is tied to the tokens:'
        ' if it is not, set tie_word_embeddings to false in config.json'
      )
    return array

  entries[name] = entry._replace(read=read)


def misfits(entries: Mapping[str, Entry], pieces: Iterable[Piece]) -> list[str]:
  """Returns a line for each missing, unknown or misshapen array."""
  expected = {piece.name: piece.shape for piece in pieces}
  problems = [
    f'missing: {name} {shape}'
    for name, shape in expected.items()
    if name not in entries
  ]
  for name, entry in entries.items():
    shape = expected.get(name)
    if shape is None:
      problems.append(f'not known: {name} {entry.shape}')
      continue
    if entry.shape != shape:
      problems.append(
        f'another shape: {name} is {entry.shape}, expected {shape}'
      )
    # bfloat16 is none of NumPy's own kinds.
    if entry.dtype.kind != 'f' and entry.dtype.name != 'bfloat16':
      problems.append(f'no numbers: {name} is {entry.dtype}, expected float32')
  return problems


def gather(
  entries: Mapping[str, Entry],
  pieces: Iterable[Piece],
  shapes: Mapping[str, Any],
  keep: Callable[[str, np.ndarray], Any],
) -> dict:
  """Returns parameters, read from entries without misfits.

  They are made one by one, to save memory beside the leaves that `keep` makes
  from (path, float32 array). `shapes` map 'path/of/parameter' to
  ShapeDtypeStructs. Raises ValueError for numbers that are not finite.
  """
  pieces_of: dict[str, list[Piece]] = {}
  for piece in pieces:
    pieces_of.setdefault(piece.path, []).append(piece)
  params: dict = {}
  # Threads, because transposing copies wait for memory.
  with futures.ThreadPoolExecutor(os.cpu_count()) as threads:
    for path, leaf in shapes.items():
      whole = _zeros(leaf.shape)

      def fill(piece: Piece, whole: np.ndarray = whole) -> None:
        place = whole[piece.place]
        part = piece.view(entries[piece.name].read(), place.shape)
        _copy(place, part, piece.num_inputs)
        # NaN and infinity reach the minimum or the maximum.
        if place.size and not np.isfinite([place.min(), place.max()]).all():
          raise ValueError(f'{piece.name} holds numbers that are not finite')

      list(threads.map(fill, pieces_of[path]))
      put(params, path.split('/'), keep(path, whole))
  return params


def _zeros(shape: Sequence[int]) -> np.ndarray:
  size, extra = math.prod(shape), ALIGNMENT // 4
  memory = np.zeros(size + extra, np.float32)
  start = -memory.ctypes.data % ALIGNMENT // 4
  return memory[start : start + size].reshape(shape)


def _copy(place: np.ndarray, part: np.ndarray, num_inputs: int) -> None:
  """Copies a part; one of both lies in memory with its outputs first."""
  with np.errstate(over='ignore'):  # float64 that is infinite in float32
    if not num_inputs:
      place[...] = part
      return
    place, part = (np.moveaxis(x, num_inputs, 0) for x in (place, part))
    step = max(1, ROWS_AT_A_TIME // math.prod(part.shape[1 + num_inputs :]))
    for i in range(0, len(place), step):
      place[i : i + step] = part[i : i + step]


def scatter(params: Mapping, pieces: Iterable[Piece]) -> dict[str, np.ndarray]:
  """Returns name -> published float32 array, of unboxed parameters."""
  leaves = flatten(params)
  arrays: dict[str, np.ndarray] = {}
  host: dict[str, np.ndarray] = {}
  for piece in pieces:
    if piece.path not in host:
      host[piece.path] = np.asarray(leaves[piece.path])
    if piece.name not in arrays:
      arrays[piece.name] = np.zeros(piece.shape, np.float32)
    value = host[piece.path][piece.place]
    _copy(piece.view(arrays[piece.name], value.shape), value, piece.num_inputs)
  return arrays


def flatten(tree: Mapping) -> dict[str, Any]:
  """Returns 'path/of/leaf' -> leaf."""
  return {
    jax.tree_util.keystr(path, simple=True, separator='/'): leaf
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }


def put(tree: dict, path: Sequence[str], value: Any) -> None:
  """Puts a value into nested dicts, which are created as needed."""
  *folders, last = path
  for folder in folders:
    tree = tree.setdefault(folder, {})
  tree[last] = value
