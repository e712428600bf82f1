"""Scores, speed and curves of a run: python -m train.report WORKDIR.

Prints the progress, the speed and the scores of a run, and draws curves.png and
ledger.png, which shows where the time went. The run may be at work, killed or
finished.
"""

import argparse
import json

from train.host import files
from train.run import command


def main() -> None:
  """Entry point."""
  parser = command.parser('report', __doc__)
  add = parser.add_argument
  add('workdir', metavar='WORKDIR', help='folder of the run')
  add(
    '--out', metavar='DIR', help='folder for the pictures; by default WORKDIR'
  )
  command.add_json(parser)
  command.main(parser.parse_args(), _run)


def _run(arguments: argparse.Namespace) -> None:
  files.check_workdir(arguments.workdir)
  import jax

  # The accelerator belongs to the run, which may be at work.
  jax.config.update('jax_platforms', 'cpu')
  from train.run import reports

  report = reports.run(arguments.workdir, arguments.out)
  if arguments.json:
    print(json.dumps(report, indent=2))
  else:
    reports.print_report(report)


if __name__ == '__main__':
  main()
