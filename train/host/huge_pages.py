"""Large pages, kept by malloc: import this before anything heavy.

On a CPU, XLA takes a step's temporary memory from malloc and gives it back
after the step. In pages of 4 KB each step pays tens of thousands of page faults
(bert_tiny on 2 cores: 55,000, 0.166 s a step instead of 0.100 s), and a virtual
machine must win the memory back from its host (BERT-Base, 8 x 128, after a
pause of 4 s: 5 to 6 s instead of 3.5). glibc asks for 2 MB pages and keeps them
if a variable says so when a process starts, so the process restarts. A `Heap`
bounds the kept memory: programs of several lengths fragment it, and it grows
(fine-tuning MiniLM on SQuAD: 14 GB).
"""

import contextlib
import ctypes
import os
import sys

import psutil

VARIABLE = 'GLIBC_TUNABLES'
VALUE = ':'.join(
  (
    'glibc.malloc.hugetlb=1',  # ask for large pages
    'glibc.malloc.mmap_max=0',  # no mapping of its own for a large buffer
    'glibc.malloc.arena_max=1',  # one heap, which grows as far as needed
    f'glibc.malloc.trim_threshold={2**36}',  # and does not shrink
  )
)


def restart_with() -> None:
  """Restarts this command with the variable set, on Linux, unless it is set."""
  if sys.platform == 'linux' and VARIABLE not in os.environ:
    os.environ[VARIABLE] = VALUE
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


class Heap:
  """Bounds the free bytes that malloc keeps; needs glibc 2.33 or newer."""

  def __init__(self, slack: float):
    """Keeps at most `slack` resident bytes that are free."""
    self._slack = slack
    self._beside: int | None = None  # resident bytes that are not the heap's

  def bound(self) -> None:
    """Gives free pages back to the system if more than `slack` are resident."""
    used = _used_bytes()
    if used is None:
      return
    resident = psutil.Process().memory_info().rss
    if self._beside is None or resident - used - self._beside > self._slack:
      self._beside = resident_bytes() - used


def resident_bytes() -> int:
  """Returns resident bytes, after giving free pages back (glibc only)."""
  with contextlib.suppress(AttributeError, OSError):
    ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
  return psutil.Process().memory_info().rss


def _used_bytes() -> int | None:
  """Returns the bytes of the heap in use; None without glibc's mallinfo2."""
  try:
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = _Information
    return library.mallinfo2().used
  except (AttributeError, OSError):
    return None


class _Information(ctypes.Structure):
  """The fields of glibc's struct mallinfo2, in bytes."""

  _fields_ = [
    (name, ctypes.c_size_t)
    for name in (
      'arena',
      'free_chunks',
      'fast_chunks',
      'mapped_chunks',
      'mapped',
      'most_used',
      'fast_free',
      'used',
      'free',
      'top',
    )
  ]
