"""Sends the metrics of a run to Weights & Biases, MLflow and Trackio.

Loaded only if `train.trackers` names one of these trackers. A tracker gets the
rows of metrics.csv and the resolved config, and nothing else.
"""

import contextlib
import contextvars
import importlib.util
import io
import os
import queue
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from etils import epath

from train.host import files
from train.host.console import say
from train.host.files import Json
from train.run import metrics

FILE = 'trackers.json'  # of a workdir: name -> the id of its run there
PROJECT = 'sesame'  # where the variables of a tracker name no other
# Seconds that the end of a run waits for a tracker: of a run that is whole, and
# of one that was asked to end.
WAIT, SHORT_WAIT = 60.0, 10.0
Row = tuple[int, Mapping[str, float]]  # steps done, metric -> value


class Tracker(Protocol):
  """A run at a tracker.

  Attributes:
    id: by which a continued run finds it.
    place: where to look at it, for people.
  """

  id: str
  place: str

  def __init__(
    self,
    name: str,
    known: str | None,
    folder: epath.Path,
    config: Mapping[str, Json],
  ):
    """Begins the run `name`, or continues that of the `known` id.

    `folder` is local, for its files; `config` is 'section.key' -> value.
    """

  def log(self, step: int, values: Mapping[str, float]) -> None:
    """Adds the values of metrics after `step` steps."""

  def close(self, whole: bool) -> None:
    """Ends the run, which is `whole` or was stopped."""


class WandbTracker:
  """A run of Weights & Biases; see `Tracker`."""

  def __init__(
    self,
    name: str,
    known: str | None,
    folder: epath.Path,
    config: Mapping[str, Json],
  ):
    """See `Tracker`."""
    os.environ.setdefault('WANDB_ERROR_REPORTING', 'false')
    import wandb

    self.id = known or uuid.uuid4().hex[:8]
    self._run = wandb.init(
      project=os.environ.get('WANDB_PROJECT', PROJECT),
      name=name,
      id=self.id,
      resume='allow',
      dir=os.fspath(folder),
      config=dict(config),
      settings=wandb.Settings(
        silent=True,
        console='off',
        disable_code=True,
        disable_git=True,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
        x_transaction_log_flush_interval=1.0,  # a kill loses no more
      ),
    )
    self.place = self._run.url
    if self._run.offline:
      self.place = f'wandb sync {os.path.dirname(self._run.dir)}'
    # Its own steps only grow; after a kill, some of ours come again.
    self._run.define_metric('*', step_metric='step')

  def log(self, step: int, values: Mapping[str, float]) -> None:
    """See `Tracker`."""
    self._run.log({'step': step, **values})

  def close(self, whole: bool) -> None:
    """See `Tracker`."""
    self._run.finish(exit_code=0 if whole else 1)


class MlflowTracker:
  """A run of MLflow; see `Tracker`."""

  def __init__(
    self,
    name: str,
    known: str | None,
    folder: epath.Path,
    config: Mapping[str, Json],
  ):
    """See `Tracker`."""
    del folder
    os.environ.setdefault('MLFLOW_DISABLE_TELEMETRY', 'true')
    from mlflow import tracking

    self._client = tracking.MlflowClient()
    self.place = self._client.tracking_uri
    if known is not None:
      self.id = known
      self._client.update_run(known, status='RUNNING')
      return
    project = os.environ.get('MLFLOW_EXPERIMENT_NAME', PROJECT)
    found = self._client.get_experiment_by_name(project)
    if found is None:
      experiment = self._client.create_experiment(project)
    else:
      experiment = found.experiment_id
    made = self._client.create_run(experiment, run_name=name)
    self.id = made.info.run_id
    from mlflow.entities import Param

    params = [Param(key, str(value)) for key, value in config.items()]
    for i in range(0, len(params), 100):  # as many as a call may have
      self._client.log_batch(self.id, params=params[i : i + 100])

  def log(self, step: int, values: Mapping[str, float]) -> None:
    """See `Tracker`."""
    from mlflow.entities import Metric

    now = int(1_000 * time.time())
    # A language is behind an @, which names of MLflow may not have.
    named = {key.replace('@', ':'): value for key, value in values.items()}
    self._client.log_batch(
      self.id, [Metric(key, value, now, step) for key, value in named.items()]
    )

  def close(self, whole: bool) -> None:
    """See `Tracker`."""
    self._client.set_terminated(self.id, 'FINISHED' if whole else 'KILLED')


class TrackioTracker:
  """A run of Trackio; see `Tracker`."""

  def __init__(
    self,
    name: str,
    known: str | None,
    folder: epath.Path,
    config: Mapping[str, Json],
  ):
    """See `Tracker`."""
    del folder
    import trackio

    # It finds a run by its name alone.
    self.id = known or f'{name}-{uuid.uuid4().hex[:8]}'
    project = os.environ.get('TRACKIO_PROJECT', PROJECT)
    # In a context of its own: at exit, it would end the last run of this one.
    self._run = contextvars.copy_context().run(
      trackio.init,
      project=project,
      name=self.id,
      resume='allow',
      config=dict(config),
      embed=False,
      auto_log_gpu=False,
      auto_log_cpu=False,
    )
    self.place = f'trackio show --project {project}'

  def log(self, step: int, values: Mapping[str, float]) -> None:
    """See `Tracker`."""
    self._run.log(dict(values), step=step)

  def close(self, whole: bool) -> None:
    """See `Tracker`."""
    del whole
    self._run.finish()


TRACKERS: Mapping[str, type[Tracker]] = {
  'wandb': WandbTracker,
  'mlflow': MlflowTracker,
  'trackio': TrackioTracker,
}


def check_trackers(names: Sequence[str]) -> None:
  """Checks that `train.trackers` are known and installed, else ValueError."""
  for name in names:
    if name not in TRACKERS:
      raise ValueError(
        f'train.trackers: found {name!r}, expected some of'
        f' {", ".join(TRACKERS)}, such as'
        ' --config.train.trackers=\'("wandb", "mlflow")\''
      )
    found = importlib.util.find_spec(name)
    # A folder ./wandb, which a run there leaves, is no package.
    if found is None or found.origin is None:
      raise ValueError(
        f'train.trackers: {name} is not installed: pip install {name} (or all'
        " of them: pip install -e '.[trackers]')"
      )
  if len(set(names)) < len(names):
    raise ValueError(f'train.trackers={tuple(names)}: expected each name once')


class _Sender:
  """Sends rows to a tracker beside the training, which never waits for it."""

  def __init__(self, name: str, tracker: Tracker):
    self._name, self._tracker = name, tracker
    self._rows: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
    self._late: list[Row] = []  # what the tracker has not taken yet
    self._told = self._whole = False
    # Of no use to a program that ends: one that hangs does not hold it.
    self._thread = threading.Thread(target=self._send, daemon=True)
    self._thread.start()

  def write(self, step: int, values: Mapping[str, float]) -> None:
    """Takes a row."""
    self._rows.put((step, dict(values)))

  def close(self, whole: bool) -> None:
    """Ends the tracker's run, waiting for it a limited time."""
    self._whole = whole
    self._rows.put(None)
    self._thread.join(WAIT if whole else SHORT_WAIT)
    if self._thread.is_alive():
      say(f'warning: {self._name} is slow: it may lack the last rows')
    elif self._late:
      say(f'warning: {self._name} lacks the last {len(self._late)} rows')

  def _send(self) -> None:
    while (row := self._rows.get()) is not None:
      self._late.append(row)
      with self._telling():
        while self._late:
          self._tracker.log(*self._late[0])
          del self._late[0]
    with self._telling():
      self._tracker.close(self._whole)

  @contextlib.contextmanager
  def _telling(self) -> Iterator[None]:
    try:
      yield
    except Exception as error:  # of many libraries
      if not self._told:
        say(
          f'warning: {self._name} takes no rows for now, and the run goes on:'
          f' {_line(error)}'
        )
      self._told = True


class Trackers(contextlib.AbstractContextManager):
  """The trackers of a run, by the names of `train.trackers`.

  A continued run continues the runs at its trackers; one that is new to a
  workdir gets the earlier rows of metrics.csv first. A tracker that cannot
  begin is an error, ValueError; one that cannot be continued, and each later
  error, is told once, and the run goes on.
  """

  def __init__(
    self,
    names: Sequence[str],
    workdir: epath.Path,
    folder: epath.Path,
    config: Mapping[str, Json],
  ):
    """Begins or continues runs.

    Args:
      names: of trackers.
      workdir: the run's, which keeps the ids.
      folder: local; it has metrics.csv, up to the step of the run.
      config: 'section.key' -> value.
    """
    path = workdir / FILE
    ids = files.read_json(path) if path.exists() else {}
    self._senders = []
    for name in names:
      known = ids.get(name)
      try:
        with contextlib.redirect_stdout(io.StringIO()):  # it has our results
          tracker = TRACKERS[name](workdir.name, known, folder, config)
      except Exception as error:  # of many libraries
        if known is None:
          raise ValueError(
            f'train.trackers: {name} does not begin a run: {_line(error)}'
          ) from error
        say(f'warning: {name} does not continue run {known}: {_line(error)}')
        continue
      sender = _Sender(name, tracker)
      self._senders.append(sender)
      if known is None:
        ids[name] = tracker.id
        files.write_atomically(path, files.as_json(ids) + '\n')
        for step, values in _by_step(metrics.read_metrics(folder)):
          sender.write(step, values)
      say(f'{name} gets the rows of metrics.csv: {tracker.place}')

  def write(self, step: int, values: Mapping[str, float]) -> None:
    """Takes a row, of numbers."""
    for sender in self._senders:
      sender.write(step, values)

  def __exit__(self, kind: type | None, *error: object) -> None:
    """Ends the runs, which are whole unless there was an error."""
    with contextlib.redirect_stdout(io.StringIO()):
      for sender in self._senders:
        sender.close(kind is None)


def _by_step(rows: Sequence[tuple[int, str, float]]) -> list[Row]:
  """Returns the rows (step, metric, value) of a file, joined by step."""
  found: dict[int, dict[str, float]] = {}
  for step, name, value in rows:
    if value == value:
      found.setdefault(step, {})[name] = value
  return list(found.items())


def _line(error: Exception) -> str:
  """Returns the first line of an error's text."""
  return (str(error).strip().splitlines() or [type(error).__name__])[0]
