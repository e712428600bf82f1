"""Fine-tuning on eight devices, and in parts of a batch, is the same."""

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from train.engine import optim, sharding
from train.run import settings
from train.run.training_phases import Phase
from train.transfer import assemble, finetune, task_outputs


def losses_on(config, devices=None, **sizes):
  """Returns figures of three steps, and the logits of dev after them.

  The figures are loss and norm of the gradient of each step, and dev's loss.
  """
  mesh = sharding.make_mesh(ml_collections.ConfigDict(sizes), devices)
  job = finetune.plan(config, mesh, splits=('train', 'dev'))
  size = config.train.global_batch
  rows = sharding.local_rows(mesh, size)
  losses = []
  with sharding.scope(mesh, config.mesh.rules):
    state = job.begin(0)
    for step in range(3):
      batches = job.tasks[0].splits['train'].batches
      batch = batches.train_batch(step, rows, size, 0, job.total_steps)
      state, report = job.steps['train'](
        state, sharding.put_batch(batch, mesh), jnp.int32(0)
      )
      losses += [float(report[name]) for name in ('loss', 'grad_norm')]
    logits, loss = task_outputs.run_model(
      job.tasks[0], state.params, job.tasks[0].splits['dev']
    )
  return [*losses, loss], np.concatenate(logits)


@pytest.fixture(scope='module')
def config(config_of):
  """Without dropout, of which each part of a batch draws its own.

  Tokens are hidden and predicted beside the task.
  """
  rates = ('dropout_rate', 'attention_dropout_rate')
  changes = {f'model.{rate}': 0.0 for rate in rates} | {'task.lm_weight': 0.5}
  return settings.with_overrides(config_of('own tags'), changes)


@pytest.fixture(scope='module')
def alone(config):
  one = dict.fromkeys(sharding.AXES, 1)
  return losses_on(config, jax.devices()[:1], **one)


@pytest.mark.slow
@pytest.mark.parametrize(
  'sizes',
  [dict(data=8, fsdp=1, tensor=1), dict(data=2, fsdp=2, tensor=2)],
  ids=['data', 'mixed'],
)
def test_eight_devices_find_the_same(config, alone, sizes):
  losses, logits = losses_on(config, **sizes)
  np.testing.assert_allclose(losses[0], alone[0][0], rtol=1e-6)
  np.testing.assert_allclose(losses, alone[0], rtol=1e-4)
  np.testing.assert_allclose(logits, alone[1], atol=1e-3)


def test_parts_of_a_batch_add_up(config, alone):
  parted = settings.with_overrides(config, {'train.micro_batches': 2})
  one = dict.fromkeys(sharding.AXES, 1)
  losses, _ = losses_on(parted, jax.devices()[:1], **one)
  np.testing.assert_allclose(losses[0], alone[0][0], rtol=1e-6)
  np.testing.assert_allclose(losses, alone[0], rtol=1e-5)


def test_hosts_share_a_batch_that_does_not_depend_on_them(config_of):
  one = dict.fromkeys(sharding.AXES, 1)
  mesh = sharding.make_mesh(ml_collections.ConfigDict(one), jax.devices()[:1])
  job = finetune.plan(config_of('own pairs'), mesh, splits=('train',))
  batches = job.tasks[0].splits['train'].batches
  whole = batches.train_batch(1, np.arange(8), 8, 0, 4)
  for rows in (np.arange(4), np.arange(4, 8), np.array([1, 6])):
    part = batches.train_batch(1, rows, 8, 0, 4)
    for name, array in part.items():
      np.testing.assert_array_equal(array, whole[name][rows], err_msg=name)


@pytest.mark.parametrize('kind', optim.SCHEDULES)
def test_a_task_has_every_schedule(kind):
  config = settings.with_overrides(
    settings.load_config('transfer:task=mrpc'),
    {'optim.schedule': kind, 'optim.learning_rate': 1.0},
  )
  rates = assemble.make_schedule(config, Phase(100, 32, 8, 'continue'))
  assert float(rates(5)) == pytest.approx(0.5, rel=0.06)  # of 10 to warm up
  assert 0 < float(rates(60)) <= 1
  if kind == 'wsd':  # a fifth of the steps, as a pre-training's default
    assert [float(rates(step)) for step in (60, 80)] == [1, 1]
    assert float(rates(85)) == pytest.approx(0.5)
