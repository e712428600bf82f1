"""A task model from words to logits: where its vectors come in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from flax import linen as nn

from models import char_cnn, crf
from models.elmo_tasks import bcn, bilstm_crf, esim, reader

T, L, D = 5, 2, 3
LENGTHS = np.array([[5, 2], [3, 4]])
MASK = np.arange(T) < LENGTHS[..., None]
RANDOM = np.random.default_rng(0)
ROWS = np.where(MASK, RANDOM.integers(0, 7, MASK.shape), 0)
CHARACTERS = np.full((*MASK.shape, 6), char_cnn.NO_CHARACTER)
CHARACTERS[..., :4] = RANDOM.integers(97, 123, (*MASK.shape, 4))
VECTORS = RANDOM.normal(size=(*MASK.shape, L, D)).astype(np.float16)
INPUTS = (ROWS, MASK, CHARACTERS, VECTORS)
WORDS = {'num_rows': 7, 'word_dim': 4}
TABLES = ('words', 'marks')
ESIM = esim.Esim(num_outputs=3, lstm_dim=2, hidden_dim=2)
BCN = bcn.Bcn(3, hidden_dim=2, lstm_dim=2, maxout_dims=(4, 4), maxout_pool=2)


def draw(model, *inputs):
  """Parameters without compiling, none of them 0."""
  shapes = jax.eval_shape(
    lambda: model.init(jax.random.key(0), *inputs, train=False)
  )['params']
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda p: rng.normal(0, 0.5, p.shape).astype('f4'), nn.unbox(shapes)
  )


def run(model, params, *inputs):
  return jax.jit(
    lambda params: model.apply({'params': params}, *inputs, train=False)
  )(params)


@pytest.mark.parametrize('mix_at', reader.PLACES)
def test_the_body_reads_words_characters_and_a_language_model(mix_at):
  model = reader.Reader(
    ESIM,
    num_texts=2,
    **WORDS,
    char_embed_dim=2,
    filters=((2, 3),),
    num_layers=L,
    mix_at=mix_at,
  )
  params = draw(model, *INPUTS)
  places = {'input', 'output'} if mix_at == 'both' else {mix_at}
  assert places == params.keys() & {'input', 'output'}

  def mix(name):
    weights = scipy.special.softmax(params[name]['mix']['mix_weights'])
    mixed = np.einsum('L,BPTLD->BPTD', weights, VECTORS.astype('f4'))
    return params[name]['mix']['mix_scale'] * mixed

  embedded = np.pad(params['characters']['characters'], ((0, 1), (0, 0)))[
    CHARACTERS
  ]
  added = mix('output') if 'output' in places else None

  @jax.jit
  def read(params):
    spelt = char_cnn.Convolution(2, 3).apply(
      {'params': params['characters']['filters_0']}, embedded
    )
    parts = [params['words']['table'][ROWS], spelt]
    if 'input' in places:
      parts.append(mix('input'))
    x = jnp.concatenate(parts, axis=-1)
    return ESIM.apply({'params': params['body']}, x, MASK, added, train=False)

  expected = read(jax.tree.map(jnp.asarray, params))
  found = run(model, params, *INPUTS)
  np.testing.assert_allclose(found['logits'], expected, atol=1e-5)
  squares = sum(
    np.square(params[name]['mix']['mix_weights']).sum() for name in places
  )
  np.testing.assert_allclose(found['mix_penalty'], squares, rtol=1e-5)


@pytest.mark.parametrize('fixed_words', [False, True])
def test_words_and_marks_learn_unless_words_are_fixed(fixed_words):
  model = reader.Reader(BCN, **WORDS, mark_dim=3, fixed_words=fixed_words)
  inputs = (ROWS[:, 0], MASK[:, 0], None, None, np.int32(ROWS[:, 0] % 2))
  params = draw(model, *inputs)

  def loss(tables):
    logits = run(model, params | tables, *inputs)['logits']
    return jnp.square(logits).sum()

  gradients = jax.grad(loss)({name: params[name] for name in TABLES})
  learning = {name for name in TABLES if gradients[name]['table'].any()}
  assert learning == {'marks'} | (set() if fixed_words else {'words'})


def test_choices_have_one_score_each():
  body = esim.Esim(num_outputs=1, lstm_dim=2, hidden_dim=2)
  rows, mask = (
    np.concatenate([x, x[::-1], x], axis=1)[:, [0, 1, 2, 3, 0, 3]]
    for x in (ROWS, MASK)
  )
  choices = reader.Reader(body, num_texts=2, has_choices=True, **WORDS)
  params = draw(choices, rows, mask)
  found = run(choices, params, rows, mask)['logits']
  assert found.shape == (2, 3)
  pair = reader.Reader(body, num_texts=2, **WORDS)
  for k in range(3):
    own = slice(2 * k, 2 * k + 2)
    one = run(pair, params, rows[:, own], mask[:, own])['logits']
    np.testing.assert_allclose(found[:, [k]], one, atol=1e-5)


def test_padding_changes_nothing():
  model = reader.Reader(BCN, **WORDS, num_layers=L, mix_at='both')
  inputs = ROWS[:, 0], MASK[:, 0], None, VECTORS[:, 0]
  params = draw(model, *inputs)
  noise = np.where(MASK[:, 0, :, None, None], VECTORS[:, 0], np.nan)
  rows = np.where(MASK[:, 0], ROWS[:, 0], 6)
  np.testing.assert_allclose(
    run(model, params, rows, MASK[:, 0], None, noise)['logits'],
    run(model, params, *inputs)['logits'],
    atol=1e-5,
  )


def test_a_crf_is_decoded_outside_of_training():
  K = 3
  allowed = np.ones((K + 2, K + 2), bool)
  allowed[0, 1] = allowed[K, 2] = False
  model = reader.Reader(
    bilstm_crf.BilstmTagger(K, lstm_dim=2, dropout_rate=0.0),
    **WORDS,
    transitions=tuple(map(tuple, allowed.tolist())),
  )
  inputs = ROWS[:, 0], MASK[:, 0]
  params = draw(model, *inputs)
  found = run(model, params, *inputs)
  np.testing.assert_array_equal(
    found['transitions'], params['crf']['transitions']
  )
  np.testing.assert_allclose(
    found['logits'],
    jax.jit(lambda *arrays: crf.best_scores(*arrays, allowed, MASK[:, 0]))(
      found['emissions'], found['transitions']
    ),
    rtol=1e-5,
  )
  trained = jax.jit(
    lambda params: model.apply(
      {'params': params},
      *inputs,
      train=True,
      rngs={'dropout': jax.random.key(0)},
    )
  )(params)
  np.testing.assert_array_equal(trained['logits'], trained['emissions'])


@pytest.mark.parametrize(
  'fields, inputs, message',
  [
    ({}, INPUTS, 'there is nothing to read words by'),
    ({'num_layers': L, 'mix_at': 'output'}, INPUTS, 'nothing to read words by'),
    ({**WORDS, 'mix_at': 'top'}, INPUTS, "mix_at is 'top', expected one of"),
    (WORDS, (ROWS[:, :1], MASK[:, :1]), 'expected 2 texts an example'),
    ({**WORDS, 'num_layers': 3}, INPUTS, r'expected \[..., 3, D\]'),
    ({**WORDS, 'num_layers': 3}, INPUTS[:3], 'vectors are None, expected'),
  ],
)
def test_inputs_that_do_not_fit_are_named(fields, inputs, message):
  model = reader.Reader(ESIM, num_texts=2, **fields)
  with pytest.raises(ValueError, match=message):
    draw(model, *inputs)
