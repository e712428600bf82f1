"""How published arrays and ours correspond, and the way between, both ways.

A format is a list of pieces, each a part of one of their arrays that is a part
of one of ours. Reading and writing go by the same list; what does not fit is
named, all of it at once.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import jax
import numpy as np


class Entry(NamedTuple):
  """An array in a file, not read yet.

  Attributes:
    shape: its shape.
    dtype: what it holds.
    read: returns the array.
  """

  shape: tuple[int, ...]
  dtype: np.dtype
  read: Callable[[], np.ndarray]


class Piece(NamedTuple):
  """A part of one of our arrays that is a part of one of theirs.

  Attributes:
    name: of their array.
    path: 'path/of/leaf' of our array.
    shape: of all of their array.
    rows: the part of their array.
    place: the part of ours.
    num_inputs: where theirs has its outputs first, how many of the first axes
      of the place are inputs; 0 where the order is the same.
  """

  name: str
  path: str
  shape: tuple[int, ...]
  rows: slice = slice(None)
  place: tuple[Any, ...] = (Ellipsis,)
  num_inputs: int = 0

  def theirs(self, array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Returns a view of this part of their array, as our place of a shape."""
    k, part = self.num_inputs, array[self.rows]
    part = part.reshape(*shape[k:], *shape[:k])
    return part.transpose(
      *range(part.ndim - k, part.ndim), *range(part.ndim - k)
    )


def in_memory(arrays: Mapping[str, np.ndarray]) -> dict[str, Entry]:
  """Returns entries of arrays that are there already."""
  return {
    name: Entry(array.shape, array.dtype, lambda array=array: array)
    for name, array in arrays.items()
  }


def misfits(entries: Mapping[str, Entry], pieces: Iterable[Piece]) -> list[str]:
  """Returns a line for each name that is missing, not known, or misshapen."""
  expected = {piece.name: piece.shape for piece in pieces}
  problems = [
    f'missing: {name} {shape}'
    for name, shape in expected.items()
    if name not in entries
  ]
  problems += [
    f'not known: {name} {entry.shape}'
    for name, entry in entries.items()
    if name not in expected
  ]
  for name, shape in expected.items():
    if name not in entries:
      continue
    entry = entries[name]
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
  keep: Callable[[str, np.ndarray], Any] = lambda path, array: array,
) -> dict:
  """Returns our parameters, read from their entries.

  One of our arrays is made after the other, so that no more than one lies in
  memory beside what `keep` returns.

  Args:
    entries: without misfits.
    pieces: of all that our arrays hold but padding.
    shapes: 'path/of/leaf' -> ShapeDtypeStruct, those to make.
    keep: (path, float32 array) -> leaf, such as the array laid out on devices.

  Raises:
    ValueError: naming an array that holds what is not finite.
  """
  pieces_of: dict[str, list[Piece]] = {}
  for piece in pieces:
    pieces_of.setdefault(piece.path, []).append(piece)
  params: dict = {}
  # Copies of many arrays that are transposed are bound by memory's latency.
  with futures.ThreadPoolExecutor(os.cpu_count()) as threads:
    for path, leaf in shapes.items():
      whole = np.zeros(leaf.shape, np.float32)

      def fill(piece: Piece, whole: np.ndarray = whole) -> None:
        place = whole[piece.place]
        array = entries[piece.name].read()
        if not np.isfinite(array).all():
          raise ValueError(f'{piece.name} holds numbers that are not finite')
        place[...] = piece.theirs(array, place.shape)

      list(threads.map(fill, pieces_of[path]))
      put(params, path.split('/'), keep(path, whole))
  return params


def scatter(params: Mapping, pieces: Sequence[Piece]) -> dict[str, np.ndarray]:
  """Returns name -> float32 array as they have it.

  Args:
    params: ours, unboxed.
    pieces: of all that their arrays hold.
  """
  leaves = flatten(params)
  arrays: dict[str, np.ndarray] = {}
  host: dict[str, np.ndarray] = {}
  for piece in pieces:
    if piece.path not in host:
      host[piece.path] = np.asarray(leaves[piece.path])
    if piece.name not in arrays:
      arrays[piece.name] = np.zeros(piece.shape, np.float32)
    value = host[piece.path][piece.place]
    piece.theirs(arrays[piece.name], value.shape)[...] = value
  return arrays


def flatten(tree: Mapping) -> dict[str, Any]:
  """Returns 'path/of/leaf' -> leaf."""
  return {
    jax.tree_util.keystr(path, simple=True, separator='/'): leaf
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }


def put(tree: dict, path: Sequence[str], value: Any) -> None:
  """Puts a value into nested dicts, made where they are not there."""
  *folders, last = path
  for folder in folders:
    tree = tree.setdefault(folder, {})
  tree[last] = value
