"""Estimates what a store will take, from the first seconds of its build."""

import shutil
import sys
import time
from collections.abc import Callable

import psutil
from etils import epath

from data.text.text_pieces import Source

FIRST_SECONDS = 5.0
# What the caches of a worker grow to later, see `pool.CACHE_WORDS`.
_CACHE_BYTES = 50e6


def teller(
  source: Source, folder: epath.PathLike, workers: int, enabled: bool
) -> Callable[[int], None]:
  """Returns a function that takes the bytes written, and tells once.

  It prints minutes, disk and memory. It raises OSError where the disk, not
  `enabled` too, is too small for the store.
  """
  first = None  # time, bytes read and written of the first call
  told = False

  def tell(written: int) -> None:
    nonlocal first, told
    now = time.monotonic(), source.bytes_read, written
    if told or not written:
      return
    # Text is read ahead of what is written: the two grow alike from here on.
    first = first or now
    seconds, read, added = (b - a for a, b in zip(first, now, strict=True))
    if seconds < FIRST_SECONDS or not (read and added):
      return
    told = True
    size = max(written, added * source.num_bytes / read)
    free = shutil.disk_usage(folder).free
    if size - written > free:
      raise OSError(
        f'{folder}: the store will take about {_gb(size)}, by its first'
        f' {seconds:.0f} seconds, and {_gb(free)} are free: make room, or'
        ' choose another folder'
      )
    if enabled:
      minutes = seconds * (size - written) / added / 60
      print(
        f'tokens: it will take about {minutes:,.1f} minutes more on {workers}'
        f' processes, {_gb(size)} of disk ({_gb(free)} are free) and'
        f' {_gb(_memory() + workers * _CACHE_BYTES)} of memory, by the first'
        f' {seconds:.0f} seconds',
        file=sys.stderr,
        flush=True,
      )

  return tell


def _memory() -> int:
  """Returns the resident bytes of this process and its children."""
  process = psutil.Process()
  total = 0
  for each in (process, *process.children(recursive=True)):
    try:
      total += each.memory_info().rss
    except psutil.NoSuchProcess:  # it has just ended
      continue
  return total


def _gb(size: float) -> str:
  return f'{size / 1e9:,.1f} GB' if size >= 1e9 else f'{size / 1e6:,.0f} MB'
