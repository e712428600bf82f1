"""Rows of comma-separated files, with quotes, and where quoting goes wrong."""

import csv
from collections.abc import Callable, Iterator

from etils import epath

from data.text import text_files


def read(
  path: epath.Path, progress: Callable[[int], None] | None = None
) -> Iterator[tuple[int, list[str]]]:
  """Yields (line in which it begins, fields) of each row that is not empty.

  `progress` is as in `text_files.chunks`. Raises ValueError, with the line in
  which the quotation mark opens, at wrong quoting.
  """
  csv.field_size_limit(text_files.LONGEST_LINE)  # 131,072 by default
  held: list[str] = []  # the lines of the row that is being read

  def lines() -> Iterator[str]:
    for line in text_files.lines(text_files.chunks(path, progress), path):
      held.append(line + '\n')
      yield held[-1]

  rows = csv.reader(lines(), strict=True)
  while True:
    first = rows.line_num + 1
    held.clear()
    try:
      row = next(rows)
    except StopIteration:
      return
    except csv.Error as error:
      raise ValueError(
        f'{path}, {_explain(error, first, rows.line_num, held)}'
      ) from None
    if row:
      yield first, row


def _explain(error: csv.Error, first: int, last: int, held: list[str]) -> str:
  """Returns the place and the reason of wrong quoting in a row's lines."""
  index, column = _last_opening(held)
  opened, excerpt = first + index, held[index][column : column + 60].rstrip()
  if 'unexpected end' in str(error):
    return (
      f'line {opened:,}: found a quotation mark that opens a field and is never'
      f' closed: {excerpt!r}; the file ends in line {last:,}. Expected fields'
      ' quoted where they hold commas, with marks inside them doubled'
    )
  return (
    f'line {last:,}: found wrong quoting ({error}) in a field that opens in'
    f' line {opened:,}: {excerpt!r}. Expected comma-separated fields, quoted'
    ' where they hold commas, with marks inside them doubled'
  )


def _last_opening(lines: list[str]) -> tuple[int, int]:
  """Returns the line, from 0, and column of the last mark that opens a field.

  (0, 0) if none does.
  """
  found = 0, 0
  quoted, begins = False, True  # inside quotes; at the beginning of a field
  for number, line in enumerate(lines):
    for column, character in enumerate(line):
      if quoted:
        quoted = character != '"'
      elif character == '"' and begins:
        found, quoted = (number, column), True
      elif character == '"' and column and line[column - 1] == '"':
        quoted = True  # the second one of a doubled mark
      begins = not quoted and character in ',\n'
  return found
