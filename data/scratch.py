"""Hidden folders to write in, of which no dead process leaves one for ever.

What is written there moves to its place whole. The next process that writes
the same thing removes the folders that killed ones left: a living process holds
a lock on its folder.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping

from etils import epath

from data import storage

_ENDING = '.new'
_NAME_LENGTH = 100  # of a name's part that a hidden folder's name shows


@contextlib.contextmanager
def beside(path: str | os.PathLike) -> Iterator[pathlib.Path]:
  """Yields a hidden folder in the folder of `path`, removed at the end."""
  path = pathlib.Path(os.path.abspath(path))
  with _hidden(path.parent, f'.{path.name[:_NAME_LENGTH]}.') as folder:
    yield folder


@contextlib.contextmanager
def temporary(name: str) -> Iterator[pathlib.Path]:
  """Yields a new folder of the system's temporary one, removed at the end.

  `name` says whose it is: 'ngrams'.
  """
  with _hidden(pathlib.Path(tempfile.gettempdir()), f'{name}-') as folder:
    yield folder


@contextlib.contextmanager
def named(path: str | os.PathLike) -> Iterator[None]:
  """Lets an error of a write say which file it was: the system's does not."""
  try:
    yield
  except OSError as error:
    if error.errno is not None and error.filename is None:
      error.filename = str(path)
    raise


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[epath.Path]:
  """Yields a path to write a file; it replaces `path` if no error occurs.

  A file on Cloud Storage is written here first, and uploaded at the end.
  """
  remote, path = storage.is_remote(path), epath.Path(path)
  if remote:
    with temporary('upload') as folder:
      yield epath.Path(folder / path.name)
      storage.upload(folder / path.name, path)
    return
  with beside(path) as folder, named(path):
    yield epath.Path(folder / path.name)
    os.replace(folder / path.name, path)


def write_all(texts: Mapping[str | os.PathLike, str]) -> None:
  """Writes text files that belong together: none is there before all are made.

  The first one of the mapping appears last.
  """
  with contextlib.ExitStack() as stack:
    for path, text in texts.items():
      new = stack.enter_context(replacing(path))
      _write(new, text.encode())


def write_bytes(path: str | os.PathLike, data: bytes) -> None:
  """Writes a file; a kill leaves the old file or the whole new one."""
  with replacing(path) as new:
    _write(new, data)


def _write(path: epath.Path, data: bytes) -> None:
  with path.open('wb') as file:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())  # else a crash may leave it renamed and empty


@contextlib.contextmanager
def _hidden(parent: pathlib.Path, prefix: str) -> Iterator[pathlib.Path]:
  _remove_dead(parent, prefix)
  while True:
    folder = parent / f'{prefix}{uuid.uuid4().hex[:8]}{_ENDING}'
    folder.mkdir()
    lock = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(OSError):  # a file system without locks
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if folder.exists():
      break
    os.close(lock)  # another process took it for a dead one's before the lock
  try:
    yield folder
  finally:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _remove_dead(parent: pathlib.Path, prefix: str) -> None:
  """Removes the folders of processes that ended without removing them."""
  length = len(prefix) + 8 + len(_ENDING)
  for entry in os.scandir(parent):
    name = entry.name
    if not (
      name.startswith(prefix)
      and name.endswith(_ENDING)
      and len(name) == length
      and entry.is_dir(follow_symlinks=False)
    ):
      continue
    with contextlib.suppress(OSError):  # it lives, is another user's, or gone
      lock = os.open(entry.path, os.O_RDONLY)
      try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry.path, ignore_errors=True)
      finally:
        os.close(lock)


def end_on_sigterm() -> None:
  """Lets SIGTERM end this process as an exit does: folders are removed.

  For commands of one process: where there are several, JAX handles the signal.
  """
  with contextlib.suppress(ValueError):  # only the main thread may
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
      signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, _: object) -> None:
  signal.signal(number, signal.SIG_IGN)  # the removal is not interrupted
  sys.exit(128 + number)
