"""Layers that differ: windows, rotary positions, the form of ModernBERT."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from configs import variants
from models import bert, gpt
from models.transformer import layout, self_attention

SIZES = dict(vocab_size=50, num_layers=4, embed_dim=32, num_heads=2, mlp_dim=48)
FORM = {
  key.removeprefix('model.'): value
  for key, value in variants.MODERN_GPT.items()
  if key.startswith('model.')
} | {'window': 3, 'max_length': 40}
ROWS, LENGTH = 2, 12


def make(kind=bert.Bert, **fields):
  """Returns a model, its parameters, none at 0 or 1, and its inputs."""
  if kind is bert.Bert:
    fields = {'heads': (), 'num_token_types': 0} | fields
  model = kind(**SIZES | fields)
  rng = np.random.default_rng(0)
  tokens = jnp.asarray(rng.integers(1, 50, (ROWS, LENGTH)))
  places = jnp.broadcast_to(jnp.arange(LENGTH), tokens.shape)
  inputs = [tokens, jnp.ones(tokens.shape, bool)]
  inputs += [0 * tokens] * (kind is bert.Bert) + [places]
  shapes = jax.eval_shape(
    lambda: model.init(jax.random.key(0), *inputs, train=False)['params']
  )
  params = jax.tree.map(
    lambda leaf: jnp.asarray(
      0.2 * rng.normal(size=leaf.shape) + (leaf.shape[-1] == 32), jnp.float32
    ),
    nn.meta.unbox(shapes),
  )
  return model, params, inputs


def apply(model, params, inputs, **options):
  return jax.jit(
    lambda params: model.apply(
      {'params': params}, *inputs, train=False, **options
    )
  )(params)


def test_local_layers_are_all_but_each_third():
  kinds = layout.local_layers(7, 64, 3).tolist()
  assert kinds == [False, True, True, False, True, True, False]
  assert not layout.local_layers(7, 0, 3).any()


def test_scores_of_turned_vectors_tell_distances_alone():
  rng = np.random.default_rng(0)
  query, key = (jnp.asarray(rng.normal(size=(1, 1, 2, 8))) for _ in 'qk')

  def turn(vector, place, is_local):
    made = layout.make(
      1,
      jnp.array([[place]]),
      8,
      (100.0, 10.0),
      max_length=128,
      window=1,
      global_every=1,
    )
    return layout.rotate(vector, made._replace(is_local=is_local))

  def score(first, second, is_local):
    return np.einsum(
      'btnh,bsnh->n', turn(query, first, is_local), turn(key, second, is_local)
    )

  for is_local in (False, True):
    expected = score(3, 9, is_local)
    np.testing.assert_allclose(score(103, 109, is_local), expected, rtol=1e-4)
    assert np.abs(score(3, 10, is_local) - expected).min() > 1e-3
  assert np.abs(score(3, 9, True) - score(3, 9, False)).min() > 1e-3


def test_a_window_hides_what_is_far_in_local_layers_alone():
  """One local layer: a token 4 away changes nothing, one 3 away does."""
  fields = FORM | {'num_layers': 2, 'global_every': 2}
  model, params, inputs = make(**fields)
  params['layers']['attention']['out']['kernel'] = (
    params['layers']['attention']['out']['kernel'].at[0].set(0)
  )  # the first layer, which sees all, mixes nothing
  before = apply(model, params, inputs)['hidden']
  changed = [inputs[0].at[:, 6].set(49), *inputs[1:]]
  after = apply(model, params, changed)['hidden']
  differs = np.abs(np.asarray(after - before)).max(axis=(0, 2)) > 1e-6
  assert differs.tolist() == [3 <= i <= 9 for i in range(LENGTH)]


@pytest.mark.parametrize(
  'fields',
  [
    {'norm': 'pre'},
    {'biases': False},
    {'gated': True},
    {'positions': 'rotary'},
    {'window': 2},
    {'query_key_norm': True},
    FORM,
    FORM | {'query_key_norm': True},
  ],
  ids=str,
)
def test_each_field_counts_and_padding_does_not(fields):
  model, params, inputs = make(
    **{'max_length': 40, 'num_token_types': 2} | fields
  )
  loop = apply(model, params, inputs)['hidden']
  unrolled = apply(model.clone(scan_layers=False), params, inputs)['hidden']
  np.testing.assert_allclose(unrolled, loop, atol=2e-5)
  longer = [jnp.pad(x, [(0, 0), (0, 5)], constant_values=0) for x in inputs]
  padded = apply(model, params, longer)['hidden'][:, :LENGTH]
  np.testing.assert_allclose(padded, loop, atol=2e-5)
  plain, of_plain, _ = make(max_length=40, num_token_types=2)
  if jax.tree.map(jnp.shape, of_plain) == jax.tree.map(jnp.shape, params):
    other = apply(plain, params, inputs)['hidden']
    assert np.abs(np.asarray(other - loop)).max() > 1e-3


def test_positions_may_begin_anywhere():
  model, params, inputs = make(**FORM | {'window': 0})
  moved = [*inputs[:-1], inputs[-1] + 17]
  np.testing.assert_allclose(
    apply(model, params, moved)['hidden'],
    apply(model, params, inputs)['hidden'],
    atol=1e-4,
  )


@pytest.mark.parametrize('pre_norm', [False, True])
def test_a_gpt_decodes_what_it_computes_at_once(pre_norm):
  fields = {k: v for k, v in FORM.items() if k != 'norm'}
  model, params, inputs = make(gpt.Gpt, pre_norm=pre_norm, **fields)
  expected = apply(model, params, inputs)['lm_logits']
  cache = gpt.empty_cache(model, ROWS, LENGTH)
  for part in (slice(0, 5), slice(5, 6), slice(6, LENGTH)):
    outputs = apply(model, params, [x[:, part] for x in inputs], cache=cache)
    cache = outputs['cache']
    np.testing.assert_allclose(
      outputs['lm_logits'], expected[:, part], atol=2e-4
    )


@pytest.mark.parametrize(
  ('platform', 'key'),
  [('tpu', 'null_key'), ('gpu', 'null_key'), ('tpu', 'query_key_norm')],
)
def test_what_a_kernel_lacks_is_refused(platform, key, monkeypatch):
  monkeypatch.setattr(self_attention, 'platform', lambda: platform)
  model, params, inputs = make(max_length=40, **{key: True})
  model = model.clone(attention='fused')
  with pytest.raises(
    ValueError, match=f"'fused' has no {key.replace('_', ' ')}"
  ):
    jax.eval_shape(
      lambda: model.apply(
        {'params': params},
        *inputs,
        train=True,
        rngs={'dropout': jax.random.key(0)},
      )
    )


@pytest.mark.parametrize('packed', [False, True])
def test_a_kernel_computes_windows_and_rotations(packed):
  """Layers of both kinds, with gradients; padding at the end of a row."""
  sizes = dict(num_layers=4, embed_dim=128, max_length=128)
  model, params, _ = make(**FORM | sizes)
  rng = np.random.default_rng(1)
  tokens = jnp.asarray(rng.integers(1, 50, (2, 128)))
  place = np.arange(128)
  mask = np.stack([place < 128, place < 90])
  places = np.stack([place, place])
  if packed:
    mask = np.where(mask, 1 + place // 40, 0)
    places = places % 40
  inputs = [tokens, jnp.asarray(mask), 0 * tokens, jnp.asarray(places)]

  @functools.partial(jax.jit, static_argnums=0)
  def compute(model, params):
    def total(params):
      hidden = model.apply({'params': params}, *inputs, train=False)['hidden']
      hidden = hidden * jnp.asarray(mask != 0)[..., None]
      return jnp.sum(jnp.sin(hidden)), hidden

    return jax.grad(total, has_aux=True)(params)

  # Outside of training 'fused' computes what suits.
  assert 'attention_forward' in str(
    jax.make_jaxpr(compute, static_argnums=0)(
      model.clone(attention='fused'), params
    )
  )
  grads, hidden = compute(model.clone(attention='fused'), params)
  expected_grads, expected = compute(model.clone(attention='plain'), params)
  np.testing.assert_allclose(hidden, expected, atol=5e-5)
  for got, wanted in zip(
    jax.tree.leaves(grads), jax.tree.leaves(expected_grads), strict=True
  ):
    largest = np.abs(wanted).max()
    np.testing.assert_allclose(got / largest, wanted / largest, atol=2e-4)
