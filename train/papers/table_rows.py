"""The rows of a published table, and the weights that they are run from."""

import importlib
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from etils import epath

from configs import tables
from configs.tables.base import Row, Table
from train.host import files

ROW_FILE = 'row.json'  # of a row's folder: its name and family


class Line(NamedTuple):
  """A row of a table, and the weights that it is run from.

  Attributes:
    row: as published, or that of a user's own weights, without figures.
    is_own: which of these.
    weights: a workdir, a folder or a name; None: none were given.
    family: of the weights; of the row, where there are none.
  """

  row: Row
  is_own: bool
  weights: str | None
  family: str

  @property
  def name(self) -> str:
    """Returns that of the row."""
    return self.row.name


def shipped_tables() -> list[str]:
  """Returns the ids of all tables."""
  names = (
    path.stem for path in pathlib.Path(tables.__file__).parent.glob('*.py')
  )
  return sorted(
    name.replace('_', '/', 1)
    for name in names
    if name not in ('__init__', 'base')
  )


def load_table(table_id: str) -> Table:
  """Returns a table.

  Raises:
    ValueError: if there is none of that id; names those there are.
  """
  if table_id not in shipped_tables():
    raise ValueError(
      f'--table {table_id}: there is no such table; found are'
      f' {", ".join(shipped_tables())}'
    )
  name = table_id.replace('/', '_')
  return importlib.import_module(f'configs.tables.{name}').get_table()


def slug(name: str) -> str:
  """Returns a name as that of a folder."""
  return re.sub(r'[^\w.+-]+', '_', name).strip('_')


def name_weights(table: Table, given: Iterable[str]) -> dict[str, str]:
  """Returns {name of a row: weights}.

  Args:
    table: of the rows.
    given: ROW=WEIGHTS of a row of the table; NAME=WEIGHTS or WEIGHTS of a row
      of one's own.

  Raises:
    ValueError: if two are of one name, or a row is not ours to run.
  """
  rows = {row.name: row for row in table.rows}
  named: dict[str, str] = {}
  for text in given:
    of_row = [name for name in rows if text.startswith(f'{name}=')]
    name = max(of_row, key=len, default='')
    weights = text.removeprefix(f'{name}=')
    if not name and '=' in text and not epath.Path(text).exists():
      name, _, weights = text.partition('=')
    name = name or epath.Path(text.rstrip('/')).name
    if not name or not weights:
      raise ValueError(f'--weights {text}: expected WEIGHTS or NAME=WEIGHTS')
    known = {each.casefold(): each for each in rows}.get(name.casefold(), name)
    if known != name:
      raise ValueError(f'--weights {text}: the row is called {known!r}')
    if name in rows and not rows[name].family:
      why = rows[name].missing or 'is quoted and not ours to run'
      raise ValueError(f'--weights {text}: the row {name!r} {why}')
    if slug(name) in map(slug, named):
      raise ValueError(
        f'--weights {text}: there are two of the name {name!r}; give one'
        ' another, NAME=WEIGHTS'
      )
    named[name] = weights
  return named


def find_lines(
  table: Table,
  folder: epath.Path,
  weights: Mapping[str, str],
  family_of: Callable[[str], str],
) -> list[Line]:
  """Returns the rows of a table, those of a user's own weights among them.

  These are the ones given, and those that were run before; they stand below the
  published rows of their family.

  Args:
    table: which.
    folder: of its rows, one each.
    weights: see `name_weights`.
    family_of: weights -> their family.
  """
  lines = []
  own = {}
  for name, path in weights.items():
    if name not in {row.name for row in table.rows}:
      for line in _own_lines(table, name, path, family_of(path)):
        own[line.name] = line
  for row in table.rows:
    path = weights.get(row.name)
    family = row.family if path is None else family_of(path)
    lines.append(Line(row, False, path, family))
  known = {slug(name) for name in (*own, *(row.name for row in table.rows))}
  for path in sorted(folder.glob(f'*/{ROW_FILE}')):
    if path.parent.name not in known:
      found = json.loads(path.read_text())
      row = _own_row(table, found['name'], Row('', ()))
      own[row.name] = Line(row, True, None, found['family'])
  for line in own.values():
    same = [i for i, each in enumerate(lines) if each.family == line.family]
    lines.insert(same[-1] + 1 if same else len(lines), line)
  return lines


def _own_lines(
  table: Table, name: str, weights: str, family: str
) -> list[Line]:
  rows = [row for row in table.rows if row.name in table.repeated]
  named = [(f'{name}: {row.name}', row) for row in rows] or [
    (name, Row('', ()))
  ]
  return [
    Line(_own_row(table, each, like), True, weights, family)
    for each, like in named
  ]


def _own_row(table: Table, name: str, like: Row) -> Row:
  return Row(
    name,
    ('',) * len(table.columns),
    run=True,
    args=like.args,
    overrides=like.overrides,
  )


def write_line(line: Line, folder: epath.Path) -> None:
  """Writes down whose a row's folder is, that later calls find it.

  Args:
    line: the row.
    folder: its own.
  """
  folder.mkdir(parents=True, exist_ok=True)
  text = files.as_json({'name': line.name, 'family': line.family})
  files.write_atomically(folder / ROW_FILE, text + '\n')
