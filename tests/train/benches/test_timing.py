import os

import pytest
import turns

from train.benches import timing


def test_programs_take_turns_in_processes_of_their_own(tmp_path):
  path = tmp_path / 'runs'
  times = timing.step_times(
    {name: (turns.noting, {'path': path, 'name': name}) for name in 'ab'},
    repeats=3,
    warm_ups=1,
  )
  assert list(times) == ['a', 'b']
  for seconds, flops in times.values():
    assert seconds > 0
    assert flops == 1000
  runs = [line.split() for line in path.read_text().splitlines()]
  # Each is warm before the next is made.
  assert ''.join(name for name, _ in runs) == 'ab' + 'ab' * 3
  processes = {name: process for name, process in runs}
  assert len({tuple(run) for run in runs}) == 2
  assert len({*processes.values(), str(os.getpid())}) == 3


def test_a_program_that_fails_is_named():
  with pytest.raises(ChildProcessError, match='broken ended'):
    timing.step_times({'broken': (turns.broken, {})})
