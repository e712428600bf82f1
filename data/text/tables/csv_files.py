"""Files of comma-separated and tab-separated columns as tables."""

import itertools
from collections.abc import Iterator, Sequence

from etils import epath

from data.text import csv_rows, text_files
from data.text.tables.table import Progress, Table, Values

_SAMPLE_ROWS = 200  # in which a column of text has something else than numbers


def open_table(path: epath.Path) -> Table:
  """Opens a .csv or .tsv file, perhaps compressed; its first line has titles.

  A column is of text if one of the first rows has neither a number nor nothing
  in it; any other may be named as one. Fields of a .csv file may be quoted,
  those of a .tsv file not. Raises ValueError for other separators, and where
  `_rows` does.
  """
  rows = _rows(path, None)
  _, titles = next(rows, (0, []))
  if not titles:
    raise ValueError(f'{path}: is empty, expected a line of titles')
  is_csv = text_files.ending(path) == '.csv'
  others = '\t;|' if is_csv else ',;|'
  if len(titles) == 1 and any(mark in titles[0] for mark in others):
    raise ValueError(
      f'{path}, line 1: found one column with the title {titles[0][:80]!r},'
      f' expected columns with {"commas" if is_csv else "tabs"} between them.'
      ' Write it so, as .csv with commas or as .tsv with tabs'
    )
  sample = [row for _, row in itertools.islice(rows, _SAMPLE_ROWS)]
  types = {}
  for column, title in enumerate(titles):
    values = [row[column] for row in sample]
    is_text = not values or not all(map(_is_number, values))
    types[title] = 'text' if is_text else 'numbers' if any(values) else 'empty'

  def read(
    columns: Sequence[str], progress: Progress
  ) -> Iterator[tuple[int, Values]]:
    for column in columns:
      if titles.count(column) > 1:
        raise ValueError(
          f'{path}, line 1: found {titles.count(column)} columns of the title'
          f' {column!r}, expected one'
        )
    places = [titles.index(column) for column in columns]
    for number, row in itertools.islice(_rows(path, progress), 1, None):
      yield number, tuple(row[place] for place in places)

  size, time = text_files.size_and_time(path)
  return Table(
    name=str(path),
    types=types,
    texts=tuple(title for title in types if types[title] == 'text'),
    readable=tuple(titles),
    read=read,
    num_bytes=size,
    stamp=[str(path), size, time],
    unit='line',
  )


def _rows(
  path: epath.Path, progress: Progress | None
) -> Iterator[tuple[int, list[str]]]:
  """Yields (line, fields) of all rows, the titles first.

  Raises ValueError, with the line, at rows of another number of fields.
  """
  if text_files.ending(path) == '.csv':
    rows, mark = csv_rows.read(path, progress), 'commas'
  else:
    lines = text_files.lines(text_files.chunks(path, progress), path)
    rows = ((n, line.split('\t')) for n, line in enumerate(lines, 1) if line)
    mark = 'tabs'
  titles: list[str] = []
  for number, row in rows:
    titles = titles or row
    if len(row) != len(titles):
      raise ValueError(
        f'{path}, line {number:,}: found {len(row)} fields, expected'
        f' {len(titles)} with {mark} between them, as the titles have'
        f' ({", ".join(titles)[:80]}): {" | ".join(row)[:80]!r}'
      )
    for field in row if mark == 'tabs' else ():
      if '""' in field and field[0] == field[-1] == '"' and len(field) > 2:
        raise ValueError(
          f'{path}, line {number:,}: found a field in the quotes of CSV,'
          f' expected plain text: {field[:80]!r}. Write it without quoting, or'
          ' name the file .csv, with commas'
        )
    yield number, row


def _is_number(value: str) -> bool:
  try:
    float(value or '0')
  except ValueError:
    return False
  return True
