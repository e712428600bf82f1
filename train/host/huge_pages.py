"""Large pages, and kept: import this before anything heavy.

On a CPU, XLA takes a training step's temporary memory from malloc and gives it
back at the end of each step. In pages of 4 KB, every step then pays tens of
thousands of page faults (bert_tiny on 2 cores: 55,000 a step, 0.166 s instead
of 0.100 s); and what a virtual machine gives back, it must win from its host
again (BERT-Base, 8 x 128, the step after a pause of 4 s: 5 to 6 s instead of
3.5). The C library asks for 2 MB pages and keeps them, if a variable says so
that it reads when a process starts, so the process starts itself again.

What is kept is bounded by a `Heap`: programs of several lengths, and what their
compiler leaves, split the heap's room, so that one program's memory lies beside
another's and the heap grows by it (fine-tuning MiniLM on SQuAD: 14 GB).
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
  """Replaces this process by the same command with the variable set.

  Does nothing where it is set already, to whatever value, or beside Linux.
  """
  if sys.platform == 'linux' and VARIABLE not in os.environ:
    os.environ[VARIABLE] = VALUE
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


class Heap:
  """The C library's heap, which keeps so many free bytes and no more.

  Nothing is bounded where that library is not glibc 2.33 or newer.
  """

  def __init__(self, slack: float):
    """Keeps at most `slack` resident bytes that are free."""
    self._slack = slack
    self._beside: int | None = None  # resident bytes that are not the heap's

  def bound(self) -> None:
    """Gives free pages back to the system, where too many are resident."""
    used = _used_bytes()
    if used is None:
      return
    resident = psutil.Process().memory_info().rss
    if self._beside is None or resident - used - self._beside > self._slack:
      self._beside = resident_bytes() - used


def resident_bytes() -> int:
  """Returns the resident bytes of the process, once free pages are given back.

  With another C library than glibc, the free pages are among them.
  """
  with contextlib.suppress(AttributeError, OSError):
    ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
  return psutil.Process().memory_info().rss


def _used_bytes() -> int | None:
  """Returns the bytes of the heap that are in use; None if it does not tell."""
  try:
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = _Information
    return library.mallinfo2().used
  except (AttributeError, OSError):
    return None


class _Information(ctypes.Structure):
  """What mallinfo2 returns, in bytes."""

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
