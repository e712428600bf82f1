import functools
import math

import bert_cases
import gpt_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from configs import base, variants
from models import layers


def run(*arguments, **options):
  return jax.device_get(gpt_cases.run(*arguments, **options))


both = pytest.mark.parametrize('pre_norm', [False, True], ids=['gpt', 'gpt2'])


@both
def test_no_position_sees_what_follows(pre_norm):
  model = gpt_cases.make_model(pre_norm=pre_norm)
  params = gpt_cases.init_params(pre_norm)
  batch, t = gpt_cases.make_batch(), 17
  logits = run(model, params, batch)[0]['lm_logits']
  changed = batch['tokens'].copy()
  changed[0, t] = (changed[0, t] + 1) % gpt_cases.VOCAB_SIZE
  changed = batch | {'tokens': changed}
  logits_c = run(model, params, changed)[0]['lm_logits']
  np.testing.assert_array_equal(logits_c[0, :t], logits[0, :t])
  np.testing.assert_array_equal(logits_c[1:], logits[1:])
  difference = np.abs(logits_c[0, t:] - logits[0, t:]).max(axis=-1)
  assert (difference > 1e-4).all()  # but all that follows


@both
def test_padding_changes_nothing(pre_norm):
  """Nor do the order of rows and the side that is padded."""
  model = gpt_cases.make_model(pre_norm=pre_norm)
  params = gpt_cases.init_params(pre_norm)
  batch = gpt_cases.make_batch()
  mask = batch['token_mask']
  outputs, _, loss, gradient = run(model, params, batch)
  order = np.array([2, 0, 3, 1])
  for sides in ((0, 11), (11, 0)):
    padded = {k: np.pad(v, ((0, 0), sides))[order] for k, v in batch.items()}
    there = padded['token_mask']
    padded['tokens'] = np.where(there, padded['tokens'], 7).astype(np.int32)
    outputs_p, _, loss_p, gradient_p = run(model, params, padded)
    for name in ('hidden', 'lm_logits'):
      bert_cases.assert_close(
        outputs_p[name][there], outputs[name][order][mask[order]], 1e-5
      )
    np.testing.assert_allclose(loss_p, loss, rtol=1e-6)
    bert_cases.assert_close(gradient_p, gradient, 1e-5)


def test_bfloat16_stays_near_float32():
  batch, params = gpt_cases.make_batch(), gpt_cases.init_params(True)
  plain = gpt_cases.make_model(pre_norm=True)
  model = plain.clone(dtype=jnp.bfloat16)
  _, _, loss, _ = run(plain, params, batch)
  batch['token_mask'][1] = False  # finite where all is masked, too
  outputs, _, loss_b, gradient = run(model, params, batch)
  assert {k: v.dtype for k, v in outputs.items()} == {
    'hidden': jnp.bfloat16,
    'lm_logits': jnp.float32,
  }
  np.testing.assert_allclose(loss_b, loss, rtol=0.02)
  for leaf in jax.tree.leaves((outputs, gradient)):
    assert np.isfinite(np.asarray(leaf, np.float32)).all()
  assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {
    np.dtype(np.float32)
  }


def test_wholly_masked_rows_attend_to_nothing():
  batch = gpt_cases.make_batch()
  batch['token_mask'][1] = False
  model, params = gpt_cases.make_model(), gpt_cases.init_params(False)
  outputs, sown, _, gradient = run(model, params, batch, sow=True)
  attention = sown['layers']['attention']['attention'][0]
  assert (attention[:, 1] == 0).all()
  np.testing.assert_allclose(attention[:, 0].sum(-1), 1, rtol=1e-6)
  for leaf in jax.tree.leaves((outputs, gradient)):
    assert np.isfinite(leaf).all()


def test_nothing_is_sown_unless_asked():
  model, params = gpt_cases.make_model(), gpt_cases.init_params(False)
  batch = gpt_cases.make_batch()
  outputs, sown, _, _ = run(model, params, batch)
  assert not sown
  assert outputs.keys() == {'hidden', 'lm_logits'}
  _, sown, _, _ = run(model, params, batch, sow=True)
  shapes = jax.tree.map(jnp.shape, sown, is_leaf=lambda x: hasattr(x, 'dtype'))
  assert shapes == {
    'embedded': ((4, 37, 128),),
    'layers': {
      'hidden': ((2, 4, 37, 128),),
      'attention': {'attention': ((2, 4, 2, 37, 37),)},
    },
  }


# Dropout and initial values


def embed_ones(pre_norm):
  """Embeds token 1 everywhere, with dropout and without positions."""
  model = gpt_cases.make_model(pre_norm=pre_norm, dropout_rate=0.25)
  params = jax.tree.map(np.copy, gpt_cases.init_params(pre_norm))
  params['embeddings']['positions'] *= 0
  batch = gpt_cases.make_batch(lengths=(37, 37))
  batch['tokens'][:] = 1
  outputs, sown, _, gradient = run(
    model, params, batch, jax.random.key(1), sow=True
  )
  return params, outputs, np.asarray(sown['embedded'][0]), gradient


def test_dropout_of_gpt_falls_on_the_tables():
  params, outputs, embedded, gradient = embed_ones(False)
  assert (embedded == embedded[0, 0]).all()  # one mask for the whole batch
  dropped = embedded[0, 0] == 0
  assert 0.1 < dropped.mean() < 0.4
  # The softmax multiplies by the same dropped row, scaled to keep the mean.
  row = params['embeddings']['tokens']['embedding'][1]
  np.testing.assert_allclose(
    embedded[0, 0], np.where(dropped, 0, row / 0.75), rtol=1e-6
  )
  np.testing.assert_allclose(
    outputs['lm_logits'][..., 1], outputs['hidden'] @ embedded[0, 0], atol=1e-5
  )
  # A dropped element gets no gradient, by look-up or softmax; the others do.
  table = gradient['embeddings']['tokens']['embedding']
  assert 0.24 < (table[: gpt_cases.VOCAB_SIZE] == 0).mean() < 0.26
  positions = gradient['embeddings']['positions'][:37]
  assert 0.22 < (positions == 0).mean() < 0.28


@pytest.mark.parametrize('train', [False, True])
def test_positions_are_scored_by_the_rows_that_were_added(train):
  """In the release they lie in the softmax's table, dropped once for both."""
  model = gpt_cases.make_model(dropout_rate=0.25 if train else 0.0)
  params = jax.tree.map(np.copy, gpt_cases.init_params(False))
  params['embeddings']['tokens']['embedding'] *= 0
  batch = gpt_cases.make_batch()
  outputs, sown = jax.jit(
    lambda params: model.apply(
      {'params': params},
      *[batch[name] for name in gpt_cases.INPUTS],
      train=train,
      score_positions=30,
      rngs={'dropout': jax.random.key(1)},
      mutable=['intermediates'],
    )
  )(params)
  rows = np.asarray(sown['intermediates']['embedded'][0][0, :30])
  assert (rows == 0).any() == train
  np.testing.assert_allclose(
    outputs['position_logits'],
    np.einsum('BTD,SD->BTS', outputs['hidden'], rows),
    atol=1e-5,
  )


def test_dropout_of_gpt2_falls_on_the_sum():
  _, _, embedded, gradient = embed_ones(True)
  dropped = embedded == 0
  assert 0.24 < dropped.mean() < 0.26
  assert (dropped != dropped[0, 0]).any(axis=-1).mean() > 0.9
  table = gradient['embeddings']['tokens']['embedding']
  assert (table[: gpt_cases.VOCAB_SIZE] != 0).all()


def test_weights_start_as_they_were_drawn():
  for pre_norm, position_stddev, out_stddev in (
    (False, 0.02, 0.02),
    (True, 0.01, 0.02 / math.sqrt(2 * 2)),
  ):
    params = jax.device_get(gpt_cases.draw_params(pre_norm))
    layers, embeddings = params['layers'], params['embeddings']
    for array, stddev in (
      (embeddings['tokens']['embedding'][:1000], 0.02),
      (embeddings['positions'], position_stddev),
      (layers['attention']['qkv']['kernel'], 0.02),
      (layers['mlp']['in']['kernel'], 0.02),
      (layers['attention']['out']['kernel'], out_stddev),
      (layers['mlp']['out']['kernel'], out_stddev),
    ):
      np.testing.assert_allclose(array.std(), stddev, rtol=0.03)
      assert abs(array).max() > 3.5 * stddev  # not truncated
    assert (embeddings['tokens']['embedding'][1000:] == 0).all()


# Vocabulary padding, counts, FLOPs


@both
def test_padded_vocabulary_is_out_of_the_way(pre_norm):
  model = gpt_cases.make_model(pre_norm=pre_norm)
  params = gpt_cases.init_params(pre_norm)
  outputs, _, _, gradient = run(model, params, gpt_cases.make_batch())
  logits, V = outputs['lm_logits'], gpt_cases.VOCAB_SIZE
  assert logits.shape == (4, 37, 1024)
  assert (jax.nn.softmax(logits)[..., V:] == 0).all()
  table = gradient['embeddings']['tokens']['embedding']
  assert (table[V:] == 0).all()
  assert (table[:V] != 0).any(axis=1).all()  # softmax reaches all


@pytest.mark.parametrize(
  'name, vocab_size, max_length, count',
  [
    # Hugging Face's openai-gpt and gpt2, gpt2-medium, gpt2-large, gpt2-xl.
    ('gpt', 40478, 512, 116_534_784),
    ('gpt2', 50257, 1024, 124_439_808),
    ('gpt2-medium', 50257, 1024, 354_823_168),
    ('gpt2-large', 50257, 1024, 774_030_080),
    ('gpt2-xl', 50257, 1024, 1_557_611_200),
  ],
)
def test_parameter_counts_are_the_published_ones(
  name, vocab_size, max_length, count
):
  table = variants.GPT | variants.GPT2
  params = gpt_cases.abstract_params(
    vocab_size=vocab_size,
    max_length=max_length,
    pre_norm=name in variants.GPT2,
    **table[name],
  )
  assert layers.num_parameters(nn.meta.unbox(params), vocab_size) == count


def test_bad_sizes_are_refused():
  with pytest.raises(ValueError, match='embed_dim is 128.*num_heads .3.'):
    gpt_cases.abstract_params(vocab_size=9, **gpt_cases.TINY | {'num_heads': 3})
  with pytest.raises(ValueError, match='8 tokens long.*at most 4'):
    gpt_cases.abstract_params(vocab_size=9, **gpt_cases.TINY, max_length=4)


# Sharding


def names_used(monkeypatch, pre_norm):
  """Returns (kind, names, rank) of each parameter and each constraint."""
  seen = []

  def record(x, names, **kwargs):
    del kwargs
    seen.append(('activation', names, x.ndim))
    return x

  with monkeypatch.context() as patch:
    patch.setattr(nn, 'with_logical_constraint', record)
    boxed = gpt_cases.abstract_params(
      vocab_size=gpt_cases.VOCAB_SIZE, pre_norm=pre_norm, **gpt_cases.TINY
    )
  activations = list(seen)
  boxes = jax.tree.leaves(
    boxed, is_leaf=lambda x: isinstance(x, nn.Partitioned)
  )
  params = [('parameter', box.names, len(box.value.shape)) for box in boxes]
  return params, activations


@both
def test_every_name_has_a_rule(monkeypatch, pre_norm):
  params, activations = names_used(monkeypatch, pre_norm)
  assert len(params) == 14 + 2 * pre_norm
  rules = [name for name, _ in base.get_config().mesh.rules]
  split = rules.index('batch')  # activations begin
  for kind, names, rank in params + activations:
    assert len(names) == rank, (kind, names, rank)
    assert len(set(names)) == rank, names
    known = rules[split:] if kind == 'activation' else rules[:split]
    assert set(names) - {None} <= set(known), names


def test_constraints_and_results_on_eight_devices(monkeypatch):
  """Of GPT, whose dropout falls on sharded tables."""
  _, activations = names_used(monkeypatch, pre_norm=False)
  model = gpt_cases.make_model()
  batch, rng = gpt_cases.make_batch(), jax.random.key(2)
  params = gpt_cases.init_params(False)
  outputs, _, loss, gradient = run(model, params, batch, rng)

  devices = np.array(jax.devices()).reshape(2, 2, 2)
  mesh = jax.sharding.Mesh(devices, ('data', 'fsdp', 'tensor'))
  rules = base.get_config().mesh.rules
  boxed = gpt_cases.abstract_params(
    vocab_size=gpt_cases.VOCAB_SIZE, max_length=64, **gpt_cases.TINY
  )
  places = nn.logical_to_mesh_sharding(
    nn.get_partition_spec(boxed), mesh, rules
  )
  rows = jax.NamedSharding(mesh, jax.P(('data', 'fsdp')))
  jax.clear_caches()  # what was traced outside of the mesh has no constraints
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    sharded = jax.device_put(params, places)
    table = sharded['embeddings']['tokens']['embedding']
    assert table.sharding.shard_shape(table.shape) == (512, 64)
    args = (sharded, jax.device_put(batch, rows), rng)
    lowered = gpt_cases.run.lower(model, *args)
    text = lowered.as_text()
    outputs_m, _, loss_m, gradient_m = jax.device_get(lowered.compile()(*args))
  jax.clear_caches()
  # Forwards alone has one for each; the backward pass repeats some.
  assert text.count('sharding_constraint') >= len(activations)
  assert abs(loss_m - loss) < 2e-6
  bert_cases.assert_close(gradient_m, gradient, 1e-5)
  bert_cases.assert_close(outputs_m, outputs, 1e-5)


def test_parameters_that_are_not_stacked_are_for_decoding():
  model, batch = gpt_cases.make_model(stacked=False), gpt_cases.make_batch()
  inputs = [batch[name] for name in gpt_cases.INPUTS]
  with pytest.raises(ValueError, match='stacked is False'):
    jax.eval_shape(
      functools.partial(model.init, train=True), jax.random.key(0), *inputs
    )
