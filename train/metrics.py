"""Metrics of a run on disk: a CSV that resumes exactly, and TensorBoard."""

import csv
import io
import os
from collections.abc import Mapping

import tensorboardX
from etils import epath

HEADER = ('step', 'metric', 'value')


class MetricsWriter:
  """Appends rows (step, metric, value) to metrics.csv and TensorBoard.

  Rows beyond the step that a run continues from are dropped, atomically, so
  that the file reads as if the run had never stopped.
  """

  def __init__(
    self, workdir: epath.PathLike, *, step: int, active: bool = True
  ):
    """Opens the files of a run that continues after `step` steps.

    Args:
      workdir: the run's.
      step: where it continues.
      active: False in all processes but one: nothing is written.
    """
    self._active = active
    if not active:
      return
    self._path = epath.Path(workdir) / 'metrics.csv'
    rows = [row for row in read_metrics(workdir) if row[0] <= step]
    self._text = io.StringIO()
    _write_rows(self._text, [HEADER, *rows])
    self._replace()
    # TensorBoard's own way: events beyond the step are hidden.
    self._events = tensorboardX.SummaryWriter(
      os.fspath(epath.Path(workdir) / 'tensorboard'),
      purge_step=step + 1,
      write_to_disk=True,
    )

  def write(self, step: int, values: Mapping[str, float]) -> None:
    """Adds one row a metric and flushes."""
    if not self._active:
      return
    text = io.StringIO()
    _write_rows(text, [(step, name, value) for name, value in values.items()])
    self._text.write(text.getvalue())
    if _is_remote(self._path):  # object stores cannot append
      self._replace()
    else:
      with self._path.open('a') as file:
        file.write(text.getvalue())
        file.flush()
        os.fsync(file.fileno())  # a checkpoint that is kept has its rows
    for name, value in values.items():
      self._events.add_scalar(name, value, step)
    self._events.flush()

  def close(self) -> None:
    """Ends the TensorBoard file."""
    if self._active:
      self._events.close()

  def _replace(self) -> None:
    write_atomically(self._path, self._text.getvalue())


def read_metrics(workdir: epath.PathLike) -> list[tuple[int, str, float]]:
  """Returns the rows (step, metric, value) of a workdir; none if it is new.

  A last line without its end, as a killed process leaves it, does not count.
  """
  path = epath.Path(workdir) / 'metrics.csv'
  if not path.exists():
    return []
  text = path.read_text()
  lines = text[: text.rfind('\n') + 1].splitlines()
  return [
    (int(step), name, float(value))
    for step, name, value in list(csv.reader(lines))[1:]
  ]


def last_value(workdir: epath.PathLike, name: str, step: int) -> float:
  """Returns the newest value of a metric up to `step`; 0 where none is."""
  values = [
    value
    for at, metric, value in read_metrics(workdir)
    if metric == name and at <= step
  ]
  return values[-1] if values else 0.0


def write_atomically(path: epath.PathLike, text: str) -> None:
  """Writes a text file that is either the old one or whole."""
  path = epath.Path(path)
  new = path.with_name(f'.{path.name}.{os.getpid()}.new')
  try:
    new.write_text(text)
    new.replace(path)
  except BaseException:
    new.unlink(missing_ok=True)
    raise


def _write_rows(file: io.StringIO, rows: list[tuple]) -> None:
  csv.writer(file, lineterminator='\n').writerows(rows)


def _is_remote(path: epath.Path) -> bool:
  return '://' in str(path)
