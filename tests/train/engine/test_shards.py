"""Parameters between two steps and inside of a step."""

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest
from flax import linen as nn
from runs import losses_on, mesh_of, one_device, planned

from models.transformer.stack import Split
from train.engine import sharding, shards

DATA = dict(data=8, fsdp=1, tensor=1)


@pytest.fixture
def small_shares(monkeypatch):
  """Shares small parameters out too."""
  monkeypatch.setattr(shards, 'LEAST_SIZE', 1)


def states_of(job):
  """Returns the shapes of all parameters and of their first moments."""
  moments = [
    leaf
    for leaf in jax.tree.leaves(job.shapes.opt_state)
    if leaf.ndim and leaf.size > 1
  ]
  return jax.tree.leaves(job.shapes.params), moments


def test_a_device_keeps_a_share_of_state_and_parameters(
  small_config, small_shares
):
  job, _ = planned(small_config(), mesh_of(**DATA))
  params, moments = states_of(job)
  for leaves in (params, moments):
    whole = sum(leaf.size for leaf in leaves)
    kept = sum(
      np.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in leaves
    )
    assert kept < 0.2 * whole
  assert len(moments) == 2 * len(params)


def test_small_parameters_are_whole(small_config, monkeypatch):
  least = 32 * 64  # of a matrix of one layer; biases are smaller
  monkeypatch.setattr(shards, 'LEAST_SIZE', least)
  job, _ = planned(small_config(), mesh_of(**DATA))
  params, _ = states_of(job)
  for leaf in params:
    parts = leaf.size // np.prod(leaf.sharding.shard_shape(leaf.shape))
    assert parts == (8 if leaf.size >= least else 1)
  assert min(leaf.size for leaf in params) < least


@pytest.mark.slow
@pytest.mark.parametrize('unrolled', [0, 1])
def test_what_a_step_reads(small_config, small_shares, unrolled):
  config = small_config(
    model__unrolled_layers=unrolled, model__dtype='bfloat16'
  )
  job, _ = planned(config, mesh_of(**DATA))
  params = job.create_state().params

  @jax.jit
  def there_and_back(params):
    whole = shards.gather(params, job.placements)
    return whole, shards.scatter(whole, params, job.placements)

  whole, back = there_and_back(params)
  kernel = whole['layers']['attention']['qkv']['kernel']
  bias = whole['layers']['attention']['qkv']['bias']
  scale = whole['layers']['mlp_norm']['scale']
  if unrolled:
    assert isinstance(kernel, Split) and len(kernel.last) == 1
    assert kernel.last[0].shape == (32, 96)
    kernel, bias, scale = kernel.loop, bias.loop, scale.loop
  layers = 2 - unrolled
  assert kernel.shape == (layers, 32, 96) and kernel.dtype == jnp.bfloat16
  assert bias.shape == (layers, 1, 96) and bias.dtype == jnp.bfloat16
  assert scale.shape == (layers, 1, 32) and scale.dtype == jnp.float32
  assert kernel.sharding.is_fully_replicated
  for new, old in zip(
    jax.tree.leaves(back), jax.tree.leaves(params), strict=True
  ):
    assert new.shape == old.shape and new.dtype == old.dtype
    assert new.sharding.is_equivalent_to(old.sharding, old.ndim)
    np.testing.assert_allclose(new, old, rtol=2**-8)


@pytest.mark.parametrize(
  'micro_batches', [1, pytest.param(2, marks=pytest.mark.slow)]
)
def test_shares_train_like_one_device(
  small_config, small_shares, micro_batches
):
  config = small_config(
    train__phases=((3, 32, 16, 'continue'),), train__micro_batches=micro_batches
  )
  alone = losses_on(config, one_device())
  np.testing.assert_allclose(
    losses_on(config, mesh_of(**DATA)), alone, rtol=1e-5
  )


def test_rows_of_a_large_vocabulary_stay_where_they_are(small_shares):
  mesh = mesh_of(**DATA)
  table = nn.LogicallyPartitioned(
    jax.ShapeDtypeStruct((800, 64), jnp.float32), (shards.BY_ROWS, 'embed')
  )
  rules = ((shards.BY_ROWS, 'data'), ('embed', None))
  placement = shards.place({'table': table}, mesh, rules, nn.Dense(1))['table']
  assert placement.kept == placement.share == placement.whole


def test_the_axis_with_least_padding_is_split(small_shares):
  mesh = sharding.make_mesh(ml_collections.ConfigDict(DATA))
  matrix = nn.LogicallyPartitioned(
    jax.ShapeDtypeStruct((2048, 128), jnp.float32), ('mlp', 'embed')
  )
  rules = (('mlp', None), ('embed', None))
  placement = shards.place({'m': matrix}, mesh, rules, nn.Dense(1))['m']
  assert placement.kept.shard_shape((2048, 128)) == (256, 128)
