"""A training step: after a bad one nothing changes any more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs

from train.engine import sharding


@pytest.fixture(scope='module')
def planned(small_config):
  """The config, its job on one device, and the first host batch."""
  config = small_config()
  job, batch_at = runs.planned(config, runs.one_device())
  return config, job, batch_at(0)


@pytest.mark.parametrize('bad_step', [-1, 0, 3])
def test_a_good_batch_after_a_bad_step_changes_nothing(planned, bad_step):
  """-1: there was none. The first step, 0, may be the bad one."""
  config, job, batch = planned
  with sharding.scope(job.mesh, config.mesh.rules):
    state = job.create_state()
    before = jax.device_get((state.params, state.opt_state))
    bad = jnp.full_like(state.nonfinite_step, bad_step)
    state, report = job.train_step(32)(
      state.replace(nonfinite_step=bad), sharding.put_batch(batch, job.mesh)
    )
  assert np.isfinite(report['loss']) and report['nonfinite_step'] == bad_step
  after = jax.device_get((state.params, state.opt_state))
  equal = [
    (a == b).all()
    for a, b in zip(
      jax.tree.leaves(before), jax.tree.leaves(after), strict=True
    )
  ]
  # Of the optimiser, the padded rows' statistics stay 0 in any step.
  assert all(equal) if bad_step >= 0 else sum(equal) < len(equal) / 2
