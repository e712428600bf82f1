"""Tables as sources of text: a record is a document."""

import functools
from collections.abc import Iterator, Sequence

from etils import epath

from data.text import text_files
from data.text.tables import data_sets, opening
from data.text.tables.table import Table, choose_column
from data.text.text_pieces import (
  NULL_TEXT,
  Piece,
  Source,
  digest,
  record_pieces,
)

_MOST_WORDS = 5  # of a usual title
_OPTION = 'text_field'  # data.text_field, --text_field


def open_files(
  spec: str, paths: Sequence[epath.Path], from_folder: bool, text_field: str
) -> Source:
  """Opens a path, a folder or a glob of files, some of which are tables.

  A folder with parquet or arrow files is a data set: its README.md and the like
  are left out, and of several splits `train` is read. Tables of commas or tabs
  stand in no folder with other text. Raises ValueError or FileNotFoundError,
  with the file.
  """
  tables = [path for path in paths if text_files.is_table(path)]
  others = [path for path in paths if not text_files.is_table(path)]
  binary = any(opening.is_binary(path) for path in tables)
  if from_folder and binary:
    return _open_set(spec, spec, '', '', text_field)
  others = [path for path in others if path.suffix != '.md']
  if others:
    raise ValueError(
      f'source {spec!r}: found text, such as {others[0]}, and tables, such as'
      f' {tables[0]}, expected one of both: name the files of one ending, as in'
      f" '{others[0].parent}/*{others[0].suffix}'"
    )
  count = f'{len(tables)} files' if len(tables) > 1 else '1 file'
  return _open(spec, count, list(map(opening.open_table, tables)), text_field)


def open_named(spec: str, text_field: str) -> Source:
  """Opens hf:NAME[:CONFIG][:SPLIT], a local folder or a set of the hub."""
  return _open_set(spec, *data_sets.parse(spec), text_field)


def _open_set(
  spec: str, name: str, config: str, split: str, text_field: str
) -> Source:
  found = data_sets.find(spec, name, config, split)
  return _open(spec, found.description, found.tables, text_field, found.beside)


def _open(
  spec: str,
  count: str,
  tables: Sequence[Table],
  text_field: str,
  beside: Sequence[str] = (),
) -> Source:
  field, guessed = choose_column(tables, text_field, _OPTION)
  num_bytes = sum(table.num_bytes for table in tables)
  only = ', the only one of text' if guessed else ''
  if len(field.split()) > _MOST_WORDS:
    only += ' (is line 1 a record? It was taken for the titles)'
  return Source(
    spec=spec,
    description=f'{count}, {num_bytes / 1e6:.1f} MB, a document is a record,'
    f' the text is its column {field!r}{only}',
    fingerprint=digest([table.stamp for table in tables], field),
    document_break='record',
    num_bytes=num_bytes,
    form='records',
    read=functools.partial(_read, tables=tables, field=field, beside=beside),
  )


def _read(
  source: Source,
  white_space: str,
  *,
  tables: Sequence[Table],
  field: str,
  beside: Sequence[str],
) -> Iterator[Piece]:
  for name in beside:
    source.drop_file('file beside the tables', name)
  base = 0

  def progress(position: int) -> None:
    source.bytes_read = base + position

  for table in tables:
    for _, (text,) in table.rows((field,), progress):
      if text is None:
        source.dropped[NULL_TEXT] += 1
      else:
        yield from record_pieces(source, text, white_space)
    base += table.num_bytes
    source.bytes_read = base
