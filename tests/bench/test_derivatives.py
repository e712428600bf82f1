"""Derivatives written by hand, and JAX's own in their place."""

import derivatives
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import layers, lstm, norms
from models.elmo_tasks import highway_lstm
from models.elmo_tasks.coref import coupled_lstm
from models.transformer import blocks
from train.engine import objectives


def test_all_are_found_once():
  known = derivatives.derivatives()
  assert {'models.layers.product', 'models.layers.GELUS.tanh'} <= known.keys()
  assert len({id(each) for each in known.values()}) == len(known)


def test_one_is_taken_out_wherever_it_is_called():
  derivative = layers.product
  arrays = [
    jax.random.normal(jax.random.key(i), shape)
    for i, shape in enumerate([(3, 5, 4), (4, 6), (1, 6)])
  ]

  def gradients():
    return jax.grad(
      lambda *arrays: jnp.sin(layers.product(*arrays)).sum(), (0, 1, 2)
    )(*arrays)

  ours = gradients()
  with derivatives.without('models.layers.product') as called:
    assert layers.product is not derivative
    plain = gradients()
  assert called == {'models.layers.product'}
  assert layers.product is derivative
  for a, b in zip(ours, plain, strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)


def _draw(*shape):
  return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


K, T, B, F, D = 2, 7, 3, 5, 4
LENGTHS = jnp.array([7, 4, 2])
MASK = jnp.arange(T)[:, None] < LENGTHS
FIRST = jnp.broadcast_to((jnp.arange(T) % 3 == 0)[:, None, None], (T, K, B))
# The arguments of each recurrence, those that are learned first in each tuple.
RECURRENCES = {
  'models.lstm._recur': (
    lstm,
    ((1.0, 0.5, jnp.float32),),
    (
      _draw(K, T, B, 4, F),
      _draw(K, D, 4, F),
      _draw(K, F, D),
      _draw(K, B, F),
      _draw(K, B, D),
    ),
    (MASK,),
  ),
  'models.elmo_tasks.highway_lstm._read': (
    highway_lstm,
    ((True, jnp.float32),),
    (_draw(T, B, D), _draw(D, 6, F), _draw(F, 5, F), _draw(6, F)),
    (jnp.full((B, F), 0.9), MASK),
  ),
  'models.elmo_tasks.coref.coupled_lstm._recur': (
    coupled_lstm,
    (jnp.float32,),
    (_draw(K, T, B, 3, F), _draw(K, F, 3, F), _draw(K, 1, F), _draw(K, 1, F)),
    (FIRST, 1.25 * (_draw(T, K, B, F) < 1)),
  ),
}


@pytest.mark.parametrize('name', RECURRENCES)
def test_plain_recurrences_are_the_same(name):
  module, fields, learned, others = RECURRENCES[name]
  function = name.rpartition('.')[2]

  def run(*learned):
    return getattr(module, function)(*fields, *learned, *others)

  check_plain_form(name, run, learned)


def _measure(x, scale, bias):
  params = {'params': {'scale': scale, 'bias': bias}}
  return norms.LayerNorm(1e-5).apply(params, x, method='measure')


def _run_mlp(x, scale, bias, kernel, out):
  linear = {'in': {'kernel': kernel, 'bias': jnp.ones(F)}}
  linear['out'] = {'kernel': out, 'bias': jnp.ones(D)}
  return blocks.Mlp(F).apply({'params': linear}, _measure(x, scale, bias))


# The function that calls each derivative, and what is learned.
CALLERS = {
  'models.norms.normalize': (
    lambda *arrays: norms.normalize(_measure(*arrays), jnp.float32),
    (_draw(B, T, D), _draw(D), _draw(D)),
  ),
  'models.transformer.blocks._norm_mlp': (
    _run_mlp,
    (_draw(B, T, D), _draw(D), _draw(D), _draw(D, F), _draw(F, D)),
  ),
  'train.engine.objectives._log_loss': (
    lambda logits: objectives.score_labels(logits, jnp.arange(B) + 1)[0],
    (_draw(B, D),),
  ),
}


@pytest.mark.parametrize('name', CALLERS)
def test_plain_forms_are_the_same(name):
  check_plain_form(name, *CALLERS[name])


def check_plain_form(name, run, learned):
  def gradients():
    def loss(*learned):
      found = run(*learned)
      return sum(jnp.sin(x).sum() for x in jax.tree.leaves(found))

    return jax.value_and_grad(loss, range(len(learned)))(*learned)

  ours = gradients()
  with derivatives.without(name) as called:
    plain = gradients()
  assert called == {name}
  for a, b in zip(*map(jax.tree.leaves, (ours, plain)), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)
