"""The processes of a run, one a host, all started with the same command."""

import atexit
import contextlib
import itertools
import json
import os
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import jax
import numpy as np
from jax._src import distributed  # its key-value store has no public name
from jax.experimental import multihost_utils

from train.host import chips, meeting
from train.host.files import Json

# The hosts of a cold pod start minutes apart; JAX's own limit is 300 s.
START_SECONDS = 1800
# JAX's default: the others end this long after a host died silently.
HEARTBEAT_SECONDS = 100
# Seconds between looks for others' errors; to wait for others to see ours.
_LISTEN_SECONDS, _HEARD_SECONDS = 1.0, 15.0
# Seconds that process 0 waits at its end for others that still work.
_LEAVE_SECONDS = 300.0
# Folders of the key-value store, each with an entry of a process.
_FAILED, _HEARD = 'sesame/failed', 'sesame/heard'
_BEAT, _LEFT = 'sesame/beat', 'sesame/left'
_DIED = 'has died, or its host cannot be reached'
_GOES_ON = (
  'What is saved stays, and the same command on all hosts continues from there'
)
_ids = itertools.count()  # of meetings, equal on all processes
_asked = itertools.count(1)  # questions to Preemption.is_due
_leaving = threading.Event()


def join(
  platform: str,
  coordinator: str | None = None,
  num_processes: int | None = None,
  process_id: int | None = None,
  *,
  start_seconds: int = START_SECONDS,
  heartbeat_seconds: int = HEARTBEAT_SECONDS,
) -> None:
  """Joins the other processes of a run; call it before JAX finds its devices.

  On Cloud TPU (`platform` 'tpu', or 'auto' on a host with its chips) and under
  Slurm JAX finds the processes.
  Elsewhere all three arguments are given: `coordinator` is HOST:PORT of process
  0, `process_id` counts from 0. Without any, the process runs alone. It exits
  with 1 if the others take longer than `start_seconds`. All end where one is
  silent for `heartbeat_seconds`, or ends by an error; JAX itself aborts the
  others where that is process 0.
  """
  if platform == 'cpu':  # no accelerator's library is asked, or says anything
    jax.config.update('jax_platforms', 'cpu')
  given = (coordinator, num_processes, process_id)
  if any(value is not None for value in given):
    if None in given or not 0 <= process_id < num_processes:
      raise ValueError(
        f'--coordinator={coordinator} --num_processes={num_processes}'
        f' --process_id={process_id}: give all three, the last from 0 to'
        ' num_processes - 1'
      )
  else:
    is_slice = platform == 'tpu' or (platform == 'auto' and chips.of_tpu())
    if not is_slice and int(os.environ.get('SLURM_NTASKS', 1)) == 1:
      return
  began = time.monotonic()
  if coordinator is not None:
    try:
      meeting.meet(coordinator, num_processes, process_id, start_seconds)
    except TimeoutError as error:
      _exit(f'error: {error}')
  # SIGTERM on any of them leads all to one common last step.
  jax.config.update('jax_enable_preemption_service', True)
  # Else JAX aborts all with a stack in C++, before `_listen` can tell who died.
  jax.config.update('jax_enable_recoverability', True)
  # JAX itself would abort without naming a process.
  left = start_seconds - (time.monotonic() - began)
  alarm = threading.Timer(left, _stop_waiting, [start_seconds])
  alarm.daemon = True
  alarm.start()
  try:
    jax.distributed.initialize(
      coordinator,
      num_processes,
      process_id,
      initialization_timeout=start_seconds + 60,
      heartbeat_timeout_seconds=heartbeat_seconds,
    )
  except ValueError as error:
    # JAX found neither a slice nor Slurm; a missing TPU is reported later.
    if coordinator or 'coordinator_address' not in str(error):
      raise
  finally:
    alarm.cancel()
  if _client() is not None:
    listener = threading.Thread(
      target=_listen, args=[heartbeat_seconds], daemon=True
    )
    listener.start()
    atexit.register(_stop_listening, listener)


def _stop_waiting(seconds: float) -> NoReturn:
  here = distributed.global_state
  _exit(
    f'error: process {here.process_id} waited {seconds:g} s at'
    f' {here.coordinator_address} for all of its {here.num_processes}'
    ' processes: those that print no such line did not come, or cannot reach'
    ' that address. Start them all, with the same --coordinator'
  )


def _client() -> Any:
  return distributed.global_state.client


def _exit(message: str) -> NoReturn:
  print(message, file=sys.stderr, flush=True)
  sys.stdout.flush()
  # A clean exit of JAX would wait for processes that may never come.
  os._exit(1)


def is_alone() -> bool:
  """Returns whether this process joined no others."""
  return _client() is None


def is_first() -> bool:
  """Returns whether this process writes the shared files."""
  return jax.process_index() == 0


def wait_for_all(name: str) -> None:
  """Waits until every process has called it with the same `name`."""
  if jax.process_count() > 1:
    multihost_utils.sync_global_devices(name)


def gather(text: str) -> list[str]:
  """Returns all processes' texts in order; all call it; needs no devices."""
  client, here = _client(), distributed.global_state
  if client is None:
    return [text]
  meeting = f'sesame/gather/{next(_ids)}'
  client.key_value_set(f'{meeting}/{here.process_id}', text)
  client.wait_at_barrier(meeting, START_SECONDS * 1000)
  given = client.key_value_dir_get(meeting)
  by_process = {int(key.rpartition('/')[2]): value for key, value in given}
  return [by_process[i] for i in range(here.num_processes)]


def check_same(find: Callable[[], Mapping[str, Json]]) -> None:
  """Checks that all find the same name -> value; all processes call it."""
  if is_alone():
    return
  told = [json.loads(text) for text in gather(json.dumps(dict(find())))]
  lines = []
  for what in sorted({key for each in told for key in each}):
    found: dict[str, list[str]] = {}
    for process, each in enumerate(told):
      found.setdefault(repr(each.get(what)), []).append(str(process))
    if len(found) > 1:
      of = [f'{value} (process {", ".join(i)})' for value, i in found.items()]
      lines.append(f'  {what}: {", ".join(of)}')
  if lines:
    raise ValueError(
      'the processes differ:\n'
      + '\n'.join(lines)
      + '\nStart the same code with the same command on all hosts'
    )


def of_first(value: Json) -> Json:
  """Returns the value of process 0; all processes call it.

  File caches differ, so that other processes may have read another value.
  """
  return json.loads(gather(json.dumps(value))[0])


def to_host(array: jax.Array | np.ndarray) -> np.ndarray:
  """Returns a sharded array as a whole numpy array; all processes call it."""
  if isinstance(array, jax.Array) and not (
    array.is_fully_addressable or array.is_fully_replicated
  ):
    return multihost_utils.process_allgather(array, tiled=True)
  return np.asarray(jax.device_get(array))


@contextlib.contextmanager
def first_alone(message: str) -> Iterator[None]:
  """Runs the block on process 0 first; the others wait, and say `message`."""
  client = _client()
  if client is None:
    yield
    return
  done = f'sesame/done/{next(_ids)}'
  if not is_first():
    while True:
      try:
        client.blocking_key_value_get(done, 60_000)
        break
      except jax.errors.JaxRuntimeError as error:
        if 'DEADLINE_EXCEEDED' not in str(error):
          raise
      print(f'process {jax.process_index()}: {message}', file=sys.stderr)
  yield
  if is_first():
    client.key_value_set(done, 'done')


def end_all(message: str) -> NoReturn:
  """Ends all processes of the run with a message and exit code 1."""
  _tell_others(message)
  _end(message)


def end_others(error: BaseException) -> None:
  """Ends all processes after a bug in this one; returns if it is alone."""
  if _client() is None:
    return
  _tell_others(f'error: {type(error).__name__}: {error}')
  _end(''.join(traceback.format_exception(error)))


def end_after_loss(error: BaseException) -> NoReturn:
  """Ends this process, whose exchange with another one failed."""
  time.sleep(4 * _LISTEN_SECONDS)  # `_listen` ends it where the other said why
  cause = str(error).partition('\n')[0]
  end_all(f'error: another process {_DIED} ({cause}). {_GOES_ON}')


def _tell_others(message: str) -> None:
  """Leaves an error message for the other processes."""
  client, here = _client(), distributed.global_state
  if client is None:
    return
  _leaving.set()
  with contextlib.suppress(jax.errors.JaxRuntimeError):
    client.key_value_set(f'{_FAILED}/{here.process_id}', message)


def _listen(heartbeat_seconds: int) -> None:
  """Ends this process some time after another one left an error, or died."""
  client, here = _client(), distributed.global_state
  heard = _Beats(here.num_processes)
  with contextlib.suppress(jax.errors.JaxRuntimeError):
    while not (failed := client.key_value_dir_get(_FAILED)):
      if _leaving.wait(_LISTEN_SECONDS):
        return
      silent = heard.silent(heartbeat_seconds)
      if silent:
        _end(  # process 0 last: the others look at other times
          f'error: process {silent[0]} of {here.num_processes} {_DIED} (silent'
          f' for {heartbeat_seconds} s). {_GOES_ON}'
        )
    # Where all processes meet the same error, each reports its own.
    if _leaving.wait(2 * _LISTEN_SECONDS):
      return
    key, told = failed[0]
    process = key.rpartition('/')[2]
    if int(process) != here.process_id:
      _end(f'{told}\n(told by process {process} of {here.num_processes})')


class _Beats:
  """When each process was last heard of, by a number that it counts up."""

  def __init__(self, num_processes: int):
    now = time.monotonic()
    self._values = dict.fromkeys(range(num_processes), '')
    self._times = dict.fromkeys(range(num_processes), now)
    self._looked, self._count = 0.0, 0

  def silent(self, seconds: float) -> list[int]:
    """Counts up; returns who did not for so long and did not end well."""
    now = time.monotonic()
    if now - self._looked < seconds / 10:
      return []
    self._looked, self._count = now, self._count + 1
    client, own = _client(), distributed.global_state.process_id
    value = str(self._count)
    client.key_value_set(f'{_BEAT}/{own}', value, allow_overwrite=True)
    for process, value in _values(_BEAT).items():
      if value != self._values[process]:
        self._values[process], self._times[process] = value, now
    late = [p for p, heard in self._times.items() if now - heard > seconds]
    return sorted(set(late) - _values(_LEFT).keys()) if late else []


def _values(folder: str) -> dict[int, str]:
  """Returns process -> what it left in a folder of the key-value store."""
  found = _client().key_value_dir_get(folder)
  return {int(key.rpartition('/')[2]): value for key, value in found}


def _stop_listening(listener: threading.Thread) -> None:
  """Joins the thread: returning from JAX while Python ends, it would abort.

  Process 0 then waits for the others: without it, JAX aborts them.
  """
  _leaving.set()
  here = distributed.global_state
  with contextlib.suppress(jax.errors.JaxRuntimeError):
    _client().key_value_set(f'{_LEFT}/{here.process_id}', '')
  listener.join(_HEARD_SECONDS)
  if here.process_id != 0:
    return
  deadline = time.monotonic() + _LEAVE_SECONDS
  with contextlib.suppress(jax.errors.JaxRuntimeError):
    while time.monotonic() < deadline:
      if len(_values(_LEFT)) == here.num_processes:
        # It returns when those that left are disconnected.
        _client().get_live_nodes(list(range(here.num_processes)))
        break
      time.sleep(0.1)


def _end(message: str) -> NoReturn:
  """Exits; process 0 last, because without it JAX aborts the others."""
  client, here = _client(), distributed.global_state
  if client is None:
    _exit(message)
  with contextlib.suppress(jax.errors.JaxRuntimeError):
    client.key_value_set(f'{_HEARD}/{here.process_id}', '')
    deadline = time.monotonic() + _HEARD_SECONDS
    while here.process_id == 0 and time.monotonic() < deadline:
      if len(client.key_value_dir_get(_HEARD)) == here.num_processes:
        break
      time.sleep(0.1)
  _exit(message)


class Preempted(Exception):
  """The run was asked to end early, and what it did is saved."""

  def __init__(self, saved: str) -> None:
    """Takes what is saved, as 'step 9 is saved', for the message."""
    super().__init__(f'asked to end: {saved}, and the same command goes on')


class Preemption:
  """Notices that the run is asked to end, on this host or another.

  A context manager. SIGTERM asks, and so does the first Ctrl-C; a second Ctrl-C
  ends the process at once. A context around this one notices the same signals,
  so none is lost between two runs of a sweep.
  """

  def __init__(self) -> None:
    self._noticed = False

  def __enter__(self) -> 'Preemption':
    handlers = {signal.SIGINT: self._interrupt}
    if jax.process_count() == 1:  # else JAX tells all processes
      handlers[signal.SIGTERM] = self._notice
    self._before = {
      number: signal.signal(number, handler)
      for number, handler in handlers.items()
    }
    return self

  def __exit__(self, *error: Any) -> None:
    for number, handler in self._before.items():
      signal.signal(number, handler)

  def _notice(self, number: int, frame: types.FrameType | None) -> None:
    self._noticed = True
    around = self._before[signal.SIGTERM]
    if isinstance(getattr(around, '__self__', None), Preemption):
      around(number, frame)

  def _interrupt(self, number: int, frame: types.FrameType | None) -> None:
    del number, frame
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print(
      '\nCtrl-C: the run saves this step and ends. Once more ends it at once,'
      ' without saving.',
      file=sys.stderr,
      flush=True,
    )
    os.kill(os.getpid(), signal.SIGTERM)

  def end_if_due(self, saved: str) -> None:
    """Raises Preempted with what is saved, if it is time to end here."""
    if self.is_due():
      raise Preempted(saved)

  def is_due(self) -> bool:
    """Whether to end here; all processes ask at the same places, and agree."""
    if jax.process_count() == 1:
      return self._noticed
    return multihost_utils.reached_preemption_sync_point(next(_asked))
