"""Times programs in turns: ours, and others where a command brings them."""

import contextlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from multiprocessing.connection import Connection
from typing import Any

import jax

from train.host import device, huge_pages

REPEATS = 5
OURS = 'ours'

# (A function that runs one step, the step's FLOPs; 0 where nobody counts them.)
Program = tuple[Callable[[], object], float]
Options = Mapping[str, Any]  # keyword arguments of a function
# Name -> (a function that makes the program, its options).
Programs = Mapping[str, tuple[Callable[..., Program], Options]]


def step_times(
  programs: Programs,
  repeats: int = REPEATS,
  warm_ups: int = 2,
  ours: Collection[str] = (OURS,),
) -> dict[str, tuple[float, float]]:
  """Returns each program's (median seconds of a step, the step's FLOPs).

  Machines are noisy, so the programs run in turns; they share neither threads
  nor memory, so each runs in its own process as its users see it: those of
  `ours` with the memory pages of `train.main`. Raises ChildProcessError if a
  program fails.
  """
  context = multiprocessing.get_context('spawn')
  ends, flops, processes = {}, {}, []
  before = os.environ.get(huge_pages.VARIABLE)
  try:
    for name, program in programs.items():
      ends[name], other_end = context.Pipe()
      os.environ[huge_pages.VARIABLE] = huge_pages.VALUE * (name in ours)
      processes.append(
        context.Process(target=_serve, args=(other_end, program, warm_ups))
      )
      processes[-1].start()
      other_end.close()
      flops[name] = ends[name].recv()
    times: dict[str, list[float]] = {name: [] for name in programs}
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
    name: (statistics.median(values), flops[name])
    for name, values in times.items()
  }


def _serve(
  end: Connection,
  program: tuple[Callable[..., Program], Options],
  warm_ups: int,
) -> None:
  """Runs warm-ups, then a step at each request until the pipe is closed."""
  make, options = program
  run, flops = make(**options)
  for _ in range(warm_ups):
    run()
  end.send(flops)
  with contextlib.suppress(EOFError):
    while end.recv():
      start = time.perf_counter()
      run()
      end.send(time.perf_counter() - start)


def compare(
  make: Callable[..., Program],
  options: Options,
  rivals: Programs,
  *,
  label: str = '',
  counts: Mapping[str, int] | None = None,
  repeats: int = REPEATS,
  slow: bool = False,
) -> dict[str, float]:
  """Times our program, beside rivals if there are any.

  Every program takes `options`; a rival brings arguments of its own. `label`
  begins every figure's name. `counts`, unit -> number in a step, gives rates. A
  `slow` step is warmed up once, not twice, and its counts are reported. The
  figures are rates; how many times as fast as each rival ours is; where our
  step has FLOPs also seconds, FLOP/s and, on an accelerator, MFU.
  """
  counts = counts or {}
  programs = {OURS: (make, options)}
  for name, (make_rival, more) in rivals.items():
    programs[name] = make_rival, {**options, **more}
  times = step_times(programs, repeats, warm_ups=1 if slow else 2)
  ours, flops = times[OURS]
  figures = dict(counts) if slow else {}
  for name, (seconds, _) in times.items():
    if flops:
      figures[f'{name}_seconds'] = seconds
      if jax.default_backend() != 'cpu':
        figures[f'{name}_mfu'] = device.model_flops_utilisation(
          flops, seconds, device.peak_tflops(), 1
        )
    for unit, count in counts.items():
      figures[f'{name}_{unit}_per_second'] = count / seconds
  for name in rivals:
    which = f'{name}_' if len(rivals) > 1 else ''
    figures[f'{which}speed_ratio'] = times[name][0] / ours
  if flops:
    figures['ours_model_gflop_per_second'] = flops / ours / 1e9
  return {label + name: figure for name, figure in figures.items()}
