"""Published tables beside our figures: python -m train.tables --table ID.

A cell of a table is a score of a model on a task. The command runs the cells
that are missing, as far as the given weights allow, and writes the table, with
the published figures beside yours, as Markdown and LaTeX. Finished runs are
kept: the same command continues where it was stopped.

Runs lie in OUT/TABLE/ROW/TASK, and the columns of one task share a run. Where
the paper chose settings on the dev set, a run is a sweep over these settings. A
setting that --config.KEY=VALUE names has only this value, and the table says
so. Tables of shares of the training set are also drawn as curves, one for each
of your weights. A figure is drawn from finished runs (--weights NAME=WORKDIR);
it starts no run.
"""

# ruff: noqa: E402
from train.host import huge_pages

if __name__ == '__main__':
  huge_pages.restart_with()  # as train.main does

import argparse
import importlib
import sys
from collections.abc import Sequence

from etils import epath

from data import program, storage
from train.papers import table_rows


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog=program.called('train.tables'),
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,  # --seed is no --seeds
    epilog='--config.KEY=VALUE sets a key of the config in every cell that has'
    " this key. The\ncells are then no longer the paper's: mention it when you"
    ' publish them.',
  )
  add = parser.add_argument
  names = ', '.join(table_rows.shipped_tables())
  add('--table', required=True, help=f'table to make, one of {names}')
  add(
    '--weights',
    action='append',
    default=[],
    help='ROW=WEIGHTS for a row of the table; WEIGHTS or NAME=WEIGHTS for a row'
    ' of your own; may be repeated. WEIGHTS is a workdir (the folder of a run),'
    " a folder of published weights, a name on Hugging Face's hub, or a file of"
    ' word vectors. For a figure: finished runs or sweeps; runs with the same'
    ' NAME are averaged',
  )
  add(
    '--data',
    help="folder of the labelled sets (GLUE's are in it or in its folder glue);"
    ' or tfds',
  )
  cells = (
    'run only these cells: ROW,COLUMN for one cell, or ROW, COLUMN or TASK for'
    ' all its cells'
  )
  add(
    '--only',
    nargs='+',
    action='extend',
    default=[],
    metavar='ROW,COLUMN',
    help=cells,
  )
  seeds = (
    'number of runs, with different seeds, for each setting of a cell; by'
    ' default the number of the table'
  )
  add('--seeds', type=int, help=seeds)
  add(
    '--out',
    default='runs/tables',
    help='folder of all tables; by default %(default)s',
  )
  add(
    '--reference',
    help="JSON file of another program's runs, to compare with; by default the"
    ' file of the table, if it has one',
  )
  group = parser.add_mutually_exclusive_group()
  for name, text in (
    ('run', 'run the missing cells (the default)'),
    ('print', 'run nothing; make the table of the finished runs'),
    (
      'dry_run',
      'run nothing; only print the commands of the missing cells, or the'
      ' numbers of a figure',
    ),
  ):
    group.add_argument(f'--{name}', action='store_true', help=text)
  rerun = (
    'run cells again that were run with another config; the old runs are set'
    ' aside'
  )
  add('--rerun', action='store_true', help=rerun)
  return parser


def main() -> None:
  """Entry point."""
  parser = _parser()
  given, others = parser.parse_known_args()
  if given.seeds is not None and given.seeds < 1:
    parser.error(f'--seeds={given.seeds}: expected 1 or more')
  from train.run import command  # after --help is answered

  if not command.run(lambda: _run(given, others)):
    sys.exit(1)


def _run(given: argparse.Namespace, others: Sequence[str]) -> bool:
  table = table_rows.load_table(given.table)
  if table.maker:
    maker = importlib.import_module(f'train.papers.{table.maker}')
    values = vars(given) | {'run': not given.print}
    options = {name: values[name] for name in maker.OPTIONS}
    names = {'weights', 'data', 'only', 'seeds', 'reference', 'rerun'}
    unused = [
      f'--{name}'
      for name in values
      if name in names - {*options} and values[name]
    ]
    return maker.make(table, given.out, unused=[*unused, *others], **options)
  overrides = table_rows.parse_overrides(others)
  data, reference = given.data, given.reference
  weights = table_rows.name_weights(table, given.weights)
  paths = (data, reference, *weights.values(), *overrides.values())
  storage.check_buckets(
    paths, () if given.print or given.dry_run else [given.out]
  )
  if data is not None and data.partition(':')[0] != 'tfds':
    if not epath.Path(data).expanduser().is_dir():
      raise FileNotFoundError(f'--data {data}: there is no such folder')
  if reference is not None and not epath.Path(reference).exists():
    raise FileNotFoundError(f'--reference {reference}: there is no such file')

  from train.host import device  # after the cheap checks
  from train.papers import table_plan, tables
  from train.run import checkpoint

  if not given.print:
    checkpoint.checkpoint_folder(given.out)  # refuses what orbax cannot read
  device.enable_compilation_cache()
  out = epath.Path(given.out)
  return tables.make_table(
    table_plan.CellRequest(table, out, data, given.seeds, overrides),
    weights,
    only=given.only,
    run=not given.print,
    dry_run=given.dry_run,
    rerun=given.rerun,
    reference=reference,
  )


if __name__ == '__main__':
  main()
