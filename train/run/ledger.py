"""The ledger of a run's time: each second has one heading, over all restarts.

The headings, such as training or compiling, are `BUCKETS`. `ledger.csv` only
grows. A row has the seconds since the row before; the time from the last row of
a killed process to the next attempt counts as `down`: no process ran.
"""

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from etils import epath

from train.host import device, files

FILE = 'ledger.csv'
BUCKETS = {
  'start': 'starting up',
  'restore': 'restoring a checkpoint',
  'compile': 'compiling',  # with the first execution
  'data': 'waiting for data',
  'train': 'training steps',
  'eval': 'evaluation',
  'save': 'waiting for a save',
  'other': 'logs, profiles, results',
}
# Found by `with_losses`: steps that a later attempt did again.
LOST = 'lost'
NAMES = BUCKETS | {LOST: 'steps done again'}
_REPEATED = ('data', 'train', 'eval')
_HEADER = ('attempt', 'time', 'steps_done', 'steps_in_all', *BUCKETS)


class LedgerRow(NamedTuple):
  """A row of the ledger.

  Attributes:
    attempt: number of the process in the run, from 1.
    time: of writing, in Unix seconds.
    step: steps done by then.
    total_steps: steps of the whole run, as planned by then.
    seconds: bucket -> seconds since the row before; see `BUCKETS`.
  """

  attempt: int
  time: float
  step: int
  total_steps: int
  seconds: dict[str, float]

  @property
  def began(self) -> float:
    """When the row's seconds began, in Unix seconds."""
    return self.time - sum(self.seconds.values())


class Ledger:
  """Counts every second of a process in one bucket, and writes them down."""

  def __init__(self, began: float | None = None):
    """Counts as 'start' from `began`, in Unix seconds; from now by default."""
    self._mark = time.perf_counter()
    self._bucket = 'start'
    self._spent = dict.fromkeys(BUCKETS, 0.0)
    self._spent['start'] = 0.0 if began is None else time.time() - began
    self._written = dict.fromkeys(BUCKETS, 0.0)
    self._seconds_before = 0.0
    self._compiled = False
    self._step = 0
    self._file = None
    self._reset()

  # ---- Counting -----------------------------------------------------------

  def elapsed(self) -> float:
    """Returns the seconds counted so far."""
    self.switch(self._bucket)
    return sum(self._spent.values())

  def switch(self, bucket: str) -> None:
    """Counts the time from now on as `bucket`."""
    now = time.perf_counter()
    self._spent[self._bucket] += now - self._mark
    self._bucket, self._mark = bucket, now

  @contextlib.contextmanager
  def measure(self, bucket: str) -> Iterator[None]:
    """Counts the time inside as `bucket` only."""
    outer = self._bucket
    self.switch(bucket)
    try:
      yield
    finally:
      self.switch(outer)

  def compiled(
    self,
    step: jax.stages.Wrapped,
    around: Callable[[], contextlib.AbstractContextManager] = (
      contextlib.nullcontext
    ),
    after: Callable[[], None] = lambda: None,
  ) -> Callable:
    """Returns a jitted step that counts as 'compile' at each new batch shape.

    Each first execution runs in the context manager `around()`; `after()` is
    called between compiling and executing.
    """
    shapes = set()

    @functools.wraps(step)
    def run(state: Any, batch: Mapping[str, jax.Array], *rest: Any) -> Any:
      shape = tuple((name, array.shape) for name, array in batch.items())
      if shape in shapes:
        return step(state, batch, *rest)
      shapes.add(shape)
      self._compiled = self._bucket == 'train'
      with self.measure('compile'), around():
        # The step before ends first, so its memory is free for the compiler.
        jax.block_until_ready(state)
        step.lower(state, batch, *rest).compile()
        after()
        return jax.block_until_ready(step(state, batch, *rest))

    return run

  def begin_training(self, seconds_before: float) -> None:
    """Counts 'train' from now on; earlier the run took `seconds_before`."""
    self.switch('train')
    self._seconds_before = seconds_before
    self._reset()

  def count(self, step: int, tokens: int, flops: float) -> None:
    """Counts a training step, the run's `step`th."""
    self._step = step
    if not self._compiled:  # its time has a compilation in it
      self._tokens += tokens
      self._flops += flops
    self._compiled = False

  def row(
    self, peak_tflops: float | None, num_devices: int
  ) -> dict[str, float]:
    """Returns the 'time/...' metrics since its last call.

    Rates cover training and waiting for data; NaN if all steps were compiled.
    """
    so_far = self.elapsed()
    spent = _difference(self._spent, self._at_row)
    seconds = sum(spent.values())
    training = spent['data'] + spent['train']
    row = {
      'time/seconds': self._seconds_before
      + so_far
      - self._spent['start']
      - self._spent['restore'],
      'time/tokens_per_second': math.nan,
      'time/mfu': math.nan,
      'time/data_share': spent['data'] / seconds,
      'time/eval_share': spent['eval'] / seconds,
      'time/save_share': spent['save'] / seconds,
    }
    if self._tokens:
      row['time/tokens_per_second'] = self._tokens / training
      row['time/mfu'] = device.model_flops_utilisation(
        self._flops, training, peak_tflops, num_devices
      )
    self._reset()
    return row

  def _reset(self) -> None:
    self._at_row = dict(self._spent)
    self._tokens, self._flops = 0, 0.0

  # ---- Writing ------------------------------------------------------------

  @contextlib.contextmanager
  def recording(self) -> Iterator[None]:
    """Ends the attempt with a last row, also after an error."""
    try:
      yield
    except BaseException:
      with contextlib.suppress(OSError):  # report the first error
        self.write()
      raise
    self.write()

  def open(self, workdir: epath.PathLike, step: int, total_steps: int) -> None:
    """Begins an attempt in a workdir's ledger, after `step` of `total_steps`.

    Nothing is written before: a process that never opens it writes nothing.
    """
    self._step, self._total_steps = step, total_steps
    rows = read(workdir)
    self._attempt = rows[-1].attempt + 1 if rows else 1
    self._file = files.RowFile(
      epath.Path(workdir) / FILE, _HEADER, map(_as_cells, rows)
    )
    self.write()

  def write(self) -> None:
    """Adds a row of the time since the row before, if a ledger is open."""
    if self._file is None:
      return
    self.elapsed()
    row = LedgerRow(
      self._attempt,
      time.time(),
      self._step,
      self._total_steps,
      _difference(self._spent, self._written),
    )
    self._written = dict(self._spent)
    with self.measure('other'):
      self._file.append([_as_cells(row)])


def _difference(
  after: Mapping[str, float], before: Mapping[str, float]
) -> dict[str, float]:
  return {bucket: after[bucket] - before[bucket] for bucket in BUCKETS}


def _as_cells(row: LedgerRow) -> list:
  *numbers, seconds = row
  numbers[1] = f'{row.time:.3f}'
  return [*numbers, *(f'{seconds[bucket]:.3f}' for bucket in BUCKETS)]


# ---- Reading ---------------------------------------------------------------


def read(workdir: epath.PathLike) -> list[LedgerRow]:
  """Returns the rows of a workdir's ledger as written; none if it is new."""
  return [
    LedgerRow(
      int(attempt),
      float(written),
      int(step),
      int(total_steps),
      dict(zip(BUCKETS, map(float, seconds), strict=True)),
    )
    for attempt, written, step, total_steps, *seconds in files.read_rows(
      epath.Path(workdir) / FILE
    )
  ]


def with_losses(rows: Sequence[LedgerRow]) -> list[LedgerRow]:
  """Returns rows with work done again counted as `LOST`.

  A row is written before each save, so no row has steps from both sides of a
  checkpoint; and after each evaluation, which follows the save.
  """
  first_step = {}
  for row in rows:
    first_step.setdefault(row.attempt, row.step)
  settled = []
  for row in rows:
    # Attempts follow each other: every higher number came later.
    kept = min(
      (step for at, step in first_step.items() if at > row.attempt),
      default=math.inf,
    )
    repeated = _REPEATED if row.step > kept else ()
    seconds = {
      bucket: 0.0 if bucket in repeated else value
      for bucket, value in row.seconds.items()
    }
    seconds[LOST] = sum(row.seconds[bucket] for bucket in repeated)
    settled.append(row._replace(seconds=seconds))
  return settled


class Totals(NamedTuple):
  """Sums over a ledger.

  Attributes:
    seconds: bucket -> seconds, with `LOST`; their sum is the running time.
    down: seconds between an attempt's last row and the next attempt.
    attempts: number of processes that trained.
    restarting: seconds of 'start', 'restore', 'compile' after attempt 1.
  """

  seconds: dict[str, float]
  down: float
  attempts: int
  restarting: float

  @property
  def training_share(self) -> float:
    """The share of the running time spent in steps that counted."""
    return self.seconds['train'] / sum(self.seconds.values())


def add_up(rows: Sequence[LedgerRow]) -> Totals:
  """Returns the totals of rows of `with_losses`."""
  again = [row for row in rows if row.attempt > rows[0].attempt]
  return Totals(
    seconds={
      bucket: math.fsum(row.seconds[bucket] for row in rows) for bucket in NAMES
    },
    down=sum(end - start for start, end in gaps(rows)),
    attempts=len({row.attempt for row in rows}),
    restarting=math.fsum(
      row.seconds[bucket]
      for row in again
      for bucket in ('start', 'restore', 'compile')
    ),
  )


def gaps(rows: Sequence[LedgerRow]) -> list[tuple[float, float]]:
  """Returns (from, to) in Unix seconds of the times between attempts."""
  return [
    (before.time, max(before.time, after.began))
    for before, after in zip(rows, rows[1:], strict=False)
    if after.attempt > before.attempt
  ]


def sentence(rows: Sequence[LedgerRow]) -> str:
  """Returns a sentence on the use of time, from rows of `read`."""
  totals = add_up(with_losses(rows))
  spent = dict(totals.seconds)
  seconds = sum(spent.values())
  del spent['train']
  largest = sorted(spent.items(), key=lambda item: -item[1])
  parts = [
    f'{NAMES[bucket]} {value / seconds:.1%}'
    for bucket, value in largest
    if value >= 0.0005 * seconds
  ]
  return (
    f'{totals.training_share:.1%} of {seconds:,.0f} s went into training'
    f' steps; {", ".join(parts)}.'
  )
