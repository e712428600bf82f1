"""Tells whether a config fits a TPU slice or GPUs, without the hardware.

python -m train.preflight --config NAME --topology v5e-256 [--json]
python -m train.preflight --topology help    # all names

Compiles the training steps of the config for this hardware, and prints memory,
the time of a step, hours and chip-hours. NAME is a pre-training or a
fine-tuning: transfer:task=mrpc, or for ELMo's task models
transfer:task=sst5,model=bcn. A fine-tuning is planned without its data: its
rows have task.max_length tokens or words.
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
  'TPU slices or GPUs, separated by commas: v5litepod-16, v4-32, v5e:16x16,'
  ' h100-8, ...; the word help prints all names.',
)
_JSON = flags.DEFINE_bool('json', False, 'Print JSON on standard output.')
_MFU = flags.DEFINE_float(
  'mfu',
  None,
  'A model FLOPs utilisation (0 to 1) that you have measured, from which the'
  " hours are computed (default: the compiler's estimate of the time).",
)
_PRICE = flags.DEFINE_float(
  'price', None, 'The price of a chip for one hour, in any currency.'
)
_WORDS = flags.DEFINE_integer(
  'words', 50_000, "For ELMo's task models: the number of word vectors."
)
_TABLE = flags.DEFINE_string(
  'table',
  None,
  'A JSON file to which the reports are added; a Markdown table (.md) is'
  ' written beside it.',
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
