"""What travels between the devices, read off programs compiled here."""

import math

import jax
import jax.numpy as jnp
import ml_collections
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from data.examples import pairs
from train.architectures import architecture
from train.engine import sharding, state
from train.pretrain import assemble
from train.run import training_phases
from train.slices import hlo


@pytest.fixture(scope='module')
def compiled(small_config):
  """Returns a function (mesh sizes) -> (job, collectives of its step)."""

  def compile_on(overrides=None, **sizes):
    config = small_config(
      **{f'mesh__{axis}': size for axis, size in sizes.items()},
      **(overrides or {}),
    )
    mesh = sharding.make_mesh(config.mesh)
    phases = training_phases.resolve_phases(config, {})
    job = assemble.build_parts(
      config, phases, architecture.Vocabulary.of_size(500), mesh
    )
    place = NamedSharding(mesh, sharding.BATCH)
    batch = {
      name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)
      for name, leaf in pairs.batch_shapes(32, 16).items()
    }
    with sharding.scope(mesh, config.mesh.rules):
      program = job.train_step(32).lower(job.shapes, batch).compile()
    return job, hlo.collectives(program.as_text(), mesh.size)

  return compile_on


@pytest.mark.parametrize('scan_layers', [True, False])
def test_data_parallel_steps_reduce_each_gradient_once(compiled, scan_layers):
  job, found = compiled({'model__scan_layers': scan_layers}, data=8)
  assert {c.kind for c in found} == {'all-reduce'}
  assert {c.group for c in found} == {8}
  # The tied table is used twice; its two gradients may be reduced apart.
  table = state.num_bytes(job.shapes.params['embeddings']['tokens'])
  beyond = hlo.total_bytes(found)['all-reduce'] - state.num_bytes(
    job.shapes.params
  )
  assert 0 <= beyond % table < 100  # losses, accuracies and their weights
  assert beyond // table in (0, 1)


def test_sharded_parameters_travel_and_activations_do_not(compiled):
  job, found = compiled(fsdp=8)
  table = job.shapes.params['embeddings']['tokens']['embedding'].shape
  for collective in found:
    for _, shape in collective.shapes:
      # [16, 32, 32], the hidden states of the whole batch, would be as large.
      assert math.prod(shape) < 16 * 32 * 32 or shape == table, collective
  whole = sum(
    4 * math.prod(leaf.shape) for leaf in jax.tree.leaves(job.shapes.params)
  )
  # Forwards and backwards, the tied table once more.
  assert whole / 2 < hlo.total_bytes(found)['all-gather'] < 3 * whole


def test_loops_count_as_often_as_they_run():
  mesh = sharding.make_mesh(
    ml_collections.ConfigDict(dict(data=4, fsdp=1, tensor=2))
  )
  rows = NamedSharding(mesh, PartitionSpec('data'))
  whole = NamedSharding(mesh, PartitionSpec())

  def repeated(x):
    def body(carry, _):
      mean = jnp.mean(jnp.sin(carry) @ x.T, axis=0, keepdims=True)
      mean = jax.lax.with_sharding_constraint(mean, whole)
      return carry + mean @ x, None

    return jax.lax.scan(body, x, length=7)[0]

  x = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=rows)
  program = jax.jit(repeated, out_shardings=rows).lower(x).compile()
  found = hlo.collectives(program.as_text(), mesh.size)
  assert {c.times for c in found} >= {7}
  assert all(c.group == 4 for c in found), found


def test_notations_of_groups_and_of_parts():
  text = """
%add (x: f32[], y: f32[]) -> f32[] {
  ROOT %r = f32[] add(%x, %y)
}

%cond (p: (s32[], bf16[4,8])) -> pred[] {
  %c = s32[] constant(12)
  ROOT %lt = pred[] compare(%i, %c), direction=LT
}

%body (p: (s32[], bf16[4,8])) -> (s32[], bf16[4,8]) {
  %a = bf16[4,8]{1,0} all-reduce(%x), channel_id=1,\
 replica_groups=mesh['a'=4,'b'=2] {'a'}
  %g = (bf16[2,8], bf16[4,8]) all-gather-start(%x), channel_id=2,\
 replica_groups=[4,2]<=[8]
}

%fused (p: bf16[4,8]) -> bf16[4,8] {
  %s = f32[2] reduce-scatter(%x), channel_id=3,\
 replica_groups={{0,1,2,3},{4,5,6,7}}
}

ENTRY %main (p: bf16[4,8]) -> bf16[4,8] {
  %w = (s32[], bf16[4,8]) while(%t), condition=%cond, body=%body
  %f = f32[2] fusion(%p), kind=kCustom, calls=%fused
  %f2 = f32[2] fusion(%p), kind=kCustom, calls=%fused
  %p2 = (s8[64], s8[64], u32[], u32[]) \
collective-permute-start(%p), channel_id=4
}
"""
  found = {c.kind: c for c in hlo.collectives(text, 8)}
  assert (found['all-reduce'].group, found['all-reduce'].bytes) == (4, 768)
  assert found['all-reduce'].sent_bytes == 2 * 3 / 4 * 768
  assert (found['all-gather'].group, found['all-gather'].bytes) == (2, 768)
  assert found['all-gather'].sent_bytes == 384
  scattered = found['reduce-scatter']
  assert (scattered.group, scattered.times, scattered.bytes) == (4, 1, 8)
  assert scattered.sent_bytes == 24
  assert found['collective-permute'].bytes == 64
  with pytest.raises(ValueError, match='loop body: no number of repetitions'):
    hlo.collectives(text.replace('constant(12)', 'parameter(0)'), 8)
