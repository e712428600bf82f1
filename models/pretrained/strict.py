"""How published arrays and ours correspond, and the way between, both ways.

A format is a list of pieces, each a part of one of their arrays that is a part
of one of ours. Reading and writing go by the same list; what does not fit is
named, all of it at once.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import jax
import numpy as np
from etils import epath
from flax import linen as nn

# Arrays that begin at a multiple of this become JAX's on the CPU as they are.
ALIGNMENT = 64
# Rows that are turned at a time: their lines of memory fit in a core's cache.
ROWS_AT_A_TIME = 64


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


@dataclasses.dataclass(frozen=True)
class Published:
  """Published weights, opened: sizes and names are known, no array is read.

  Attributes:
    folder: where they lie.
    kind: 'Hugging Face', 'TensorFlow', 'OpenAI' or 'ELMo', for people.
    name: 'bert', 'gpt', 'gpt2' or 'elmo'; of what we do not have, their name.
    model: of ours; None where the config is not enough for one, which the
      problems tell then.
    pieces: of the model's arrays and of extra heads.
    entries: the arrays, without those set aside, under the names of the pieces.
    shapes: 'path/of/leaf' -> shape, of `model.init` and of extra heads.
    heads: extra heads that are there: of 'classifier', 'token_classifier' and
      'span_classifier', each with a kernel [D, K] and a bias [K].
    labels: number, as a string -> name, of a head's classes, where published.
    set_aside: names that are known and not used, such as an optimiser's.
    notes: what the files do not tell, and how they are read.
    problems: a line for each thing that we do not have or that does not fit.
  """

  folder: epath.Path
  kind: str
  name: str
  model: nn.Module | None = None
  pieces: Sequence['Piece'] = ()
  entries: Mapping[str, 'Entry'] = dataclasses.field(default_factory=dict)
  shapes: Mapping[str, jax.ShapeDtypeStruct] = dataclasses.field(
    default_factory=dict
  )
  heads: tuple[str, ...] = ()
  labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
  set_aside: tuple[str, ...] = ()
  notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  problems: tuple[str, ...] = ()

  def check(self) -> None:
    """Raises a ValueError that lists all problems, where there are any."""
    if self.problems:
      raise ValueError(
        f'{self.folder}: these weights do not fit:\n  '
        + '\n  '.join(self.problems)
      )

  def load(
    self, keep: Callable[[str, np.ndarray], Any] = lambda path, array: array
  ) -> dict:
    """Returns the parameters, read now; see `gather`.

    Args:
      keep: (path, float32 array) -> leaf.

    Returns:
      What `keep` made of float32 NumPy arrays, in a tree like that of
      `model.init`, unboxed, with the extra heads beside.

    Raises:
      ValueError: if there are problems, or a file is damaged, or an array holds
        what is not finite.
    """
    self.check()
    try:
      return gather(self.entries, self.pieces, self.shapes, keep)
    except ValueError as error:
      raise ValueError(f'{self.folder}: {error}') from error


def in_memory(arrays: Mapping[str, np.ndarray]) -> dict[str, Entry]:
  """Returns entries of arrays that are there already."""
  return {
    name: Entry(array.shape, array.dtype, lambda array=array: array)
    for name, array in arrays.items()
  }


def rename(
  entries: Mapping[str, Entry], name_of: Callable[[str], str | None]
) -> tuple[dict[str, Entry], tuple[str, ...], list[str]]:
  """Gives entries their format's plain names.

  Args:
    entries: as in the file.
    name_of: name in the file -> plain name, such as without a prefix; None for
      what is known and not used.

  Returns:
    The entries under their plain names, the names that are not used, and a line
    for each name that two arrays have.
  """
  renamed: dict[str, Entry] = {}
  set_aside, problems = [], []
  for name, entry in entries.items():
    plain = name_of(name)
    if plain is None:
      set_aside.append(name)
    elif plain in renamed:
      problems.append(f'twice, with and without a prefix: {plain}')
    else:
      renamed[plain] = entry
  return renamed, tuple(set_aside), problems


def tie(entries: dict[str, Entry], name: str, twin: str) -> None:
  """Joins an array and its copy, if there is one: read, they must be equal.

  Args:
    entries: the copy is taken out, and what is left stands under `name`.
    name: of the array.
    twin: of the copy.
  """
  if twin not in entries:
    return
  copy = entries.pop(twin)
  if name not in entries:
    entries[name] = copy
    return
  entry = entries[name]

  def read() -> np.ndarray:
    array = entry.read()
    if not np.array_equal(array, copy.read(), equal_nan=True):
      raise ValueError(
        f'{twin} differs from {name}: here the softmax is tied to the tokens,'
        ' train the model so or use it elsewhere'
      )
    return array

  entries[name] = entry._replace(read=read)


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
  # Copies of many arrays that are turned are bound by memory's latency.
  with futures.ThreadPoolExecutor(os.cpu_count()) as threads:
    for path, leaf in shapes.items():
      whole = _zeros(leaf.shape)

      def fill(piece: Piece, whole: np.ndarray = whole) -> None:
        place = whole[piece.place]
        part = piece.theirs(entries[piece.name].read(), place.shape)
        _copy(place, part, piece.num_inputs)
        # Where any number is not finite, one of these is not.
        if place.size and not np.isfinite([place.min(), place.max()]).all():
          raise ValueError(f'{piece.name} holds numbers that are not finite')

      list(threads.map(fill, pieces_of[path]))
      put(params, path.split('/'), keep(path, whole))
  return params


def _zeros(shape: Sequence[int]) -> np.ndarray:
  """Returns float32 zeros that begin at a multiple of `ALIGNMENT`."""
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
    part = piece.theirs(arrays[piece.name], value.shape)
    _copy(part, value, piece.num_inputs)
  return arrays


def shapes_of(
  model: nn.Module, *inputs: jax.ShapeDtypeStruct, **options: Any
) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns 'path/of/leaf' -> shape of all parameters of a model.

  Args:
    model: the module.
    *inputs: what it is called with.
    **options: what else.
  """
  # Unboxed while nothing is there: where a mesh is set, flax would place it.
  params = jax.eval_shape(
    lambda rng, *inputs: nn.meta.unbox(
      model.init(rng, *inputs, **options)['params']
    ),
    jax.random.key(0),
    *inputs,
  )
  return flatten(params)


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
