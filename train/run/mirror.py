"""The growing files of a run, such as metrics.csv, on Cloud Storage.

Cloud Storage cannot append to a file. So a run writes these files in a local
folder, and at checkpoints and at the end a thread copies them whole. Each
checkpoint holds the rows up to its step that have not been copied yet.
"""

import concurrent.futures
import contextlib
import hashlib
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil
from etils import epath

from data import storage
from train.host import console
from train.run import ledger, metrics

# Files of rows, to which a restart appends.
ROWS = (metrics.FILE, ledger.FILE)
Tails = Mapping[str, tuple[int, str]]  # name -> where the rest begins, the rest


class Mirror:
  """The files that grow of a run's folder; a context manager.

  Attributes:
    folder: where to write them; the workdir itself if it is local.
    check: raises OSError if another process has taken the workdir over.
  """

  def __init__(self, workdir: epath.PathLike):
    self.check: Callable[..., None] = lambda sure=False: None
    self._workdir = epath.Path(workdir)
    self._remote = storage.is_remote(workdir)
    self.folder = _local(workdir) if self._remote else self._workdir
    # Of each file: size and time of what was copied last.
    self._copied: dict[str, tuple[int, int]] = {}
    self._thread = concurrent.futures.ThreadPoolExecutor(1)
    self._copying: concurrent.futures.Future | None = None
    self._late = False

  def __enter__(self) -> 'Mirror':
    if self._remote:
      self._copy_leftovers()
      self.folder.mkdir(parents=True)
    return self

  def __exit__(self, *error: Any) -> None:
    if self._remote:
      if self.settle():
        shutil.rmtree(self.folder, ignore_errors=True)
      self._thread.shutdown(wait=False)

  def fetch(self, tails: Tails) -> None:
    """Brings the rows of earlier attempts, with the tails of a checkpoint."""
    for name in ROWS if self._remote else ():
      copy = self._workdir / name
      data = copy.read_bytes() if copy.exists() else b''
      begin, rest = tails.get(name, (0, ''))
      whole = data[:begin] + rest.encode()
      if len(data) < begin:
        console.say(
          f'warning: {copy} has {len(data):,} bytes, and had {begin:,} at the'
          ' checkpoint: rows between are lost'
        )
      # A copy that begins so has come as far as the checkpoint, or further.
      elif not data.startswith(whole):
        data = whole
      if data:
        (self.folder / name).write_bytes(data)

  def tails(self) -> dict[str, tuple[int, str]]:
    """Returns what the copies lack of the files of rows."""
    found = {}
    for name in ROWS if self._remote else ():
      file = self.folder / name
      if file.exists():
        begin, _ = self._copied.get(name, (0, 0))
        found[name] = (begin, file.read_bytes()[begin:].decode())
    return found

  def copy(self) -> None:
    """Begins to copy changed files; the next call makes up for a failure."""
    waits = self._copying is not None and not (
      self._copying.running() or self._copying.done()
    )
    if self._remote and not waits:
      self._copying = self._thread.submit(self._copy_changed)

  def settle(self) -> bool:
    """Returns whether all is copied, after the last try."""
    self.copy()
    if self._copying is None or self._copying.result():
      return True
    console.say(
      f'warning: the newest of {", ".join(ROWS)} and of the events are in'
      f' {self.folder}, and not in {self._workdir}'
    )
    return False

  def _copy_changed(self) -> bool:
    """Copies each changed file; returns whether all is copied."""
    try:
      self._copy_files(pathlib.Path(self.folder), self._copied)
    except Exception as error:  # of many libraries
      if not self._late:
        console.say(
          f'warning: metrics, ledger and events are not copied to'
          f' {self._workdir} for now, and will be: {error}'
        )
      self._late = True
      return False
    if self._late:
      console.say(f'All is copied to {self._workdir} again.')
      self._late = False
    return True

  def _copy_files(
    self,
    folder: pathlib.Path,
    copied: dict[str, tuple[int, int]],
    without: Sequence[str] = (),
  ) -> None:
    """Copies a folder's files that differ from what `copied` says of them."""
    for file in sorted(folder.rglob('[!.]*')):  # hidden: not yet whole
      name = str(file.relative_to(folder))
      if not file.is_file() or name in without:
        continue
      stat = file.stat()
      state = (stat.st_size, stat.st_mtime_ns)
      if copied.get(name) != state:
        self.check()
        data = file.read_bytes()[: stat.st_size]
        storage.write(self._workdir / name, data)
        copied[name] = state

  def _copy_leftovers(self) -> None:
    """Copies events of processes of this machine that were killed.

    Their rows are in the bucket or in the checkpoint.
    """
    stem = self.folder.name.rpartition('-')[0]
    for folder in pathlib.Path(self.folder.parent).glob(f'{stem}-*'):
      process = int(folder.name.rpartition('-')[2])
      # In a container every process may have this one's number.
      if process == os.getpid() or not psutil.pid_exists(process):
        with contextlib.suppress(OSError):
          self._copy_files(folder, {}, without=ROWS)
        # Another process of the run may do the same.
        shutil.rmtree(folder, ignore_errors=True)


def _local(workdir: epath.PathLike) -> epath.Path:
  """Returns a folder of this process alone, which the next one finds."""
  home = os.environ.get('XDG_CACHE_HOME', os.path.expanduser('~/.cache'))
  text = os.fspath(workdir).rstrip('/')
  digest = hashlib.sha256(text.encode()).hexdigest()[:8]
  name = f'{text.rpartition("/")[2]}-{digest}-{os.getpid()}'
  return epath.Path(home, 'sesame/workdirs', name)
