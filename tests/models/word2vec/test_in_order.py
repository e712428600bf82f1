"""Vectors equal those of word2vec.c, given its random numbers."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import word2vec_original as original

from data.vocabulary.word2vec import huffman
from models.word2vec import batched, in_order


@pytest.mark.parametrize('name', original.RUNS)
def test_vectors_of_one_pass_are_those_of_the_original(name):
  expected = json.loads(original.EXPECTED.read_text())[name]
  counts = original.vocabulary(list(expected))
  kind = name.partition(',')[0]
  negative = original.RUNS[name][1]
  batch = original.batch(counts, kind, negative)
  model = batched.Word2Vec(
    vocab_size=len(counts),
    embed_dim=original.DIM,
    kind=kind,
    window=original.WINDOW,
    negative=negative,
    hierarchical=not negative,
  )
  first = original.initial(len(counts))
  tables = {'input': first}
  if negative:
    tables['output'] = np.zeros_like(first)
  else:
    del batch['draws']
    tables['nodes'] = np.zeros_like(first)
    tree = huffman.build(np.array(list(counts.values())))
    batch['paths'] = tree.paths[batch['tokens']]
    batch['turns'] = tree.turns[batch['tokens']]
  tables, batch = jax.tree.map(jnp.asarray, (tables, batch))
  update = jax.jit(in_order.update, static_argnums=0)
  found = update(model, tables, batch, jnp.float32(original.RATE))
  vectors = np.array(list(expected.values()))
  moved = np.abs(vectors - first)[1:]  # </s> is not trained
  assert moved.mean() > 0.2
  np.testing.assert_allclose(found['input'], vectors, atol=1e-3)
