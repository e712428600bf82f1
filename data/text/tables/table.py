"""A table, and the choice of its column of text."""

import dataclasses
from collections.abc import (
  Callable,
  Collection,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)
from typing import Any

DEFAULT_FIELD = 'text'  # of JSONL, too
_SHOWN, _CHARACTERS = 12, 40  # columns in a message, and of a column's name

Progress = Callable[[int], None]  # takes the bytes read so far
Values = tuple[Any, ...]


def _ignore(position: int) -> None:
  del position


@dataclasses.dataclass(frozen=True)
class Table:
  """A table of records: a file, or a split of a data set.

  Attributes:
    name: of the file or the split, for messages.
    types: column -> its type, as text.
    texts: the columns of text.
    readable: other columns, too, that can be read as text.
    read: (columns, progress) -> (number of a row, its values) in their order.
      Numbers are from 1. Raises ValueError, with the place, at a damaged file.
    num_bytes: on disk.
    stamp: JSON values that change when the content does.
    unit: of the numbers: 'row', or 'line' of a file of text.
    classes: column of whole numbers -> the names of the classes.
  """

  name: str
  types: Mapping[str, str]
  texts: tuple[str, ...]
  read: Callable[[Sequence[str], Progress], Iterator[tuple[int, Values]]]
  num_bytes: int
  stamp: Sequence[Any]
  unit: str = 'row'
  classes: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
  readable: tuple[str, ...] = ()

  def rows(
    self, columns: Sequence[str], progress: Progress = _ignore
  ) -> Iterator[tuple[int, Values]]:
    """Yields the number of each row and its values of the columns."""
    return self.read(columns, progress)

  def place(self, number: int) -> str:
    """Returns the place of a row, for a message."""
    return f'{self.name}, {self.unit} {number:,}'


def choose_column(
  tables: Sequence[Table], field: str, option: str
) -> tuple[str, bool]:
  """Returns the column of the text, and whether it was guessed.

  It is `field`; or if that is the default and no column, the only one of text.
  Raises ValueError, naming the table and `option`, for a column that one of the
  tables lacks or that holds no text, and where tables differ and it is guessed.
  """
  first = tables[0]
  guessed = field == DEFAULT_FIELD and field not in first.types
  if guessed:
    if len(first.texts) != 1:
      raise ValueError(
        f'{first.name}: found {len(first.texts) or "no"} columns of text and'
        f' none named {field!r}: {describe(first)}. Name the one of the text by'
        f' {option}'
      )
    field = first.texts[0]
  for table in tables:
    here = f'{table.name}: '
    if field not in table.types:
      also = '' if table is first else f', as in {first.name}'
      raise ValueError(
        f'{here}found no column {field!r}, expected one{also}:'
        f' {describe(table)}. Name the one of the text by {option}'
      )
    if field not in {*table.texts, *table.readable}:
      also = '' if table is first else f' as in {first.name}'
      nested = ', which is nested' if '<' in table.types[field] else ''
      raise ValueError(
        f'{here}found {table.types[field]} in the column {field!r}{nested},'
        f' expected text{also}: {describe(table)}. Name a column of text by'
        f' {option}'
      )
    if guessed and table.texts != first.texts:
      raise ValueError(
        f'{here}found the columns of text {list(table.texts)}, expected'
        f' {list(first.texts)} alone, as in {first.name}. Name the one of the'
        f' text by {option}'
      )
  return field, guessed


def describe(table: Table) -> str:
  """Returns the columns of a table and their types, as text."""
  shown = [
    f'{name[:_CHARACTERS]!r} ({kind[:_CHARACTERS]})'
    for name, kind in list(table.types.items())[:_SHOWN]
  ]
  more = len(table.types) - len(shown)
  return (
    f'its columns are {", ".join(shown)}' + (f' and {more} more' * bool(more))
    if shown
    else 'it has no columns'
  )


def records(
  tables: Iterable[Table], columns: Collection[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
  """Yields (place, record) of all rows; numbers of classes are their names.

  The class -1 is an unknown one, and None. Only those of `columns` that there
  are have values; others, which may be images or dates of no calendar, have
  `...`. Raises ValueError for a table without any of them.
  """
  for table in tables:
    names = [name for name in table.types if name in columns]
    if not names:
      raise ValueError(
        f'{table.name}: found none of the columns {sorted(columns)}, expected'
        f' some: {describe(table)}'
      )
    unread = dict.fromkeys(table.types, ...)
    for number, values in table.rows(names):
      record = unread | dict(zip(names, values, strict=True))
      where = table.place(number)
      for name, classes in table.classes.items():
        if name in names:
          record[name] = _named(where, name, record[name], classes)
      yield where, record


def _named(where: str, column: str, value: Any, names: Sequence[str]) -> Any:
  if isinstance(value, list):
    return [_named(where, column, each, names) for each in value]
  if value is None or value == -1:
    return None
  if not isinstance(value, int) or not 0 <= value < len(names):
    raise ValueError(
      f'{where}: found the class {value!r} in the column {column!r}, expected 0'
      f' to {len(names) - 1}: {", ".join(names[:_SHOWN])}'
    )
  return names[value]
