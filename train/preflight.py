"""Tells whether a config fits a TPU slice, without the slice.

python -m train.preflight --config NAME --topology v5e-256 [--json]
python -m train.preflight --topology help    # all names

NAME is a pre-training, or a fine-tuning (transfer:task=mrpc, or of ELMo's task
models transfer:task=sst5,model=bcn), which is planned without its data: rows of
task.max_length tokens or words.
"""

# ruff: noqa: E402
from train.slices import without_hardware

if __name__ == '__main__':
  without_hardware.prepare()

import contextlib
import json
import sys

from absl import flags

from train.run import command

_TOPOLOGY = flags.DEFINE_list(
  'topology',
  None,
  'Slices: v5litepod-16, v4-32, v5e:16x16, ...; by commas. help: all names.',
)
_JSON = flags.DEFINE_bool('json', False, 'Print JSON on standard output.')
_MFU = flags.DEFINE_float(
  'mfu',
  None,
  'Model FLOPs utilisation from which the hours follow, if you have measured it'
  " (default: the compiler's estimate).",
)
_PRICE = flags.DEFINE_float(
  'price', None, "Price of a chip's hour, in any currency."
)
_WORDS = flags.DEFINE_integer(
  'words', 50_000, 'Words with vectors of their own, of a task model.'
)
_TABLE = flags.DEFINE_string(
  'table', None, 'JSON file to add the reports to; a .md lies beside it.'
)


def _preflight() -> None:
  if _MFU.value is not None and not 0 < _MFU.value <= 1:
    raise ValueError(f'--mfu={_MFU.value}: a share in (0, 1] is expected')
  if _WORDS.value < 1:
    raise ValueError(f'--words={_WORDS.value}: expected 1 or more')
  from train.slices import fit, printing, topology

  for name in _TOPOLOGY.value:  # all are checked before any is compiled
    fit.plan(command.CONFIG.value, topology.find(name), _WORDS.value)
  reports = []
  for name in _TOPOLOGY.value:
    report = fit.preflight(
      command.CONFIG.value, name, mfu=_MFU.value, num_words=_WORDS.value
    )
    # Beside JSON the tables go to standard error.
    with contextlib.redirect_stdout(sys.stderr if _JSON.value else sys.stdout):
      printing.print_report(report, _PRICE.value)
    if _TABLE.value:
      printing.add_to_table(_TABLE.value, command.config_file(), report)
    reports.append(report)
  if _JSON.value:
    print(json.dumps(reports[0] if len(reports) == 1 else reports, indent=2))
  if not all(report['fits'] for report in reports):
    sys.exit(1)


def main() -> None:
  """Entry point."""
  if '--topology=help' in sys.argv or sys.argv[1:] == ['--topology', 'help']:
    from train.slices import topology

    command.run(topology.print_names)
    return
  example = 'bert_base --topology v5litepod-16'
  command.run_with_config(_preflight, example, 'topology')


if __name__ == '__main__':
  main()
