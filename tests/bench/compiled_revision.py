r"""The TPU compiler's estimate of training steps, by the code of any revision.

  python tests/bench/compiled_revision.py REVISION [REVISION ...] \
    [--steps 'bert_base v5e-16' 'gpt2 v5e-32'] [--output results/steps_tpu.json]

Each revision is checked out in a temporary folder, and its own code compiles
the steps, in a process of its own; today's code sums what the compiler expects
of them, as `python -m train.preflight` does. So a change can be seen beside the
revision before it. Revisions from da74cd8 on compile (`pip install -e '.[tpu]'`
brings the compiler; a step takes a minute or two).

A loop that ends with the data counts as often as its name says; in revisions
whose loops have no such name `--trips` times.
"""

# ruff: noqa: E402
from train.slices import without_hardware

if __name__ == '__main__':
  without_hardware.prepare()

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from train.host import device, files
from train.slices import cycles, topology

STEPS = (
  'bert_base v5e-16',
  'bert_large v5e-16',
  'gpt2 v5e-32',
  'elmo_1b v5e-16',
)

# Runs in a revision's folder; its arguments are config, slice, output folder.
PROGRAM = """
import json, pathlib, sys, time
from train.engine import sharding
from train.engine.memory import batch_shapes
from train.run import settings
from train.slices import fit, topology
name, tpu, folder = sys.argv[1:]
# Revisions before GPUs had a name call it find_slice.
find = getattr(topology, 'find', None) or topology.find_slice
tpu = find(tpu)
parts = fit.plan_parts(settings.load_config(name), tpu)
for number, phase in enumerate(parts.phases):
  with sharding.scope(parts.mesh, parts.config.mesh.rules):
    shapes = parts.objective.batch_shapes(phase.length, phase.global_batch)
    lowered = parts.train_step(phase.length).lower(
      parts.shapes, batch_shapes(shapes, parts.mesh)
    )
    began = time.monotonic()
    program = lowered.compile()
    seconds = time.monotonic() - began
  found = program.memory_analysis()
  stem = pathlib.Path(folder) / str(number)
  stem.with_suffix('.txt').write_text(program.as_text())
  stem.with_suffix('.json').write_text(json.dumps({
    'length': phase.length,
    'rows_a_chip': phase.global_batch / tpu.num_chips,
    'flops': parts.step_flops(phase),
    'bytes': found.argument_size_in_bytes + found.temp_size_in_bytes
    + found.output_size_in_bytes - found.alias_size_in_bytes
    + found.generated_code_size_in_bytes,
    'compile_seconds': seconds,
  }))
"""


def compile_steps(code: str, step: str, trips: int | None) -> list[dict]:
  """Returns a row of each phase of a config on a slice, by the code there."""
  name, slice_name = step.split()
  tpu = topology.find(slice_name)
  rows = []
  with tempfile.TemporaryDirectory() as folder:
    subprocess.run(
      [sys.executable, '-c', PROGRAM, name, slice_name, folder],
      cwd=code,
      env=os.environ | {'PYTHONPATH': code},
      check=True,
      stderr=subprocess.DEVNULL,
    )
    for path in sorted(pathlib.Path(folder).glob('*.json')):
      facts = json.loads(path.read_text())
      text = path.with_suffix('.txt').read_text()
      rows.append(
        {'config': name, 'slice': slice_name, **_sum(facts, text, tpu, trips)}
      )
  return rows


def _sum(
  facts: dict, text: str, tpu: topology.Slice, trips: int | None
) -> dict:
  """Returns a row of the table: the facts of a step and its estimate."""
  if trips is not None:
    text = re.sub(
      r'(op_name="[^"]*)/while"', rf'\1/at_most_{trips}_times/while"', text
    )
  found = cycles.estimate(text, tpu.devices[0].num_cores)
  seconds = found.cycles / (tpu.chip.clock_ghz * 1e9)
  flops = facts.pop('flops')
  peak = device.peak_of(tpu.devices[0].device_kind)
  mfu = device.model_flops_utilisation(flops, seconds, peak, len(tpu.devices))
  return facts | {'cycles': found.cycles, 'mfu': mfu, 'by_kind': found.by_kind}


def as_markdown(rows: list[dict]) -> str:
  """Returns a Markdown table of rows."""
  lines = [
    '| revision | config | slice | length | rows a chip | cycles, M | est. MFU'
    ' | memory of a device, GiB | compiled in, s |',
    f'|{"---|" * 9}',
  ]
  for row in rows:
    cells = (
      *(row[key] for key in ('revision', 'config', 'slice', 'length')),
      f'{row["rows_a_chip"]:g}',
      f'{row["cycles"] / 1e6:.2f}',
      f'{row["mfu"]:.1%}',
      f'{row["bytes"] / 2**30:.2f}',
      f'{row["compile_seconds"]:.0f}',
    )
    lines.append(f'| {" | ".join(map(str, cells))} |')
  return '\n'.join(lines) + '\n'


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('revisions', nargs='+', help='As git names them.')
  parser.add_argument('--steps', nargs='+', default=STEPS, help='CONFIG SLICE.')
  parser.add_argument('--trips', type=int, help='Of a loop without a name.')
  parser.add_argument('--output', help='JSON file; a .md is put beside it.')
  options = parser.parse_args()
  rows = []
  for revision in options.revisions:
    with tempfile.TemporaryDirectory() as folder:
      git = ('git', 'worktree')
      subprocess.run([*git, 'add', '--detach', folder, revision], check=True)
      try:
        for step in options.steps:
          rows += [
            {'revision': revision, **row}
            for row in compile_steps(folder, step, options.trips)
          ]
      finally:
        subprocess.run([*git, 'remove', '--force', folder], check=True)
  print(as_markdown(rows), end='')
  if options.output:
    path = pathlib.Path(options.output)
    files.write_atomically(path, json.dumps(rows, indent=1) + '\n')
    files.write_atomically(path.with_suffix('.md'), as_markdown(rows))


if __name__ == '__main__':
  main()
