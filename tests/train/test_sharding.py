"""Meshes: equal integers, close losses, state that truly lies in shards."""

import functools
import hashlib

import jax
import ml_collections
import numpy as np
import pytest
from flax import linen as nn
from jax.sharding import PartitionSpec

from data import corpus, pipeline
from train import (
  assemble,
  checkpoint,
  loop,
  metrics,
  optim,
  plan,
  settings,
  sharding,
  state,
  steps,
)

MESHES = {
  'data': dict(data=8, fsdp=1, tensor=1),
  'fsdp': dict(data=1, fsdp=8, tensor=1),
  'tensor': dict(data=4, fsdp=1, tensor=2),
  'mixed': dict(data=2, fsdp=2, tensor=2),
}


def mesh_of(**sizes):
  return sharding.make_mesh(ml_collections.ConfigDict(sizes))


def losses_of(workdir):
  """Returns {step: loss} of a run that logged every step."""
  return {
    step: value
    for step, name, value in metrics.read_metrics(workdir)
    if name == 'train/loss'
  }


@pytest.fixture(scope='module')
def single_losses(small_config, tmp_path_factory):
  """The losses of 20 steps on one device."""
  workdir = tmp_path_factory.mktemp('single')
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      sharding,
      'make_mesh',
      functools.partial(sharding.make_mesh, devices=jax.devices()[:1]),
    )
    loop.train(small_config(**TWENTY), workdir)
  return losses_of(workdir)


TWENTY = dict(
  train__phases=((20, 32, 16, 'continue'),),
  train__log_every=1,
  train__eval_every=100,
  train__checkpoint_every=100,
)


@pytest.mark.slow
@pytest.mark.parametrize('name', MESHES)
def test_losses_agree_on_every_mesh(
  name, small_config, single_losses, tmp_path
):
  sizes = {f'mesh__{axis}': size for axis, size in MESHES[name].items()}
  loop.train(small_config(**TWENTY, **sizes), tmp_path)
  losses = losses_of(tmp_path)
  assert losses.keys() == single_losses.keys()
  np.testing.assert_allclose(losses[1], single_losses[1], rtol=1e-6)
  np.testing.assert_allclose(losses[20], single_losses[20], rtol=1e-4)


def planned(config, store, mesh):
  """Returns what the loop plans: model, objective, state, batch, step."""
  store = corpus.open_store(store)
  phases = settings.resolve_phases(config, {})
  examples = {32: pipeline.Examples(store, 32, held_out=False)}
  batch = pipeline.train_batch(examples, phases, 0, 0)
  model = assemble.build_model(config.model, store.tokenizer.vocab_size)
  objective = assemble.build_objective(config, 32, store.tokenizer)
  schedule = optim.make_schedule(config.optim, phases)
  tx = optim.make_optimizer(config.optim, schedule)
  init, shapes, shardings = state.abstract_state(
    model,
    plan.dummy_inputs(objective, batch),
    tx,
    objective.loss_names + objective.metric_names,
    mesh,
    config.mesh.rules,
  )
  step = steps.make_train_step(
    model,
    objective,
    tx,
    schedule,
    seed=0,
    micro_batches=config.train.micro_batches,
    log_every=4,
    mesh=mesh,
    state_shardings=shardings,
  )
  return objective, init, shapes, shardings, batch, step


def test_integers_are_equal_on_every_mesh(small_config, small_store):
  digests = set()
  for sizes in (None, *MESHES.values()):
    devices = jax.devices()[:1] if sizes is None else None
    mesh = sharding.make_mesh(
      ml_collections.ConfigDict(sizes or dict(data=1, fsdp=1, tensor=1)),
      devices,
    )
    objective, *_, batch, _ = planned(small_config(), small_store, mesh)

    def transform(batch, objective=objective):
      keys = steps.row_keys(0, state.TRAIN_STREAM, 3, np.arange(16))
      return objective.transform(batch, keys)

    with sharding.scope(mesh, small_config().mesh.rules):
      result = jax.jit(transform)(sharding.put_batch(batch, mesh))
    sha = hashlib.sha256()
    for name in sorted(result):
      sha.update(name.encode() + np.asarray(result[name]).tobytes())
    digests.add(sha.hexdigest())
  assert len(digests) == 1


def test_constraints_are_in_the_lowered_step(small_config, small_store):
  config = small_config()
  mesh = mesh_of(**MESHES['mixed'])
  _, _, shapes, _, batch, step = planned(config, small_store, mesh)
  with sharding.scope(mesh, config.mesh.rules):
    inside = step.lower(shapes, batch).as_text().count('sharding_constraint')
  *_, step = planned(config, small_store, mesh)
  outside = step.lower(shapes, batch).as_text().count('sharding_constraint')
  # Five in a layer, whose body stands once, three outside, most of them again
  # in the backward pass.
  assert inside >= 5 + 3 + 4
  assert outside == 0


def test_state_lies_in_shards(small_config, small_store):
  config = small_config()
  sizes = {}
  for name in ('data', 'fsdp', 'mixed'):
    mesh = mesh_of(**MESHES[name])
    _, init, shapes, shardings, _, _ = planned(config, small_store, mesh)
    with sharding.scope(mesh, config.mesh.rules):
      made = state.create_state(init, shardings, 0)
    first = jax.devices()[0]
    held = sum(
      shard.data.nbytes
      for leaf in jax.tree.leaves((made.params, made.opt_state))
      for shard in leaf.addressable_shards
      if shard.device == first
    )
    assert held == state.num_bytes((shapes.params, shapes.opt_state))
    sizes[name] = held
  assert sizes['fsdp'] < 0.2 * sizes['data']
  assert sizes['mixed'] < 0.35 * sizes['data']


@pytest.mark.parametrize('name', MESHES)
def test_a_checkpoint_restores_on_every_mesh(
  name, small_config, small_store, tmp_path
):
  config = small_config()
  mesh = mesh_of(**MESHES['mixed'])
  _, init, _, shardings, _, _ = planned(config, small_store, mesh)
  with sharding.scope(mesh, config.mesh.rules):
    made = state.create_state(init, shardings, 0)
  before = state.digest(made)
  with checkpoint.Checkpoints(tmp_path, keep=1) as checkpoints:
    checkpoints.save(7, made)
  other = mesh_of(**MESHES[name])
  _, _, shapes, shardings, _, _ = planned(config, small_store, other)
  with checkpoint.Checkpoints(tmp_path, keep=1) as checkpoints:
    assert checkpoints.latest() == 7
    restored = checkpoints.restore(7, shapes)
  assert state.digest(restored) == before
  assert jax.tree.all(
    jax.tree.map(lambda x, place: x.sharding == place, restored, shardings)
  )


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
