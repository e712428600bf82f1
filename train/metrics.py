"""Metrics of a run on disk: a CSV that resumes exactly, and TensorBoard."""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
    kept = [row for row in read_metrics(workdir) if row[0] <= step]
    self._file = RowFile(epath.Path(workdir) / 'metrics.csv', HEADER, kept)
    # TensorBoard's own way: events beyond the step are hidden.
    self._events = tensorboardX.SummaryWriter(
      os.fspath(epath.Path(workdir) / 'tensorboard'),
      purge_step=step + 1,
      write_to_disk=True,
    )

  def write(
    self, step: int, values: Mapping[str, float], *, whole: bool = False
  ) -> None:
    """Adds one row a metric and flushes.

    Args:
      step: the steps done.
      values: metric -> value.
      whole: a kill leaves all of them or none: for what is written after the
        checkpoint of its step, and is done again if it is missing.
    """
    if not self._active:
      return
    rows = [(step, name, value) for name, value in values.items()]
    self._file.append(rows, whole=whole)
    for name, value in values.items():
      if not math.isnan(value):  # no rate of steps that were compiled first
        self._events.add_scalar(name, value, step)
    self._events.flush()

  def close(self) -> None:
    """Ends the TensorBoard file."""
    if self._active:
      self._events.close()


class RowFile:
  """A CSV file that grows by whole rows, each on disk once it is appended."""

  def __init__(
    self, path: epath.PathLike, header: Sequence[str], rows: Iterable[Sequence]
  ):
    """Begins with `rows`, which replace, atomically, what was there."""
    self._path = epath.Path(path)
    self._text = io.StringIO()
    self._text.write(as_csv([header, *rows]))
    write_atomically(self._path, self._text.getvalue())

  def append(self, rows: Iterable[Sequence], *, whole: bool = False) -> None:
    """Adds rows; with `whole` a kill leaves all of them or none."""
    text = as_csv(rows)
    self._text.write(text)
    if whole or '://' in str(self._path):  # object stores cannot append
      write_atomically(self._path, self._text.getvalue())
    else:
      with self._path.open('a') as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())  # a checkpoint that is kept has its rows


def read_rows(path: epath.PathLike) -> list[list[str]]:
  """Returns a CSV file's rows without its header; none where it is missing.

  A last line without its end, as a killed process leaves it, does not count.
  """
  path = epath.Path(path)
  if not path.exists():
    return []
  text = path.read_text()
  return list(csv.reader(text[: text.rfind('\n') + 1].splitlines()))[1:]


def read_metrics(workdir: epath.PathLike) -> list[tuple[int, str, float]]:
  """Returns the rows (step, metric, value) of a workdir; none if it is new."""
  return [
    (int(step), name, float(value))
    for step, name, value in read_rows(epath.Path(workdir) / 'metrics.csv')
  ]


def last_value(workdir: epath.PathLike, name: str, step: int) -> float:
  """Returns the newest value of a metric up to `step`; 0 where none is."""
  values = [
    value
    for at, metric, value in read_metrics(workdir)
    if metric == name and at <= step
  ]
  return values[-1] if values else 0.0


def is_scored(workdir: epath.PathLike, step: int) -> bool:
  """Whether a workdir has the figures of an evaluation after `step` steps."""
  return any(
    at == step and name.startswith('eval/')
    for at, name, _ in read_metrics(workdir)
  )


def check_writable(path: epath.PathLike | None) -> None:
  """Refuses, before work is done, a file whose folder is not there.

  Raises:
    FileNotFoundError: if so.
  """
  if path is not None and not epath.Path(path).parent.is_dir():
    raise FileNotFoundError(
      f'{path}: no such folder to write to: {epath.Path(path).parent}'
    )


def as_json(figures: Any) -> str:
  """Returns JSON, null for numbers that are not finite."""

  def finite(value: Any) -> Any:
    if isinstance(value, dict):
      return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list):
      return [finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
      return None
    return value

  return json.dumps(finite(figures), indent=2, ensure_ascii=False)


def write_atomically(path: epath.PathLike, text: str) -> None:
  """Writes a text file that is either the old one or whole."""
  path = epath.Path(path)
  new = path.with_name(f'.{path.name}.{os.getpid()}.new')
  try:
    with new.open('w') as file:
      file.write(text)
      if '://' not in str(path):
        file.flush()
        os.fsync(file.fileno())  # else a crash may leave it renamed and empty
    new.replace(path)
  except BaseException:
    new.unlink(missing_ok=True)
    raise


def as_csv(rows: Iterable[Sequence]) -> str:
  """Returns rows as the text of a CSV file."""
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerows(rows)
  return text.getvalue()
