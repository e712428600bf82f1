"""A profile of some training steps, for XProf or TensorBoard."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import jax
from etils import epath

from train.engine.steps import Report
from train.run.ledger import Ledger


def check_profile(
  profile: Sequence[int], total_steps: float = math.inf
) -> None:
  """Checks `train.profile`: (first step, number of steps) in the run, or ()."""
  if not profile:
    return
  right = len(profile) == 2 and all(
    type(number) is int and number > 0 for number in profile
  )
  if not right or sum(profile) - 1 > total_steps:
    known = f'{total_steps} ' if total_steps < math.inf else ''
    raise ValueError(
      f'train.profile={tuple(profile)}: expected () or (first step, number of'
      f' steps), two positive integers inside the {known}steps of the run'
    )


def steps(
  numbers: Iterable[int],
  profile: Sequence[int],
  workdir: epath.PathLike,
  latest: Callable[[], Report | None],
  ledger: Ledger,
) -> Iterator[int]:
  """Yields step numbers, and profiles the steps of `profile`.

  The trace begins and ends with idle devices, so it holds whole steps only:
  `latest()`, the last step's report, is awaited. Each process writes its own
  file under WORKDIR/profile; the ledger counts this as 'other'.
  """
  first, count = profile or (0, 0)
  options = jax.profiler.ProfileOptions()
  options.python_tracer_level = 0  # every Python call: slow, and huge files
  running = False

  def end() -> None:
    with ledger.measure('other'):
      jax.profiler.stop_trace()

  try:
    for step in numbers:
      if first <= step < first + count and not running:
        jax.block_until_ready(latest())
        with ledger.measure('other'):
          jax.profiler.start_trace(
            epath.Path(workdir) / 'profile', profiler_options=options
          )
        running = True
      with jax.profiler.StepTraceAnnotation('train', step_num=step):
        yield step
        if running and step == first + count - 1:
          jax.block_until_ready(latest())
      if running and step == first + count - 1:
        running = False
        end()
  finally:
    if running:  # the run ended early
      end()
