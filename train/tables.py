"""Published tables beside our figures: python -m train.tables --table ID.

Runs the cells that are ours to fill and not filled yet, from the weights given,
keeps what is finished, and writes the table as Markdown and LaTeX. Where the
paper chose settings on dev, a cell is a sweep over them; a key that you set has
that value alone, and the table says so. Runs lie in OUT/TABLE/ROW/TASK; columns
of one task share a run. The same command goes on where it was stopped.
"""

# ruff: noqa: E402
from train.host import device, huge_pages
from train.papers import table_rows, tables
from train.papers.table_plan import Request
from train.run import command

if __name__ == '__main__':
  huge_pages.restart_with()  # as train.main does

import argparse
import ast
import re
import sys
from collections.abc import Sequence
from typing import Any

from etils import epath


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog='python -m train.tables',
    description=__doc__,
    allow_abbrev=False,  # --seed is no --seeds
    epilog='--config.KEY=VALUE changes a key of the config of every cell, and'
    ' with it what the cells are: say so where you show them.',
  )
  add = parser.add_argument
  add(
    '--table',
    required=True,
    help=f'one of {", ".join(table_rows.shipped_tables())}',
  )
  add(
    '--weights',
    action='append',
    default=[],
    help='ROW=WEIGHTS for a row of the table; WEIGHTS or NAME=WEIGHTS for a row'
    ' of your own. A workdir, a folder of published weights or their name; may'
    ' be given again',
  )
  add(
    '--data',
    help="folder of the labelled sets, GLUE's in a folder glue of it or"
    ' directly; or tfds',
  )
  add(
    '--only',
    nargs='+',
    default=[],
    metavar='ROW,COLUMN',
    help='run these cells alone; ROW, COLUMN or TASK: all of it',
  )
  add(
    '--seeds',
    type=int,
    help="runs a cell, of each of its settings; by default the table's",
  )
  add('--out', default='runs/tables', help='folder of all tables')
  add('--reference', help="JSON of another program's runs, to compare with")
  group = parser.add_mutually_exclusive_group()
  group.add_argument(
    '--run', action='store_true', help='run what is missing (the default)'
  )
  group.add_argument(
    '--print', action='store_true', help='run nothing, show what is there'
  )
  group.add_argument(
    '--dry_run',
    action='store_true',
    help='print the command of each cell that is missing, and nothing else',
  )
  add(
    '--rerun',
    action='store_true',
    help='run again what was run with another config; the old is set aside',
  )
  return parser


def _overrides(arguments: Sequence[str]) -> dict[str, Any]:
  """Returns {key: value} of --config.KEY=VALUE.

  Raises:
    ValueError: if an argument is anything else.
  """
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


def main() -> None:
  """Entry point."""
  parser = _parser()
  arguments, others = parser.parse_known_args()
  if arguments.seeds is not None and arguments.seeds < 1:
    parser.error(f'--seeds={arguments.seeds}: expected 1 or more')
  device.enable_compilation_cache()
  if not command.run(lambda: _run(arguments, others)):
    sys.exit(1)


def _run(arguments: argparse.Namespace, others: Sequence[str]) -> bool:
  request = Request(
    table=table_rows.load_table(arguments.table),
    out=epath.Path(arguments.out),
    data=arguments.data,
    num_seeds=arguments.seeds,
    overrides=_overrides(others),
  )
  data = arguments.data
  if data is not None and data.partition(':')[0] != 'tfds':
    if not epath.Path(data).expanduser().is_dir():
      raise FileNotFoundError(f'--data {data}: there is no such folder')
  reference = arguments.reference
  if reference is not None and not epath.Path(reference).exists():
    raise FileNotFoundError(f'--reference {reference}: there is no such file')
  return tables.make_table(
    request,
    table_rows.name_weights(request.table, arguments.weights),
    only=arguments.only,
    run=not arguments.print,
    dry_run=arguments.dry_run,
    rerun=arguments.rerun,
    reference=reference,
  )


if __name__ == '__main__':
  main()
