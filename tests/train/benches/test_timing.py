import pytest

from train.benches import programs, timing


def test_programs_take_turns_in_processes_of_their_own():
  product = (programs.products, {})
  times = timing.step_times({'a': product, 'b': product}, repeats=2)
  assert list(times) == ['a', 'b']
  for seconds, flops in times.values():
    assert seconds > 0
    assert flops == 20 * 2 * 1024 * 768 * 3072


def test_a_program_that_fails_is_named():
  broken = (programs.decoding, dict(size='no such size', batch=1, new_tokens=1))
  with pytest.raises(ChildProcessError, match='broken ended'):
    timing.step_times({'broken': broken})
