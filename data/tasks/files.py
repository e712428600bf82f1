"""The files of labelled sets: their places, lines, tables and JSON."""

import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from data import storage
from data.by_name import ByName
from data.text import languages, text_files

# A text with a quotation mark in CSV: "He said ""no""".
_CSV_QUOTES = re.compile('"(?:[^"]|"")*""(?:[^"]|"")*"')

# The place of a record, for messages, and its fields by name.
Records = Iterator[tuple[str, dict[str, Any]]]
_READERS = ByName({'tables': 'data.text.tables.data_sets:read_records'})


def find(
  source: str, folders: Sequence[str], names: Sequence[str]
) -> epath.Path | None:
  """Returns the first file that exists, or None: by folder, then by name.

  `folders` are those of `source`, which itself is the last.
  """
  storage.is_remote(source)  # or an error about the address of another place
  root = path_of(source).expanduser()
  for folder in (*(root / name for name in folders), root):
    for name in names:
      # A user's own file may be remote: a whole address.
      file = epath.Path(name) if storage.is_remote(name) else folder / name
      if is_named(name):
        return epath.Path(name)
      if file.exists():
        return file
  return None


def read_lines(file: epath.Path) -> Iterator[tuple[int, str]]:
  """Yields (number from 1, line) of UTF-8, without byte order mark and end."""
  yield from enumerate(text_files.lines_of(file), start=1)


def header_of(file: epath.Path) -> tuple[str, ...]:
  """Returns the fields of a tab-separated file's first line."""
  for _, line in read_lines(file):
    return tuple(line.split('\t'))
  raise ValueError(f'{file}: is empty; expected a line for every example')


def is_named(name: str) -> bool:
  """Returns whether a name is hf:NAME, and not the path of a file."""
  return name.startswith(languages.HUGGING_FACE)


def path_of(name: str | os.PathLike) -> epath.Path:
  """Returns a path, or hf:NAME as one.

  epath takes hf:gs:// for the address of an unknown place. As a path the name
  has one slash there, and `languages.named_parts` knows it.
  """
  return epath.Path(os.fspath(name).replace('hf:gs://', 'hf:gs:/', 1))


def has_lists(file: epath.Path) -> bool:
  """Returns whether the fields of a file's records may be lists."""
  return text_files.is_jsonl(file) or _is_table(file)


def _is_table(file: epath.Path) -> bool:
  """Returns whether a file is parquet or arrow, or a data set of such files."""
  if text_files.is_table(file):
    return text_files.ending(file) not in ('.csv', '.tsv')
  return is_named(str(file)) or file.is_dir()


def read_records(
  file: epath.Path,
  fields: Sequence[str],
  texts: Sequence[str] = (),
  optional: Sequence[str] = (),
) -> Records:
  """Yields (place, record) of a file in the format of its name.

  `optional` fields are read where they exist; others may lack their values.

  .jsonl has a JSON object a line, .csv commas and quotes; for parquet, arrow
  and Hugging Face's data sets see `text.tables`; any other file has tabs and no
  quotes. The first line of commas or tabs has the titles.
  """
  if _is_table(file):
    return _read_table(file, fields, texts, optional)
  if text_files.is_jsonl(file):
    return read_jsonl(file, fields, texts)
  if text_files.ending(file) == '.csv':
    return read_csv(file, (*texts, *fields))
  return read_tsv(file, (*texts, *fields), refuse_quotes=True)


def _read_table(
  file: epath.Path,
  fields: Sequence[str],
  texts: Sequence[str],
  optional: Sequence[str],
) -> Records:
  columns = {*fields, *texts, *optional}
  for where, record in _READERS['tables'](file, columns):
    check_fields(where, record, fields, texts)
    yield where, record


def read_tsv(
  file: epath.Path,
  fields: Sequence[str],
  *,
  titles: Sequence[str] = (),
  optional: Sequence[str] = (),
  open_end: bool = False,
  drop_short: bool = False,
  refuse_quotes: bool = False,
) -> Records:
  """Yields (place, record) of a tab-separated file, without any quoting.

  A quotation mark is an ordinary character: the releases hold unbalanced ones.
  Empty lines are skipped. `titles` are of all columns, by default the first
  line. `optional` columns are read where they exist; with `open_end` rows may
  end after the last column that is read; `drop_short` drops and counts shorter
  rows, which some releases hold; `refuse_quotes` refuses fields in the quotes
  of CSV. Raises ValueError, with the line, at missing titles and rows of
  another width.
  """
  lines = read_lines(file)
  has_titles = not titles
  if has_titles:
    titles = header_of(file)
    next(lines)
    _check_titles(file, titles, fields)
  places = {title: titles.index(title) for title in titles}
  width = least = len(titles)
  if open_end:
    wanted = places.keys() & {*fields, *optional}
    least = max(places[title] for title in wanted) + 1
  dropped = 0
  for number, line in lines:
    if not line:
      continue
    row = line.split('\t')
    if has_titles and row == list(titles) and width > 1:
      raise ValueError(
        f'{file}, line {number:,}: found the line of titles again: take it out'
      )
    if drop_short and len(row) < least:
      dropped += 1
      continue
    if not least <= len(row) <= width:
      raise ValueError(
        f'{file}, line {number:,}: found {len(row)} columns, expected '
        f'{width} with a tab between them and no quoting: {line[:80]!r}'
      )
    for field in row if refuse_quotes else ():
      if _CSV_QUOTES.fullmatch(field):
        raise ValueError(
          f'{file}, line {number:,}: found a field in the quotes of CSV, '
          f'expected plain text: {field[:80]!r}. Write it without quoting, or '
          'name the file .csv'
        )
    yield (
      f'{file}, line {number:,}',
      {title: row[i] for title, i in places.items() if i < len(row)},
    )
  if dropped:
    note(
      f'{file}: {dropped:,} damaged rows of fewer than {least} columns dropped'
    )


def _check_titles(
  file: epath.Path, titles: Sequence[str], fields: Sequence[str]
) -> None:
  doubled = [field for field in fields if titles.count(field) > 1]
  if doubled:
    raise ValueError(
      f'{file}, line 1: found {titles.count(doubled[0])} columns of the title'
      f' {doubled[0]!r}, expected one: rename those that are not read'
    )
  missing = [field for field in fields if field not in titles]
  if not missing:
    return
  hint = ''
  is_csv = text_files.ending(file) == '.csv'
  if len(titles) == 1 and titles[0].startswith('{'):
    hint = '. The name of a file of JSON objects ends in .jsonl'
  elif (
    len(titles) == 1 and is_csv and any(mark in titles[0] for mark in '\t;|')
  ):
    hint = '. The columns of a .csv file are separated by commas'
  elif len(titles) == 1 and any(mark in titles[0] for mark in ',;|'):
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


def split_columns(where: str, line: str, titles: Sequence[str]) -> list[str]:
  """Returns a line's fields; raises ValueError unless one has each title."""
  fields = line.split('\t')
  if len(fields) != len(titles):
    raise ValueError(
      f'{where}: found {len(fields)} columns, expected {len(titles)} with tabs'
      f' between them: {", ".join(titles)}. Found: {line[:80]!r}'
    )
  return fields


def read_sentences(
  file: epath.Path, titles: Sequence[str]
) -> Iterator[list[tuple[str, list[str]]]]:
  """Yields (place, fields) of each word of a sentence, a line a word.

  An empty line ends a sentence; lines that begin with # are skipped. For errors
  see `split_columns`.
  """
  sentence: list[tuple[str, list[str]]] = []
  for number, line in itertools.chain(read_lines(file), [(0, '')]):
    if line.startswith('#'):
      continue
    if line.strip():
      where = f'{file}, line {number:,}'
      sentence.append((where, split_columns(where, line, titles)))
    elif sentence:
      yield sentence
      sentence = []


def read_csv(
  file: epath.Path, fields: Sequence[str], *, titles: Sequence[str] = ()
) -> Records:
  """Yields (place, record) of a comma-separated file with quotes.

  `titles` are of all columns, by default the first line.
  """
  from data.text import csv_rows  # few sets are of commas

  has_titles = not titles
  for number, row in csv_rows.read(file):
    where = f'{file}, line {number:,}'
    if not titles:
      titles = row
      _check_titles(file, titles, fields)
    elif has_titles and row == titles and len(row) > 1:
      raise ValueError(f'{where}: found the line of titles again: take it out')
    elif len(row) == len(titles):
      # Of columns of the same title the first counts.
      yield where, dict(zip(titles[::-1], row[::-1], strict=True))
    else:
      raise ValueError(
        f'{where}: found {len(row)} columns, expected {len(titles)} with '
        f'commas between them: {",".join(row)[:80]!r}'
      )
  if not titles:
    raise ValueError(f'{file}: is empty; expected the columns {list(fields)}')


def read_jsonl(
  file: epath.Path, fields: Sequence[str], texts: Sequence[str] = ()
) -> Records:
  """Yields (place, record) of JSON objects, checked by `check_fields`."""
  for number, line in read_lines(file):
    if not line.strip():
      continue
    where = f'{file}, line {number:,}'
    try:
      record = text_files.loads(line)
    except ValueError as error:
      raise ValueError(
        f'{where}: not JSON ({error}); expected one object a line with the '
        f'fields {[*texts, *fields]}. Found: {line[:60]!r}'
      ) from None
    check_fields(where, record, fields, texts)
    yield where, record


def read_json(file: epath.Path) -> Any:
  """Returns the value in a JSON file, or raises ValueError with the line."""
  try:
    return text_files.loads(text_files.read_text(file))
  except json.JSONDecodeError as error:
    raise ValueError(
      f'{file}, line {error.lineno:,}: not JSON ({error.msg})'
    ) from None
  except ValueError as error:
    raise ValueError(f'{file}: not JSON ({error})') from None


def check_fields(
  where: str, record: Any, fields: Iterable[str], texts: Iterable[str] = ()
) -> None:
  """Raises ValueError unless a record has `fields`, and text in `texts`."""
  if not isinstance(record, dict):
    raise ValueError(
      f'{where}: found {type(record).__name__}, expected an object with the '
      f'fields {[*texts, *fields]}'
    )
  missing = [field for field in (*texts, *fields) if field not in record]
  if missing:
    raise ValueError(
      f'{where}: found the fields {sorted(record)}, expected among them '
      f'{missing}'
    )
  for field in texts:
    text_of(where, record, field)


def text_of(where: str, record: Mapping[str, Any], field: str) -> str:
  """Returns a field, or raises ValueError if it holds no text."""
  text = record[field]
  if not isinstance(text, str):
    found = 'null' if text is None else type(text).__name__
    raise ValueError(
      f'{where}: found {found} in the field {field!r}, expected text'
    )
  return text


def list_of(where: str, record: Mapping[str, Any], field: str) -> list[Any]:
  """Returns a field, or raises ValueError if it holds no list."""
  found = record[field]
  if not isinstance(found, list):
    raise ValueError(
      f'{where}: found {str(found)[:60]!r} in the field {field!r}, expected a'
      ' list'
    )
  return found


def id_of(
  record: Mapping[str, Any], number: int, fields: Sequence[str] = ('id',)
) -> str:
  """Returns a record's id, of the first field that has one, or its number."""
  found = (record.get(field) for field in fields)
  return str(next((key for key in found if key not in (None, '')), number))


def contents(folder: epath.Path) -> str:
  """Returns a sentence, without its point, about the files of a folder."""
  if not folder.is_dir():
    return f'There is no folder {folder}'
  names = sorted(path.name for path in folder.iterdir())
  shown = ', '.join(names[:12]) + (', ...' if names[12:] else '')
  return f'The folder holds {shown or "nothing"}'


def note(message: str) -> None:
  """Prints a message about a user's files on standard error."""
  print(message, file=sys.stderr, flush=True)
