"""Hidden folders to write in, of which no dead process leaves one for ever.

The next process that makes one with the same prefix removes the folders that
killed processes left: a living process holds a lock on its folder.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator

_ENDING = '.new'


@contextlib.contextmanager
def make(parent: pathlib.Path, prefix: str) -> Iterator[pathlib.Path]:
  """Yields a new folder in `parent` whose name begins so, removed at the end.

  Folders that killed processes left there under this prefix are removed first.
  """
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


@contextlib.contextmanager
def temporary(name: str) -> Iterator[pathlib.Path]:
  """Yields a new folder of the system's temporary one, removed at the end.

  `name` says whose it is: 'ngrams'.
  """
  with make(pathlib.Path(tempfile.gettempdir()), f'{name}-') as folder:
    yield folder


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
