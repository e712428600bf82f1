import functools

import bert_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from models import bert, layers
from train.engine import objectives

V = 100  # of 128 after padding
INPUTS = ('tokens', 'token_mask', 'token_types', 'positions', 'mlm_positions')


def make_batch(B=8, T=12, P=3, seed=0):
  rng = np.random.default_rng(seed)
  counts = np.arange(B) % (P + 1)  # rows with no prediction at all, too
  return {
    'tokens': rng.integers(0, V, (B, T)).astype(np.int32),
    'token_mask': np.arange(T) < rng.integers(4, T + 1, (B, 1)),
    'token_types': np.tile(np.arange(T, dtype=np.int32) // 6, (B, 1)),
    'positions': np.tile(np.arange(T, dtype=np.int32), (B, 1)),
    'mlm_positions': np.tile(np.arange(P, dtype=np.int32), (B, 1)),
    'mlm_targets': rng.integers(0, V, (B, P)).astype(np.int32),
    'mlm_weights': (np.arange(P) < counts[:, None]).astype(np.float32),
    'nsp_labels': rng.integers(0, 2, B).astype(np.int32),
    'nsp_weights': (np.arange(B) != 3).astype(np.float32),
    'example_mask': np.arange(B) < B - 1,
  }


def make_outputs(batch, dtype=np.float32):
  rng = np.random.default_rng(1)
  B, P = batch['mlm_targets'].shape
  mlm = (5 * rng.normal(size=(B, P, 128))).astype(np.float32)
  mlm[..., V:] = np.finfo(np.float32).min
  # Some predictions right, or the accuracy would be 0 by any formula.
  hit = rng.random((B, P)) < 0.5
  right = np.eye(128)[batch['mlm_targets']].astype(bool) & hit[..., None]
  mlm = np.where(right, 30, mlm)
  nsp = (2 * rng.normal(size=(B, 2))).astype(np.float32)
  return {'mlm_logits': mlm.astype(dtype), 'nsp_logits': nsp.astype(dtype)}


def test_losses_and_accuracies_against_a_loop_over_predictions():
  batch = make_batch()
  outputs = make_outputs(batch)
  losses, metrics = bert_cases.masked_tokens().losses(outputs, batch)

  mlm, mlm_hits, count = 0.0, 0, 0
  nsp, nsp_hits, pairs = 0.0, 0, 0
  for b in range(7):  # the eighth is padding
    for p in range(3):
      if batch['mlm_weights'][b, p]:
        logits = np.float64(outputs['mlm_logits'][b, p, :V])
        target = batch['mlm_targets'][b, p]
        mlm -= np.log(np.exp(logits[target]) / np.exp(logits).sum())
        mlm_hits += logits.argmax() == target
        count += 1
    if b != 3:
      logits = np.float64(outputs['nsp_logits'][b])
      label = batch['nsp_labels'][b]
      nsp -= np.log(np.exp(logits[label]) / np.exp(logits).sum())
      nsp_hits += logits.argmax() == label
      pairs += 1
  assert 0 < mlm_hits < count and 0 < nsp_hits < pairs
  np.testing.assert_allclose(losses['mlm'], (mlm, count), rtol=1e-5)
  np.testing.assert_allclose(losses['nsp'], (nsp, pairs), rtol=1e-5)
  assert [float(x) for x in metrics['mlm_accuracy']] == [mlm_hits, count]
  assert [float(x) for x in metrics['nsp_accuracy']] == [nsp_hits, pairs]
  weights = bert_cases.masked_tokens().weights(batch)
  assert (float(weights['mlm']), float(weights['nsp'])) == (count, pairs)


def test_everything_is_float32_and_differentiable():
  batch = make_batch()
  outputs = make_outputs(batch, jnp.bfloat16)

  def total(outputs):
    losses, metrics = bert_cases.masked_tokens().losses(outputs, batch)
    return losses['mlm'][0] + losses['nsp'][0], (losses, metrics)

  gradient, sums = jax.grad(total, has_aux=True)(outputs)
  for leaf in jax.tree.leaves(sums):
    assert (leaf.shape, leaf.dtype) == ((), jnp.float32)
  mlm = np.asarray(gradient['mlm_logits'], np.float32)
  assert np.isfinite(mlm).all()
  assert (mlm[..., V:] == 0).all()
  weighted = batch['mlm_weights'].astype(bool) & batch['example_mask'][:, None]
  assert (mlm[~weighted] == 0).all()
  assert (mlm[weighted] != 0).any(-1).all()


def test_a_batch_without_pairs_has_no_loss_instead_of_nan():
  batch = make_batch()
  batch['nsp_weights'] = np.zeros_like(batch['nsp_weights'])
  batch['mlm_weights'] = np.zeros_like(batch['mlm_weights'])
  losses, _ = bert_cases.masked_tokens().losses(make_outputs(batch), batch)
  weights = bert_cases.masked_tokens().weights(batch)
  for name in ('mlm', 'nsp'):
    assert losses[name][1] == 0
    assert losses[name][0] / weights[name] == 0


def test_unigram_predictor():
  batch = make_batch()
  rng = np.random.default_rng(2)
  log_probs = np.log(rng.dirichlet(np.ones(V))).astype(np.float32)
  total, weight = objectives.unigram_losses(
    jnp.asarray(log_probs), *bert_cases.masked_tokens().targets(batch)
  )
  expected = [
    -log_probs[batch['mlm_targets'][b, p]]
    for b in range(7)
    for p in range(3)
    if batch['mlm_weights'][b, p]
  ]
  np.testing.assert_allclose(total, sum(expected), rtol=1e-5)
  assert weight == len(expected)
  # The uniform predictor has the vocabulary's size as perplexity.
  uniform = jnp.full(V, -np.log(V))
  total, weight = objectives.unigram_losses(
    uniform, *bert_cases.masked_tokens().targets(batch)
  )
  np.testing.assert_allclose(np.exp(total / weight), V, rtol=1e-5)


def test_accumulated_gradients_are_those_of_the_big_batch():
  """Although the parts have different numbers of predictions and pairs."""
  batch = make_batch()
  model = bert.Bert(
    vocab_size=V, num_layers=2, embed_dim=32, num_heads=2, mlp_dim=64
  )
  params = nn.meta.unbox(
    jax.jit(functools.partial(model.init, train=False))(
      jax.random.key(0), *[batch[k] for k in INPUTS]
    )
  )

  @functools.partial(jax.jit, static_argnums=2)
  def gradients(params, batch, parts):
    weights = bert_cases.masked_tokens().weights(batch)

    def loss(params, part):
      outputs = model.apply(params, *[part[k] for k in INPUTS], train=False)
      losses, _ = bert_cases.masked_tokens().losses(outputs, part)
      return sum(losses[name][0] / weights[name] for name in losses)

    def add(total, part):
      new = jax.value_and_grad(loss)(params, part)
      return jax.tree.map(jnp.add, total, new), None

    split = jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), batch)
    zeros = jax.tree.map(jnp.zeros_like, (jnp.zeros(()), params))
    return jax.lax.scan(add, zeros, split)[0]

  loss, whole = gradients(params, batch, 1)
  loss_a, accumulated = gradients(params, batch, 4)
  np.testing.assert_allclose(loss_a, loss, rtol=1e-6)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6),
    accumulated,
    whole,
  )


def make_head(dtype=jnp.float32, B=3, P=47, D=8):
  """Returns a head, labels that some logits hit, and weights, some 0."""
  keys = jax.random.split(jax.random.key(0), 5)
  x_BPD = jax.random.normal(keys[0], (B, P, D), dtype)
  table_VD = jnp.pad(jax.random.normal(keys[1], (V, D)), ((0, 128 - V), (0, 0)))
  bias_V = layers.mask_padding(jax.random.normal(keys[2], (128,)), V)
  head = layers.Head(x_BPD, table_VD, bias_V)
  drawn = jax.random.randint(keys[3], (B, P), 0, V)
  labels = jnp.where(drawn % 3 == 0, head.logits().argmax(axis=-1), drawn)
  weights = jax.random.uniform(keys[4], (B, P)) * (drawn % 4 > 0)
  return head, labels, weights


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_losses_by_blocks_are_those_of_the_logits(dtype):
  """141 places in blocks of 29, with hits and all gradients."""
  head, labels, weights = make_head(dtype)

  def total(head, by_blocks):
    outputs = {'lm_logits': head.logits()}
    outputs |= {'lm_head': head} if by_blocks else {}
    sums = objectives.sum_losses(outputs, 'lm', labels, weights)
    return 3 * sums[0][0], sums

  of = jax.jit(
    jax.value_and_grad(total, has_aux=True), static_argnames='by_blocks'
  )
  plain, blocks = (of(head, by_blocks=choice) for choice in (False, True))
  assert 0 < float(plain[0][1][1][0]) < float(weights.sum())  # some are hits
  rtol = 1e-5 if dtype == jnp.float32 else 2e-2
  for expected, found in zip(
    jax.tree.leaves(plain), jax.tree.leaves(blocks), strict=True
  ):
    assert expected.dtype == found.dtype
    expected, found = np.float32(expected), np.float32(found)
    bound = rtol * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)


def test_no_array_of_all_logits_is_made_where_losses_are_by_blocks():
  head, labels, weights = make_head()

  def loss(head):
    outputs = {'lm_logits': head.logits(), 'lm_head': head}
    return objectives.sum_losses(outputs, 'lm', labels, weights)[0][0]

  text = jax.jit(jax.grad(loss)).lower(head).compile().as_text()
  assert 'f32[29,128]' in text and 'f32[3,47,128]' not in text
