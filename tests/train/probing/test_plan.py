"""The probes of --layers, and the recipe of each task."""

import pytest

from train.probing import plan


@pytest.mark.parametrize(
  ('layers', 'pairs'),
  [
    ('cumulative', [(0, 0), (0, 1), (0, 2)]),
    ('single', [(0, 0), (1, 1), (2, 2)]),
    ('both', [(0, 0), (0, 1), (0, 2), (1, 1), (2, 2)]),
    ('0-2', [(0, 2)]),
    ('2', [(2, 2)]),
  ],
)
def test_the_probes_of_layers(layers, pairs):
  found = plan.members(layers, 3, 2)
  assert found == [(*pair, seed) for pair in pairs for seed in range(2)]


def test_other_layers_are_refused():
  for layers in ('top', '1-2', '-1', '0-', ''):
    with pytest.raises(ValueError, match=f'--layers={layers}: expected cumul'):
      plan.check_layers(layers)
  with pytest.raises(
    ValueError, match='--layers=0-3: the model has the layers'
  ):
    plan.members('0-3', 3, 1)


def test_recipes():
  """As jiant's edgeprobe_*.conf; small sets are validated more often."""
  ours = plan.settings_of('pos', False, {'steps': 7})
  assert (ours.steps, ours.learning_rate) == (7, 1e-3)
  published = plan.settings_of('pos', True, {})
  assert (published.steps, published.validate_every) == (250_000, 1000)
  assert (published.learning_rate, published.mix_factor) == (1e-4, 1)
  small = plan.settings_of('relations', True, {'steps': 50})
  assert (small.steps, small.validate_every) == (50, 100)
  # PyTorch's patience of 5, and of 20, ends with the validation after.
  assert (published.halve_after, published.stop_after) == (6, 21)
  for each in (ours, published, small):
    assert (each.batch_size, each.clip_norm) == (32, 5)
    assert (each.threshold, each.smallest_rate) == (1e-4, 1e-6)
