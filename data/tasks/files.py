"""Lines, tables and JSON out of the files of labelled sets."""

import csv
import json
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from etils import epath

from data.text import text_files

# What csv writes where a text holds a quotation mark: "He said ""no""".
_CSV_QUOTES = re.compile('"(?:[^"]|"")*""(?:[^"]|"")*"')


def read_lines(file: epath.Path) -> Iterator[tuple[int, str]]:
  """Yields (number, line) from 1 on, without byte order mark and line end.

  Raises:
    ValueError: at bytes that are not UTF-8, naming the line.
  """
  yield from enumerate(text_files.lines(text_files.chunks(file)), start=1)


def header_of(file: epath.Path) -> tuple[str, ...]:
  """Returns the fields of a tab-separated file's first line."""
  for _, line in read_lines(file):
    return tuple(line.split('\t'))
  raise ValueError(f'{file}: is empty; expected a line for every example')


def read_tsv(
  file: epath.Path,
  columns: Sequence[str] | Sequence[int],
  *,
  width: int = 0,
  open_end: bool = False,
  drop_short: bool = False,
  refuse_quotes: bool = False,
) -> Iterator[tuple[int, list[str]]]:
  """Yields (line, fields) of a tab-separated file, without any quoting.

  A quotation mark is a character like others: the releases hold unbalanced
  ones. Empty lines are passed over.

  Args:
    file: in UTF-8.
    columns: titles in the first line; or, where there is none, numbers.
    width: number of columns of a file without titles.
    open_end: rows may end after the last wanted column.
    drop_short: rows with too few columns are dropped and counted on standard
      error, for releases that are known to hold some.
    refuse_quotes: fields may not look as a writer of CSV quotes them.

  Raises:
    ValueError: at missing titles and rows of another width, by their line.
  """
  lines = read_lines(file)
  if width:
    wanted = [int(column) for column in columns]
  else:
    titles = next(lines, (1, ''))[1].split('\t')
    _check_titles(file, titles, columns)
    width = len(titles)
    wanted = [titles.index(column) for column in columns]
  least = max(wanted) + 1 if open_end else width
  dropped = 0
  for number, line in lines:
    if not line:
      continue
    fields = line.split('\t')
    if not least <= len(fields) <= width:
      if drop_short and len(fields) < least:
        dropped += 1
        continue
      raise ValueError(
        f'{file}, line {number:,}: found {len(fields)} columns, expected '
        f'{width} with a tab between them and no quoting: {line[:80]!r}'
      )
    row = [fields[column] for column in wanted]
    if refuse_quotes:
      for field in row:
        if _CSV_QUOTES.fullmatch(field):
          raise ValueError(
            f'{file}, line {number:,}: found a field in the quotes of CSV, '
            f'expected plain text: {field[:80]!r}. Write it without quoting, '
            'or name the file .csv'
          )
    yield number, row
  if dropped:
    note(
      f'{file}: {dropped:,} damaged rows of fewer than {least} columns dropped'
    )


def _check_titles(
  file: epath.Path, titles: Sequence[str], columns: Sequence[Any]
) -> None:
  missing = [column for column in columns if column not in titles]
  if not missing:
    return
  hint = ''
  is_csv = text_files.ending(file) == '.csv'
  if len(titles) == 1 and titles[0].startswith('{'):
    hint = '. A file with a JSON object a line is named .jsonl'
  elif len(titles) == 1 and is_csv and any(mark in titles[0] for mark in '\t;'):
    hint = '. The columns of a .csv file are separated by commas'
  elif len(titles) == 1 and any(mark in titles[0] for mark in ',;'):
    hint = (
      '. Columns are separated by tabs, or in a file that is named .csv by'
      ' commas'
    )
  elif not is_csv and any(title.strip('"') in missing for title in titles):
    hint = '. A .tsv file has no quoting'
  raise ValueError(
    f'{file}, line 1: found the columns {list(titles)}, expected among them '
    f'{missing}{hint}'
  )


def read_csv(
  file: epath.Path, columns: Sequence[str]
) -> Iterator[tuple[int, list[str]]]:
  """Yields (line, fields) of a comma-separated file with CSV's quoting.

  Args:
    file: in UTF-8, titles in the first line.
    columns: titles of the wanted fields.

  Raises:
    ValueError: at missing titles, rows of another width and wrong quoting, by
      the line where the row ends.
  """
  csv.field_size_limit(sys.maxsize)  # 131,072 by default
  rows = csv.reader((line + '\n' for _, line in read_lines(file)), strict=True)
  titles: list[str] | None = None
  wanted: list[int] = []
  try:
    for row in rows:
      if titles is None:
        titles = row
        _check_titles(file, titles, columns)
        wanted = [titles.index(column) for column in columns]
      elif len(row) == len(titles):
        yield rows.line_num, [row[column] for column in wanted]
      elif row:
        raise ValueError(
          f'{file}, line {rows.line_num:,}: found {len(row)} columns, expected '
          f'{len(titles)} with commas between them: {",".join(row)[:80]!r}'
        )
  except csv.Error as error:
    raise ValueError(
      f'{file}, line {rows.line_num:,}: found wrong quoting ({error}), '
      'expected comma-separated fields, quoted where they hold commas'
    ) from None
  if titles is None:
    raise ValueError(f'{file}: is empty; expected the columns {list(columns)}')


def csv_header_of(file: epath.Path) -> tuple[str, ...]:
  """Returns the fields of a comma-separated file's first line."""
  for _, line in read_lines(file):
    return tuple(next(csv.reader([line])))
  raise ValueError(f'{file}: is empty; expected a line for every example')


def read_jsonl(
  file: epath.Path, fields: Sequence[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
  """Yields (line, record) of a file with a JSON object a line.

  Args:
    file: in UTF-8.
    fields: that every record has.

  Raises:
    ValueError: at a line that is something else.
  """
  for number, line in read_lines(file):
    if not line.strip():
      continue
    where = f'{file}, line {number:,}'
    try:
      record = json.loads(line)
    except json.JSONDecodeError as error:
      raise ValueError(
        f'{where}: not JSON ({error}); expected one object a line with the '
        f'fields {list(fields)}. Found: {line[:60]!r}'
      ) from None
    check_fields(where, record, fields)
    yield number, record


def read_json(file: epath.Path) -> Any:
  """Returns what a JSON file holds.

  Raises:
    ValueError: if it is no JSON, naming the line.
  """
  try:
    return json.loads(text_files.read_text(file))
  except json.JSONDecodeError as error:
    raise ValueError(
      f'{file}, line {error.lineno:,}: not JSON ({error.msg})'
    ) from None


def check_fields(where: str, record: Any, fields: Sequence[str]) -> None:
  """Raises ValueError unless a record is an object that has these fields."""
  if not isinstance(record, dict):
    raise ValueError(
      f'{where}: found {type(record).__name__}, expected an object with the '
      f'fields {list(fields)}'
    )
  missing = [field for field in fields if field not in record]
  if missing:
    raise ValueError(
      f'{where}: found the fields {sorted(record)}, expected among them '
      f'{missing}'
    )


def text_of(where: str, record: dict[str, Any], field: str) -> str:
  """Returns a field that must hold text.

  Raises:
    ValueError: if it holds something else.
  """
  text = record.get(field)
  if not isinstance(text, str):
    raise ValueError(
      f'{where}: found {type(text).__name__} in the field {field!r}, expected '
      'text'
    )
  return text


def contents(folder: epath.Path) -> str:
  """Returns a sentence, without its point, of what a folder holds."""
  if not folder.is_dir():
    return f'There is no folder {folder}'
  names = sorted(path.name for path in folder.iterdir())
  shown = ', '.join(names[:12]) + (', ...' if names[12:] else '')
  return f'The folder holds {shown or "nothing"}'


def note(message: str) -> None:
  """Tells people what was done with their files."""
  print(message, file=sys.stderr, flush=True)
