"""Folders that appear whole or not at all, made by one process at a time.

Folders that are computed once and kept have checksums: damage is found when a
folder is opened again, and the folder is then computed anew.
"""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from etils import epath

from data import scratch
from data.text import text_files

_PARTIAL = '.partial'
_SUMS_FILE = 'checksums.json'  # name -> [bytes, CRC-32] of the other files
_STAMP_FILE = '.verified.json'  # name -> [bytes, time, inode] when checked


def default_cache(name: str) -> pathlib.Path:
  """Returns the folder of the user's cache for files of one kind."""
  home = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
  return pathlib.Path(home, 'sesame', name)


def is_store(folder: str | os.PathLike) -> bool:
  """Returns whether a folder, local or `gs://...`, holds a token store."""
  return epath.Path(folder, 'store.json').exists()


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

  A damaged one is filled anew. Of a read-only store it lies in the user's
  temporary folder (PermissionError if others can write there). Several
  processes may call at once.
  """
  for parent in (store, None):
    parent = parent or _own_cache()
    target = parent / name
    if target.exists() and not find_damage(target):
      return target
    try:
      with exclusive(target):
        damage = find_damage(target) if target.exists() else ''
        if damage:
          print(f'{target}: {damage}; it is made again', file=sys.stderr)
        if damage or not target.exists():
          with new_folder(target) as partial:
            write(partial)
            seal(partial)
      return target
    except OSError as error:
      read_only = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
      if parent != store or not read_only:
        raise
  raise AssertionError('unreachable')


def seal(folder: pathlib.Path) -> None:
  """Writes the checksums of a folder's files, which are final."""
  sums = {
    path.name: [path.stat().st_size, _checksum(path)]
    for path in sorted(folder.iterdir())
  }
  (folder / _SUMS_FILE).write_text(json.dumps(sums))
  write_stamp(folder, stamp(folder, sums))


def find_damage(folder: pathlib.Path) -> str:
  """Returns what is wrong with a sealed folder; '' if nothing is.

  Every byte is read where a file's size, time or inode changed since the last
  time, so a copy is checked once.
  """
  try:
    sums = text_files.read_json(folder / _SUMS_FILE)
    now = stamp(folder, sums)
    for name, (size, _) in sums.items():
      if now[name][0] != size:
        return f'{name} has {now[name][0]:,} bytes, expected {size:,}'
    if is_stamped(folder, now):
      return ''
    for name, (_, checksum) in sums.items():
      if _checksum(folder / name) != checksum:
        return f'{name} is damaged: its checksum does not match'
  except FileNotFoundError as error:
    return f'{pathlib.Path(error.filename).name} is missing'
  except (ValueError, TypeError, AttributeError) as error:
    return f'{_SUMS_FILE} is damaged ({error})'
  write_stamp(folder, now)
  return ''


def _checksum(path: pathlib.Path) -> int:
  crc = 0
  with path.open('rb') as file:
    while block := file.read(1 << 20):
      crc = zlib.crc32(block, crc)
  return crc


def stamp(folder: pathlib.Path, names: Iterable[str]) -> dict[str, list[int]]:
  """Returns [bytes, time, inode] of files, which a change of one changes."""
  # The inode tells a copy that kept its times from the original.
  stats = {name: (folder / name).stat() for name in names}
  return {
    name: [stat.st_size, stat.st_mtime_ns, stat.st_ino]
    for name, stat in stats.items()
  }


def is_stamped(folder: pathlib.Path, expected: Mapping[str, Any]) -> bool:
  """Returns whether a folder was checked when it was as `expected`."""
  with contextlib.suppress(OSError, ValueError):
    return text_files.read_json(folder / _STAMP_FILE) == expected
  return False


def write_stamp(folder: pathlib.Path, checked: Mapping[str, Any]) -> None:
  """Records that files were checked; does nothing in a read-only folder."""
  with contextlib.suppress(OSError):
    scratch.write_bytes(folder / _STAMP_FILE, json.dumps(checked).encode())


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
