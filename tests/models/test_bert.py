import functools

import bert_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from configs import variants
from models import bert, layers


def run(*arguments, **options):
  return jax.device_get(bert_cases.run(*arguments, **options))


@functools.cache
def draw_initial():
  """Parameters of make_model() as they are drawn."""
  batch = bert_cases.make_batch()
  initial = functools.partial(bert_cases.make_model().init, train=False)
  drawn = jax.jit(initial)(
    jax.random.key(0), *[batch[k] for k in bert_cases.INPUTS]
  )
  return jax.device_get(nn.meta.unbox(drawn['params']))


def test_padding_changes_nothing():
  model, params = bert_cases.make_model(), bert_cases.init_params()
  batch = bert_cases.make_batch()
  padded = {
    k: np.pad(v, ((0, 0), (0, 11))) if v.shape[1:] == (37,) else v
    for k, v in batch.items()
  }
  assert padded['tokens'].shape == (4, 48)
  padded['tokens'][:, 37:] = 7  # whatever stands there
  outputs, _, losses, gradient = run(model, params, batch)
  outputs_p, _, losses_p, gradient_p = run(model, params, padded)
  outputs_p['hidden'] = outputs_p['hidden'][:, :37]
  bert_cases.assert_close(outputs_p, outputs, 1e-5)
  bert_cases.assert_close(losses_p, losses, 1e-6)
  bert_cases.assert_close(gradient_p, gradient, 1e-5)


def test_rows_do_not_look_at_each_other():
  model, params = bert_cases.make_model(), bert_cases.init_params()
  batch = bert_cases.make_batch()
  order = np.array([2, 0, 3, 1])
  outputs, _, losses, _ = run(model, params, batch)
  shuffled = {k: v[order] for k, v in batch.items()}
  outputs_s, _, losses_s, _ = run(model, params, shuffled)
  bert_cases.assert_close(
    outputs_s, {k: v[order] for k, v in outputs.items()}, 1e-5
  )
  bert_cases.assert_close(losses_s, losses, 1e-6)
  # One row replaced: the others stay.
  other = bert_cases.make_batch(seed=1)
  changed = {k: np.concatenate([v[:3], other[k][3:]]) for k, v in batch.items()}
  outputs_c, _, _, _ = run(model, params, changed)
  bert_cases.assert_close(
    {k: v[:3] for k, v in outputs_c.items()},
    {k: v[:3] for k, v in outputs.items()},
    1e-5,
  )
  assert np.abs(outputs_c['pooled'][3] - outputs['pooled'][3]).max() > 1e-3


def test_heads_can_begin_by_looking_near():
  params = draw_initial()
  scaled = jax.device_get(
    jax.jit(
      functools.partial(
        bert.rescale_init, stddev=0.06, position_stddev=0.04, self_score=11.0
      )
    )(params)
  )
  assert jax.tree.all(
    jax.tree.map(lambda a, b: a.shape == b.shape, params, scaled)
  )
  qkv = scaled['layers']['attention']['qkv']['kernel']
  query, key, value = np.moveaxis(qkv, 2, 0)
  np.testing.assert_array_equal(query, key)
  assert float(value.std()) == pytest.approx(0.06 * 0.88, rel=0.05)
  x = np.random.default_rng(0).normal(size=(50, qkv.shape[1]))
  q = np.einsum('bd,ldnh->blnh', x, query)
  scores = (q * q).sum(-1) / np.sqrt(qkv.shape[-1])
  assert float(scores.mean()) == pytest.approx(11.0, rel=0.1)
  positions = scaled['embeddings']['positions']
  likeness = positions @ positions.T
  assert float(positions.std()) == pytest.approx(0.04, rel=0.3)
  for shift in (0, 1, 2, 5):  # alike where near, and everywhere the same
    diagonal = np.diagonal(likeness, shift)
    np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-4)
    assert diagonal[0] > np.diagonal(likeness, shift + 1)[0]


def test_bfloat16_stays_near_float32():
  batch = bert_cases.make_batch()
  params = bert_cases.init_params()
  outputs, _, losses, gradient = run(bert_cases.make_model(), params, batch)
  model = bert_cases.make_model(dtype=jnp.bfloat16)
  outputs_b, _, losses_b, gradient_b = run(model, params, batch)
  dtypes = {k: v.dtype for k, v in outputs_b.items()}
  assert dtypes == {
    'hidden': jnp.bfloat16,
    'pooled': jnp.bfloat16,
    'mlm_logits': jnp.float32,
    'nsp_logits': jnp.float32,
  }
  difference = np.abs(
    np.asarray(outputs_b['hidden'], np.float32) - outputs['hidden']
  )
  assert 0 < difference.mean() < 0.02
  for name in losses:
    np.testing.assert_allclose(losses_b[name], losses[name], rtol=0.01)
  for leaf in jax.tree.leaves(gradient_b):
    assert leaf.dtype == jnp.float32
  errors = bert_cases.relative_errors(gradient_b, gradient)
  assert np.median(list(errors.values())) < 0.05, errors
  initial = jax.eval_shape(
    functools.partial(model.init, train=False),
    jax.random.key(0),
    *[batch[k] for k in bert_cases.INPUTS],
  )
  assert {leaf.dtype for leaf in jax.tree.leaves(initial)} == {
    np.dtype(np.float32)
  }


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_wholly_masked_rows_are_finite(dtype):
  batch = bert_cases.make_batch()
  batch['token_mask'][1] = False
  batch['example_mask'][1] = False
  model, sow = bert_cases.make_model(dtype=dtype), dtype == jnp.float32
  outputs, sown, losses, gradient = run(
    model, bert_cases.init_params(), batch, sow=sow
  )
  for leaf in jax.tree.leaves((outputs, losses, gradient)):
    assert np.isfinite(np.asarray(leaf, np.float32)).all()
  if sow:
    attention = sown['layers']['attention']['attention'][0]
    assert (attention[:, 1] == 0).all()
    np.testing.assert_allclose(attention[:, 0].sum(-1), 1, rtol=1e-6)


def test_nothing_is_sown_unless_asked():
  model, batch = bert_cases.make_model(), bert_cases.make_batch()
  params = bert_cases.init_params()
  _, sown, _, _ = run(model, params, batch)
  assert not sown
  _, sown, _, _ = run(model, params, batch, sow=True)
  shapes = jax.tree.map(jnp.shape, sown, is_leaf=lambda x: hasattr(x, 'dtype'))
  assert shapes == {
    'embedded': ((4, 37, 128),),
    'layers': {
      'hidden': ((2, 4, 37, 128),),
      'attention': {'attention': ((2, 4, 2, 37, 37),)},
    },
  }


# Vocabulary padding, counts, FLOPs


def test_padded_vocabulary_is_out_of_the_way():
  model, batch = bert_cases.make_model(), bert_cases.make_batch()
  params = draw_initial()
  table = params['embeddings']['tokens']['embedding']
  assert table.shape == (1024, 128)
  assert (table[bert_cases.VOCAB_SIZE :] == 0).all()
  assert (table[: bert_cases.VOCAB_SIZE].std(axis=1) > 0.01).all()
  outputs, _, _, gradient = run(model, params, batch)
  logits = outputs['mlm_logits']
  assert (jax.nn.softmax(logits)[..., bert_cases.VOCAB_SIZE :] == 0).all()
  table = gradient['embeddings']['tokens']['embedding']
  assert (table[bert_cases.VOCAB_SIZE :] == 0).all()
  assert (
    (table[: bert_cases.VOCAB_SIZE] != 0).any(axis=1).all()
  )  # softmax reaches all
  assert (gradient['mlm']['bias'][bert_cases.VOCAB_SIZE :] == 0).all()
  assert [layers.pad_vocab(v) for v in (1, 128, 129, 30522)] == [
    128,
    128,
    256,
    30592,
  ]


@pytest.mark.parametrize(
  'name, millions', [('bert-base', 110.106428), ('bert-large', 336.226108)]
)
def test_parameter_counts_are_the_published_ones(torch, name, millions):
  """As counted by Hugging Face's BertForPreTraining of the same sizes."""
  transformers = pytest.importorskip('transformers')
  sizes = variants.BERT[name]
  params = nn.meta.unbox(bert_cases.abstract_params(vocab_size=30522, **sizes))
  count = layers.num_parameters(params, 30522)
  with torch.device('meta'):
    reference = transformers.BertForPreTraining(
      transformers.BertConfig(
        hidden_size=sizes['embed_dim'],
        num_hidden_layers=sizes['num_layers'],
        num_attention_heads=sizes['num_heads'],
        intermediate_size=sizes['mlp_dim'],
      )
    )
  assert count == sum(p.numel() for p in reference.parameters())
  assert count == round(millions * 1e6)


def test_sizes_are_the_papers():
  # Devlin et al. 2018, section 3 (L, H, A) and Table 6's rows.
  sizes = {
    name: (s['num_layers'], s['embed_dim'], s['num_heads'])
    for name, s in variants.BERT.items()
  }
  assert sizes['bert-base'] == (12, 768, 12)
  assert sizes['bert-large'] == (24, 1024, 16)
  table_6 = {(3, 768, 12), (6, 768, 3), (6, 768, 12), (12, 1024, 16)}
  assert table_6 <= set(sizes.values())
  for name, s in variants.BERT.items():
    assert s['mlp_dim'] == 4 * s['embed_dim'], name
    count = layers.num_parameters(
      nn.meta.unbox(bert_cases.abstract_params(vocab_size=30522, **s)), 30522
    )
    D, F = s['embed_dim'], s['mlp_dim']
    layer = 4 * D * D + 2 * D * F + 9 * D + F  # kernels, biases, two norms
    tables = (30522 + 512 + 2 + 2) * D
    heads = 2 * (D * D + D) + 2 * D + 30522 + 2 * D + 2
    assert count == s['num_layers'] * layer + tables + heads, name


def test_bad_sizes_are_refused():
  with pytest.raises(ValueError, match='embed_dim is 128.*num_heads .3.'):
    bert_cases.abstract_params(
      vocab_size=9, **bert_cases.TINY | {'num_heads': 3}
    )
  with pytest.raises(ValueError, match='8 tokens long.*at most 4'):
    bert_cases.abstract_params(vocab_size=9, **bert_cases.TINY, max_length=4)
  with pytest.raises(ValueError, match="gelu is 'silu'"):
    bert_cases.abstract_params(vocab_size=9, **bert_cases.TINY, gelu='silu')


@functools.partial(jax.jit, static_argnums=0)
def apply_once(model, params, inputs):
  return model.apply({'params': params}, *inputs, train=False)


@pytest.mark.parametrize(
  'heads', [(), ('pooler',), ('mlm',), ('pooler', 'nsp')], ids='+'.join
)
def test_fewer_heads_are_a_part_of_the_model(heads):
  batch, params = bert_cases.make_batch(), bert_cases.init_params()
  inputs = [batch[k] for k in bert_cases.INPUTS]
  if 'mlm' not in heads:
    inputs.pop()
  kept = {
    name: leaf
    for name, leaf in params.items()
    if name in ('embeddings', 'layers', *heads)
  }
  fewer = bert_cases.make_model(heads=heads)
  shapes = jax.eval_shape(
    functools.partial(fewer.init, train=False), jax.random.key(0), *inputs
  )
  assert jax.tree.structure(nn.meta.unbox(shapes['params'])) == (
    jax.tree.structure(kept)
  )
  outputs = apply_once(fewer, kept, inputs)
  whole = apply_once(
    bert_cases.make_model(), params, [batch[k] for k in bert_cases.INPUTS]
  )
  outputs_of = {'pooler': 'pooled', 'mlm': 'mlm_logits', 'nsp': 'nsp_logits'}
  assert outputs.keys() == {'hidden', *(outputs_of[head] for head in heads)}
  for name, value in outputs.items():
    np.testing.assert_allclose(value, whole[name], atol=1e-5)
  # The vocabulary's padding: 24 rows of the table, and of the mlm head's bias.
  total = sum(leaf.size for leaf in jax.tree.leaves(kept))
  assert layers.num_parameters(kept, 1000) == total - 24 * (
    128 + ('mlm' in kept)
  )


def test_heads_that_do_not_go_are_refused():
  for heads in (('nsp',), ('pooler', 'decoder')):
    with pytest.raises(ValueError, match="heads is .*'nsp' with 'pooler'"):
      bert_cases.abstract_params(vocab_size=9, **bert_cases.TINY, heads=heads)
  ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)
  with pytest.raises(ValueError, match='no mlm_positions: give them, or leave'):
    jax.eval_shape(
      functools.partial(bert_cases.make_model().init, train=False),
      jax.random.key(0),
      *[ids] * 4,
    )
