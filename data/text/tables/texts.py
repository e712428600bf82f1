"""Tables as sources of text: a record is a document."""

import functools
from collections.abc import Iterator, Mapping, Sequence

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

  A folder is a data set: of several splits `train` is read. Beside parquet and
  arrow files it may have any others, beside tables of commas or tabs only .md;
  these are dropped. Raises ValueError or FileNotFoundError, with the file.
  """
  tables = [path for path in paths if text_files.is_table(path)]
  others = [path for path in paths if not text_files.is_table(path)]
  binary = any(opening.is_binary(path) for path in tables)
  texts = [path for path in others if path.suffix != '.md']
  if texts and not (from_folder and binary):
    raise ValueError(
      f'source {spec!r}: found text, such as {texts[0]}, and tables, such as'
      f' {tables[0]}, expected one of both: name the files of one ending, as in'
      f" '{texts[0].parent}/*{texts[0].suffix}'"
    )
  if from_folder:
    return _open(spec, data_sets.find(spec, spec, '', ''), text_field)
  found = data_sets.DataSet(
    list(map(opening.open_table, tables)),
    data_sets.count(tables),
    {data_sets.BESIDE: list(map(str, others))},
  )
  return _open(spec, found, text_field)


def open_named(spec: str, text_field: str) -> Source:
  """Opens hf:NAME[:CONFIG][:SPLIT], a local folder or a set of the hub."""
  found = data_sets.find(spec, *data_sets.parse(spec))
  return _open(spec, found, text_field)


def _open(spec: str, found: data_sets.DataSet, text_field: str) -> Source:
  tables = found.tables
  field, guessed = choose_column(tables, text_field, _OPTION)
  num_bytes = sum(table.num_bytes for table in tables)
  only = ', the only one of text' if guessed else ''
  if len(field.split()) > _MOST_WORDS:
    only += ' (is line 1 a record? It was taken for the titles)'
  return Source(
    spec=spec,
    description=f'{found.description}, {num_bytes / 1e6:.1f} MB, a document is'
    f' a record, the text is its column {field!r}{only}',
    fingerprint=digest([table.stamp for table in tables], field),
    document_break='record',
    num_bytes=num_bytes,
    form='records',
    read=functools.partial(
      _read, tables=tables, field=field, dropped=found.dropped
    ),
  )


def _read(
  source: Source,
  white_space: str,
  *,
  tables: Sequence[Table],
  field: str,
  dropped: Mapping[str, Sequence[str]],
) -> Iterator[Piece]:
  for reason, names in dropped.items():
    for name in names:
      source.drop_file(reason, name)
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
