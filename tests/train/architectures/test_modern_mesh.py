"""A mesh of all three axes changes nothing of a modern BERT's run."""

import pytest
import runs

from configs import variants
from train.run import settings

CHANGES = variants.MODERN | {
  'model.window': 5,
  'model.num_layers': 4,
  'train.phases': ((6, 32, 16, 'continue'),),
  'train.eval_every': 6,
  'optim.warmup_steps': 2,
}


@pytest.mark.slow
def test_a_mesh_changes_nothing(small_config, tmp_path):
  config = settings.with_overrides(small_config(), CHANGES)
  expected = runs.train(config, tmp_path / 'data')['metrics']
  sizes = {'mesh.data': 2, 'mesh.fsdp': 2, 'mesh.tensor': 2}
  sharded = settings.with_overrides(config, sizes)
  found = runs.train(sharded, tmp_path / 'mixed')['metrics']
  for name, value in expected.items():
    assert found[name] == pytest.approx(value, rel=1e-3), name
