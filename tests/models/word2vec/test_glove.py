"""GloVe's updates are AdaGrad's steps along the gradients of single entries."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from models.word2vec import glove

V, D, ROWS, LENGTH = 11, 5, 2, 16
RATE = 0.05


def make():
  random = np.random.default_rng(0)
  shape = ROWS, LENGTH
  batch = {
    'words': random.integers(0, V, shape),
    'contexts': random.integers(0, V, shape),
    'logs': random.normal(size=shape),
    'weights': random.uniform(0.1, 1, shape),
  }
  batch['words'][0, :3] = 4  # three times in an update
  batch['weights'][1, 10:] = 0  # padding
  tables, squares = (
    {
      name: jnp.asarray(low + random.uniform(size=(128, D + 1)), jnp.float32)
      for name in ('input', 'output')
    }
    for low in (-0.5, 1)
  )
  batch = {
    name: jnp.asarray(array, jnp.int32 if array.dtype == int else jnp.float32)
    for name, array in batch.items()
  }
  return glove.Glove(V, D), tables, squares, batch


def losses(model, tables, batch):
  params = {name: {'embedding': table} for name, table in tables.items()}
  inputs = [batch[name] for name in glove.INPUTS]
  return model.apply({'params': params}, *inputs, train=False)


def test_an_update_is_adagrad_of_each_entry():
  """As glove.c: rate times gradient, over the root of the sum before."""
  _, tables, squares, batch = make()
  found, sums, square = jax.jit(glove.update)(
    tables, squares, batch, jnp.float32(RATE)
  )
  before, old = (
    {name: np.asarray(table, np.float64) for name, table in each.items()}
    for each in (tables, squares)
  )
  after, new = (
    {k: v.copy() for k, v in each.items()} for each in (before, old)
  )
  norm = 0.0
  for i, j, log, weight in zip(
    *(np.asarray(batch[name]).ravel() for name in glove.INPUTS), strict=True
  ):
    word, context = before['input'][i], before['output'][j]
    error = word[:D] @ context[:D] + word[D] + context[D] - log
    for name, row, other in (('input', i, context), ('output', j, word)):
      slope = float(weight) * error * np.append(other[:D], 1)
      step = RATE * slope
      after[name][row] -= step / np.sqrt(old[name][row])
      new[name][row] += step**2
      norm += slope @ slope
  for name in tables:
    np.testing.assert_allclose(found[name], after[name], atol=1e-5)
    np.testing.assert_allclose(sums[name], new[name], rtol=1e-5)
    assert np.abs(found[name] - tables[name]).max() > 0.01
  np.testing.assert_allclose(square, norm, rtol=1e-5)


def test_gradients_are_those_of_the_loss():
  model, tables, _, batch = make()
  slopes = jax.jit(
    jax.grad(lambda tables: losses(model, tables, batch)['loss'].sum())
  )(tables)
  changes = jax.tree.map(jnp.zeros_like, tables)
  for table, ids, deltas in glove.gradients(tables, batch):
    changes[table] = changes[table].at[ids].add(deltas)
  for name in tables:
    np.testing.assert_allclose(changes[name], -slopes[name], atol=1e-5)
  entries = losses(model, tables, batch)['entries']
  np.testing.assert_array_equal(entries, [16, 10])


def test_nothing_changes_at_rate_0_or_where_a_gradient_is_not_finite():
  _, tables, squares, batch = make()
  logs = batch['logs'].at[0, 0].set(np.inf)
  for rate, some in ((0.0, batch), (RATE, batch | {'logs': logs})):
    found = jax.jit(glove.update)(tables, squares, some, jnp.float32(rate))
    for name in tables:
      np.testing.assert_array_equal(found[0][name], tables[name])
      np.testing.assert_array_equal(found[1][name], squares[name])


def test_tables_are_drawn_as_released():
  model, _, _, batch = make()
  inputs = [batch[name] for name in glove.INPUTS]
  params = nn.meta.unbox(
    model.init(jax.random.key(0), *inputs, train=False)['params']
  )
  for name in ('input', 'output'):
    table = params[name]['embedding']
    assert table.shape == (128, D + 1)
    assert not table[V:].any()
    assert 0.4 / D < np.abs(table).max() <= 0.5 / D
