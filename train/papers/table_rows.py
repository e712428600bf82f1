"""The rows of a published table, and the weights of their runs."""

import ast
import importlib
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from etils import epath

from configs import tables
from configs.tables import base
from configs.tables.base import Row, Table
from data import storage
from train.host import files
from train.run import settings

if TYPE_CHECKING:
  from train.run.settings import Value

ROW_FILE = 'row.json'  # in a row's folder: its name and family
NEEDS_WEIGHTS = 'name a model of yours by --weights NAME=WEIGHTS'


class Line(NamedTuple):
  """A row of a table with its weights.

  Attributes:
    row: a published row; for a user's own weights, a row without figures.
    weights: a workdir, a folder or a name; None: not given.
    family: of the weights; without weights, of the row.
  """

  row: Row
  is_own: bool
  weights: str | None
  family: str

  @property
  def name(self) -> str:
    """The name of the row."""
    return self.row.name


def shipped_tables() -> list[str]:
  """Returns the ids of all tables."""
  names = (
    path.stem for path in pathlib.Path(tables.__file__).parent.glob('*.py')
  )
  return sorted(
    name.replace('_', '/', 1)
    for name in names
    if '_' in name.strip('_')  # others hold what tables share
  )


def load_table(table_id: str) -> Table:
  """Returns a table; a ValueError for an unknown id names all ids."""
  if table_id not in shipped_tables():
    raise ValueError(
      f'--table {table_id}: there is no such table; found are'
      f' {", ".join(shipped_tables())}'
      f'{settings.near(table_id, shipped_tables())}'
    )
  name = table_id.replace('/', '_')
  return importlib.import_module(f'configs.tables.{name}').TABLE


def slug(name: str) -> str:
  """Returns a name that can be a folder's."""
  return re.sub(r'[^\w.+-]+', '_', name).strip('_')


def count_runs(table: Table) -> int:
  """Returns the trainings that fill a table: all seeds of rows to be run.

  Grids, which each have several settings, count once.
  """
  cells, pretrainings = {}, set()
  for row in table.rows:
    if row.pretraining:
      changes = tuple(sorted(row.changes.items()))
      pretrainings.add((row.pretraining, str(changes)))
    elif not row.family:
      # Of a maker's own: a model by its config, or n-grams, which draw nothing.
      if row.args:
        cells[row.name] = table.seeds if ':' in row.args[0] else 1
      continue
    for column in table.columns:
      for part in column.parts if column.family in ('', row.family) else ():
        if part.task != base.PRETRAINING:
          seeds = part.seeds or table.seeds
          cells[row.name, part.task, part.label] = seeds * (
            table.pretrainings if row.pretraining else 1
          )
  return sum(cells.values()) + len(pretrainings) * table.pretrainings


def split_name(text: str, rows: Iterable[str] = ()) -> tuple[str, str]:
  """Returns (name, weights) of NAME=WEIGHTS; WEIGHTS has its folder's name.

  Names of `rows` may have an equals sign, and so may a path that exists.
  """
  of_row = [name for name in rows if text.startswith(f'{name}=')]
  name = max(of_row, key=len, default='')
  weights = text.removeprefix(f'{name}=')
  is_path = storage.is_remote(text.partition('=')[0]) or os.path.exists(text)
  if not name and '=' in text and not is_path:
    name, _, weights = text.partition('=')
  name = name or epath.Path(text.rstrip('/')).name
  if not name or not weights:
    raise ValueError(f'--weights {text}: expected WEIGHTS or NAME=WEIGHTS')
  return name, weights


def name_weights(table: Table, given: Iterable[str]) -> dict[str, str]:
  """Returns {name of a row: weights}.

  `given` are ROW=WEIGHTS for a row of the table; NAME=WEIGHTS or WEIGHTS for a
  user's own. Raises ValueError if names are equal or a row cannot be run.
  """
  rows = {row.name: row for row in table.rows}
  named: dict[str, str] = {}
  for text in given:
    name, weights = split_name(text, rows)
    known = {each.casefold(): each for each in rows}.get(name.casefold(), name)
    if known != name:
      raise ValueError(f'--weights {text}: the row is called {known!r}')
    if name in rows and not rows[name].family:
      why = rows[name].missing or 'is quoted and not ours to run'
      raise ValueError(f'--weights {text}: the row {name!r} {why}')
    if name in rows and rows[name].family == base.NO_WEIGHTS:
      raise ValueError(f'--weights {text}: the row {name!r} takes no weights')
    if slug(name) in map(slug, named):
      raise ValueError(
        f'--weights {text}: two have the name {name!r}; rename one by'
        ' NAME=WEIGHTS'
      )
    named[name] = weights
  return named


def parse_overrides(arguments: Iterable[str]) -> dict[str, 'Value']:
  """Returns {key: literal or string} of arguments --config.KEY=VALUE."""
  found = {}
  for argument in arguments:
    match = re.fullmatch(r'--config\.([\w.]+)=(.*)', argument, re.DOTALL)
    if match is None:
      raise ValueError(f'{argument}: not understood; --help lists what is')
    try:
      found[match[1]] = ast.literal_eval(match[2])
    except (ValueError, SyntaxError):
      found[match[1]] = match[2]
  return found


def find_lines(
  table: Table,
  folder: epath.Path,
  weights: Mapping[str, str],
  family_of: Callable[[str], str],
) -> list[Line]:
  """Returns the published rows, and below each family a user's own rows.

  A user's own rows have `weights`, see `name_weights`, or were run before and
  have a folder in `folder`.
  """
  lines = []
  own = {}
  for name, path in weights.items():
    if name in {row.name for row in table.rows}:
      continue
    for row in _own_rows(table, name):
      own[row.name] = Line(row, True, path, family_of(path))
  for row in table.rows:
    path = weights.get(row.name)
    family = row.family if path is None else family_of(path)
    lines.append(Line(row, False, path, family))
  known = {slug(name) for name in (*own, *(row.name for row in table.rows))}
  for path in storage.find_files(folder, f'*/{ROW_FILE}'):
    if path.parent.name not in known:
      found = files.read_json(path)
      row = _own_row(table, found['name'])
      own[row.name] = Line(row, True, None, found['family'])
  for line in own.values():
    same = [i for i, each in enumerate(lines) if each.family == line.family]
    lines.insert(same[-1] + 1 if same else len(lines), line)
  return lines


def _own_rows(table: Table, name: str) -> list[Row]:
  """Returns the rows of a user's own weights: several have longer names."""
  names = [name]
  if len(table.repeated) > 1:
    names = [f'{name}: {repeated}' for repeated in table.repeated]
  return [_own_row(table, each) for each in names]


def _own_row(table: Table, name: str) -> Row:
  """Returns the row of a name of `_own_rows`, like the one it repeats."""
  values = ('',) * len(table.columns)
  for row in table.rows:
    if row.name in table.repeated and (
      len(table.repeated) == 1 or name.endswith(f': {row.name}')
    ):
      return Row(
        name,
        values,
        args=row.args,
        overrides=row.overrides,
        models=row.models,
        requires=row.requires,
        share=row.share,
      )
  return Row(name, values)


def write_line(line: Line, folder: epath.Path) -> None:
  """Writes a row's name into its folder, for `find_lines` of later calls."""
  folder.mkdir(parents=True, exist_ok=True)
  text = files.as_json({'name': line.name, 'family': line.family})
  files.write_atomically(folder / ROW_FILE, text + '\n')


def set_aside(folder: epath.Path) -> epath.Path:
  """Renames the folder of a run that is repeated; returns the new name."""
  number = 1
  while (aside := folder.with_name(f'{folder.name}.{number}')).exists():
    number += 1
  folder.rename(aside)
  return aside
