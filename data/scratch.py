"""Whole files and folders: what is written here moves to its place complete.

It is written in hidden folders, see models.pretrained.hidden_folders.
"""

import contextlib
import os
import pathlib
import signal
import sys
from collections.abc import Iterator, Mapping

from etils import epath

from data import storage
from models.pretrained import hidden_folders

_NAME_LENGTH = 100  # of a name's part that a hidden folder's name shows


@contextlib.contextmanager
def beside(path: str | os.PathLike) -> Iterator[pathlib.Path]:
  """Yields a hidden folder in the folder of `path`, removed at the end."""
  path = pathlib.Path(os.path.abspath(path))
  with hidden_folders.make(
    path.parent, f'.{path.name[:_NAME_LENGTH]}.'
  ) as folder:
    yield folder


@contextlib.contextmanager
def named(path: str | os.PathLike) -> Iterator[None]:
  """Lets an error of a write say which file it was: the system's does not."""
  try:
    yield
  except OSError as error:
    if error.filename is None:
      error.filename = str(path)
    raise


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[epath.Path]:
  """Yields a path to write a file; it replaces `path` if no error occurs.

  A file on Cloud Storage is written here first, and uploaded at the end.
  """
  remote, path = storage.is_remote(path), epath.Path(path)
  if remote:
    with hidden_folders.temporary('upload') as folder:
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
