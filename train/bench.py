"""Measures speed: python -m train.bench [NAME ...] prints a table and JSON.

`tests/bench/beside.py` takes the same options and measures other people's
programs beside ours.
"""

# ruff: noqa: E402
from train.host import huge_pages

if __name__ == '__main__':
  huge_pages.restart_with()  # as train.main does

import argparse
import json
import os
import pathlib
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from data import program
from train.benches.options import (
  ABOUT,
  NUMBERS,
  OF_BENCHES,
  OPTIONAL,
  OPTIONS,
)
from train.run import command
from train.slices import without_hardware

if TYPE_CHECKING:
  from train.benches.timing import Programs


WITHOUT_NAME = """
Without NAME, the command runs batches, step (on a GPU or TPU accelerator in its
place), gpt2_step, decoding, first_step, and store if --text is given."""


def main(
  prog: str | None = None, rivals: Mapping[str, 'Programs'] | None = None
) -> None:
  """Runs the benches; with `rivals`, only those that have some.

  `prog` begins the command, if it is not this module's. `rivals` are as in
  `table.run`.
  """
  prog = prog or program.called('train.bench')
  known = [name for name in OF_BENCHES if not rivals or name in rivals]
  parser = argparse.ArgumentParser(
    prog=prog,
    description=f'Measures speed: {prog} [NAME ...] prints tables and JSON.',
    epilog='\n'.join(
      ['The benches by NAME:', '']
      + [f'  {name:15} {ABOUT[name]}' for name in known]
      + ([] if rivals else [WITHOUT_NAME])
    ),
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument(
    'names', nargs='*', metavar='NAME', help='bench to run; see the list below'
  )
  for option, text in OPTIONS.items():
    kind = dict(type=int, metavar='N') if option in NUMBERS else {}
    parser.add_argument(f'--{option}', help=text, **kind)
  parser.add_argument('--output', help='JSON file for the results')
  options = vars(parser.parse_args())
  names, output = options.pop('names'), options.pop('output')
  for name in names:
    if name not in known:
      parser.error(f'{name}: expected one of {", ".join(known)}')
    for option in OF_BENCHES[name]:
      if options[option] is None and option not in OPTIONAL:
        parser.error(f'{name} needs --{option}')
  if options['topology']:
    without_hardware.prepare()
  command.run(lambda: _run(prog, names, options, rivals or {}, output))


def _run(
  prog: str,
  names: list[str],
  options: Mapping[str, str | int | None],
  rivals: Mapping[str, 'Programs'],
  output: str | None,
) -> None:
  from train.benches import table
  from train.host import device, files

  if output:
    files.check_new(output, overwrite=True)
  # Every program needs room on the same card.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  if not names:
    step = 'accelerator' if table.on_accelerator() else 'step'
    names = ['batches', step, 'gpt2_step', 'decoding', 'first_step']
    names += ['store'] if options['text'] else []
    names = [name for name in names if name in rivals or not rivals]
  results = table.run(names, options, rivals)
  given = [
    f'--{option} {shlex.quote(str(value))}'
    for option, value in options.items()
    if value is not None
  ]
  chip = options.get('topology')
  results |= {
    'device': f'{chip}, by its compiler' if chip else device.describe(),
    'revision': device.revision(),
    'command': ' '.join([prog, *names, *given]),
  }
  text = json.dumps(results, indent=2) + '\n'
  if output:
    files.write_atomically(output, text)
    if 'inference' in names:
      from train.benches import inference_picture

      inference_picture.write(
        results['inference'], pathlib.Path(output).with_suffix('.png')
      )
  print(text, end='')


if __name__ == '__main__':
  main()
