"""Metrics of a run on disk: a CSV that resumes exactly, and TensorBoard."""

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import numpy as np
from etils import epath

from train.host import files
from train.host.files import RowFile

FILE = 'metrics.csv'
HEADER = ('step', 'metric', 'value')


class MetricsWriter:
  """Appends rows (step, metric, value) to metrics.csv and TensorBoard.

  It first drops rows after the step at which the run continues, atomically.

  Attributes:
    readers: called with each row too, without values that are not numbers.
  """

  def __init__(
    self, workdir: epath.PathLike, *, step: int, active: bool = True
  ):
    """Opens the files of a run after `step` steps; writes only if `active`."""
    self.readers: list[Callable[[int, Mapping[str, float]], None]] = []
    self._active = active
    if not active:
      return
    kept = [row for row in read_metrics(workdir) if row[0] <= step]
    self._file = RowFile(epath.Path(workdir) / FILE, HEADER, kept)
    # TensorBoard's own way: events beyond the step are hidden.
    self._events = _tensorboard().SummaryWriter(
      os.fspath(epath.Path(workdir) / 'tensorboard'),
      purge_step=step + 1,
      write_to_disk=True,
    )

  def write(
    self, step: int, values: Mapping[str, float], *, whole: bool = False
  ) -> None:
    """Adds one row a metric after `step` steps, and flushes.

    With `whole`, a kill leaves all rows or none: for rows after a checkpoint.
    """
    if not self._active:
      return
    rows = [(step, name, value) for name, value in values.items()]
    self._file.append(rows, whole=whole)
    # There is no rate of steps that were compiled first.
    numbers = {name: v for name, v in values.items() if not math.isnan(v)}
    for name, value in numbers.items():
      self._events.add_scalar(name, value, step)
    self._events.flush()
    for read in self.readers:
      read(step, numbers)

  def close(self) -> None:
    """Ends the TensorBoard file."""
    if self._active:
      self._events.close()


def _tensorboard() -> ModuleType:
  """Imports tensorboardX, which takes a second.

  It would also import the client of Cloud Storage, for 0.4 s, to write there
  itself. A run never asks it to: see `mirror`.
  """
  client = 'google.cloud.storage'
  is_new = client not in sys.modules
  if is_new:
    sys.modules[client] = None  # an import of it fails
  try:
    import tensorboardX
  finally:
    if is_new:
      del sys.modules[client]
  return tensorboardX


def read_metrics(workdir: epath.PathLike) -> list[tuple[int, str, float]]:
  """Returns the rows (step, metric, value) of a workdir; none if it is new."""
  return [
    (int(step), name, float(value))
    for step, name, value in files.read_rows(epath.Path(workdir) / FILE)
  ]


def last_value(workdir: epath.PathLike, name: str, step: int) -> float:
  """Returns the newest value of a metric up to `step`; 0 without any."""
  return (history(workdir, name, step) or [0.0])[-1]


def history(workdir: epath.PathLike, name: str, step: int) -> list[float]:
  """Returns all values of a metric up to a step, in their order."""
  return [
    value
    for at, metric, value in read_metrics(workdir)
    if metric == name and at <= step
  ]


def is_scored(workdir: epath.PathLike, step: int) -> bool:
  """Whether a workdir has evaluation metrics after `step` steps."""
  return any(
    at == step and name.startswith('eval/')
    for at, name, _ in read_metrics(workdir)
  )


def training_row(
  report: Mapping[str, np.ndarray | Mapping[str, np.ndarray]],
  loss_names: Sequence[str],
) -> dict[str, float]:
  """Returns the 'train/...' metrics of a step's report, on the host."""
  row = {}
  for name, (total, weight) in report['sums'].items():
    if float(weight) == 0:  # such as of a task without a step in between
      continue
    label = f'{name}_loss' if name in loss_names else name
    row[f'train/{label}'] = float(total) / max(float(weight), 1.0)
  for name in ('loss', 'grad_norm', 'learning_rate'):
    row[f'train/{name}'] = float(report[name])
  return dict(sorted(row.items()))
