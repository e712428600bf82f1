"""BiDAF++ against loops in float64, a word at a time."""

import dataclasses

import elmo_task_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elmo_task_cases import D, E, F
from flax import linen as nn

from models.dropout import Dropout
from models.elmo_tasks import bidaf, bidaf_plus, parts

MODEL = bidaf_plus.BidafPlus(gru_dim=F)
FIRST, LAST = np.array([0, 2, 1, 0]), np.array([1, 4, 3, 0])


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def softmax(scores, other=None):
  weights = [np.exp(score) for score in scores]
  total = sum(weights) + (0 if other is None else np.exp(other))
  return [weight / total for weight in weights]


def average(weights, vectors):
  return sum(
    (w * vector for w, vector in zip(weights, vectors, strict=True)),
    np.zeros(len(vectors[0])),
  )


def read(p, words):
  """A bidirectional GRU in the form of cuDNN: lists of vectors."""
  outputs = []
  for k, ordered in enumerate((words, words[::-1])):
    h, states = np.zeros(p['recurrent_bias'].shape[1]), []
    for word in ordered:
      x = [
        word @ p['input_kernel'][k, :, g] + p['bias'][k, g] for g in (0, 1, 2)
      ]
      y = [h @ p['recurrent_kernel'][k, :, g] for g in (0, 1, 2)]
      r, u = sigmoid(x[0] + y[0]), sigmoid(x[1] + y[1])
      c = np.tanh(x[2] + r * (y[2] + p['recurrent_bias'][k]))
      h = u * h + (1 - u) * c
      states.append(h)
    outputs.append(states)
  pairs = zip(outputs[0], outputs[1][::-1], strict=True)
  return [np.concatenate(pair) for pair in pairs]


def score(p, x, k):
  """Returns w1 . x + w2 . k + (wd * x) . k + bias."""
  w1, w2, wd = p['kernel']
  return w1 @ x + w2 @ k + (wd * x) @ k + p['bias']


def dense(p, x):
  return np.maximum(x @ p['kernel'] + p['bias'], 0)


def attend_to_question(p, text, question):
  scores = [[score(p, x, k) for k in question] for x in text]
  c = average(softmax([max(row) for row in scores]), text)
  attended = []
  for x, row in zip(text, scores, strict=True):
    a = average(softmax(row), question)
    attended.append(np.concatenate([x, a, x * a, x * c]))
  return attended


def attend_to_self(p, words):
  attended = []
  for i, x in enumerate(words):
    others = words[:i] + words[i + 1 :]
    scores = [score(p['similarity'], x, other) for other in others]
    weights = softmax(scores, other=p['no_alignment'])
    attended.append(average(weights, others) if others else np.zeros(len(x)))
  return attended


def logits_of(p, question, text, added):
  """Returns [T, 2] of one example, of lists of its words' vectors."""
  texts = [
    [
      np.concatenate(pair)
      for pair in zip(read(p['encoder'], x), e, strict=True)
    ]
    for x, e in zip((question, text), added, strict=True)
  ]
  merged = attend_to_question(p['similarity'], texts[1], texts[0])
  merged = [dense(p['merge'], x) for x in merged]
  own = read(p['self_encoder'], merged)
  attended = attend_to_self(p['self_attention'], own)
  residual = [
    dense(p['self_merge'], np.concatenate([a, x, a * x]))
    for a, x in zip(attended, own, strict=True)
  ]
  x = [a + b for a, b in zip(merged, residual, strict=True)]
  first = read(p['first_encoder'], x)
  last = read(
    p['last_encoder'],
    [np.concatenate(pair) for pair in zip(x, first, strict=True)],
  )
  return np.stack(
    [
      np.array(words) @ p[name]['kernel'][:, 0] + p[name]['bias'][0]
      for name, words in (('first', first), ('last', last))
    ],
    axis=1,
  )


def double(tree):
  return jax.tree.map(lambda x: np.asarray(x, 'f8'), tree)


def words_of(x, mask):
  return list(np.asarray(x, 'f8')[mask])


@pytest.fixture(scope='module')
def found():
  """A batch, parameters, the step, and its outputs."""
  batch = cases.make_batch(2)
  params = cases.make_params(MODEL, batch)

  def loss(logits):
    chances = jax.nn.log_softmax(logits, axis=1)
    rows = np.arange(len(FIRST))
    return -(chances[rows, FIRST, 0] + chances[rows, LAST, 1]).mean()

  step = cases.make_step(MODEL, loss)
  return batch, params, step, step(params, batch)


def test_equals_loops(found):
  batch, params, _, (_, logits, _) = found
  params = double(params)
  for b, mask in enumerate(batch.mask):
    question, text = (words_of(batch.x[b, p], mask[p]) for p in (0, 1))
    added = [words_of(batch.added[b, p], mask[p]) for p in (0, 1)]
    expected = logits_of(params, question, text, added)
    np.testing.assert_allclose(
      logits[b, : len(text)], expected, rtol=0, atol=1e-4
    )
    assert (logits[b, len(text) :] == -1e7).all()
  assert np.ptp(logits[0, :2]) > 1e-2


def test_attentions_equal_loops():
  batch = cases.make_batch(2)
  mask_BQ, mask_BT = batch.mask[:, 0], batch.mask[:, 1]
  question, text = batch.x[:, 0], batch.x[:, 1]
  rng = np.random.default_rng(1)

  class Both(nn.Module):
    @nn.compact
    def __call__(self, text, question):
      scores = bidaf.Similarity('apart', name='similarity')(text, question)
      merged = bidaf.flow(
        text,
        question,
        bidaf_plus.softmax(scores, mask_BQ[:, None]),
        bidaf_plus.softmax(bidaf.row_maxima(scores, mask_BQ), mask_BT),
      )
      attend = bidaf_plus.ContextAttention(name='self_attention')
      return merged, attend(text, mask_BT)

  shapes = jax.eval_shape(Both().init, jax.random.key(0), text, question)
  params = jax.tree.map(
    lambda p: rng.normal(size=p.shape).astype('f4'),
    nn.unbox(shapes)['params'],
  )
  # Scores far above 88, beyond which float32 has no exponential.
  params['self_attention']['similarity']['bias'] += 95
  params['self_attention']['no_alignment'] += 95
  merged, attended = jax.jit(Both().apply)({'params': params}, text, question)
  params = double(params)
  for b in range(len(text)):
    x, k = words_of(text[b], mask_BT[b]), words_of(question[b], mask_BQ[b])
    for ours, theirs in (
      (merged, attend_to_question(params['similarity'], x, k)),
      (attended, attend_to_self(params['self_attention'], x)),
    ):
      np.testing.assert_allclose(ours[b, : len(x)], theirs, rtol=0, atol=1e-5)


def test_gradient_is_that_of_differences(found):
  batch, params, step, (_, _, (by_params, by_x, by_added)) = found
  assert cases.is_finite((by_params, by_x, by_added))
  rng = np.random.default_rng(2)
  direction = jax.tree.map(
    lambda p: rng.normal(size=p.shape).astype('f4'), params
  )

  def at(distance):
    moved = jax.tree.map(lambda p, d: p + distance * d, params, direction)
    return step(moved, batch)[0]

  expected = (at(1e-3) - at(-1e-3)) / 2e-3
  slope = sum(
    (a * b).sum()
    for a, b in zip(*map(jax.tree.leaves, (by_params, direction)), strict=True)
  )
  assert abs(slope - expected) < 0.01 * max(1, abs(expected))
  assert abs(slope) > 0.1
  for leaf in jax.tree.leaves(by_params | {'x': by_x, 'added': by_added}):
    # A lone bias is one of scores, which a softmax does not see: its gradient
    # is nothing but roundings, and on some processors 0.
    assert np.abs(leaf).max() > 0 or leaf.size == 1


def emptied(batch, text):
  """Returns the batch with NaN at padding, and example 0 without a text."""
  mask = batch.mask.copy()
  mask[0, text] = False
  fill = [np.where(mask[..., None], x, np.nan) for x in (batch.x, batch.added)]
  return cases.Batch(fill[0], mask, fill[1])


def test_padding_and_empty_texts_change_nothing_else(found):
  batch, params, step, (_, logits, _) = found
  for text in (0, 1):
    others = step(params, emptied(batch, text))
    assert cases.is_finite(others)
    np.testing.assert_allclose(others[1][1:], logits[1:], rtol=0, atol=1e-5)
    assert np.abs(others[1][0] - logits[0]).max() > 1e-3


def test_more_padding_and_shorter_questions(found):
  batch, params, step, (_, logits, _) = found
  short = dataclasses.replace(batch, mask=batch.mask.copy())
  short.mask[:, 0, 3:] = False
  pad = ((0, 0), (0, 0), (0, 2))
  longer = cases.Batch(
    np.pad(batch.x, (*pad, (0, 0))),
    np.pad(batch.mask, pad),
    np.pad(batch.added, (*pad, (0, 0))),
  )

  @jax.jit
  def run(params):
    def apply(model, batch):
      return model.apply({'params': params}, *batch.inputs, train=False)

    return (
      apply(MODEL, longer),
      apply(MODEL.clone(max_question=3), batch),
    )

  padded, cut = run(params)
  np.testing.assert_allclose(padded[:, : cases.T], logits, rtol=0, atol=1e-5)
  assert (padded[:, cases.T :] == -1e7).all()
  expected = step(params, short)[1]
  np.testing.assert_allclose(cut, expected, rtol=0, atol=1e-5)
  assert np.abs(cut - logits).max() > 1e-3


def test_dropout_has_one_mask_for_all_positions():
  batch = cases.make_batch(2, with_added=False)
  model = MODEL.clone(dropout_rate=0.5)
  params = cases.make_params(model, batch)

  @jax.jit
  def run(params, rng):
    seen = []

    def record(call, args, kwargs, context):
      outputs = call(*args, **kwargs)
      assert not isinstance(context.module, Dropout)
      if isinstance(context.module, parts.VariationalDropout):
        seen.append((args[0], outputs))
      return outputs

    with nn.intercept_methods(record):
      logits = model.apply(
        {'params': params}, *batch.inputs, train=True, rngs={'dropout': rng}
      )
    return logits, seen

  first, second = (run(params, jax.random.key(seed)) for seed in range(2))
  assert np.isfinite(first[0]).all()
  assert (first[0] != second[0])[batch.mask[:, 1]].mean() > 0.9
  # Inputs and outputs of the first GRU for each text; before and after the
  # second; before the pointers.
  assert [x.shape[-1] for x, _ in first[1]] == [D, 2 * F] * 2 + [2 * F] * 3
  for x, dropped in first[1]:
    kept = np.where(np.abs(x) > 1e-6, dropped / x, np.nan)
    assert np.isnan(kept).mean() < 0.8
    for rows in kept.transpose(0, 2, 1).reshape(-1, x.shape[1]):
      rows = rows[~np.isnan(rows)]
      np.testing.assert_allclose(rows, rows[:1].repeat(len(rows)), rtol=1e-5)
  dropped = np.concatenate([y.ravel() == 0 for x, y in first[1][:1]])
  assert 0.2 < dropped.mean() < 0.9


def test_sizes_and_dtypes_are_document_qas():
  batch = cases.make_batch(2)
  half = bidaf_plus.BidafPlus(dtype=jnp.bfloat16)
  logits, variables = jax.eval_shape(
    lambda key: half.init_with_output(key, *batch.inputs, train=False),
    jax.random.key(0),
  )
  assert half.num_outputs == logits.shape[-1] == 2
  assert logits.dtype == jnp.float32
  params = nn.unbox(variables)['params']
  assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype('f4')}
  width = 180 + E
  assert params['similarity']['kernel'].shape == (3, width)
  assert params['merge']['kernel'].shape == (4 * width, 180)
  assert params['self_merge']['kernel'].shape == (3 * 180, 180)
  assert params['last_encoder']['input_kernel'].shape == (2, 360, 3, 90)
  drawn = nn.unbox(
    bidaf_plus.ContextAttention().init(
      jax.random.key(0), np.zeros((1, 1, 3), 'f4'), np.ones((1, 1), bool)
    )
  )['params']
  assert drawn['no_alignment'] == -1
  assert 0.4 < np.abs(drawn['similarity']['kernel']).max() < 1  # sqrt(6 / 6)
  assert 0 < abs(drawn['similarity']['bias']) < np.sqrt(3)


def test_one_text_is_refused():
  with pytest.raises(
    ValueError, match=r'expected \[B, 2, T, D\]: BiDAF\+\+ reads 2'
  ):
    cases.axes_of(MODEL, cases.make_batch(1))
