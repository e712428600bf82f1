"""Large pages, and kept: import this before anything heavy.

On a CPU, XLA takes a training step's temporary memory from malloc and gives it
back at the end of each step. In pages of 4 KB, every step then pays tens of
thousands of page faults (bert_tiny on 2 cores: 55,000 a step, 0.166 s instead
of 0.100 s); and what a virtual machine gives back, it must win from its host
again (BERT-Base, 8 x 128, the step after a pause of 4 s: 5 to 6 s instead of
3.5). The C library asks for 2 MB pages and keeps them, if a variable says so
that it reads when a process starts, so the process starts itself again.

What is kept is bounded by `give_back`, after each program is compiled: a
compiler's leavings split the room of the programs before, so that the next one
finds none of its size and the heap grows by it (fine-tuning MiniLM on SQuAD,
seven lengths of batches: 14 GB).
"""

import ctypes
import os
import sys
from typing import Any

_COMPILED = '/jax/core/compile/backend_compile_duration'
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


def give_back_after_compiling() -> None:
  """Has each compilation of a second or more followed by `give_back`."""
  import jax  # the module is imported before it

  def listen(event: str, seconds: float, **_: Any) -> None:
    if event == _COMPILED and seconds >= 1:
      give_back()

  jax.monitoring.register_event_duration_secs_listener(listen)


def give_back() -> None:
  """Returns the free pages of the C library's heap to the operating system."""
  if sys.platform == 'linux':
    trim = getattr(ctypes.CDLL(None), 'malloc_trim', None)  # glibc has it
    if trim is not None:
      trim(0)
