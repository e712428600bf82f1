"""Parquet and arrow files as tables, read in parts of a few megabytes."""

import contextlib
import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from etils import epath
from pyarrow import ipc, parquet

from data import storage
from data.text import text_files
from data.text.tables.table import Progress, Table, Values

# A part of a file that is a list of Python's values at one time.
PART_ROWS, PART_BYTES = 1024, 4_000_000
_BUFFER = 1 << 20
_PARQUET, _ARROW = b'PAR1', b'ARROW1'
_FEATHER_1 = b'FEA1'
# Raised for dates of far years, unknown time zones, parts of a microsecond.
_NO_VALUES = (
  ValueError,
  ArithmeticError,
  LookupError,
  ImportError,
  NotImplementedError,
)
_LFS = b'version https://git-lfs'
# The end of an IPC stream; before Arrow 0.15 it had no continuation mark.
_ENDS = (b'\xff\xff\xff\xff' + bytes(4), bytes(4))


def open_table(path: epath.Path) -> Table:
  """Opens .parquet, or .arrow and .feather: an IPC stream or file.

  Names of classes come from the metadata that Hugging Face's data sets write.
  Raises ValueError for a file of another kind, or that is cut off or damaged.
  """
  size, time = text_files.size_and_time(path)
  with _opened(path) as file:
    schema = _schema(path, file)
  return Table(
    name=str(path),
    types={field.name: str(field.type) for field in schema},
    texts=texts_of(schema),
    read=functools.partial(_read, path),
    num_bytes=size,
    stamp=[str(path), size, time],
    classes=classes_of(schema),
  )


def texts_of(schema: pa.Schema) -> tuple[str, ...]:
  """Returns the names of the columns of text."""
  return tuple(field.name for field in schema if _is_text(field.type))


def _is_text(kind: pa.DataType) -> bool:
  if pa.types.is_dictionary(kind):
    kind = kind.value_type
  return (
    pa.types.is_string(kind)
    or pa.types.is_large_string(kind)
    or pa.types.is_string_view(kind)
  )


def classes_of(schema: pa.Schema) -> dict[str, list[str]]:
  """Returns column -> names of its classes, from a schema's metadata."""
  try:
    info = json.loads((schema.metadata or {})[b'huggingface'])['info']
    features = info['features']
  except (KeyError, TypeError, ValueError):
    return {}
  try:
    found = {name: names_of(feature) for name, feature in features.items()}
  except (ValueError, AttributeError):  # not as datasets writes them
    return {}
  return {name: names for name, names in found.items() if names}


def names_of(feature: Any) -> list[str]:
  """Returns the names of a feature of classes, or of a list of these."""
  if isinstance(feature, list):  # a list of older versions
    return names_of(feature[0]) if len(feature) == 1 else []
  if not isinstance(feature, dict):
    return []
  if feature.get('_type') == 'ClassLabel':
    names = feature.get('names') or []
    if not isinstance(names, list) or not all(
      isinstance(name, str) for name in names
    ):
      raise ValueError(f'the names of classes are {names!r:.60}')
    return names
  of_list = feature.get('_type') in ('List', 'LargeList', 'Sequence')
  return names_of(feature.get('feature')) if of_list else []


@contextlib.contextmanager
def _opened(path: epath.Path) -> Iterator[BinaryIO | pa.NativeFile]:
  """Opens a file; a local one of arrow is mapped: its batches may be large."""
  text_files.check_file(path)
  if path.suffix.lower() in text_files.COMPRESSED:
    raise ValueError(
      f'{path}: found a compressed file of {text_files.ending(path)}, expected'
      ' one that is not: these are compressed inside. Unpack it'
    )
  if storage.is_remote(path):
    with path.open('rb') as file:
      if not hasattr(file, 'closed'):
        file.closed = False  # pyarrow takes TensorFlow's file for a closed one
      yield file
  elif text_files.size_and_time(path)[0]:
    is_parquet = text_files.ending(path) == '.parquet'
    opener = pa.OSFile if is_parquet else pa.memory_map
    with opener(str(path)) as file:
      yield file
  else:
    raise ValueError(f'{path}: is empty, expected a table')


def _kind(path: epath.Path, file: Any) -> str:
  """Returns 'parquet', 'file' or 'stream' (of IPC) by how a file begins."""
  start = file.read(len(_LFS))
  file.seek(0)
  kind = text_files.ending(path)
  if start.startswith(_LFS):
    raise ValueError(
      f'{path}: found a pointer of Git LFS, expected the file itself: git lfs'
      ' pull brings it'
    )
  if start.startswith(_FEATHER_1):
    raise ValueError(
      f'{path}: found Feather of version 1, expected version 2, which'
      ' pyarrow.feather.write_feather writes'
    )
  found = 'parquet' if start.startswith(_PARQUET) else 'stream'
  if start.startswith(_ARROW):
    found = 'file'
  if (found == 'parquet') != (kind == '.parquet'):
    raise ValueError(
      f'{path}: begins with {start[:8]!r}, expected'
      + (' PAR1, as a parquet file' if kind == '.parquet' else ' an arrow file')
    )
  return found


@contextlib.contextmanager
def _told(path: epath.Path, size: int, rows: Sequence[int] = ()):
  """Turns arrow's errors into a ValueError of one line; `rows` were read."""
  try:
    yield
  except (pa.ArrowException, OSError) as error:
    if isinstance(error, FileNotFoundError | PermissionError):
      raise
    why = (str(error).strip() or type(error).__name__).splitlines()[0]
    after = f' after row {sum(rows):,}' if sum(rows) else ''
    raise ValueError(
      f'{path}: the file is cut off or damaged{after} ({size:,} bytes):'
      f' {why.rstrip(".")}. Copy or download it again'
    ) from None


def _schema(path: epath.Path, file: Any) -> pa.Schema:
  kind = _kind(path, file)
  with _told(path, text_files.size_and_time(path)[0]):
    if kind == 'parquet':
      return parquet.ParquetFile(file).schema_arrow
    if kind == 'file':
      return ipc.open_file(file).schema
    return ipc.open_stream(file).schema


def _read(
  path: epath.Path, columns: Sequence[str], progress: Progress
) -> Iterator[tuple[int, Values]]:
  size = text_files.size_and_time(path)[0]
  number, read = 0, []
  with _opened(path) as file:
    _check_single(path, file, columns)
    batches = _batches(path, file, columns, progress)
    while True:
      with _told(path, size, read):
        batch = next(batches, None)
      if batch is None:
        return
      for values in values_of(str(path), batch, columns, number):
        number += 1
        yield number, values
      read.append(batch.num_rows)


def _check_single(path: epath.Path, file: Any, columns: Sequence[str]) -> None:
  names = _schema(path, file).names
  for column in columns:
    if names.count(column) > 1:
      raise ValueError(
        f'{path}: found {names.count(column)} columns named {column!r},'
        ' expected one'
      )
  file.seek(0)


def _batches(
  path: epath.Path, file: Any, columns: Sequence[str], progress: Progress
) -> Iterator[pa.RecordBatch]:
  """Yields batches of some columns, of about `PART_BYTES` or less."""
  kind = _kind(path, file)
  if kind == 'parquet':
    # Else it holds whole columns of row groups, and all that it has read.
    table = parquet.ParquetFile(
      file,
      buffer_size=_BUFFER,
      pre_buffer=False,
      page_checksum_verification=True,
    )
    rows, size = table.metadata.num_rows, text_files.size_and_time(path)[0]
    done = 0
    for batch in table.iter_batches(
      batch_size=_part_rows(table.metadata),
      columns=list(columns),
      use_threads=False,
    ):
      yield batch
      done += batch.num_rows
      progress(size * done // rows)
    progress(size)
    return
  if kind == 'file':
    opened = ipc.open_file(file)
    options = _only(opened.schema, columns)
    opened = ipc.open_file(file, options=options)
    whole = map(opened.get_batch, range(opened.num_record_batches))
  else:
    whole = _stream(file, columns)
  for batch in whole:
    yield from parts_of(batch)
    progress(file.tell())
  progress(text_files.size_and_time(path)[0])


def _stream(file: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
  """Yields the batches of a stream; ArrowInvalid where its end has no mark.

  Arrow's format and reader take the end of the file for it, too; but every
  writer marks it, and without the mark the file was cut between two batches.
  """
  schema = ipc.open_stream(file).schema
  file.seek(0)
  batches = ipc.open_stream(file, options=_only(schema, columns))
  end = file.tell()
  for batch in batches:
    yield batch
    end = file.tell()
  file.seek(end)
  found = file.read(max(map(len, _ENDS)) + 1)
  if found not in _ENDS:
    raise pa.ArrowInvalid(
      f'found {found!r} after the last batch, expected the mark of the end of a'
      ' stream, and nothing after it'
    )


def _only(schema: pa.Schema, columns: Sequence[str]) -> ipc.IpcReadOptions:
  places = sorted(schema.get_field_index(name) for name in columns)
  return ipc.IpcReadOptions(included_fields=places)


def _part_rows(metadata: parquet.FileMetaData) -> int:
  """Returns how many rows have `PART_BYTES`, at most 1,024."""
  largest = max(
    (
      group.total_byte_size / max(1, group.num_rows)
      for group in map(metadata.row_group, range(metadata.num_row_groups))
    ),
    default=0,
  )
  return max(1, min(PART_ROWS, int(PART_BYTES / (largest + 1))))


def parts_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
  """Yields a batch in parts of about `PART_BYTES`, at most 1,024 rows."""
  rows = PART_BYTES * batch.num_rows // max(1, batch.nbytes)
  rows = max(1, min(PART_ROWS, rows))
  for start in range(0, batch.num_rows, rows):
    yield batch.slice(start, rows)


def read_chosen(
  paths: Sequence[str],
  indices: Sequence[str],
  columns: Sequence[str],
  progress: Progress,
) -> Iterator[tuple[int, Values]]:
  """Yields chosen rows of files of streams; `indices` are files of a column.

  The files are mapped: only the rows of a part are in memory at a time.
  """
  total, size_of = 0, lambda path: text_files.size_and_time(path)[0]
  with contextlib.ExitStack() as stack:
    batches: list[pa.RecordBatch] = []
    for path in map(epath.Path, paths):
      file = stack.enter_context(_opened(path))
      total += size_of(path)
      _check_single(path, file, columns)
      with _told(path, size_of(path)):
        batches += _stream(file, columns)
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    number = 0
    for path in map(epath.Path, indices):
      if 'indices' not in open_table(path).types:
        raise ValueError(f"{path}: found no column 'indices', expected one")

      def scaled(position: int, size: int = size_of(path)) -> None:
        progress(total * position // size)

      for _, (row,) in _read(path, ('indices',), scaled):
        number += 1
        if row is None or not 0 <= row < starts[-1]:
          raise ValueError(
            f'{path}, row {number:,}: found the row {row}, expected 0 to'
            f' {starts[-1] - 1:,} of {paths[0]}'
          )
        at = int(np.searchsorted(starts, row, 'right')) - 1
        one = batches[at].slice(row - int(starts[at]), 1)
        (values,) = values_of(paths[0], one, columns, row)
        yield number, values


def values_of(
  name: str, batch: pa.RecordBatch, columns: Sequence[str], before: int
) -> Iterator[Values]:
  """Yields the values of each row of a batch; `before` it there were rows.

  Raises ValueError, with the row, at a text that is not UTF-8, or another value
  that Python has not.
  """
  lists = []
  for column in columns:
    found = batch.column(batch.schema.get_field_index(column))
    _check_whole(name, found, before)
    try:
      lists.append(found.to_pylist())
    except _NO_VALUES:
      row, what = _first_wrong(found, column)
      raise ValueError(f'{name}, row {before + row + 1:,}: {what}') from None
  yield from zip(*lists, strict=True)


def _check_whole(name: str, column: pa.Array, before: int) -> None:
  """Raises ValueError for places outside of a column's memory.

  IPC has no checksums, and reading there would end the process.
  """
  try:
    column.validate(full=True)
  except pa.ArrowInvalid as error:
    why = (str(error).strip() or type(error).__name__).splitlines()[0]
    if 'UTF8' not in why:  # places are checked first; `values_of` tells the row
      raise ValueError(
        f'{name}: the file is damaged after row {before:,}: {why}. Copy or'
        ' download it again'
      ) from None


def _first_wrong(values: pa.Array, column: str) -> tuple[int, str]:
  """Returns the first row that Python cannot have, and what is wrong there."""
  for row in range(len(values)):
    try:
      values[row].as_py()
    except UnicodeDecodeError as error:
      return row, (
        f'found the byte 0x{error.object[error.start]:02x} in the column'
        f' {column!r} at byte {error.start:,}, expected UTF-8'
      )
    except _NO_VALUES as error:
      why = ' '.join(str(error).split()) or type(error).__name__
      return row, (
        f'found {values.type} in the column {column!r} that is no value of'
        f" Python's ({why.rstrip('.')}), expected text or numbers"
      )
  raise AssertionError('every row was converted, and the column was not')
