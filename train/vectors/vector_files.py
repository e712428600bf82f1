"""Files of vectors, HDF5 or JSONL, which get their name once they are whole.

HDF5: a data set '0', '1', ... a line of the text; `sentence_to_index`, a string
of JSON: {line: name of its data set}, the first one where lines are the same;
and where tokens or words are told, `tokens` or `words`, a JSON list a line.
JSONL: {"index": 0, "tokens": [...], "vectors": [...]} a line, in their order.
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator
from typing import NamedTuple, TextIO

import h5py
import numpy as np

from train.host import files

INDEX = 'sentence_to_index'
HDF5 = ('.hdf5', '.h5')
JSONL = '.jsonl'


class Vectors(NamedTuple):
  """What a model makes of a line.

  Attributes:
    array: float32, [..., tokens or words, D], or [..., D] of a sentence.
    labels: the tokens or words; None of a sentence.
    num_tokens: tokens or words that were read.
  """

  array: np.ndarray
  labels: list[str] | None
  num_tokens: int


def is_jsonl(path: str | os.PathLike) -> bool:
  """Returns whether a file is to be JSONL; else it is HDF5.

  Raises:
    ValueError: if its name says neither.
  """
  suffix = pathlib.Path(path).suffix
  if suffix not in (*HDF5, JSONL):
    raise ValueError(
      f'{path}: expected a name that ends in {", ".join(HDF5)} or {JSONL}'
    )
  return suffix == JSONL


def check(path: str | os.PathLike, *, overwrite: bool) -> None:
  """Refuses, before work is done, a file that could or should not be written.

  Raises:
    FileExistsError: if it is there, unless to `overwrite`; or a folder.
    FileNotFoundError: if its folder is not there.
    ValueError: if it is remote.
  """
  if '://' in str(path):
    raise ValueError(
      f'{path}: files of vectors are written here and there, so OUTPUT must be'
      ' local; copy it later'
    )
  files.check_writable(path)
  if pathlib.Path(path).is_dir():
    raise FileExistsError(f'{path} is a folder, expected a file to write')
  if pathlib.Path(path).exists() and not overwrite:
    raise FileExistsError(
      f'{path} is already there; --overwrite replaces it at the end'
    )


class Hdf5File:
  """An HDF5 file to write; of the lines their text is held in memory."""

  def __init__(self, file: h5py.File, num_lines: int, labels: str | None):
    """Begins a file.

    Args:
      file: open and empty.
      num_lines: of the text.
      labels: the name for labels; None: they are not written.
    """
    self._file = file
    self._first_of: dict[str, str] = {}
    self._labels = labels and file.create_dataset(
      labels, (num_lines,), dtype=h5py.string_dtype()
    )

  def add_line(self, number: int, line: str) -> None:
    """Notes a line, in the order of the text."""
    self._first_of.setdefault(line.strip(), str(number))

  def write(self, number: int, vectors: Vectors) -> None:
    """Writes the vectors of a line, in any order."""
    self._file.create_dataset(str(number), data=vectors.array)
    if self._labels is not None:
      self._labels[number] = json.dumps(vectors.labels, ensure_ascii=False)

  def finish(self) -> None:
    """Writes what is known at the end."""
    index = self._file.create_dataset(INDEX, (1,), dtype=h5py.string_dtype())
    index[0] = json.dumps(self._first_of)


class JsonlFile:
  """A JSONL file to write."""

  def __init__(self, file: TextIO, labels: str | None):
    """Begins a file; `labels` is the key of the labels, None: not written."""
    self._file, self._labels = file, labels

  def add_line(self, number: int, line: str) -> None:
    """Nothing is told of a line but its number."""

  def write(self, number: int, vectors: Vectors) -> None:
    """Writes the vectors of a line; the lines come in their order."""
    record = {'index': number}
    if self._labels is not None:
      record[self._labels] = vectors.labels
    record['vectors'] = vectors.array.tolist()
    self._file.write(json.dumps(record, ensure_ascii=False) + '\n')


@contextlib.contextmanager
def create(
  path: str | os.PathLike, *, num_lines: int, labels: str | None
) -> Iterator[Hdf5File | JsonlFile]:
  """Opens a file to write that gets its name once it is whole.

  Args:
    path: the file; what is there stays until then.
    num_lines: of the text.
    labels: 'tokens' or 'words', or None, see above.

  Raises:
    ValueError: if its name does not tell the format.
    OSError: if it cannot be written.
  """
  path = pathlib.Path(path)
  new = path.with_name(f'.{path.name}.{os.getpid()}.new')
  try:
    if is_jsonl(path):
      with new.open('w', encoding='utf-8') as file:
        yield JsonlFile(file, labels)
    else:
      with h5py.File(new, 'w') as file:
        writer = Hdf5File(file, num_lines, labels)
        yield writer
        writer.finish()
    new.replace(path)
  except BaseException:
    new.unlink(missing_ok=True)
    raise
