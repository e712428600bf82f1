"""The terminal: progress of a run, tables of figures."""

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import rich.console
import rich.progress

from train.host import files
from train.host.files import Json

CONSOLE = rich.console.Console(stderr=True, highlight=False)
LINE_SECONDS = 10  # between lines where standard error is not a terminal
BAR_SECONDS = 0.1  # between changes of the bar, which are not free
T = TypeVar('T')


def _is_first() -> bool:
  """Returns whether this is process 0, which alone prints."""
  if 'jax' not in sys.modules:  # too early for other processes
    return True
  from train.host import processes

  return processes.is_first()


def say(text: str = '') -> None:
  """Prints a line to standard error; only process 0 does."""
  if _is_first():
    CONSOLE.print(text, markup=False, soft_wrap=True)


@contextlib.contextmanager
def saying_results() -> Iterator[None]:
  """Has `say` print to standard output: a plan that is all that was asked."""
  CONSOLE.stderr = False
  try:
    yield
  finally:
    CONSOLE.stderr = True


def show(text: str = '') -> None:
  """Prints a line of results to standard output; only process 0 does."""
  if _is_first():
    print(text, flush=True)


def conclude(text: str, *, as_json: bool = False) -> None:
  """Prints the last line of results, which are not `as_json`."""
  (say if as_json else show)(text)


@contextlib.contextmanager
def lossy_output() -> Iterator[None]:
  """A context in which standard output may fail: files have the same."""
  try:
    yield
  except OSError as error:
    say(f'standard output takes no results: {error}')
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python ends with 120


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
      disable=not (CONSOLE.is_terminal and _is_first()),
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


def counted(items: Iterable[T], total: int, unit: str) -> Iterator[T]:
  """Yields `total` items, and shows a bar with how many come in a second."""
  began = shown = time.monotonic()
  with ProgressBar(0, total) as bar:
    for done, item in enumerate(items, start=1):
      yield item
      now = time.monotonic()
      if now - shown > BAR_SECONDS or done == total:
        shown = now
        bar.update(done, f'{done / (now - began):,.0f} {unit}/s')


def figures(row: Mapping[str, float]) -> str:
  """Returns a logged row's mean losses (nats a word), speed and MFU as text."""
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


def duration(seconds: float) -> str:
  """Returns a duration as h:mm:ss."""
  minutes, seconds = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  return f'{hours}:{minutes:02}:{seconds:02}'


def table(
  rows: Sequence[tuple[str, Json]],
  title: str = '',
  out: Callable[[str], None] = say,
) -> None:
  """Prints aligned (name, value) rows, by `say` or as results by `show`."""
  if title:
    out(f'\n{title}')
  width = max(len(name) for name, _ in rows)
  for name, value in rows:
    out(f'  {name:{width}}  {value}')


def print_figures(
  figures: Mapping[str, Json], title: str, *, as_json: bool
) -> None:
  """Prints results: JSON, or a table with 6 digits and without the lists."""
  if as_json:
    print(files.as_json(figures))
    return
  rows = []
  for name, value in figures.items():
    if isinstance(value, int | float):
      value = f'{value:,.6g}' if isinstance(value, float) else f'{value:,}'
    if not isinstance(value, list):
      rows.append((name, value))
  table(rows, title, show)
