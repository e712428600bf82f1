import pytest

from train.benches import ours, timing, torch_rivals


def test_rivals_take_turns_in_processes_of_their_own():
  product = timing.Rival(ours.jax_products, {})
  times = timing.rival_times({'a': product, 'b': product}, repeats=2)
  assert list(times) == ['a', 'b']
  for seconds, flops in times.values():
    assert seconds > 0
    assert flops == 20 * 2 * 1024 * 768 * 3072


def test_a_rival_that_fails_is_named():
  broken = timing.Rival(torch_rivals.their_step, {'size': 'no such size'})
  with pytest.raises(ChildProcessError, match='broken ended'):
    timing.rival_times({'broken': broken})
