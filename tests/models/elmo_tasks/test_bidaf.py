"""BiDAF against AllenNLP's on PyTorch."""

import dataclasses

import allennlp_reference as reference
import elmo_task_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from elmo_task_cases import D, E, F
from flax import linen as nn

from models.dropout import Dropout
from models.elmo_tasks import bidaf

MODEL = bidaf.Bidaf(lstm_dim=F)
# First and last word of the answer, in the second texts of `cases.LENGTHS`.
FIRST, LAST = np.array([0, 2, 1, 0]), np.array([1, 4, 3, 0])


def loss_of(logits):
  return sum(
    optax.softmax_cross_entropy_with_integer_labels(
      logits[..., i], labels
    ).mean()
    for i, labels in enumerate((FIRST, LAST))
  )


def make_theirs(torch, added):
  """AllenNLP's model; `added` are appended to what its phrase layer returns."""
  theirs = reference.load(
    'models.reading_comprehension.bidaf',
    'modules.seq2seq_encoders.pytorch_seq2seq_wrapper',
    'modules.similarity_functions.linear',
  )
  Wrapper = theirs.pytorch_seq2seq_wrapper.PytorchSeq2SeqWrapper

  class Encoder(Wrapper):
    def get_output_dim(self):
      return super().get_output_dim() + E

    def forward(self, inputs, mask):
      outputs = super().forward(inputs, mask)
      return torch.cat([outputs, added.pop(0)], dim=-1)

  def make_bilstm(cls, width, num_layers=1):
    return cls(
      torch.nn.LSTM(width, F, num_layers, bidirectional=True, batch_first=True)
    )

  width = 2 * F + E
  model = theirs.bidaf.BidirectionalAttentionFlow(
    vocab=reference.Vocabulary('abc'),
    text_field_embedder=reference.make_embedder(torch, D),
    num_highway_layers=2,
    phrase_layer=make_bilstm(Encoder, D),
    similarity_function=theirs.linear.LinearSimilarity(width, width, 'x,y,x*y'),
    modeling_layer=make_bilstm(Wrapper, 4 * width, 2),
    span_end_encoder=make_bilstm(Wrapper, 4 * width + 6 * F),
  )
  reference.disturb(torch, model)
  return model.eval()


def params_of(model, gradients=False):
  def read(tensor):
    return (tensor.grad if gradients else tensor).detach().numpy()

  def highway(layer):
    both = reference.linear(layer, gradients)
    return {
      'linear': {
        'kernel': both['kernel'].reshape(D, 2, D),
        'bias': both['bias'].reshape(2, D),
      }
    }

  highways = model._highway_layer._module._layers
  similarity = model._matrix_attention._similarity_function
  return {
    'highway_0': highway(highways[0]),
    'highway_1': highway(highways[1]),
    'encoder': reference.bilstm(model._phrase_layer._module, gradients),
    'similarity': {
      'kernel': read(similarity._weight_vector).reshape(3, -1),
      'bias': read(similarity._bias)[0],
    },
    'model': reference.bilstm(model._modeling_layer._module, gradients),
    'end': reference.bilstm(model._span_end_encoder._module, gradients),
    'first': reference.linear(model._span_start_predictor._module, gradients),
    'last': reference.linear(model._span_end_predictor._module, gradients),
  }


@pytest.fixture(scope='module')
def step():
  return cases.make_step(MODEL, loss_of)


@pytest.fixture(scope='module')
def found(step):
  """A batch, parameters, and our outputs by them."""
  batch = cases.make_batch(2)
  params = cases.make_params(MODEL, batch)
  return batch, params, step(params, batch)


def scaled(tree, of):
  """Returns a tree's arrays as shares of the largest number in those `of`."""
  return jax.tree.map(lambda x, y: x / max(np.abs(y).max(), 1e-2), tree, of)


def test_equals_allennlp_with_its_gradient(torch, step):
  batch = cases.make_batch(2)
  added = reference.make_added(torch, batch)
  model = make_theirs(torch, [*added])
  texts = reference.make_texts(torch, batch)
  outputs = model(*texts, torch.tensor(FIRST), torch.tensor(LAST))
  outputs['loss'].backward()

  loss, logits, (by_params, by_x, by_added) = step(params_of(model), batch)
  for i, name in enumerate(('span_start_logits', 'span_end_logits')):
    theirs = outputs[name].detach().numpy()
    length = theirs.shape[1]
    np.testing.assert_allclose(logits[:, :length, i], theirs, rtol=0, atol=1e-5)
    assert (logits[:, length:] == -1e7).all()
    assert np.abs(theirs[:, 0]).max() > 0.1
  assert abs(loss - outputs['loss'].item()) < 1e-4
  expected = params_of(model, gradients=True)
  cases.assert_equal_trees(
    scaled(by_params, expected), scaled(expected, expected), 1e-4
  )
  for ours, theirs in (
    (by_x, [text['vectors'] for text in texts]),
    (by_added, added),
  ):
    expected = reference.gradient_of(theirs, batch)
    scale = np.abs(expected).max()
    assert scale > 1e-2
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-4 * scale)


def emptied(batch, text):
  """Returns the batch with NaN at padding, and example 0 without a text."""
  mask = batch.mask.copy()
  mask[0, text] = False
  fill = [np.where(mask[..., None], x, np.nan) for x in (batch.x, batch.added)]
  return cases.Batch(fill[0], mask, fill[1])


def test_padding_and_empty_texts_change_nothing_else(step, found):
  batch, params, (_, logits, _) = found
  for text in (0, 1):
    others = step(params, emptied(batch, text))
    assert cases.is_finite(others)
    np.testing.assert_allclose(others[1][1:], logits[1:], rtol=0, atol=1e-5)
    assert np.abs(others[1][0] - logits[0]).max() > 1e-3


def lengthened(batch, more=2):
  def pad(x):
    return np.pad(x, ((0, 0), (0, 0), (0, more)) + ((0, 0),) * (x.ndim - 3))

  return cases.Batch(pad(batch.x), pad(batch.mask), pad(batch.added))


def test_more_padding_and_shorter_questions(step, found):
  batch, params, (_, logits, _) = found
  short = dataclasses.replace(batch, mask=batch.mask.copy())
  short.mask[:, 0, 3:] = False

  @jax.jit
  def run(params):
    def apply(model, batch):
      return model.apply({'params': params}, *batch.inputs, train=False)

    return (
      apply(MODEL, lengthened(batch)),
      apply(MODEL.clone(max_question=3), batch),
    )

  longer, cut = run(params)
  np.testing.assert_allclose(longer[:, : cases.T], logits, rtol=0, atol=1e-5)
  assert (longer[:, cases.T :] == -1e7).all()
  expected = step(params, short)[1]
  np.testing.assert_allclose(cut, expected, rtol=0, atol=1e-5)
  assert np.abs(cut - logits).max() > 1e-3


def test_drops_in_training_without_added_vectors():
  batch = cases.make_batch(2, with_added=False)
  model = MODEL.clone(dropout_rate=0.5)
  first, second = cases.drop_twice(
    model, cases.make_params(model, batch), batch
  )
  real = batch.mask[:, 1]
  assert np.isfinite(first).all()
  assert (np.abs(first - second)[real] > 1e-3).mean() > 0.9


def test_dropout_is_where_allennlp_has_it():
  batch = cases.make_batch(2, with_added=False)
  widths = []

  def record(call, args, kwargs, context):
    if isinstance(context.module, Dropout):
      assert context.module.rate == 0.2
      widths.append(args[0].shape[-1])
    return call(*args, **kwargs)

  def run(key):
    with nn.intercept_methods(record):
      MODEL.init({'params': key, 'dropout': key}, *batch.inputs, train=True)

  jax.eval_shape(run, jax.random.key(0))
  # Behind the encoder of both texts, between and behind the layers of the
  # model; before the first pointer; behind the last encoder; before the last
  # pointer.
  assert widths == [2 * F] * 4 + [10 * F, 2 * F, 10 * F]


def test_highest_scores_of_words():
  scores = np.array([[[-3, -2, 5], [1, -4, 7]]] * 2, 'f4')
  mask = np.array([[True, True, False], [False] * 3])
  assert bidaf.row_maxima(scores, mask).tolist() == [[-2, 1], [0, 0]]


def test_initial_values_and_dtypes():
  batch = cases.make_batch(2)
  assert MODEL.num_outputs == 2
  half = MODEL.clone(dtype=jnp.bfloat16)
  logits, variables = jax.eval_shape(
    lambda key: half.init_with_output(key, *batch.inputs, train=False),
    jax.random.key(0),
  )
  assert logits.dtype == jnp.float32
  assert logits.shape == (*batch.mask[:, 1].shape, 2)
  assert {x.dtype for x in jax.tree.leaves(variables)} == {jnp.dtype('f4')}
  drawn = bidaf.QuestionHighway().init(jax.random.key(0), batch.x)['params'][
    'linear'
  ]
  kernel, bias = (drawn[name].unbox() for name in ('kernel', 'bias'))
  assert 0.3 < np.abs(kernel).max() < 1 / np.sqrt(D)
  assert (bias[1] == 1).all() and 0 < np.abs(bias[0]).max() < 1 / np.sqrt(D)


def test_one_text_is_refused():
  with pytest.raises(
    ValueError, match=r'expected \[B, 2, T, D\]: BiDAF reads 2'
  ):
    cases.axes_of(MODEL, cases.make_batch(1))
