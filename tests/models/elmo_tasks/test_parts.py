"""Dropout by statistics, pooling and attention against plain computations."""

import allennlp_reference as reference
import elmo_task_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from configs import base
from models import dropout, layers, lstm
from models.elmo_tasks import bcn, bilstm_attention, bilstm_crf, esim, parts


def test_variational_dropout_has_one_mask_for_all_positions():
  rate = 0.3
  x = np.ones((40, 2, 6, 50), 'f4')
  found = jax.jit(parts.VariationalDropout(rate).apply)(
    {}, x, rngs={'dropout': jax.random.key(0)}
  )
  found = np.asarray(found)
  np.testing.assert_array_equal(found, np.repeat(found[:, :, :1], 6, axis=2))
  masks = found[:, :, 0].reshape(80, 50)
  np.testing.assert_allclose(
    np.unique(masks), [0, 1 / dropout.kept_share(rate)], rtol=1e-6
  )
  # Five standard deviations of 4,000 draws.
  assert abs((masks == 0).mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / 4000)
  # Any two texts have masks of their own.
  assert len(np.unique(masks, axis=0)) == 80
  same = np.corrcoef(masks)[np.triu_indices(80, 1)]
  assert abs(same.mean()) < 0.02
  rate_0 = parts.VariationalDropout(0.0).apply({}, x)
  assert rate_0 is x


def test_pooling_reads_real_words_only():
  rng = np.random.default_rng(0)
  lengths = np.array([[3, 0], [5, 1]])
  mask = np.arange(5) < lengths[..., None]
  x = np.where(mask[..., None], rng.normal(size=(2, 2, 5, 4)) - 9, np.nan)
  x = x.astype('f4')
  for ours, theirs in ((parts.max_pool, np.max), (layers.mean_pool, np.mean)):

    @jax.jit
    def compute(x, ours=ours):
      found, pull = jax.vjp(lambda x: ours(x, mask), x)
      return found, *pull(jnp.ones_like(found))

    found, by_x = jax.device_get(compute(x))
    assert (by_x[~mask] == 0).all()
    np.testing.assert_allclose(by_x[mask].sum(), 3 * 4, rtol=1e-6)
    assert (found[0, 1] == 0).all()
    for b, p in ((0, 0), (1, 0), (1, 1)):
      expected = theirs(x[b, p, : lengths[b, p]], axis=0)
      np.testing.assert_allclose(found[b, p], expected, rtol=1e-6)


def test_attention_equals_allennlp_where_its_softmax_is_imprecise(torch):
  theirs = reference.load('nn.util').util
  rng = np.random.default_rng(0)
  # The second row's logits are so low that padding takes most of the softmax.
  x, keys = rng.normal(size=(2, 4, 6)), np.abs(rng.normal(size=(2, 5, 6)))
  x[1] = -8 * np.abs(x[1])
  x, keys = x.astype('f4'), keys.astype('f4')
  mask = np.arange(5) < np.array([[4], [3]])
  logits = torch.tensor(x) @ torch.tensor(keys).transpose(1, 2)
  weights = theirs.masked_softmax(logits, torch.tensor(mask))
  expected = theirs.weighted_sum(torch.tensor(keys), weights).numpy()
  assert weights[1].sum(dim=-1).min() < 0.9
  attend = jax.jit(parts.attend)
  found = attend(x, keys, mask)
  np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
  assert (np.asarray(attend(x, keys, np.zeros_like(mask))) == 0).all()


class Maxout(nn.Module):
  @nn.compact
  def __call__(self, x):
    return parts.maxout(x, 3, 4, name='layer')


def test_maxout_takes_the_largest_of_neighbouring_outputs(torch):
  theirs = reference.load('modules.maxout').maxout.Maxout(5, 1, 3, 4)
  params = reference.linear(theirs._linear_layers[0], pool_size=4)
  x = np.random.default_rng(0).normal(size=(7, 5)).astype('f4')
  found = Maxout().apply({'params': {'layer': params}}, x)
  expected = theirs(torch.tensor(x)).detach().numpy()
  np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


class Linear(nn.Module):
  start: str

  @nn.compact
  def __call__(self, x):
    return parts.linear(x, 60, self.start, name='layer')


@pytest.mark.parametrize('start', ['torch', 'xavier'])
def test_linear_layers_start_as_pytorchs(torch, start):
  torch.manual_seed(0)
  layer = torch.nn.Linear(100, 60)
  if start == 'xavier':
    torch.nn.init.xavier_uniform_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
  expected = reference.linear(layer)
  init = jax.jit(Linear(start).init)
  drawn = init(jax.random.key(0), np.zeros((1, 100), 'f4'))
  found = jax.device_get(nn.unbox(drawn)['params']['layer'])
  for name in ('kernel', 'bias'):
    ours, theirs = found[name], expected[name]
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours.std(), theirs.std(), rtol=0.2)
    np.testing.assert_allclose(
      np.abs(ours).max(), np.abs(theirs).max(), rtol=0.05
    )
  ratio = found['kernel'].std() / expected['kernel'].std()
  assert abs(ratio - 1) < 0.03


@pytest.mark.parametrize(
  ('module', 'num_texts'),
  [
    (esim.Esim, 2),
    (bcn.Bcn, 1),
    (bilstm_crf.BilstmTagger, 1),
    (bilstm_attention.BilstmAttention, 2),
  ],
)
def test_models_of_published_size_have_a_dtype_and_known_axes(
  module, num_texts
):
  model = module(num_outputs=3, dtype=jnp.bfloat16)
  batch = cases.make_batch(num_texts)
  dtypes = []

  def record(call, args, kwargs, context):
    outputs = call(*args, **kwargs)
    if isinstance(context.module, lstm.BiLstm):
      dtypes.append(outputs[0].dtype)
    return outputs

  def init(rng):
    return model.init_with_output(rng, *batch.inputs, train=False)

  with nn.intercept_methods(record):
    logits, variables = jax.eval_shape(init, jax.random.key(0))
  assert dtypes and {*dtypes} == {jnp.dtype(jnp.bfloat16)}
  assert logits.dtype == jnp.float32
  of_words = (cases.T,) if module is bilstm_crf.BilstmTagger else ()
  assert logits.shape == (4, *of_words, 3)
  leaves = jax.tree.leaves(variables)
  assert {leaf.dtype for leaf in leaves} == {jnp.dtype(jnp.float32)}
  rules = {name for name, _ in base.get_config().mesh.rules}
  axes = cases.axes_of(model, batch)
  assert {'embed', 'mlp', 'classes', 'gates', 'towers'} <= axes
  assert axes <= rules | {None}
