"""Files of vectors, HDF5 or JSONL, which get their name once they are whole.

HDF5: a data set '0', '1', ... for each line; `sentence_to_index`, the JSON of
{line: its data set, the first of equal lines}; and `tokens` or `words`, if
there are labels, a JSON list for each line.
JSONL: {"index": 0, "tokens": [...], "vectors": [...]} for each line, in order.
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from data import scratch
from train.host import files

INDEX = 'sentence_to_index'
HDF5 = ('.hdf5', '.h5')
JSONL = '.jsonl'


class VectorFile(NamedTuple):
  """A line's float32 vectors [..., labels, D], or [..., D] without labels."""

  array: np.ndarray
  labels: list[str] | None
  num_tokens: int


def is_jsonl(path: str | os.PathLike) -> bool:
  """Returns whether a file is JSONL, else HDF5; ValueError for other names."""
  suffix = pathlib.Path(path).suffix
  if suffix not in (*HDF5, JSONL):
    raise ValueError(
      f'{path}: expected a name that ends in {", ".join(HDF5)} or {JSONL}'
    )
  return suffix == JSONL


def check_new(path: str | os.PathLike, *, overwrite: bool) -> None:
  """Checks that a vector file can be written: new, or with `overwrite`."""
  files.check_new(path, overwrite=overwrite, endings=(*HDF5, JSONL))


@contextlib.contextmanager
def create(
  path: str | os.PathLike,
  num_lines: int,
  labels: str | None,
  first_of: Mapping[str, str],
) -> Iterator[Callable[[int, VectorFile], None]]:
  """Yields a function that writes (number of a line, its vectors).

  JSONL takes the lines in order, HDF5 in any. An old file stays until the new
  one is whole. `labels` is 'tokens', 'words' or None; `first_of` maps a line to
  the number of its data set in HDF5, read at the end.
  """
  ordered = is_jsonl(path)
  with scratch.replacing(path) as new:
    if ordered:
      with new.open('w') as file:

        def write_line(number: int, vectors: VectorFile) -> None:
          named = {} if labels is None else {labels: vectors.labels}
          record = {'index': number, **named, 'vectors': vectors.array.tolist()}
          file.write(json.dumps(record, ensure_ascii=False) + '\n')

        yield write_line
      return
    import h5py

    text = h5py.string_dtype()
    with h5py.File(new, 'w') as file:
      lists = labels and file.create_dataset(labels, (num_lines,), dtype=text)

      def write_set(number: int, vectors: VectorFile) -> None:
        file.create_dataset(str(number), data=vectors.array)
        if lists is not None:
          lists[number] = json.dumps(vectors.labels, ensure_ascii=False)

      yield write_set
      file.create_dataset(INDEX, data=[json.dumps(first_of)], dtype=text)
