"""A mesh of all three axes changes nothing of a modern model's run."""

import numpy as np
import pytest
import runs
from gpt_store import small_gpt_config, small_stores

from configs import variants
from train.run import settings

CHANGES = variants.MODERN | {
  'model.window': 5,
  'model.num_layers': 4,
  'train.phases': ((6, 32, 16, 'continue'),),
  'train.eval_every': 6,
  'optim.warmup_steps': 2,
}
SIZES = {'data': 2, 'fsdp': 2, 'tensor': 2}


@pytest.mark.slow
@pytest.mark.parametrize('tied', [True, False])
def test_a_mesh_changes_nothing(small_config, tied, tmp_path):
  config = settings.with_overrides(
    small_config(), CHANGES | {'model.tied': tied}
  )
  expected = runs.train(config, tmp_path / 'data')['metrics']
  sizes = {f'mesh.{name}': size for name, size in SIZES.items()}
  sharded = settings.with_overrides(config, sizes)
  found = runs.train(sharded, tmp_path / 'mixed')['metrics']
  for name, value in expected.items():
    assert found[name] == pytest.approx(value, rel=1e-3), name


@pytest.mark.slow
@pytest.mark.parametrize('name', ['bert', 'gpt'])
def test_packed_rows_are_spread_over_a_mesh(name, small_config, tmp_path):
  if name == 'bert':
    config = settings.with_overrides(
      small_config(), CHANGES | {'data.packed': 'documents'}
    )
  else:
    config = small_gpt_config(
      'gpt',
      small_stores(tmp_path),
      **variants.MODERN_GPT,
      **{'train.phases': CHANGES['train.phases']},
    )
  assert config.data.packed
  alone = runs.losses_on(config, runs.one_device())
  spread = runs.losses_on(config, runs.mesh_of(**SIZES))
  np.testing.assert_allclose(spread, alone, rtol=1e-5)
  assert alone[-1] < alone[0] - 0.1
