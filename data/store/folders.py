"""Folders that appear whole or not at all, made by one process at a time."""

import contextlib
import errno
import fcntl
import os
import pathlib
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator

_PARTIAL = '.partial'


def default_cache(name: str) -> pathlib.Path:
  """Returns the folder of the user's cache for files of one kind."""
  home = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
  return pathlib.Path(home, 'sesame', name)


@contextlib.contextmanager
def exclusive(target: pathlib.Path, *, wait: bool = True) -> Iterator[None]:
  """Lets one process prepare `target`; the lock of a dead one is freed.

  Raises BlockingIOError if another process has the lock, unless told to `wait`.
  """
  path = target.parent / f'.{target.name}.lock'
  path.parent.mkdir(parents=True, exist_ok=True)
  while True:
    file = open(path, 'w')
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      if not wait:
        file.close()
        raise
      print(f'waiting for the process that writes {target}', file=sys.stderr)
      fcntl.flock(file, fcntl.LOCK_EX)
    # The previous owner removes the file: a lock on a removed one is void.
    with contextlib.suppress(FileNotFoundError):
      if os.path.samestat(os.fstat(file.fileno()), path.stat()):
        break
    file.close()
  try:
    yield
  finally:
    path.unlink(missing_ok=True)
    file.close()


@contextlib.contextmanager
def new_folder(target: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a hidden sibling that becomes `target` if the block succeeds.

  Use inside `exclusive(target)`: removes a killed process's leftovers, replaces
  an existing `target`. Raises OSError, and leaves nothing, if the disk is full.
  """
  partial = target.parent / f'.{target.name}{_PARTIAL}'
  replaced = target.parent / f'.{target.name}.replaced'
  if replaced.exists() and not target.exists():
    replaced.rename(target)  # killed between the two renames below
  for stale in (partial, replaced):
    if stale.exists():
      shutil.rmtree(stale)
  partial.mkdir()
  try:
    yield partial
    if target.exists():
      target.rename(replaced)
    partial.rename(target)
    shutil.rmtree(replaced, ignore_errors=True)
  except OSError as error:
    shutil.rmtree(partial, ignore_errors=True)
    # After a partial write NumPy gives a message without an errno.
    full = 'requested and' in str(error) or error.errno in (
      errno.ENOSPC,
      errno.EDQUOT,
      errno.EFBIG,
    )
    if full:
      free = shutil.disk_usage(target.parent).free
      raise OSError(
        f'disk full while writing {target} ({error.strerror or error}; '
        f'{free / 1e6:.0f} MB free now). What was written is removed; make '
        'room (about 2 bytes a token) or choose another folder.'
      ) from error
    raise
  except BaseException:
    shutil.rmtree(partial, ignore_errors=True)
    raise


def remove_leftovers(folder: pathlib.Path) -> None:
  """Removes what killed processes left of their `new_folder`s in a folder."""
  for partial in folder.glob(f'.*{_PARTIAL}'):
    target = folder / partial.name[1 : -len(_PARTIAL)]
    with (
      contextlib.suppress(BlockingIOError),  # its process lives
      exclusive(target, wait=False),
    ):
      shutil.rmtree(partial, ignore_errors=True)


def make_beside(
  store: pathlib.Path, name: str, write: Callable[[pathlib.Path], None]
) -> pathlib.Path:
  """Returns a folder `name` inside a store's, filled by `write` if missing.

  Of a read-only store it lies in the user's temporary folder (PermissionError
  if others can write there). Several processes may call at once.
  """
  for parent in (store, None):
    parent = parent or _own_cache()
    target = parent / name
    if target.exists():
      return target
    try:
      with exclusive(target):
        if not target.exists():
          with new_folder(target) as partial:
            write(partial)
      return target
    except OSError as error:
      read_only = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
      if parent != store or not read_only:
        raise
  raise AssertionError('unreachable')


def _own_cache() -> pathlib.Path:
  """Returns a temporary folder that nobody else writes into, or raises."""
  cache = pathlib.Path(tempfile.gettempdir()) / f'sesame-indexes-{os.getuid()}'
  cache.parent.mkdir(parents=True, exist_ok=True)
  with contextlib.suppress(FileExistsError):
    cache.mkdir(mode=0o700)
  found = cache.lstat()  # of a link, not of the folder that it names
  mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
  if not mine or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
    raise PermissionError(
      errno.EPERM,
      f'{cache} would keep the indexes of a read-only store, and is'
      f' {stat.filemode(found.st_mode)} of user {found.st_uid}, expected a'
      f' folder that user {os.getuid()} alone writes into: remove it, or set'
      ' TMPDIR to a folder of your own',
    )
  return cache
