"""Recurrences on a mesh of all axes: results and gradients of one device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.sharding import AxisType, NamedSharding

from configs import base
from models import lstm
from models.elmo_tasks import gru, highway_lstm
from models.elmo_tasks.coref import coupled_lstm
from train.engine import sharding

B, T, D, F = 8, 6, 8, 8
MODULES = {
  'gru': gru.BiGru(F),
  'lstm': lstm.BiLstm(1, F),
  'highway': highway_lstm.AlternatingHighwayLstm(2, F),
  'coupled': coupled_lstm.CoupledBiLstm(2, F, 0.0),
}


@pytest.mark.parametrize('name', MODULES)
def test_gradients_are_those_of_one_device(name):
  module, rules = MODULES[name], base.get_config().mesh.rules
  rng = np.random.default_rng(0)
  x = rng.normal(size=(B, T, D)).astype(np.float32)
  mask = np.arange(T) < rng.integers(1, T + 1, B)[:, None]
  if name == 'coupled':  # the numbers of sentences
    mask = np.where(mask, np.arange(T) // 3, -1).astype(np.int32)
  options = {} if name in ('gru', 'lstm') else {'train': False}
  boxed = jax.eval_shape(
    lambda: module.init(jax.random.key(0), x, mask, **options)
  )
  # Not the initial zeros: biases, too, have a part.
  params = jax.tree.map(
    lambda leaf: 0.3 * rng.normal(size=leaf.shape).astype(np.float32),
    nn.unbox(boxed),
  )

  def run(params, x, mask):
    def loss(params):
      y = jax.tree.leaves(module.apply(params, x, mask, **options))[0]
      return jnp.sum(jnp.sin(y) * y)

    return jax.value_and_grad(loss)(params)

  expected = jax.device_get(jax.jit(run)(params, x, mask))
  mesh = jax.make_mesh(
    (2, 2, 2), sharding.AXES, axis_types=(AxisType.Auto,) * 3
  )
  with sharding.scope(mesh, rules):
    places = nn.logical_to_mesh_sharding(
      nn.get_partition_spec(boxed), mesh, rules
    )
    rows = NamedSharding(mesh, sharding.BATCH)
    found = jax.jit(run, in_shardings=(places, rows, rows))(
      jax.device_put(params, places), *jax.device_put((x, mask), rows)
    )
  for (path, ours), theirs in zip(
    jax.tree_util.tree_leaves_with_path(jax.device_get(found)),
    jax.tree.leaves(expected),
    strict=True,
  ):
    np.testing.assert_allclose(
      ours, theirs, rtol=1e-5, atol=1e-5, err_msg=jax.tree_util.keystr(path)
    )
