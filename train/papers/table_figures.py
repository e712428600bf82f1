"""The figures of a table's cells, read from finished runs."""

import dataclasses
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence

from etils import epath

from configs.tables.base import Column, Part, Table
from data.text import text_files
from train.host.files import Json
from train.papers.table_plan import Cell, Run
from train.run.settings import FREE_KEYS, FlatConfig, Grid, Value

Summary = Mapping[str, Json]  # content of a sweep's summary.json
AGREE = 0.005  # half a point between two means
# The values of a key in figures of results/tables that were made before it.
BEFORE = {
  'train.count': 'rows',
  'task.crf': '',
  'task.test_languages': [],
  'task.long_text': 'head',
  # Of models of words.
  'model.variant': 'published',
  'task.doc_stride': 128,
  'task.max_question': 64,
  'task.max_answer': 30,
  'task.n_best': 20,
  'optim.average': 0.0,
}


@dataclasses.dataclass(frozen=True)
class Figure:
  """The measured figure of a cell.

  Attributes:
    values: one for each seed.
    best: value of the best run on dev; None for several tasks.
    train_size: training examples; None: unknown, or several tasks.
    settings: text of the config's keys; empty: unknown, or they differ.
  """

  values: tuple[float, ...]
  best: float | None = None
  train_size: int | None = None
  device: str = ''
  revision: str = ''
  settings: str = ''

  @property
  def mean(self) -> float:
    """The mean of the values."""
    return statistics.fmean(self.values)

  @property
  def deviation(self) -> float | None:
    """The sample standard deviation; None for one value."""
    return statistics.stdev(self.values) if len(self.values) > 1 else None


def read_summary(path: epath.Path) -> Summary | None:
  """Returns a sweep's summary, None if unfinished; ValueError if damaged."""
  if not path.exists():
    return None
  try:
    found = text_files.read_json(path)
    if all(isinstance(run['metrics'], dict) for run in found['runs']):
      return found
  except (ValueError, KeyError, TypeError):
    pass
  raise ValueError(
    f'{path}: expected the JSON of train.sweep, with the metrics of its runs;'
    ' delete it to run the cell again'
  )


def figure_of(
  column: Column,
  summaries: Sequence[Summary],
  *,
  tells: Sequence[str] = (),
  grid: Grid | None = None,
) -> Figure | None:
  """Returns the figure of a cell; None if a summary lacks a metric.

  A column of several parts has the mean of the parts for each seed, over the
  seeds that all parts have.
  """
  parts = []
  for part, summary in zip(column.parts, summaries, strict=True):
    by_seed = {}
    for run in chosen_runs(summary):
      values = [run['metrics'].get(metric) for metric in part.metrics]
      if any(value is None or not math.isfinite(value) for value in values):
        return None
      by_seed[run['seed']] = statistics.fmean(values)
    parts.append(by_seed)
  seeds = [
    seed for seed in parts[0] if all(seed in by_seed for by_seed in parts)
  ]
  if not seeds:
    return None
  (first, *others) = summaries
  settings = {_settings(summary, tells, grid or {}) for summary in summaries}
  return Figure(
    values=tuple(
      statistics.fmean(by_seed[seed] for by_seed in parts) for seed in seeds
    ),
    best=None if others else _best(column.parts[0], first),
    train_size=None if others else first.get('train_size'),
    device=_joined(summaries, 'device'),
    revision=_joined(summaries, 'revision'),
    settings=settings.pop() if len(settings) == 1 else '',
  )


def chosen_runs(summary: Summary) -> list[Mapping[str, Json]]:
  """Returns the runs of a sweep with its best settings."""
  chosen = summary.get('settings', {})
  return [
    run for run in summary['runs'] if run.get('settings', chosen) == chosen
  ]


def lost_runs(summary: Summary) -> list[Mapping[str, Json]]:
  """Returns the runs with the best settings that diverged, all if all did."""
  chosen = summary.get('settings')
  return [
    run
    for run in summary.get('diverged', ())
    if chosen in (None, run['settings'])
  ]


def describe_lost(summary: Summary) -> str:
  """Returns which seeds diverged and why; '' if none did."""
  lost = lost_runs(summary)
  if not lost:
    return ''
  seeds = _listed(run['seed'] for run in lost)
  return f'fine-tuning by seed {seeds} diverged: {lost[0]["error"]}'


def _settings(summary: Summary, tells: Sequence[str], grid: Grid) -> str:
  """Returns each key's value and the values among which dev chose it."""
  texts = []
  config = summary.get('config', {})
  for key in tells:
    if key not in config:
      continue
    value = summary.get('settings', {}).get(key, config[key])
    tried, choices = _tried(summary, key), grid.get(key, ())
    note = ''
    if len(tried) > 1:
      note = f' (best on dev of {_listed(tried)})'
    elif choices:
      note = f' (alone; the paper took the best on dev of {_listed(choices)})'
    if key == 'task.word_vectors' and value is None:
      value = 'drawn' if config['task.word_dim'] else 'none'
    texts.append(f'{key.rpartition(".")[2]}={value}{note}')
  return ', '.join(texts)


def _tried(summary: Summary, key: str) -> list[Value]:
  """Returns the values of a key in a sweep."""
  default = summary.get('config', {}).get(key)
  runs = *summary['runs'], *summary.get('diverged', ())
  return list(
    dict.fromkeys(run.get('settings', {}).get(key, default) for run in runs)
  )


def _listed(values: Iterable[Value]) -> str:
  return ', '.join(map(str, values))


def _best(part: Part, summary: Summary) -> float | None:
  found = summary.get('best', {}).get('metrics', {})
  values = [found.get(metric) for metric in part.metrics]
  return None if None in values else statistics.fmean(values)


def _joined(summaries: Sequence[Summary], key: str) -> str:
  found = dict.fromkeys(summary.get(key, '') for summary in summaries)
  return ', '.join(filter(None, found))


def read_figures(
  cells: Sequence[Cell], table: Table, changed: Iterable[str] = ()
) -> tuple[dict[tuple[str, str], Figure], dict[tuple[str, str], str]]:
  """Returns {(row, column): figure}, and {(row, column): reason} if none.

  Beside a figure stand the keys that the table tells, and `changed` ones that
  change what is learned.
  """
  figures, reasons = {}, {}
  others = [key for key in changed if key not in (*table.tells, *FREE_KEYS)]
  for cell in cells:
    key = cell.line.name, cell.column.name
    summaries = [read_summary(run.summary) for run in cell.runs]
    missing = [
      run.part.task
      for run, summary in zip(cell.runs, summaries, strict=True)
      if summary is None
    ]
    if summaries and not missing:
      of_runs = tuple(run.part for run in cell.runs)
      figure = figure_of(
        dataclasses.replace(cell.column, parts=of_runs),
        summaries,
        tells=(*table.tells, *others),
        grid=table.grids.get(cell.line.family),
      )
      if figure is not None:
        figures[key] = figure
        continue
      if not all(summary['runs'] for summary in summaries):
        reasons[key] = 'diverged'
        continue
    reasons[key] = (
      cell.reason
      or (f'has not been run: {", ".join(missing)}' if missing else '')
      or 'was run, and its summary lacks '
      + ', '.join(metric for run in cell.runs for metric in run.part.metrics)
    )
  return figures, reasons


def read_reference(
  path: epath.Path, columns: Sequence[Column], inputs: str = ''
) -> dict[str, Figure]:
  """Returns {column: figure} of another program's runs; {} without a file.

  The JSON has `runs`, each with task, seed and metrics by our names, 'dev/'
  optional; a run of a task model also has `inputs`, such as
  vectors+characters+language_model@both. With `inputs`, only runs with the same
  ones are read; characters do not count.
  """
  found = read_summary(path)
  if found is None:
    return {}
  by_task: dict[str, list[Mapping[str, Json]]] = {}
  for run in found['runs']:
    parts = run.get('inputs', '').split('+')
    if inputs not in ('', '+'.join(p for p in parts if p != 'characters')):
      continue
    named = {
      metric if '/' in metric else f'dev/{metric}': value
      for metric, value in run['metrics'].items()
    }
    by_task.setdefault(run['task'], []).append(run | {'metrics': named})
  figures = {}
  for column in columns:
    summaries = [{'runs': by_task.get(part.task, [])} for part in column.parts]
    if summaries and all(summary['runs'] for summary in summaries):
      figure = figure_of(column, summaries)
      if figure is not None:
        figures[column.name] = figure
  return figures


def describe_changes(run: Run, summary: Summary, wanted: FlatConfig) -> str:
  """Returns how a finished run differs from the planned `run`; '' if not.

  Sizes and tokenizer do not count, which the fine-tuned weights decide, nor do
  values that dev chose in a grid. `wanted` is the flat config of `run`.
  """
  from train.transfer import task_plan  # takes seconds to import

  def counts(key: str) -> bool:
    if key in summary.get('settings', {}) or key in run.grid:
      return False
    if key in run.overrides:
      return run.overrides[key] is not None
    decided = key == 'data.tokenizer' or (
      key.startswith('model.') and run.model is None
    )
    return not decided and key != 'train.seed'

  there = {**BEFORE, **summary.get('config', {})}
  differing = task_plan.differing_keys(there, wanted)
  texts = [
    f'{key}={old!r} and not {new!r}'
    for key, (old, new) in differing.items()
    if counts(key)
  ]
  texts += [
    f'{key}={_listed(tried)} and not the best of {_listed(values)}'
    for key, values in run.grid.items()
    if set(tried := _tried(summary, key)) != set(values)
  ]
  return ', '.join(texts)


def published_number(value: float | str) -> float | None:
  """Returns the number of a printed figure: 91.9 of '91.9±0.2'."""
  found = re.match(r'[+-]?\d+(\.\d+)?', str(value))
  return float(found[0]) if found else None


def compare(ours: Figure, theirs: Figure) -> tuple[float, float | None, bool]:
  """Returns the difference of means, twice its standard error, and agreement.

  Means agree within the error, None for a single run, or within half a point.
  """
  difference = ours.mean - theirs.mean
  bound = None
  if ours.deviation is not None and theirs.deviation is not None:
    bound = 2 * math.sqrt(
      ours.deviation**2 / len(ours.values)
      + theirs.deviation**2 / len(theirs.values)
    )
  # 1e-9: rounding does not decide.
  agrees = abs(difference) <= max(AGREE, bound or 0.0) + 1e-9
  return difference, bound, agrees
