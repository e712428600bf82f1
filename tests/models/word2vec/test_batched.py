"""word2vec's updates are gradients of the losses of all pairs, made naively."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from models.word2vec import batched, blocks, word_parts
from models.word2vec.word_parts import Parts

V, D, W, ROWS, LENGTH = 40, 6, 3, 1, 128
P = 4


def make(kind):
  model = batched.Word2Vec(V, D, kind, W, negative=5, hierarchical=True)
  random = np.random.default_rng(0)
  num_blocks = LENGTH // blocks.BLOCK
  segments = np.full((ROWS, LENGTH), -1)
  segments[0, 56:66] = 0  # of both blocks
  segments[0, 66:74] = 1
  segments[0, 60] = -1
  shape = ROWS, LENGTH
  batch = {
    'tokens': random.integers(0, V, shape),
    'segments': segments,
    'reach': random.integers(1, W + 1, shape),
    'samples': random.integers(
      0, V, (ROWS, num_blocks, batched.NUM_SAMPLES[kind])
    ),
    'paths': random.integers(-2, V, (*shape, P)),
    'turns': random.integers(0, 2, (*shape, P)) > 0,
  }
  tables = {
    name: random.normal(size=(128, D)).astype('f4')
    for name in ('input', 'output', 'nodes')
  }
  return model, tables, batch


def naive_loss(model, tables, batch):
  """Returns the losses of all pairs, and their number, by a list of pairs.

  Its gradient gives a context of a mean the error of the mean undivided.
  """
  b = jax.tree.map(np.asarray, batch)
  readers, places = [], []  # weights of the rows of `input`; places of targets
  counts = []  # of a mean's contexts
  for row, t in np.ndindex(ROWS, LENGTH):
    segment = b['segments'][row, t]
    contexts = [
      c
      for c in range(t - b['reach'][row, t], t + b['reach'][row, t] + 1)
      if c != t and 0 <= c < LENGTH and b['segments'][row, c] == segment >= 0
    ]
    each = [np.eye(128)[b['tokens'][row, c]] for c in contexts]
    if model.kind == 'cbow':
      each = [sum(each)] if each else []
      counts += [len(contexts)] * len(each)
    readers += each
    places += [(row, t)] * len(each)
  row, t = np.array(places).T
  vectors = jnp.array(readers) @ tables['input']
  if counts:
    fixed = jax.lax.stop_gradient(vectors)
    vectors += fixed / np.array(counts)[:, None] - fixed
  target = b['tokens'][row, t][:, None]
  samples = b['samples'][row, t // blocks.BLOCK]
  scores = jnp.einsum('psd,pd->ps', tables['output'][target], vectors)
  loss = jax.nn.softplus(-scores).sum()
  scores = jnp.einsum('psd,pd->ps', tables['output'][samples], vectors)
  share = 5 / samples.shape[1]
  loss += share * ((samples != target) * jax.nn.softplus(scores)).sum()
  nodes = b['paths'][row, t]
  scores = jnp.einsum(
    'psd,pd->ps', tables['nodes'][np.maximum(nodes, 0)], vectors
  )
  known = (nodes >= 0) & (jnp.abs(scores) < batched.MAX_SCORE)
  signs = np.where(b['turns'][row, t], -1, 1)
  return loss + (known * jax.nn.softplus(signs * scores)).sum(), len(places)


@pytest.mark.parametrize('kind', ['skipgram', 'cbow'])
def test_losses_and_gradients_are_those_of_the_pairs(kind):
  model, tables, batch = make(kind)
  count = 0

  def expect(tables):
    nonlocal count
    loss, count = naive_loss(model, tables, batch)
    return loss

  expected, slopes = jax.jit(jax.value_and_grad(expect))(tables)
  found, changes, counts = jax.device_get(compute(model, tables, batch))
  assert found['loss'].sum() == pytest.approx(float(expected), rel=1e-5)
  assert found['pairs'].sum() == counts.sum() == count > 16
  for name in tables:
    np.testing.assert_allclose(changes[name], -slopes[name], atol=1e-4)


@functools.partial(jax.jit, static_argnums=0)
def compute(model, tables, batch):
  """Returns losses, changes of the tables and the counts of pairs."""
  changes = jax.tree.map(jnp.zeros_like, tables)
  for table, ids, deltas in batched.gradients(model, tables, batch):
    if table == 'buckets':
      changes[table] = word_parts.add_to_rows(
        changes[table], ids, deltas, jnp.ones(128), batch['parts']
      )
    else:
      changes[table] = changes[table].at[ids].add(deltas)
  return (
    batched.losses(model, tables, batch),
    changes,
    batched.count_pairs(model, batch),
  )


@pytest.mark.parametrize('piece', [4096, 100])
def test_parts_of_words_get_the_error_of_the_word(piece, monkeypatch):
  monkeypatch.setattr(word_parts, 'PIECE', piece)
  jax.clear_caches()
  plain, tables, batch = make('skipgram')
  model = plain.clone(buckets=50)
  random = np.random.default_rng(1)
  tables['buckets'] = random.normal(size=(128, D)).astype('f4')
  parts = random.integers(-1, 50, (V, 7))
  parts[0] = -1
  packed = Parts(parts[parts >= 0], (parts >= 0).sum(axis=1))
  found, changes, _ = jax.device_get(
    compute(model, tables, batch | {'parts': packed})
  )
  words = jax.jit(batched.compose)(tables, np.arange(V), packed)
  means = [
    np.mean([tables['input'][i], *tables['buckets'][row[row >= 0]]], axis=0)
    for i, row in enumerate(parts)
  ]
  np.testing.assert_allclose(words, means, atol=1e-5)
  # The same as of words without parts that have these vectors.
  alone = tables | {'input': np.concatenate([words, tables['input'][V:]])}
  del alone['buckets']
  expected, moved, _ = jax.device_get(compute(plain, alone, batch))
  np.testing.assert_allclose(found['loss'], expected['loss'], rtol=1e-5)
  for name in ('input', 'output', 'nodes'):
    np.testing.assert_allclose(changes[name], moved[name], atol=1e-4)
  sums = np.zeros((128, D))
  for word, row in enumerate(parts):
    np.add.at(sums, row[row >= 0], moved['input'][word])
  np.testing.assert_allclose(changes['buckets'], sums, atol=1e-4)


def test_tables_are_drawn_as_released():
  model, _, batch = make('skipgram')
  inputs = [batch.get(name) for name in batched.INPUTS]
  params = jax.jit(
    lambda: nn.meta.unbox(
      model.init(jax.random.key(0), *inputs, train=False)['params']
    )
  )()
  params = jax.device_get(params)
  vectors = params['input']['embedding']
  assert vectors.shape == (128, D)
  assert not vectors[V:].any()
  assert 0.4 / D < np.abs(vectors).max() <= 0.5 / D
  assert abs(vectors[:V].mean()) < 0.05 / D
  assert not params['output']['embedding'].any()
  assert not params['nodes']['embedding'].any()
