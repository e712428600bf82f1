"""Meshes: equal integers, close losses, state that truly lies in shards."""

import functools
import hashlib

import jax
import ml_collections
import numpy as np
import optax
import pytest
import runs
from flax import linen as nn
from jax.sharding import PartitionSpec
from runs import losses_on, mesh_of, one_device, planned

from train.engine import sharding, state, steps
from train.run import checkpoint, metrics

MESHES = {
  'data': dict(data=8, fsdp=1, tensor=1),
  'fsdp': dict(data=1, fsdp=8, tensor=1),
  'tensor': dict(data=4, fsdp=1, tensor=2),
  'mixed': dict(data=2, fsdp=2, tensor=2),
}


@pytest.fixture(scope='module')
def single_losses(small_config):
  """The losses of 20 steps on one device."""
  return losses_on(small_config(train__phases=TWENTY), one_device())


TWENTY = ((20, 32, 16, 'continue'),)


@pytest.mark.slow
@pytest.mark.parametrize('name', MESHES)
def test_losses_agree_on_every_mesh(name, small_config, single_losses):
  config = small_config(train__phases=TWENTY)
  losses = losses_on(config, mesh_of(**MESHES[name]))
  np.testing.assert_allclose(losses[0], single_losses[0], rtol=1e-6)
  np.testing.assert_allclose(losses[19], single_losses[19], rtol=1e-4)


@pytest.mark.slow
def test_accumulated_equals_the_big_batch_on_a_mesh(small_config):
  losses = [
    losses_on(
      small_config(
        train__phases=((4, 32, 16, 'continue'),),
        train__micro_batches=parts,
        model__dropout_rate=0.0,
        model__attention_dropout_rate=0.0,
      ),
      mesh_of(**MESHES['mixed']),
    )
    for parts in (1, 4)
  ]
  np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)


def drawn(shapes, scale):
  """Returns normal arrays of these shapes, where they lie."""
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda leaf: jax.device_put(
      rng.normal(scale=scale, size=leaf.shape).astype(leaf.dtype), leaf.sharding
    ),
    shapes,
  )


@pytest.mark.slow
@pytest.mark.parametrize('name', ['lamb', 'adafactor'])
def test_updates_are_the_same_in_shards(name, small_config):
  config = small_config(
    optim__name=name,
    optim__warmup_steps=0,
    model__embed_dim=128,  # enough to factor
    model__mlp_dim=128,
  )
  results = []
  for mesh in (one_device(), mesh_of(data=1, fsdp=4, tensor=2)):
    job, _ = planned(config, mesh)
    if not results:
      before = jax.device_get(drawn(job.shapes.params, 0.02))
      opt_state = jax.device_get(jax.jit(job.tx.init)(before))

    def train(params, opt_state, tx=job.tx):
      gradients = jax.tree.map(lambda p: jax.numpy.sin(100 * p + 1), params)
      updates, opt_state = tx.update(gradients, opt_state, params)
      return optax.apply_updates(params, updates), opt_state

    with sharding.scope(mesh, config.mesh.rules):
      places = job.shardings.params, job.shardings.opt_state
      trained = jax.jit(train, out_shardings=places)(
        *jax.device_put((before, opt_state), places)
      )
    results.append(jax.device_get(trained))
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7),
    *results,
  )
  pairs = zip(*map(jax.tree.leaves, (before, results[1][0])), strict=True)
  assert all((x != y).any() for x, y in pairs)


@pytest.mark.slow
def test_a_whole_run_on_a_mixed_mesh(small_config, single_losses, tmp_path):
  sizes = {f'mesh__{axis}': size for axis, size in MESHES['mixed'].items()}
  config = small_config(train__phases=TWENTY, train__log_every=10, **sizes)
  assert runs.train(config, tmp_path)['steps'] == 20
  losses = [r for r in metrics.read_metrics(tmp_path) if r[1] == 'train/loss']
  np.testing.assert_allclose(
    [value for *_, value in losses], single_losses[9::10], rtol=1e-4
  )


def test_integers_are_equal_on_every_mesh(small_config):
  job, batch_at = planned(small_config(), one_device())

  def transform(batch):
    keys = steps.row_keys(0, state.TRAIN_STREAM, 3, np.arange(16))
    return job.objective.transform(batch, keys)

  digests = set()
  # Of the others, batches have as many parts.
  for mesh in (job.mesh, *(mesh_of(**MESHES[n]) for n in ('data', 'mixed'))):
    with sharding.scope(mesh, small_config().mesh.rules):
      result = jax.jit(transform)(sharding.put_batch(batch_at(0), mesh))
    sha = hashlib.sha256()
    for name in sorted(result):
      sha.update(name.encode() + np.asarray(result[name]).tobytes())
    digests.add(sha.hexdigest())
  assert len(digests) == 1


def test_constraints_are_in_the_lowered_step(small_config):
  config = small_config()
  mesh = mesh_of(**MESHES['mixed'])
  job, batch_at = planned(config, mesh)

  def count():
    lowered = job.train_step(32).lower(job.shapes, batch_at(0))
    return lowered.as_text().count('sharding_constraint')

  def count_in_model():
    objective, key = job.objective_of[32, ''], jax.random.key(0)
    keys = jax.random.split(key, 16)

    def run(params, batch):
      rngs = dict(dropout=key, samples=key)
      batch = objective.transform(batch, keys)
      return objective.apply(job.model, params, batch, rngs)

    lowered = jax.jit(run).lower(job.shapes.params, batch_at(0))
    return lowered.as_text().count('sharding_constraint')

  with sharding.scope(mesh, config.mesh.rules):
    inside, in_model = count(), count_in_model()
  # Those of parameters name their mesh, so they stand outside of a scope too.
  # Five in a layer, whose body stands once, three outside, most of them again
  # in the backward pass.
  assert inside - count() >= 5 + 3 + 4
  assert in_model >= 5 + 3
  assert count_in_model() == 0


@pytest.fixture(scope='module')
def created(small_config):
  """Returns a function (mesh, optimiser) -> job, and its state at step 0."""

  @functools.cache
  def create(name, optimizer='bert_adam'):
    config, mesh = small_config(optim__name=optimizer), mesh_of(**MESHES[name])
    job, _ = planned(config, mesh)
    with sharding.scope(mesh, config.mesh.rules):
      return job, job.create_state()

  return create


def test_state_lies_in_shards(created):
  sizes = {}
  for name in ('data', 'fsdp', 'mixed'):
    job, made = created(name)
    first = jax.devices()[0]
    held = sum(
      shard.data.nbytes
      for leaf in jax.tree.leaves((made.params, made.opt_state))
      for shard in leaf.addressable_shards
      if shard.device == first
    )
    assert held == state.num_bytes((job.shapes.params, job.shapes.opt_state))
    sizes[name] = held
  assert sizes['fsdp'] < 0.2 * sizes['data']
  assert sizes['mixed'] < 0.35 * sizes['data']


@pytest.mark.parametrize('name', ['bert_adam', 'lamb'])
def test_an_eighth_of_the_state_lies_on_each_device(name, created):
  _, made = created('fsdp', name)
  # Biases of another width than the hidden states' are whole on each device.
  whole = {'layers/attention/qkv/bias', 'layers/mlp/in/bias'}
  whole |= {'mlm/bias', 'nsp/bias'}
  shared = sum(
    leaf.nbytes // (1 if keystr(path) in whole else 8)
    for path, leaf in jax.tree_util.tree_leaves_with_path(made.params)
  )
  counters = sum(
    leaf.nbytes for leaf in jax.tree.leaves(made.opt_state) if not leaf.ndim
  )
  assert counters == 2 * 4  # Adam's and the schedule's
  for tree, expected in (
    (made.params, shared),
    (made.opt_state, 2 * shared + counters),
  ):
    held = dict.fromkeys(jax.devices(), 0)
    for leaf in jax.tree.leaves(tree):
      for shard in leaf.addressable_shards:
        held[shard.device] += shard.data.nbytes
    assert set(held.values()) == {expected}
    total = sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
    assert expected < 1.2 * total / 8


def keystr(path):
  return jax.tree_util.keystr(path, simple=True, separator='/')


@pytest.mark.parametrize(
  ('saved_on', 'restored_on', 'optimizer'),
  [
    ('mixed', 'data', 'bert_adam'),
    ('data', 'single', 'lamb'),
    ('single', 'mixed', 'adafactor'),
    ('fsdp x tensor', 'tensor', 'lamb'),
    *(
      pytest.param(*case, marks=pytest.mark.slow)
      for case in (
        ('single', 'data', 'bert_adam'),
        ('data', 'fsdp x tensor', 'bert_adam'),
        ('mixed', 'fsdp', 'adafactor'),
      )
    ),
  ],
)
def test_a_checkpoint_restores_on_another_mesh(
  saved_on, restored_on, optimizer, small_config, tmp_path
):
  meshes = {name: mesh_of(**sizes) for name, sizes in MESHES.items()}
  meshes['fsdp x tensor'] = mesh_of(data=1, fsdp=4, tensor=2)
  meshes['single'] = sharding.make_mesh(
    ml_collections.ConfigDict(dict(data=1, fsdp=1, tensor=1)),
    jax.devices()[:1],
  )
  config = small_config(optim__name=optimizer, model__embed_dim=128)
  job, next_batch = planned(config, meshes[saved_on])
  made = drawn(job.shapes, 100)  # integers, too
  before = state.digest(made)
  with checkpoint.Checkpoints(tmp_path, keep=1) as checkpoints:
    checkpoints.save(7, made)
  other, batch_at = planned(config, meshes[restored_on])
  with checkpoint.Checkpoints(tmp_path, keep=1) as checkpoints:
    step, restored = checkpoints.restore(other.shapes)
  assert step == 7
  assert state.digest(restored) == before
  assert jax.tree.all(
    jax.tree.map(
      lambda x, place: x.sharding == place, restored, other.shardings
    )
  )
  # What comes next is the same, too.
  batch = sharding.put_batch(batch_at(step), meshes[restored_on])
  for name, array in next_batch(step).items():
    np.testing.assert_array_equal(np.asarray(batch[name]), array)


def test_mesh_that_does_not_fit_the_devices_is_refused():
  with pytest.raises(ValueError, match='mesh.data=3.*8 devices'):
    mesh_of(data=3, fsdp=1, tensor=1)
  with pytest.raises(ValueError, match='at most one is -1'):
    mesh_of(data=-1, fsdp=-1, tensor=1)
  assert mesh_of(data=-1, fsdp=2, tensor=2).shape['data'] == 2


def test_dimension_that_an_axis_does_not_divide_is_named():
  with pytest.raises(ValueError, match='heads: dimension 1.*mesh.tensor=2.*3'):
    sharding.check_divisible(
      'heads', (4, 3), PartitionSpec(None, 'tensor'), {'tensor': 2}
    )


def test_a_logical_name_without_a_rule_is_refused():
  leaf = nn.LogicallyPartitioned(
    jax.ShapeDtypeStruct((4,), np.float32), ('hedas',)
  )
  with pytest.raises(ValueError, match='no rule for .*hedas'):
    sharding.parameter_shardings(
      {'kernel': leaf}, mesh_of(**MESHES['data']), (('heads', None),)
    )
