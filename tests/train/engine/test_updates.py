"""Steps of objectives that change rows of tables, without an optimiser."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from configs import base
from train.engine import sharding, state, updates

ROWS, RATE, SEED = 8, 0.5, 3


class Table(nn.Module):
  """Ten numbers, of which a batch names some."""

  @nn.compact
  def __call__(self, ids, train=False):
    del train
    draw = nn.with_logical_partitioning(
      lambda rng: jnp.arange(10.0), ('embed',)
    )
    return self.param('table', draw)[ids]


class Halved(updates.RowUpdates):
  """Halves the numbers that a row of the batch names; counts its updates."""

  loss_names, num_updates = ('size',), 4

  def transform(self, host_batch, keys_B):
    noise = jax.vmap(lambda key: jax.random.randint(key, (), 0, 10))(keys_B)
    return {'ids': jnp.where(host_batch['drawn'], noise, host_batch['ids'])}

  def inputs(self, batch):
    return (batch['ids'],)

  def weights(self, batch):
    return {'size': jnp.float32(batch['ids'].size)}

  def losses(self, outputs, batch):
    return {'size': (outputs.sum(), jnp.float32(batch['ids'].size))}, {}

  def statistics(self, params):
    return jnp.int32(0)

  def update(self, params, statistics, batch, rate, good):
    table = params['table']
    change = -rate * table[batch['ids']]
    square = jnp.sum(change**2)
    good &= jnp.isfinite(square)
    new = table.at[batch['ids']].add(jnp.where(good, change, 0.0))
    return {'table': new}, statistics + good, square


def run(table, batches):
  model, objective = Table(), Halved()
  mesh = sharding.make_mesh(
    types.SimpleNamespace(data=1, fsdp=1, tensor=1), devices=jax.devices()[:1]
  )
  init, _, shardings, _ = state.abstract_state(
    model,
    (jax.ShapeDtypeStruct((ROWS,), jnp.int32),),
    objective.optimizer,
    objective.loss_names,
    mesh,
    base.get_config().mesh.rules,
  )
  step = objective.make_step(
    model,
    objective.optimizer,
    lambda step: jnp.float32(RATE),
    seed=SEED,
    micro_batches=1,
    log_every=1,
    mesh=mesh,
    state_shardings=shardings,
    placements=None,
  )
  with sharding.scope(mesh, base.get_config().mesh.rules):
    now = init(jax.random.key(0)).replace(params={'table': jnp.array(table)})
    for batch in batches:
      now, report = step(now, batch)
  return jax.device_get(now), jax.device_get(report)


def batch_of(ids, drawn=False):
  return {
    'ids': np.array(ids, np.int32),
    'drawn': np.full(ROWS, drawn),
  }


def test_updates_follow_each_other_as_in_a_plain_loop():
  """Rows i, i + 4, ... of a batch are the i-th of four updates."""
  ids = [1, 2, 3, 4, 1, 5, 3, 9]
  now, report = run(np.arange(10.0), [batch_of(ids), batch_of(ids)])
  table, squares = np.arange(10.0), []
  for _ in range(2):
    squares = []
    for part in range(4):
      chosen = ids[part::4]
      if part == 3:
        loss = table[chosen].mean()
      before = table.copy()
      for number in chosen:
        table[number] -= RATE * before[number]
      squares.append(sum((RATE * before[number]) ** 2 for number in chosen))
  np.testing.assert_allclose(now.params['table'], table, rtol=1e-6)
  assert report['loss'] == pytest.approx(loss)
  assert report['grad_norm'] == pytest.approx(np.sqrt(np.mean(squares)))
  assert now.opt_state == 8 and now.step == 2 and now.nonfinite_step == -1


def test_what_is_drawn_depends_on_seed_and_step():
  first, _ = run(np.arange(10.0), [batch_of(range(ROWS), drawn=True)])
  again, _ = run(np.arange(10.0), [batch_of(range(ROWS), drawn=True)])
  other, _ = run(np.arange(10.0), [batch_of(range(ROWS))])
  np.testing.assert_array_equal(first.params['table'], again.params['table'])
  assert (first.params['table'] != other.params['table']).any()


def test_an_update_that_is_not_finite_changes_nothing_and_none_after_it():
  table = np.arange(10.0)
  table[2] = np.inf
  now, report = run(table, [batch_of([1, 2, 3, 4] * 2), batch_of([5] * ROWS)])
  assert now.params['table'][1] == 0  # twice halved of itself, before it
  np.testing.assert_array_equal(now.params['table'][2:], table[2:])
  assert report['nonfinite_step'] == 0
