"""The reports of `train.slices.fit`: printed, and in a table of results."""

import json
from collections.abc import Mapping

from etils import epath

from train.engine.memory import GIB, gib
from train.host import console, files
from train.host.console import show
from train.host.files import Json
from train.run.settings import FlatConfig

# Time that the estimate does not have: of a step, and of a run's hours.
NOT_ESTIMATED = 'the links, starting operations, waiting for prefetched memory'
NOT_COUNTED = 'evaluation, checkpoints and waiting for input'


def print_report(report: Mapping[str, Json], price: float | None) -> None:
  """Prints a report of `preflight`; `price` is the price of a chip-hour."""
  name = report['topology']
  rows = {
    'machine': f'{name}: {report["machine"]}',
    'mesh': ' x '.join(f'{axis} {n}' for axis, n in report['mesh'].items()),
    'parameters': f'{report["parameters"]:,}',
    **report.get('notes', {}),
  }
  title = f'Preflight (jax {report["jax"]}, {report["compiler"]})'
  console.table([*rows.items()], title, show)
  for phase in report['phases']:
    _print_phase(phase)
  for tried in report.get('remedies', ()):
    show(
      f'  {flags(tried["override"])}: {_verdict(tried)} at length'
      f' {tried["length"]} ({gib(tried["total"])})'
    )
  if not report['fits']:
    good = any(tried['fits'] for tried in report['remedies'])
    hint = 'one of those that fit' if good else 'a larger slice'
    show(f'\nVerdict: does NOT fit {name}; take {hint}.')
    return
  if report['hours'] is None:
    show(
      f'\nVerdict: fits {name}. Without an estimate the hours are not known;'
      ' --mfu counts them at an MFU of yours.'
    )
    return
  cost = (
    '' if price is None else f', {price * report["chip_hours"]:,.0f} to pay'
  )
  if report['mfu'] is not None:
    by = f'At an MFU of {report["mfu"]:.0%}, or the best possible where that is'
    by += ' less'
  elif _is_bound(report):
    by = 'At least, by the largest bound of each step'
  else:
    by = "By the compiler's estimate, the links' time added"
  show(
    f'\nVerdict: fits {name}. {by}: {_rounded(report["hours"], 1)} hours,'
    f' {_rounded(report["chip_hours"], 0)} chip-hours{cost}, without'
    f' {NOT_COUNTED}.'
  )


def _is_bound(report: Mapping[str, Json]) -> bool:
  """Returns whether the hours are the fewest possible: those of GPUs."""
  return report['mfu'] is None and 'traffic' in report['phases'][0]


def _rounded(hours: float, digits: int) -> str:
  return f'{hours:,.{digits}f}' if hours >= 10 else f'{hours:.3g}'


def _verdict(figures: Mapping[str, Json]) -> str:
  return 'fits' if figures['fits'] else 'does NOT fit'


def _print_phase(phase: Mapping[str, Json]) -> None:
  memory = dict(phase['memory'])
  total, usable = memory.pop('total'), memory.pop('usable')
  rows = {
    'batch': f'{phase["global_batch"]:,} x {phase["length"]} tokens,'
    f' {phase["rows_a_device"]} rows a device, {phase["rows_a_chip"]:g} a chip,'
    f' {phase["micro_batches"]} micro-batches',
    'memory': ', '.join(f'{kind} {gib(n)}' for kind, n in memory.items()),
    'in all': f'{gib(total)} of {gib(usable)} a device: {_verdict(phase)}',
    'step': f'{phase["model_flops"] / 1e12:,.4g} model TFLOP, compiled in'
    f' {phase["compile_seconds"]:.0f} s',
  }
  if phase['fits']:
    collectives = [
      f'{kind} {total / 1e6:,.1f} MB'
      for kind, total in phase['collective_bytes'].items()
    ]
    bounds = [
      f'{bound} {seconds * 1e3:,.2f} ms'
      for bound, seconds in phase['least_seconds'].items()
    ]
    rows['collectives'] = ', '.join(collectives) or 'none'
    if moves := phase.get('traffic'):
      rows['memory moved'] = (
        f'{moves["bytes"] / 1e9:,.1f} GB a device, {moves["kernels"]:,} kernels'
      )
    rows['at least'] = (
      f'{", ".join(bounds)}; so at best an MFU of {phase["best_mfu"]:.0%}'
    )
  title = f'{phase["steps"]:,} steps at length {phase["length"]}'
  console.table([*rows.items()], title, show)
  if phase['fits'] and 'traffic' not in phase:
    _print_estimate(phase['estimate'])


def _print_estimate(estimate: Mapping[str, Json]) -> None:
  """Prints the compiler's estimate of a step as a table by kind of work."""
  title = "The compiler's estimate of a step, not a measurement"
  if 'missing' in estimate:
    console.table([('missing', estimate['missing'])], title, show)
    return
  total = estimate['cycles']
  rows = [
    (kind, f'{n / total:6.1%} {n / 1e6:10,.3f} M cycles')
    for kind, n in estimate['by_kind'].items()
  ]
  rows += [
    (
      'in all',
      f'{total / 1e6:,.2f} M cycles, {estimate["seconds"] * 1e3:,.2f} ms, an'
      f' MFU of {estimate["mfu"]:.1%}',
    ),
    ('links', f'{estimate["links_seconds"] * 1e3:,.2f} ms at least, beside it'),
    ('left out', f'{NOT_ESTIMATED}{_counts(estimate["left_out"])}'),
  ]
  if estimate['bounded']:
    rows.append(('at most', 'trips of the loops that end with the data:'))
    rows += [('', name) for name in estimate['bounded']]
  console.table(rows, title, show)


def _counts(numbers: Mapping[str, int]) -> str:
  return ''.join(f', {name} ({n})' for name, n in numbers.items())


def flags(override: FlatConfig) -> str:
  """Returns an override as it is spelt on the command line."""
  return ' '.join(f'--config.{key}={value}' for key, value in override.items())


def add_to_table(path: epath.PathLike, config: str, report: Mapping) -> None:
  """Adds or replaces a report in a table's JSON file and its Markdown.

  A row is of a config, FILE:ARGUMENT without the file's folder and ending.
  """
  path = epath.Path(path)
  file, colon, argument = config.partition(':')
  name = epath.Path(file).stem + colon + argument
  rows = json.loads(path.read_text()) if path.exists() else {}
  rows[f'{name} {report["topology"]}'] = report
  files.write_atomically(path, json.dumps(rows, indent=1) + '\n')
  lines = [
    '| config | machine | chips | length | rows a chip'
    ' | memory of a device, GiB | collectives, MB'
    ' | bounds: compute, memory, links, ms | best MFU'
    ' | cycles, M | est. ms | est. MFU'
    ' | hours (chip-hours) by the estimate, or at least |',
    f'|{"---|" * 13}',
  ]
  for key, row in rows.items():
    lines += [_markdown(key.split()[0], row, phase) for phase in row['phases']]
  files.write_atomically(path.with_suffix('.md'), '\n'.join(lines) + '\n')


def _markdown(name: str, row: Mapping, phase: Mapping) -> str:
  memory = phase['memory']
  collectives = bounds = mfu = ''
  estimated = [''] * 3
  if phase['fits']:
    collectives = f'{sum(phase["collective_bytes"].values()) / 1e6:.0f}'
    bounds = ', '.join(
      f'{seconds * 1e3:.1f}' for seconds in phase['least_seconds'].values()
    )
    mfu = f'{phase["best_mfu"]:.0%}'
    estimate = phase['estimate']
    if 'cycles' in estimate:
      estimated = [
        f'{estimate["cycles"] / 1e6:.2f}',
        f'{estimate["seconds"] * 1e3:.2f}',
        f'{estimate["mfu"]:.1%}',
      ]
  if row['fits'] and row['hours'] is None:
    hours = 'no estimate'
  elif row['fits']:
    hours = f'{_rounded(row["hours"], 1)} ({_rounded(row["chip_hours"], 0)})'
    if _is_bound(row):
      hours = f'at least {hours}'
    if row['mfu'] is not None:
      hours += f' at {row["mfu"]:.0%} MFU'
  else:
    good = [flags(t['override']) for t in row['remedies'] if t['fits']]
    hours = f'does not fit; fits with {", or ".join(good) or "none tried"}'
  cells = [
    name,
    row['topology'],
    row['chips'],
    phase['length'],
    f'{phase["rows_a_chip"]:g}',
    f'{(memory["total"] or 0) / GIB:.2f} of {memory["usable"] / GIB:.2f}',
    collectives,
    bounds,
    mfu,
    *estimated,
    hours,
  ]
  return '| ' + ' | '.join(map(str, cells)) + ' |'
