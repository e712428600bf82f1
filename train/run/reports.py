"""Reports on a run for `train.report`: time, speed and curves."""

import math
import statistics
import time
from collections.abc import Mapping, Sequence

import ml_collections
import numpy as np
from etils import epath

from train.host import console, files, pictures
from train.host.console import duration
from train.host.files import Json
from train.run import (
  curves,
  ledger,
  metrics,
  training_phases,
  workdirs,
)

_COLOURS = {
  'train': '#43a047',
  'data': '#ef6c00',
  'eval': '#1e88e5',
  'save': '#8e24aa',
  'other': '#b0bec5',
  'compile': '#fbc02d',
  'restore': '#5d4037',
  'start': '#757575',
  ledger.LOST: '#d32f2f',
}
_BARS = 12  # of the newest attempts; a run on spot machines has many
_BINS = 200


def collect(workdir: epath.PathLike) -> dict[str, Json]:
  """Returns the figures of a workdir's run for JSON, None where unknown."""
  files.check_workdir(workdir)
  config = workdirs.read_config(workdir)
  values = metrics.read_metrics(workdir)
  rows = ledger.with_losses(ledger.read(workdir))
  finished = workdirs.read_results(workdir) is not None
  done = rows[-1].step if rows else max((row[0] for row in values), default=0)
  report = {
    'workdir': str(workdir),
    'finished': finished,
    'steps_done': done,
    'steps_in_all': rows[-1].total_steps if rows else None,
    'held_out': _held_out(values),
    'tokens_per_second': _median(values, 'time/tokens_per_second'),
    'mfu': _median(values, 'time/mfu'),
    'seconds_left': 0.0 if finished else _seconds_left(rows, config),
    'last_written': rows[-1].time if rows else None,
    'time': None,
  }
  if rows:
    totals = ledger.add_up(rows)
    spent, ran = totals.seconds, sum(totals.seconds.values())
    report['time'] = {
      'seconds': ran,
      'training_share': totals.training_share,
      'bucket_seconds': spent,
      'bucket_shares': {name: spent[name] / ran for name in spent},
      'restarts': totals.attempts - 1,
      'restarting_seconds': totals.restarting,
      'lost_seconds': totals.seconds[ledger.LOST],
      'down_seconds': totals.down,
    }
  return report


def _held_out(values: Sequence[tuple]) -> dict[str, dict[str, float]]:
  """Returns the last and the best value of each 'eval/...' metric."""
  series: dict[str, list[tuple[float, int]]] = {}
  for step, name, value in values:
    if name.startswith('eval/'):
      series.setdefault(name, []).append((value, step))
  result = {}
  for name, pairs in series.items():
    falls = name.endswith(('loss', 'perplexity', 'perplexity_ratio'))
    best = (min if falls else max)(pairs)
    result[name] = dict(zip(('last', 'last_step'), pairs[-1], strict=True))
    result[name] |= zip(('best', 'best_step'), best, strict=True)
  return result


def _median(values: Sequence[tuple], name: str) -> float | None:
  known = [v for _, metric, v in values if metric == name and math.isfinite(v)]
  return statistics.median(known) if known else None


def _seconds_left(
  rows: Sequence[ledger.LedgerRow], config: ml_collections.ConfigDict
) -> float | None:
  """Returns the time for the remaining tokens, at the pace so far."""
  if not rows:
    return None
  phases = () if 'task' in config else training_phases.check_phases(config)

  def tokens(steps: int) -> int:
    if not phases:  # a task's batches have any length: count steps
      return steps
    total = 0
    for phase in phases[:-1]:
      total += min(steps, phase.steps) * phase.length * phase.global_batch
      steps = max(steps - phase.steps, 0)
    return total + steps * phases[-1].length * phases[-1].global_batch

  done = tokens(rows[-1].step)
  counted = done - tokens(rows[0].step)
  if not counted:
    return None
  seconds = sum(
    row.seconds[bucket]
    for row in rows
    for bucket in ('data', 'train', 'eval', 'save', 'other')
  )
  return seconds / counted * (tokens(rows[-1].total_steps) - done)


def print_report(report: Mapping[str, Json]) -> None:
  """Prints the figures of `collect`."""
  done, total = report['steps_done'], report['steps_in_all']
  spent, left = report['time'], report['seconds_left']
  rows = [('workdir', report['workdir'])]
  if report['finished']:
    rows.append(('steps', f'all {done:,} done'))
  else:
    of = '' if total is None else f' of {total:,} ({done / total:.1%})'
    ago = ''
    if spent:
      ago = duration(max(time.time() - report['last_written'], 0))
      ago = f'; last sign of life {ago} ago'
    rows.append(('steps', f'{done:,}{of}{ago}'))
    about = 'unknown' if left is None else f'about {duration(left)}'
    rows.append(('time left', about))
  if report['tokens_per_second'] is not None:
    mfu = '' if report['mfu'] is None else f', MFU {report["mfu"]:.1%}'
    speed = f'{report["tokens_per_second"]:,.0f} tokens/s{mfu} (medians)'
    rows.append(('speed', speed))
  if spent:
    rows.append(('training', f'{spent["training_share"]:.1%} of the time'))
    restarts = str(spent['restarts'])
    if spent['restarts']:
      cost = spent['restarting_seconds'] + spent['lost_seconds']
      restarts += (
        f', which cost {duration(cost)}:'
        f' {duration(spent["restarting_seconds"])} to start again,'
        f' {duration(spent["lost_seconds"])} of steps done again;'
        f' and {duration(spent["down_seconds"])} without a process'
      )
    rows.append(('restarts', restarts))
  console.table(rows, 'Run', console.show)
  if report['held_out']:
    console.table(
      [
        (
          name.removeprefix('eval/'),
          f'{of["last"]:10.4f} at step {of["last_step"]:<9,}'
          f' best {of["best"]:10.4f} at step {of["best_step"]:,}',
        )
        for name, of in report['held_out'].items()
      ],
      'Held out',
      console.show,
    )
  if spent:
    shares = spent['bucket_shares']
    buckets = [
      (ledger.NAMES[name], f'{duration(seconds):>9}  {shares[name]:6.1%}')
      for name, seconds in spent['bucket_seconds'].items()
    ]
    buckets.append(('in all', f'{duration(spent["seconds"]):>9}'))
    console.table(buckets, 'Time', console.show)


def draw_ledger(rows: Sequence[ledger.LedgerRow], path: epath.PathLike) -> None:
  """Draws rows of `with_losses` as PNG: a bar an attempt, shares over time."""
  from matplotlib import patches

  bars = _attempts(rows)
  seconds = rows[-1].time - rows[0].began
  unit, divisor = next(
    (unit, divisor)
    for unit, divisor in (('seconds', 1), ('minutes', 60), ('hours', 3600))
    if seconds / divisor < 120 or unit == 'hours'
  )
  figure = pictures.figure(11, 5 + 0.35 * len(bars))
  above, below = figure.subplots(
    2, 1, gridspec_kw={'height_ratios': (1.2 + 0.35 * len(bars), 3)}
  )
  totals = ledger.add_up(rows).seconds
  ran = sum(totals.values())
  for place, (_, spent) in enumerate(bars):
    left = 0.0
    for bucket, colour in _COLOURS.items():
      width = spent[bucket] / divisor
      above.barh(place, width, left=left, color=colour, height=0.7)
      left += width
    share = spent['train'] / max(sum(spent.values()), 1e-9)
    above.text(left, place, f'  {share:.0%} training', va='center')
  above.set_yticks(range(len(bars)), [label for label, _ in bars])
  above.invert_yaxis()
  above.set_xlim(0, 1.2 * ran / divisor)
  above.set_xlabel(unit)
  above.set_title('Where the time went')
  handles = [
    patches.Patch(
      color=_COLOURS[bucket],
      label=f'{ledger.NAMES[bucket]} {totals[bucket] / ran:.1%}',
    )
    for bucket in _COLOURS
    if totals[bucket]
  ]
  figure.legend(
    handles=handles, loc='outside right upper', fontsize='small', frameon=False
  )

  edges, shares = _timeline(rows)
  edges = (edges - edges[0]) / divisor
  bottom = np.zeros(len(edges) - 1)
  for bucket, colour in _COLOURS.items():
    below.bar(
      edges[:-1],
      shares[bucket],
      np.diff(edges),
      bottom,
      align='edge',
      color=colour,
      linewidth=0,
    )
    bottom += shares[bucket]
  for before, after in zip(rows, rows[1:], strict=False):
    if after.attempt > before.attempt:
      start = (after.began - rows[0].began) / divisor
      below.axvline(start, color='black', linewidth=0.8, linestyle=':')
  below.set_xlim(0, edges[-1])
  below.set_ylim(0, 100)
  below.set_xlabel(f'{unit} since the run began (dotted: a restart)')
  below.set_ylabel('% of the time')
  below.set_title('When it went there (white: no process is known to have run)')
  pictures.save(figure, path, dpi=110)


def _attempts(
  rows: Sequence[ledger.LedgerRow],
) -> list[tuple[str, dict[str, float]]]:
  """Returns (label, bucket -> seconds) of the newest attempts, and of all."""
  numbers = sorted({row.attempt for row in rows})
  bars = []
  if len(numbers) > 1:
    for number in numbers[-_BARS:]:
      own = [row for row in rows if row.attempt == number]
      bars.append((f'attempt {number}', ledger.add_up(own).seconds))
  label = f'all {len(numbers)}' if bars else 'the run'
  return [*bars, (label, ledger.add_up(rows).seconds)]


def _timeline(
  rows: Sequence[ledger.LedgerRow],
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
  """Returns edges in Unix seconds [n + 1], and bucket -> % of each bin [n]."""
  edges = np.linspace(rows[0].began, rows[-1].time, _BINS + 1)
  shares = {bucket: np.zeros(_BINS) for bucket in _COLOURS}
  for row in rows:
    seconds = sum(row.seconds.values())
    if not seconds:
      continue
    overlap = np.minimum(edges[1:], row.time) - np.maximum(
      edges[:-1], row.began
    )
    part = np.clip(overlap, 0, None) / seconds
    for bucket in _COLOURS:
      shares[bucket] += part * row.seconds[bucket]
  width = edges[1] - edges[0]
  return edges, {
    bucket: 100 * values / width for bucket, values in shares.items()
  }


def run(
  workdir: epath.PathLike, out: epath.PathLike | None = None
) -> dict[str, Json]:
  """Draws a run's PNG files into `out` or the workdir; returns its figures."""
  report = collect(workdir)
  out = epath.Path(out or workdir)
  out.mkdir(parents=True, exist_ok=True)
  curves.draw_curves(workdir, out)
  rows = ledger.read(workdir)
  if rows:
    draw_ledger(ledger.with_losses(rows), out / 'ledger.png')
  return report
