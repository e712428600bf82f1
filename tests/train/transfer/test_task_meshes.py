"""Whole task models on a mesh of all axes train as on one device.

The recurrences alone: tests/models/elmo_tasks/test_meshes.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train.engine import sharding
from train.run import settings
from train.slices import task_steps

SMALL = {
  'model.lstm_dim': 8,
  'model.hidden_dim': 8,
  'model.dropout_rate': 0.1,
  'task.max_length': 8,
  'train.global_batch': 8,
  'eval.global_batch': 8,
}
NUM_WORDS = 32
STEPS = 3


def train(config, devices):
  """Returns the losses of a few steps, and the parameters after them."""
  job, batch = task_steps.open_job(config, devices, NUM_WORDS)
  more = [jnp.int32(0)]  # the seed
  if config.train.plateau is not None:
    more.append(jnp.float32(1))
  losses = []
  with sharding.scope(job.mesh, config.mesh.rules):
    state = job.draw(jax.random.key(0))
    placed = sharding.put_batch(batch, job.mesh)
    for _ in range(STEPS):
      state, report = job.steps['train'](state, placed, *more)
      losses.append(float(report['loss']))
  return losses, jax.device_get(state.params)


@pytest.mark.slow
@pytest.mark.parametrize(
  'name',
  [
    'snli,model=esim',
    'conll2003,model=bilstm_crf',
    'squad1,model=bidaf_plus',
  ],
)
def test_a_mesh_trains_as_one_device(name):
  config = settings.load_config(f'transfer:task={name}')
  config = settings.with_overrides(config, SMALL)
  expected, params = train(config, jax.devices()[:1])
  sizes = {'mesh.data': 2, 'mesh.fsdp': 2, 'mesh.tensor': 2}
  config = settings.with_overrides(config, sizes)
  losses, found = train(config, jax.devices())
  np.testing.assert_allclose(losses, expected, rtol=1e-4)
  for (path, ours), theirs in zip(
    jax.tree_util.tree_leaves_with_path(found),
    jax.tree.leaves(params),
    strict=True,
  ):
    np.testing.assert_allclose(
      ours, theirs, rtol=1e-3, atol=1e-3, err_msg=jax.tree_util.keystr(path)
    )
