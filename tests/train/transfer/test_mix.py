"""The learned average of layers while a task is learned: loss and optimiser."""

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax
import pytest
from etils import epath

from configs import base
from models import scalar_mix
from train.engine import optim, sharding
from train.papers import table_plan, table_rows
from train.transfer import finetune, task_plan

MIX = {
  'task.features': 'mix',
  'task.frozen': True,
  'task.bilstm_layers': 1,
  'task.bilstm_dim': 8,
  'model.dropout_rate': 0.0,
}
PENALTY = 0.25


@pytest.mark.parametrize('name', ['adamw', 'gpt_adam', 'lamb'])
def test_no_optimiser_lets_an_unused_average_decay(name):
  config = base.get_config().optim
  config.update({'name': name, 'weight_decay': 0.1})
  axes = {
    'mix/mix_weights': ('layers',),
    'mix/mix_scale': (),
    'dense/kernel': ('embed', 'mlp'),
  }
  params = {
    'mix': {
      scalar_mix.WEIGHTS: jnp.array([0.5, -1.0, 2.0]),
      scalar_mix.SCALE: jnp.float32(1.5),
    },
    'dense': {'kernel': jnp.ones((2, 3))},
  }
  tx = optim.make_optimizer(config, lambda step: 0.1, axes)
  nothing = jax.tree.map(jnp.zeros_like, params)
  updates, _ = tx.update(nothing, tx.init(params), params)
  for update in jax.tree.leaves(updates['mix']):
    assert not np.any(update)
  assert np.all(updates['dense']['kernel'] < 0)


@pytest.fixture(scope='module')
def plan_job(make_config):
  """Returns a function (overrides) -> a job on one device."""
  one = ml_collections.ConfigDict(dict.fromkeys(sharding.AXES, 1))
  mesh = sharding.make_mesh(one, jax.devices()[:1])

  def plan(**overrides):
    config = make_config(**MIX | overrides)
    return finetune.plan(config, mesh, splits=('train',))

  return plan


def begin(job):
  """The state at step 0 and a batch, with a mix that prefers some layers."""
  state = job.begin(0)
  weights = jnp.linspace(-1, 2, len(state.params['mix'][scalar_mix.WEIGHTS]))
  state.params['mix'][scalar_mix.WEIGHTS] = weights
  batches = job.tasks[0].splits['train'].batches
  return state, batches.train_batch(0, np.arange(16), 16, 0, job.total_steps)


@pytest.fixture(scope='module')
def learned(plan_job):
  """(loss, gradient) with the penalty and without, and the mix's weights."""
  job, plain = plan_job(task__mix_l2=PENALTY), plan_job()
  assert job.tasks[0].loss_names == ('task', 'mix_l2')
  assert plain.tasks[0].loss_names == ('task',)
  state, batch = begin(job)

  def total(params, objective):
    outputs = objective.apply(job.tasks[0].model, params, batch)
    losses, _ = objective.losses(outputs, batch)
    totals = objective.weights(batch)
    return sum(value / totals[name] for name, (value, _) in losses.items())

  @jax.jit
  def learn(params):
    return [
      jax.value_and_grad(total)(params, each.tasks[0]) for each in (job, plain)
    ]

  weights = np.asarray(state.params['mix'][scalar_mix.WEIGHTS])
  return *jax.device_get(learn(state.params)), weights


def test_penalty_is_of_the_weights_alone(learned):
  (loss, gradient), (loss_0, gradient_0), weights = learned
  expected = PENALTY * np.square(weights).sum()
  np.testing.assert_allclose(loss - loss_0, expected, rtol=1e-5)
  found = jax.tree.map(np.subtract, gradient, gradient_0)
  np.testing.assert_allclose(
    found['mix'].pop(scalar_mix.WEIGHTS), 2 * PENALTY * weights, atol=1e-6
  )
  for leaf in jax.tree.leaves(found):  # gamma among them
    np.testing.assert_allclose(leaf, 0, atol=1e-6)


@pytest.mark.slow
def test_parts_of_a_batch_add_up(learned, plan_job):
  (loss, gradient), _, weights = learned
  job = plan_job(task__mix_l2=PENALTY, train__micro_batches=2)
  state, batch = begin(job)
  with sharding.scope(job.mesh, job.config.mesh.rules):
    _, report = job.steps['train'](
      state, sharding.put_batch(batch, job.mesh), jnp.int32(0)
    )
  np.testing.assert_allclose(report['loss'], loss, rtol=1e-5)
  np.testing.assert_allclose(
    report['grad_norm'], optax.tree.norm(gradient), rtol=1e-5
  )
  value, rows = report['sums']['mix_l2']
  np.testing.assert_allclose(value / rows, np.square(weights).sum(), rtol=1e-6)


def test_penalty_needs_an_average(make_config, plan_job):
  with pytest.raises(
    ValueError, match="task.mix_l2=0.25 with task.features='f"
  ):
    plan_job(**{'task.features': 'first'}, task__mix_l2=PENALTY)
  with pytest.raises(ValueError, match='task.mix_l2=-1.0'):
    task_plan.check_settings(make_config(**MIX, task__mix_l2=-1.0))


def test_ones_own_elmo_has_a_command_for_each_weighting():
  request = table_plan.CellRequest(
    table_rows.load_table('elmo/layer_weighting'), epath.Path('out'), 'sets'
  )
  lines = table_rows.find_lines(
    request.table, request.folder, {'mine': 'e'}, lambda path: 'elmo'
  )
  cells = table_plan.find_cells(request, lines, lambda *split: True)
  found = {
    cell.line.name: {
      key: value
      for key, value in table_plan.resolve(cell.runs[0]).task.items()
      if key in ('name', 'features', 'mix_at', 'mix_l2')
    }
    for cell in cells
    if not cell.reason and cell.column.name == 'snli/accuracy'
  }
  both = {'name': 'snli', 'mix_at': 'both'}
  assert found == {
    'mine: Last layer only': both | {'features': 'last', 'mix_l2': 0.0},
    'mine: All layers, lambda=1': both | {'features': 'mix', 'mix_l2': 1.0},
    'mine: All layers, lambda=0.001': (
      both | {'features': 'mix', 'mix_l2': 0.001}
    ),
  }
