"""What a run will take: its FLOPs at the device's rate, its checkpoints."""

import types

import jax
import jax.numpy as jnp
import pytest

from train.run import outlook


class SmallJob:
  """A job whose first half has steps of 1 GFLOP, its second half of 3."""

  total_steps, save_every, keep_checkpoints, keep = 100, 30, 3, None
  usual_mfu = 0.4
  mesh = types.SimpleNamespace(size=2)
  shapes = types.SimpleNamespace(
    params=jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
  )

  def batch(self, step, whole):
    assert whole
    return step

  def work(self, step, batch):
    assert step == batch
    return 128, 1e9 if step < 50 else 3e9


@pytest.mark.parametrize(
  ('seconds', 'text'),
  [
    (0.2, '1 seconds'),
    (89, '89 seconds'),
    (600, '10 minutes'),
    (3 * 3600, '3 hours'),
    (1e6, '12 days'),
  ],
)
def test_durations(seconds, text):
  assert outlook.describe_seconds(seconds) == text


def test_time_is_of_the_steps_that_are_left():
  job = SmallJob()
  assert outlook.total_flops(job, 0) == 100 * 2e9
  assert outlook.total_flops(job, 60) == 40 * 3e9
  # 200 GFLOP at 40 % of twice 1 GFLOP/s.
  found = outlook._describe_time(job, 0, 1e-3)
  assert found.startswith(
    '4 minutes for 100 steps, if these reach 40% of 0.002'
  )
  assert outlook._describe_time(job, 100, 1e-3).startswith('nothing')
  assert outlook._describe_time(job, 0, None).startswith('unknown for cpu')


def test_disk_is_of_the_checkpoints_that_are_kept(tmp_path):
  job = SmallJob()
  job.shapes = (job.shapes.params,)
  found = outlook._describe_disk(job, outlook.epath.Path(tmp_path / 'a' / 'b'))
  assert found.startswith(
    '16.0 MiB: 3 checkpoints of 4.0 MiB and one being written; '
  )
  assert found.endswith(' are free')
  job.total_steps = 20
  remote = outlook._describe_disk(job, outlook.epath.Path('gs://bucket/run'))
  assert remote == '8.0 MiB: 1 checkpoint of 4.0 MiB and one being written'
