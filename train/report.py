"""What a run did and where its time went: python -m train.report WORKDIR.

Draws curves.png and ledger.png, of a run at work, a killed or a finished one.
"""

import argparse
import json

import jax

from train.run import command, reports


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python -m train.report', description=__doc__.partition('\n')[0]
  )
  parser.add_argument('workdir', metavar='WORKDIR', help='of a run')
  parser.add_argument(
    '--out', metavar='DIR', help='where to draw, if not there'
  )
  parser.add_argument(
    '--json', action='store_true', help='print the figures as JSON'
  )
  arguments = parser.parse_args()
  # The accelerator belongs to the run, which may be at work.
  jax.config.update('jax_platforms', 'cpu')
  report = command.run(lambda: reports.run(arguments.workdir, arguments.out))
  if arguments.json:
    print(json.dumps(report, indent=2))
  else:
    reports.print_report(report)


if __name__ == '__main__':
  main()
