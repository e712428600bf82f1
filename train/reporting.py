"""What a person sees of a run: the bar, the curves, the results."""

import json
import math
import pathlib
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import rich.console
import rich.progress
from etils import epath

from train import ledger, processes
from train import metrics as metrics_lib

CONSOLE = rich.console.Console(stderr=True, highlight=False)
_UNIGRAM = 'eval/unigram_perplexity'
# Without a curve of their own: what others add up to, or are a quotient of.
_UNDRAWN = ('train/loss', 'train/grad_norm', 'eval/perplexity_ratio')
_PANELS = (
  'Loss',
  'Held-out perplexity',
  'Scores of dev',
  'Accuracy',
  'Other figures',
  'Learning rate',
)
LINE_SECONDS = 10  # between lines where standard error is not a terminal


def say(text: str = '') -> None:
  """Prints a line to standard error, of process 0 only."""
  if processes.is_first():
    CONSOLE.print(text, markup=False, soft_wrap=True)


class ProgressBar:
  """Step, time left and the latest figures; plain lines without a terminal."""

  def __init__(self, start: int, total: int):
    """Begins at `start` of `total` steps."""
    self._start, self._total = start, total
    self._began = self._said = time.monotonic()
    self._bar = rich.progress.Progress(
      rich.progress.TextColumn('step'),
      rich.progress.MofNCompleteColumn(),
      rich.progress.BarColumn(bar_width=20),
      rich.progress.TextColumn('{task.fields[figures]}'),
      rich.progress.TimeRemainingColumn(),
      rich.progress.TextColumn('left'),
      console=CONSOLE,
      disable=not (CONSOLE.is_terminal and processes.is_first()),
    )
    self._task = self._bar.add_task(
      '', total=total, completed=start, figures=''
    )

  def __enter__(self) -> 'ProgressBar':
    self._bar.start()
    return self

  def __exit__(self, *error: Any) -> None:
    self._bar.stop()

  def update(self, step: int, figures: str | None = None) -> None:
    """Moves to `step`; shows `figures` where given."""
    fields = {} if figures is None else {'figures': figures}
    self._bar.update(self._task, completed=step, **fields)
    now = time.monotonic()
    due = now - self._said > LINE_SECONDS or step == self._total
    if not CONSOLE.is_terminal and figures and due:
      self._said = now
      seconds = (now - self._began) / max(step - self._start, 1)
      left = duration(seconds * (self._total - step))
      say(f'step {step}/{self._total}  {figures}  {left} left')


def figures(row: Mapping[str, float]) -> str:
  """Returns the figures of a logged row for the progress bar.

  Each loss is a mean over what it is of, since the last row: nats a word, also
  where what is minimised is a sum over the words of a row (ELMo).
  """
  losses = {
    name.removeprefix('train/').removesuffix('_loss'): f'{value:.3f}'
    for name, value in row.items()
    if name.startswith('train/') and name.endswith('_loss')
  }
  named = ', '.join(f'{name} {value}' for name, value in losses.items())
  rate, mfu = row['time/tokens_per_second'], row['time/mfu']
  return (
    f'loss {named if len(losses) > 1 else "".join(losses.values())}'
    + ('' if math.isnan(rate) else f'  {rate:,.0f} tokens/s')
    + ('' if math.isnan(mfu) else f'  MFU {mfu:.0%}')
  )


def is_perplexity(metric: str) -> bool:
  """Whether a metric is a model's perplexity on held-out text."""
  return (
    metric.startswith('eval/')
    and metric.endswith('perplexity')
    and metric != _UNIGRAM
  )


def evaluation_line(step: int, row: Mapping[str, float]) -> str:
  """Returns one line of an evaluation's figures.

  Perplexities where there are some, otherwise losses; and all other metrics.
  """
  perplexities = [value for name, value in row.items() if is_perplexity(name)]
  others = []
  for name, value in row.items():
    label = name.removeprefix('eval/')
    of, _, kind = label.rpartition('_')
    if kind == 'accuracy' and of:
      others.append(f'{of.upper()} accuracy {value:.3f}')
    elif not (
      is_perplexity(name)
      or name in (_UNIGRAM, *_UNDRAWN)
      or (perplexities and kind == 'loss')
    ):
      others.append(f'{label.replace("_", " ")} {value:.3f}')
  if perplexities:
    values = ' and '.join(f'{value:.1f}' for value in perplexities)
    others.insert(0, f'perplexity {values} (unigram {row[_UNIGRAM]:.1f})')
  return f'step {step}: held-out {", ".join(others)}'


def duration(seconds: float) -> str:
  """Returns a duration as h:mm:ss."""
  minutes, seconds = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  return f'{hours}:{minutes:02}:{seconds:02}'


def table(rows: Sequence[tuple[str, Any]], title: str = '') -> None:
  """Prints aligned (name, value) rows to standard error."""
  if title:
    say(f'\n{title}')
  width = max(len(name) for name, _ in rows)
  for name, value in rows:
    say(f'  {name:{width}}  {value}')


def figures_table(figures: Mapping[str, Any], title: str) -> None:
  """Prints named numbers, in 6 digits where they are not whole."""
  rows = [
    (name, f'{value:,.6g}' if isinstance(value, float) else f'{value:,}')
    if isinstance(value, int | float)
    else (name, value)
    for name, value in figures.items()
  ]
  table(rows, title)


def revision() -> str:
  """Returns the git revision of the code, '+' behind it if it was changed."""
  here = pathlib.Path(__file__).parent

  def git(*arguments: str) -> str:
    return subprocess.run(
      ['git', *arguments], cwd=here, capture_output=True, text=True, check=True
    ).stdout.strip()

  try:
    changed = git('status', '--porcelain', '--untracked-files=no')
    return git('rev-parse', '--short=12', 'HEAD') + ('+' if changed else '')
  except (OSError, subprocess.CalledProcessError):
    return 'unknown'


def write_results(workdir: epath.PathLike, results: Mapping[str, Any]) -> None:
  """Writes results.json."""
  metrics_lib.write_atomically(
    epath.Path(workdir) / 'results.json',
    json.dumps(results, indent=2, sort_keys=True) + '\n',
  )


def read_results(workdir: epath.PathLike) -> dict[str, Any] | None:
  """Returns results.json of a finished run, None where there is none."""
  path = epath.Path(workdir) / 'results.json'
  return json.loads(path.read_text()) if path.exists() else None


def print_results(results: Mapping[str, Any], workdir: epath.PathLike) -> None:
  """Prints a finished run's figures."""
  figures = results['metrics']
  rows = [
    (name.removeprefix('eval/'), f'{value:.4f}')
    for name, value in figures.items()
  ]
  title = (
    f'Held-out text after {results["steps"]} steps'
    f' ({duration(results["seconds"])}, {results["device"]})'
  )
  table(rows, title)
  if 'eval/perplexity_ratio' in figures:
    say(
      '\nThe model needs'
      f' {figures["eval/perplexity_ratio"]:.3f} of the perplexity that token'
      ' frequencies alone (unigram) give.'
    )
  rows = ledger.read(workdir)
  if rows:
    say(ledger.sentence(rows))
  say(
    f'Everything is in {workdir}: results.json, curves.png, metrics.csv,'
    f' {ledger.FILE}'
  )


def draw_curves(
  workdir: epath.PathLike, out: epath.PathLike | None = None
) -> None:
  """Draws a workdir's metrics.csv as curves.png, there or in folder `out`."""
  import matplotlib.figure

  series: dict[str, tuple[list, list]] = {}
  for step, name, value in metrics_lib.read_metrics(workdir):
    steps, values = series.setdefault(name, ([], []))
    steps.append(step)
    values.append(value)
  drawn = panels(series)
  figure = matplotlib.figure.Figure(
    figsize=(11, 3.5 * -(-len(drawn) // 2)), layout='constrained'
  )
  grid = figure.subplots(-(-len(drawn) // 2), 2, squeeze=False).flat
  for axes in grid[len(drawn) :]:
    axes.set_axis_off()
  for axes, (title, names) in zip(grid, drawn.items(), strict=False):
    for name in names:
      held_out = name.startswith('eval/')
      axes.plot(*series[name], '.-' if held_out else '-', label=name, alpha=0.9)
    axes.set_title(title)
    axes.set_xlabel('step')
    axes.grid(alpha=0.3)
    if 'perplexity' in title:
      axes.set_yscale('log')
    if axes.lines:
      axes.legend(loc='best', fontsize='small')
  path = epath.Path(out or workdir) / 'curves.png'
  with path.open('wb') as file:
    figure.savefig(file, format='png', dpi=110)


def is_of_task(metric: str) -> bool:
  """Whether a metric is a fine-tuning's: eval/TASK/METRIC."""
  return metric.startswith('eval/') and metric.count('/') > 1


def panels(metrics: Iterable[str]) -> dict[str, list[str]]:
  """Returns title -> metrics, of the curves that are drawn of a run.

  Every loss, and whatever else is measured, has its curve, of any objective;
  what tells of time or of all losses together has none.
  """
  found: dict[str, list[str]] = {title: [] for title in _PANELS}
  for name in metrics:
    split, _, rest = name.partition('/')
    if split == 'time' or name in _UNDRAWN:
      continue
    if name == 'train/learning_rate':
      title = 'Learning rate'
    elif rest.endswith(('_loss', '/loss')):
      title = 'Loss'
    elif is_of_task(name):
      title = 'Scores of dev'
    elif is_perplexity(name) or name == _UNIGRAM:
      title = 'Held-out perplexity'
    elif rest.endswith('accuracy'):
      title = 'Accuracy'
    else:
      title = 'Other figures'
    found[title].append(name)
  always = ('Loss', 'Learning rate')  # of a run that has just begun, too
  return {
    title: names for title, names in found.items() if names or title in always
  }
