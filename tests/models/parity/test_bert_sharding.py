import bert_cases
import elmo_cases
import jax
import numpy as np
from flax import linen as nn

from configs import base


def names_used(monkeypatch):
  """Returns (kind, names, rank) of each parameter and each constraint."""
  seen = []

  def record(x, names, **kwargs):
    del kwargs
    seen.append(('activation', names, x.ndim))
    return x

  with monkeypatch.context() as patch:
    patch.setattr(nn, 'with_logical_constraint', record)
    boxed = bert_cases.abstract_params(
      vocab_size=bert_cases.VOCAB_SIZE, **bert_cases.TINY
    )
  activations = list(seen)
  boxes = jax.tree.leaves(
    boxed, is_leaf=lambda x: isinstance(x, nn.Partitioned)
  )
  params = [('parameter', box.names, len(box.value.shape)) for box in boxes]
  return params, activations


def test_every_name_has_a_rule_and_every_rule_a_name(monkeypatch):
  params, activations = names_used(monkeypatch)
  assert len(params) == 26
  for kind, names, rank in params + activations:
    assert len(names) == rank, (kind, names, rank)
    assert len(set(names)) == rank, names
  rules = [name for name, _ in base.get_config().mesh.rules]
  assert len(set(rules)) == len(rules)
  split = rules.index('batch')  # activations begin
  used = {name for _, names, _ in params for name in names}
  of_elmo = {
    name
    for leaf in jax.tree.leaves(
      elmo_cases.abstract_params(elmo_cases.make_model()),
      is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned),
    )
    for name in leaf.names
    if name
  }
  assert used | of_elmo == set(rules[:split])
  used = {name for _, names, _ in activations for name in names if name}
  # Of ELMo's softmax over all words.
  used |= {'activation_words', 'activation_rows'}
  assert used == set(rules[split:])


def test_constraints_and_results_on_eight_devices(monkeypatch):
  _, activations = names_used(monkeypatch)
  model, batch, rng = (
    bert_cases.make_model(),
    bert_cases.make_batch(),
    jax.random.key(2),
  )
  params = bert_cases.init_params()
  outputs, _, losses, gradient = bert_cases.run(model, params, batch, rng)

  devices = np.array(jax.devices()).reshape(2, 2, 2)
  mesh = jax.sharding.Mesh(devices, ('data', 'fsdp', 'tensor'))
  rules = base.get_config().mesh.rules
  boxed = bert_cases.abstract_params(
    vocab_size=bert_cases.VOCAB_SIZE, max_length=64, **bert_cases.TINY
  )
  places = nn.logical_to_mesh_sharding(
    nn.get_partition_spec(boxed), mesh, rules
  )
  rows = jax.NamedSharding(mesh, jax.P(('data', 'fsdp')))
  jax.clear_caches()  # what was traced outside of the mesh has no constraints
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    sharded = jax.device_put(params, places)
    qkv = sharded['layers']['attention']['qkv']['kernel']
    assert qkv.sharding.shard_shape(qkv.shape) == (2, 64, 3, 1, 64)
    args = (sharded, jax.device_put(batch, rows), rng)
    lowered = bert_cases.run.lower(model, *args)
    text = lowered.as_text()
    outputs_m, _, losses_m, gradient_m = lowered.compile()(*args)
  jax.clear_caches()
  # Forwards alone has one for each; the backward pass repeats some.
  assert text.count('sharding_constraint') >= len(activations)
  bert_cases.assert_close(losses_m, losses, 2e-6)
  bert_cases.assert_close(gradient_m, gradient, 1e-5)
  bert_cases.assert_close(outputs_m, outputs, 1e-5)
