"""Published tables beside our figures: python -m train.tables --table ID.

Runs the cells that are ours to fill and not filled yet, from the weights given,
keeps what is finished, and writes the table as Markdown and LaTeX. Where the
paper chose settings on dev, a cell is a sweep over them; a key that you set has
that value alone, and the table says so. Runs lie in OUT/TABLE/ROW/TASK; columns
of one task share a run. The same command goes on where it was stopped. Rows of
shares of the training set are drawn as curves, one for each of your weights. A
figure is drawn from finished runs (--weights NAME=WORKDIR), and runs nothing.
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

from data import storage
from train.papers import table_rows


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog='python -m train.tables',
    description=__doc__,
    allow_abbrev=False,  # --seed is no --seeds
    epilog='--config.KEY=VALUE changes a key of the config of every cell that'
    ' has it, and with it what the cells are: say so where you show them.',
  )
  add = parser.add_argument
  names = ', '.join(table_rows.shipped_tables())
  add('--table', required=True, help=f'one of {names}')
  add(
    '--weights',
    action='append',
    default=[],
    help='ROW=WEIGHTS for a row of the table; WEIGHTS or NAME=WEIGHTS for a row'
    ' of your own. A workdir, a folder of published weights or their name, or a'
    ' file of vectors of words; may be given again. Of a figure: finished runs'
    ' or sweeps; those of one NAME are averaged',
  )
  add(
    '--data',
    help="folder of the labelled sets, GLUE's in a folder glue of it or"
    ' directly; or tfds',
  )
  cells = 'run these cells alone; ROW, COLUMN or TASK: all of it'
  add(
    '--only',
    nargs='+',
    action='extend',
    default=[],
    metavar='ROW,COLUMN',
    help=cells,
  )
  seeds = "runs a cell, of each of its settings; by default the table's"
  add('--seeds', type=int, help=seeds)
  add('--out', default='runs/tables', help='folder of all tables')
  add('--reference', help="JSON of another program's runs, to compare with")
  group = parser.add_mutually_exclusive_group()
  for name, text in (
    ('run', 'run what is missing (the default)'),
    ('print', 'run nothing, show what is there'),
    ('dry_run', "only print: missing cells' commands, a figure's numbers"),
  ):
    group.add_argument(f'--{name}', action='store_true', help=text)
  rerun = 'run again what was run with another config; the old is set aside'
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
