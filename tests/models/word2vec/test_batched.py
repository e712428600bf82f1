"""word2vec's updates are gradients of the losses of all pairs, made naively."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from models.word2vec import batched

V, D, W, ROWS, LENGTH = 40, 6, 3, 1, 128
P = 4


def make(kind):
  model = batched.Word2Vec(V, D, kind, W, num_negatives=5, hierarchical=True)
  random = np.random.default_rng(0)
  blocks = LENGTH // batched.BLOCK
  segments = np.full((ROWS, LENGTH), -1)
  segments[0, 56:66] = 0  # of both blocks
  segments[0, 66:74] = 1
  segments[0, 60] = -1
  shape = ROWS, LENGTH
  batch = {
    'tokens': random.integers(0, V, shape),
    'segments': segments,
    'reach': random.integers(1, W + 1, shape),
    'samples': random.integers(0, V, (ROWS, blocks, batched.NUM_SAMPLES[kind])),
    'paths': random.integers(-2, V, (*shape, P)),
    'turns': random.integers(0, 2, (*shape, P)) > 0,
  }
  batch = jax.tree.map(jnp.asarray, batch)
  tables = {
    name: jax.random.normal(jax.random.key(i), (128, D))
    for i, name in enumerate(('input', 'output', 'nodes'))
  }
  return model, tables, batch


def naive_loss(model, tables, batch):
  """Returns the losses of all pairs, and their number, one at a time."""
  b = jax.tree.map(np.asarray, batch)
  loss, count = 0.0, 0
  for row, t in np.ndindex(ROWS, LENGTH):
    segment = b['segments'][row, t]
    contexts = [
      c
      for c in range(t - b['reach'][row, t], t + b['reach'][row, t] + 1)
      if c != t and 0 <= c < LENGTH and b['segments'][row, c] == segment >= 0
    ]
    inputs = [tables['input'][b['tokens'][row, c]] for c in contexts]
    if model.kind == 'cbow':
      inputs = [sum(inputs) / len(inputs)] if inputs else []
    samples = b['samples'][row, t // batched.BLOCK]
    target = b['tokens'][row, t]
    nodes = b['paths'][row, t]
    signs = jnp.where(b['turns'][row, t], -1, 1)
    for vector in inputs:
      count += 1
      loss += jax.nn.softplus(-tables['output'][target] @ vector)
      others = samples[samples != target]
      loss += (5 / len(samples)) * jnp.sum(
        jax.nn.softplus(tables['output'][others] @ vector)
      )
      scores = tables['nodes'][np.maximum(nodes, 0)] @ vector
      known = (nodes >= 0) & (jnp.abs(scores) < batched.MAX_SCORE)
      loss += jnp.sum(known * jax.nn.softplus(signs * scores))
  return loss, count


@pytest.mark.parametrize('kind', ['skipgram', 'cbow'])
def test_losses_and_gradients_are_those_of_the_pairs(kind):
  model, tables, batch = make(kind)
  expected, slopes = jax.value_and_grad(
    lambda tables: naive_loss(model, tables, batch)[0]
  )(tables)
  found = batched.losses(model, tables, batch)
  assert found['loss'].sum() == pytest.approx(float(expected), rel=1e-5)
  count = naive_loss(model, tables, batch)[1]
  assert found['pairs'].sum() == count
  assert batched.count_pairs(model, batch).sum() == count
  changes = jax.tree.map(jnp.zeros_like, tables)
  for table, ids, deltas in batched.gradients(model, tables, batch):
    changes[table] = changes[table].at[ids].add(deltas)
  for name in ('output', 'nodes', *['input'] * (kind == 'skipgram')):
    np.testing.assert_allclose(changes[name], -slopes[name], atol=1e-4)


def test_the_error_of_a_mean_is_added_undivided():
  model, tables, batch = make('cbow')
  contexts = {'reach': jnp.ones_like(batch['reach'])}
  contexts['segments'] = jnp.full_like(batch['segments'], -1)
  contexts['segments'] = contexts['segments'].at[0, 20:23].set(0)
  batch |= contexts
  rows = batched.gradients(model, tables, batch)[0]
  slopes = jax.grad(
    lambda tables: batched.losses(model, tables, batch)['loss'].sum()
  )(tables)
  # The middle word has two contexts, the outer ones have one, the middle.
  for place, factor in ((20, 2), (22, 2), (21, 1)):
    word = batch['tokens'][0, place]
    np.testing.assert_allclose(
      rows.deltas[0, place], -factor * slopes['input'][word], rtol=1e-4
    )


def test_tables_are_drawn_as_released():
  model, _, batch = make('skipgram')
  inputs = [batch[name] for name in batched.INPUTS]
  params = nn.meta.unbox(
    model.init(jax.random.key(0), *inputs, train=False)['params']
  )
  vectors = params['input']['embedding']
  assert vectors.shape == (128, D)
  assert not vectors[V:].any()
  assert 0.4 / D < np.abs(vectors).max() <= 0.5 / D
  assert abs(vectors[:V].mean()) < 0.05 / D
  assert not params['output']['embedding'].any()
  assert not params['nodes']['embedding'].any()
