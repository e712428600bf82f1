"""What the bench times in turns: our steps, Hugging Face's, bare products."""

import contextlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from train.host import huge_pages

REPEATS = 5


class Rival(NamedTuple):
  """A program to time: `make(**options)` returns (a step to run, its FLOPs).

  Attributes:
    make: a function of this module.
    options: its arguments.
    allocator: the C library's tunables, as the program's users have them.
  """

  make: Callable[..., tuple[Callable[[], object], float]]
  options: dict[str, Any]
  allocator: str = ''


class Timing(NamedTuple):
  """Median seconds and FLOPs of a step."""

  seconds: float
  flops: float


def rival_times(
  rivals: dict[str, Rival], repeats: int = REPEATS, warm_ups: int = 2
) -> dict[str, Timing]:
  """Times one step of each in turns, each in a process of its own.

  Machines are noisy, so rivals are compared within one stretch of time; and
  they share neither threads nor memory, so each is what its users see.
  """
  context = multiprocessing.get_context('spawn')
  ends, flops = {}, {}
  processes = []
  before = os.environ.pop(huge_pages.VARIABLE, None)
  try:
    for name, rival in rivals.items():
      ends[name], theirs = context.Pipe()
      os.environ[huge_pages.VARIABLE] = rival.allocator
      process = context.Process(target=_serve, args=(theirs, rival, warm_ups))
      process.start()
      processes.append(process)
      theirs.close()
      flops[name] = ends[name].recv()
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(repeats):
      for name, end in ends.items():
        end.send('step')
        times[name].append(end.recv())
  except EOFError as error:
    raise ChildProcessError(f'{name} ended; its error stands above') from error
  finally:
    os.environ.pop(huge_pages.VARIABLE, None)
    if before is not None:
      os.environ[huge_pages.VARIABLE] = before
    for end in ends.values():
      end.close()
    for process in processes:
      process.join(10)
      process.kill()
  return {
    name: Timing(statistics.median(values), flops[name])
    for name, values in times.items()
  }


def _serve(end: Any, rival: Rival, warm_ups: int) -> None:
  """Runs a step, after warm-ups, whenever asked; ends with the asker."""
  run, flops = rival.make(**rival.options)
  for _ in range(warm_ups):
    run()
  end.send(flops)
  with contextlib.suppress(EOFError):
    while end.recv():
      start = time.perf_counter()
      run()
      end.send(time.perf_counter() - start)
