"""The lock of a run's folder on Cloud Storage, which has no locks of its own.

The object `.lock` names the process that holds it. It is written only if nobody
has written it since it was read (by its generation). A thread renews it; a lock
that is no longer renewed expires.
"""

import contextlib
import datetime
import email.utils
import json
import os
import pathlib
import socket
import threading
import time
import uuid
from typing import Any, NamedTuple

from etils import epath

from data import storage
from train.host import console

NAME = '.lock'
RENEW_SECONDS = 30.0
# Without a renewal for so long, by the server's clock, the holder is gone.
EXPIRY_SECONDS = 120.0
_LOOK_SECONDS = 3.0  # between looks at another's lock
_END_SECONDS = 30.0  # to give it back

# A process, as `_this_process` describes it.
Holder = dict[str, str | int | list[str] | None]


class _Found(NamedTuple):
  """A lock in the bucket: its content, generation, and age in seconds."""

  holder: Holder
  generation: int
  age: float


class Lease:
  """Holds the lock of a folder; a context manager.

  Entering waits until a lock that is not renewed expires; the lock of a dead
  process of this machine is void at once. Raises ValueError if another process
  holds the lock.
  """

  def __init__(self, folder: epath.PathLike):
    self._folder = folder
    self._path = epath.Path(folder) / NAME
    self._holder = _this_process() | {
      'since': datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
    }
    self._generation = 0
    self._renewed = 0.0  # when, by our own clock
    self._renewing = threading.Lock()
    # The server's clock when a writing was refused last; it dates the objects.
    self._now = datetime.datetime.now(datetime.UTC)
    self._taken_by: Holder | None = None
    self._ended = threading.Event()
    self._thread = threading.Thread(target=self._keep_renewing, daemon=True)

  def check_held(self, sure: bool = False) -> None:
    """Raises OSError if another process has taken the folder over.

    If it must be `sure` and the lock was not renewed for long, it is now.
    """
    if sure and time.monotonic() - self._renewed > EXPIRY_SECONDS:
      with contextlib.suppress(Exception):  # what is to be written will tell
        self._renew()
    if self._taken_by is not None:
      raise OSError(
        f'{self._folder} was taken over by {_describe(self._taken_by)}: this'
        ' process could not renew its lock in time. It ends here, and the other'
        ' one goes on from the last checkpoint'
      )

  def __enter__(self) -> 'Lease':
    first = None  # the generation of another's lock when it was first seen
    while not self._write(0):
      found = self._read()
      if found is None:  # freed, or renewed, in this moment
        time.sleep(_LOOK_SECONDS)
        continue
      if self._is_void(found):
        if self._write(found.generation):
          break
        continue
      if first not in (None, found.generation):
        raise ValueError(
          f'{_describe(found.holder)}, trains in {self._folder}: wait for its'
          ' end, or pass another --workdir'
        )
      if first is None:
        console.say(
          f'{self._folder} is locked by {_describe(found.holder)}. Looking'
          ' whether it still renews its lock, up to'
          f' {EXPIRY_SECONDS - found.age:.0f} s.'
        )
        first = found.generation
      time.sleep(_LOOK_SECONDS)
    self._thread.start()
    return self

  def __exit__(self, *error: Any) -> None:
    self._ended.set()
    self._thread.join(_END_SECONDS)
    if self._taken_by is None:
      with contextlib.suppress(Exception):  # else it expires
        storage.blob(self._path).delete(
          if_generation_match=self._generation,
          timeout=storage.TIMEOUT,
          retry=storage.retry(_END_SECONDS),
        )

  def _is_void(self, found: _Found) -> bool:
    return found.age > EXPIRY_SECONDS or _is_dead(found.holder)

  def _write(self, generation: int) -> bool:
    """Writes the lock over a generation, 0 for none; False if it is another."""
    from google.api_core import exceptions

    began = time.monotonic()
    # A new handle each time: it asks for the generation that it has seen.
    blob = storage.blob(self._path)
    try:
      blob.upload_from_string(
        json.dumps(self._holder),
        content_type='application/json',
        if_generation_match=generation,
        timeout=storage.TIMEOUT,
        retry=storage.retry(),
      )
      self._generation = blob.generation
    except exceptions.PreconditionFailed as error:
      said = error.response.headers.get('Date')
      self._now = (
        email.utils.parsedate_to_datetime(said)
        if said
        else datetime.datetime.now(datetime.UTC)
      )
      # The answer to our own writing may have been lost on its way.
      found = self._read()
      if found is None or found.holder.get('token') != self._holder['token']:
        return False
      self._generation = found.generation
    self._renewed = began
    return True

  def _read(self) -> _Found | None:
    """Returns the lock in the bucket, None if there is none."""
    from google.api_core import exceptions

    blob = storage.blob(self._path)
    try:
      blob.reload(timeout=storage.TIMEOUT, retry=storage.retry())
      data = blob.download_as_bytes(
        if_generation_match=blob.generation,
        timeout=storage.TIMEOUT,
        retry=storage.retry(),
      )
    except (exceptions.NotFound, exceptions.PreconditionFailed):
      return None
    try:
      holder = dict(json.loads(data))
    except (ValueError, TypeError):
      holder = {}
    age = (self._now - blob.updated).total_seconds()
    return _Found(holder, blob.generation, age)

  def _renew(self) -> None:
    """Writes the lock again, or finds out who has taken it."""
    with self._renewing:
      if self._write(self._generation):
        return
      found = self._read()
      if found is None:  # deleted by hand: it is ours as long as nobody's
        self._generation = 0
      else:
        self._taken_by = found.holder

  def _keep_renewing(self) -> None:
    wait = RENEW_SECONDS
    while self._taken_by is None and not self._ended.wait(wait):
      wait = _LOOK_SECONDS
      with contextlib.suppress(Exception):  # its absence shows elsewhere
        self._renew()
        wait = RENEW_SECONDS if self._generation else _LOOK_SECONDS


def _this_process() -> Holder:
  return {
    'host': socket.gethostname(),
    'process': os.getpid(),
    # With the machine, it tells this process from others of its number.
    'began': _began(os.getpid()),
    'machine': _machine(),
    'token': uuid.uuid4().hex,
  }


def _machine() -> list[str]:
  """Returns facts that are equal where processes see each other's numbers."""
  try:
    boot = pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip()
    return [boot, os.readlink('/proc/self/ns/pid'), str(os.getuid())]
  except OSError:  # not on Linux
    return []


def _began(process: int) -> str | None:
  """Returns when a process began, in ticks since the boot; None: it has ended.

  Unlike a time of day, the ticks of a process never change.
  """
  try:
    text = pathlib.Path(f'/proc/{process}/stat').read_text()
  except OSError:
    return None
  return text.rpartition(')')[2].split()[19]  # after the name in brackets


def _is_dead(holder: Holder) -> bool:
  """Returns whether a holder was a process of this machine, and has ended."""
  if not _machine() or holder.get('machine') != _machine():
    return False
  return _began(holder['process']) != holder['began']


def _describe(holder: Holder) -> str:
  return (
    f'process {holder.get("process")} on {holder.get("host")}, since'
    f' {holder.get("since")}'
  )
