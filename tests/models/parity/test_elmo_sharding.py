"""Every axis of the biLM has a rule, and any mesh the same results."""

import bert_cases
import elmo_cases
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from configs import base


def names_used(monkeypatch, model):
  """Returns (kind, names, rank) of each parameter and each constraint."""
  seen = []

  def record(x, names, **kwargs):
    del kwargs
    seen.append(('activation', names, x.ndim))
    return x

  boxed = elmo_cases.abstract_params(model)
  ids = jnp.zeros((2, 1, 1, 50), jnp.int32)
  with monkeypatch.context() as patch:
    patch.setattr(nn, 'with_logical_constraint', record)
    jax.eval_shape(
      lambda params: elmo_cases.loss_of(model, params, ids, ids[..., 0]),
      nn.meta.unbox(boxed),
    )
  boxes = jax.tree.leaves(
    boxed, is_leaf=lambda x: isinstance(x, nn.Partitioned)
  )
  params = [('parameter', box.names, len(box.value.shape)) for box in boxes]
  return params, seen


def test_every_name_has_a_rule(monkeypatch):
  model = elmo_cases.make_model()
  params, activations = names_used(monkeypatch, model)
  assert len(params) == len(jax.tree.leaves(elmo_cases.init_params(model)))
  assert activations
  rules = [name for name, _ in base.get_config().mesh.rules]
  split = rules.index('batch')  # activations begin
  for kind, names, rank in params + activations:
    assert len(names) == rank, (kind, names, rank)
    known = rules[split:] if kind == 'activation' else rules[:split]
    given = [name for name in names if name]
    assert len(set(given)) == len(given), names
    assert set(given) <= set(known), names


def test_constraints_and_results_on_eight_devices(monkeypatch):
  sizes = dict(filters=((1, 4), (4, 12)), num_highway=1)
  model = elmo_cases.make_model(**sizes)
  _, activations = names_used(monkeypatch, model)
  params = elmo_cases.init_params(model)
  ids = elmo_cases.make_streams(B=4)
  state = elmo_cases.make_state(model, 4)
  args = (ids, elmo_cases.make_targets(ids), state, jax.random.key(2))
  loss, outputs, gradient = elmo_cases.run(model, params, *args)

  devices = np.array(jax.devices()).reshape(2, 2, 2)
  mesh = jax.sharding.Mesh(devices, ('data', 'fsdp', 'tensor'))
  rules = base.get_config().mesh.rules
  places = nn.logical_to_mesh_sharding(
    nn.get_partition_spec(elmo_cases.abstract_params(model)), mesh, rules
  )
  jax.clear_caches()  # what was traced outside of the mesh has no constraints
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    sharded = jax.device_put(params, places)
    kernel = sharded['layers_0']['recurrent_kernel']
    assert kernel.sharding.shard_shape(kernel.shape) == (2, 3, 4, 11)
    table = sharded['softmax']['kernel']
    assert table.sharding.shard_shape(table.shape) == (32, 6)
    lowered = elmo_cases.run.lower(model, sharded, *args)
    text = lowered.as_text()
    loss_m, outputs_m, gradient_m = lowered.compile()(sharded, *args)
  jax.clear_caches()
  assert text.count('sharding_constraint') >= len(activations)
  assert abs(loss_m - loss) < 2e-6
  bert_cases.assert_close(outputs_m[:2], outputs[:2], 1e-5)
  bert_cases.assert_close(gradient_m, gradient, 1e-5)
