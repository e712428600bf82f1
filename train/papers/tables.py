"""Fills the cells of a table by sweeps, and writes the table."""

import codecs
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
from etils import epath
from ml_collections import ConfigDict

from configs.tables import base
from data import hub, storage
from data.text import text_files
from train.host import console, files, processes
from train.papers import (
  share_figure,
  table_figures,
  table_plan,
  table_rendering,
  table_rows,
)
from train.papers.table_plan import Cell, CellRequest, Run
from train.papers.table_rows import Line
from train.params import opened
from train.run import settings

Key = tuple[str, str, str]  # of a run, see `Run.key`
# Errors of one cell, after which the others are run; the last: out of memory.
FAILURES = (ValueError, OSError, FloatingPointError, jax.errors.JaxRuntimeError)


def run_in_process(run: Run) -> None:
  """Fills the folder of a run with the summary of its sweep."""
  from train.transfer import sweep

  sweep.run(
    table_plan.resolve(run),
    str(run.folder),
    seeds=list(range(run.num_seeds)),
    grid=run.grid,
  )


# The first line of a file of vectors: their number and their length, or a word
# and its numbers.
_FIRST_LINE = re.compile(
  rb'\d+ \d+\s*|\S+( [-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?){2,}\s*', re.IGNORECASE
)
_FOLDER_OF_VECTORS = ('*_emb.npy', '*_index.parquet')


def is_vectors(weights: str) -> bool:
  """Returns whether a path is of vectors of words, see `word_vectors.read`.

  Only the beginning of a file is read; a ValueError shows that of another one.
  """
  if weights.startswith(hub.SCHEME):
    return False
  path = epath.Path(weights).expanduser()
  if path.is_dir():
    return all(
      storage.find_files(path, pattern) for pattern in _FOLDER_OF_VECTORS
    )
  if not path.exists():
    return False  # perhaps a name on the hub
  with path.open('rb') as file:
    start = next(text_files.decompressed(path, file), b'')
  first = start.removeprefix(codecs.BOM_UTF8).partition(b'\n')[0]
  if not _FIRST_LINE.fullmatch(first):
    raise ValueError(
      f'{weights}: is a file that begins with {first[:40]!r}; expected a folder'
      ' of weights, or a file of vectors: a word and its numbers a line'
    )
  return True


def family_of(weights: str) -> str:
  """Returns the family of weights, and checks that they are sound.

  That of vectors of words is `base.VECTORS`.
  """
  if is_vectors(weights):
    return base.VECTORS
  found = opened.open_weights(weights)
  found.check_problems()  # a run looks for the vocabulary
  return found.name


def has_split(task: str, data: str, split: str) -> bool:
  """Returns whether a folder has a split of a task, or some task of several."""
  from data.tasks import registry

  found = [
    registry.has_split(registry.find(name), data, split)
    for name in task.split('+')
  ]
  return all(found) if split in ('train', 'dev') else any(found)


class Engine(NamedTuple):
  """The functions that do the work; tests replace them."""

  run: Callable[[Run], None] = run_in_process
  resolve: Callable[[Run], ConfigDict] = table_plan.resolve
  family_of: Callable[[str], str] = family_of
  has_split: Callable[[str, str, str], bool] = has_split


def find_changes(cells: Sequence[Cell], engine: Engine) -> dict[Key, str]:
  """Returns {key of a finished run: why to repeat it}.

  It was run with another config, see `describe_changes`, or some of its seeds
  diverged.
  """
  found = {}
  for run in {run.key: run for cell in cells for run in cell.runs}.values():
    if run.part.task == base.PRETRAINING:
      continue
    summary = table_figures.read_summary(run.summary)
    if summary is not None:
      wanted = settings.flatten(engine.resolve(run))
      text = table_figures.describe_changes(run, summary, wanted)
      texts = [text and f'was run with {text}']
      if _is_finished(run):  # else the missing seeds are run
        texts.append(table_figures.describe_lost(summary))
      if any(texts):
        found[run.key] = '; '.join(filter(None, texts))
  return found


def missing_runs(
  cells: Sequence[Cell], changed: Mapping[Key, str], *, rerun: bool
) -> list[Run]:
  """Returns the runs that cells still need, with `rerun` changed ones too."""
  runs = {
    run.key: run for cell in cells if not cell.reason for run in cell.runs
  }
  return [
    run
    for key, run in runs.items()
    if (rerun if key in changed else not _is_finished(run))
  ]


def _is_finished(run: Run) -> bool:
  summary = table_figures.read_summary(run.summary)
  if summary is None or run.part.task == base.PRETRAINING:
    return summary is not None
  made = table_figures.chosen_runs(summary) + table_figures.lost_runs(summary)
  return len(made) >= run.num_seeds


def fill(
  runs: Sequence[Run], changed: Mapping[Key, str], engine: Engine
) -> dict[Key, str]:
  """Executes runs and returns {key of a failed run: its error}.

  Folders of changed runs are set aside; after a failure the others go on.
  Raises processes.Preempted between two runs, if asked to end.
  """
  with processes.Preemption() as preemption:
    return _fill(runs, changed, engine, preemption)


def _fill(
  runs: Sequence[Run],
  changed: Mapping[Key, str],
  engine: Engine,
  preemption: processes.Preemption,
) -> dict[Key, str]:
  failed = {}
  for number, run in enumerate(runs, start=1):
    preemption.end_if_due(f'{number - 1} of {len(runs)} runs are made')
    row, task, label = run.key
    console.say(
      f'\n[{number}/{len(runs)}] {row}, {" ".join(filter(None, (task, label)))}'
      f'\n{run.command}'
    )
    table_rows.write_line(run.line, run.folder.parent)
    if run.key in changed:
      console.say(f'set aside: {table_rows.set_aside(run.folder)}')
    try:
      if task == base.PRETRAINING:
        run.folder.mkdir(parents=True, exist_ok=True)
        text = files.as_json(table_plan.collect_pretraining(run))
        files.write_atomically(run.summary, text + '\n')
      else:
        engine.run(run)
    except FAILURES as error:
      failed[run.key] = str(error)
      console.say(f'failed: {error}')
  return failed


def read(
  request: CellRequest, cells: Sequence[Cell], failed: Mapping[Key, str]
) -> tuple[table_rendering.Figures, table_rendering.Reasons]:
  """Returns the figures found, and the reasons of the missing ones."""
  figures, reasons = table_figures.read_figures(
    cells, request.table, request.overrides
  )
  for cell in cells:
    key = cell.line.name, cell.column.name
    errors = [failed[run.key] for run in cell.runs if run.key in failed]
    if errors and key in reasons:
      reasons[key] = f'failed: {errors[0]}'
  return figures, reasons


def lay_out(
  request: CellRequest,
  lines: Sequence[Line],
  figures: table_rendering.Figures,
  reasons: table_rendering.Reasons,
  changed: Mapping[Key, str],
  reference: epath.Path | None,
) -> table_rendering.TablePage:
  """Returns the table's page with the figures found."""
  warnings = [
    f'{row}, {task}: {text}; --rerun runs it again'
    for (row, task, _), text in changed.items()
  ]
  theirs = None
  if reference is not None:
    named = any(row.reference for row in request.table.rows)
    theirs = {
      line.name: table_figures.read_reference(
        reference, request.table.columns, line.row.reference
      )
      for line in lines
      if line.row.reference or not named
    }
    if not any(theirs.values()):
      warnings.append(f'there is no reference: {reference} is missing or empty')
  return table_rendering.lay_out(
    request.table, lines, figures, reasons, warnings=warnings, reference=theirs
  )


def make_table(
  request: CellRequest,
  weights: Mapping[str, str],
  *,
  only: Sequence[str] = (),
  run: bool = True,
  dry_run: bool = False,
  rerun: bool = False,
  reference: epath.PathLike | None = None,
  engine: Engine | None = None,
) -> bool:
  """Fills a table, writes OUT/TABLE.md and .tex, and prints the Markdown.

  Curves are drawn as OUT/TABLE.png, with their figures as .json. Missing cells
  (of `only`, see `table_plan.select`) are run if `run`; `dry_run` only prints
  their commands, `rerun` repeats runs of another config. For `weights` see
  `table_rows.name_weights`; `reference` replaces the table's own. Returns
  whether all runs succeeded.
  """
  engine = engine or Engine()
  lines = table_rows.find_lines(
    request.table, request.folder, weights, functools.cache(engine.family_of)
  )
  if request.table.has_curves:
    share_figure.check_has_curves(request.table, lines)
  cells = table_plan.find_cells(request, lines, engine.has_split)
  table_plan.check_overrides(request, cells)
  changed = find_changes(cells, engine)
  wanted = table_plan.select(cells, lines, only)
  runs = missing_runs(wanted, changed, rerun=rerun)
  for each in runs:
    if each.part.task != base.PRETRAINING:
      engine.resolve(each)  # raises before the first is run
  if dry_run:
    for each in runs:
      print(each.command)
    for cell in wanted:
      if cell.reason and (only or not runs or cell.line.weights is not None):
        name = f'{cell.line.name}, {cell.column.name}'
        console.say(f'not to be run: {name}: {cell.reason}')
    for (row, task, _), text in changed.items():
      console.say(f'{row}, {task}: {text}')
    if not (runs or weights or cells):
      console.say(f'nothing to run: {table_rows.NEEDS_WEIGHTS}')
    return True
  failed = {}
  if run:
    failed = fill(runs, changed, engine)
    changed = find_changes(cells, engine)
  if reference is not None:
    reference = epath.Path(reference)
  elif request.table.reference:
    reference = epath.Path(__file__).parents[2] / request.table.reference
  figures, reasons = read(request, cells, failed)
  page = lay_out(request, lines, figures, reasons, changed, reference)
  table_rendering.write(page, request.out, request.stem)
  if request.table.has_curves:
    curves = share_figure.find_curves(request.table, lines, figures, reasons)
    share_figure.write(request.table, curves, request.out / request.stem)
  return not failed
