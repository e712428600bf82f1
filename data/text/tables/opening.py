"""How a file of a table is opened, by the ending of its name."""

from collections.abc import Callable

from etils import epath

from data.by_name import ByName
from data.text import text_files
from data.text.tables.table import Table

_BINARY = ('.parquet', '.arrow', '.feather')
_OPENERS = ByName(
  {
    **dict.fromkeys(_BINARY, 'data.text.tables.arrow_files:open_table'),
    **dict.fromkeys(('.csv', '.tsv'), 'data.text.tables.csv_files:open_table'),
  }
)


def is_binary(path: epath.Path) -> bool:
  """Returns whether a name ends as that of a parquet or arrow file."""
  return text_files.ending(path) in _BINARY


def open_table(path: epath.Path) -> Table:
  """Opens a file whose name ends as that of a table."""
  opener: Callable[[epath.Path], Table] = _OPENERS[text_files.ending(path)]
  return opener(path)
