"""The model of semantic roles against AllenNLP's, with its decoding."""

import itertools

import allennlp_reference as reference
import elmo_task_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from elmo_task_cases import D, E, F

from data.vocabulary import tag_schemes
from models import crf
from models.elmo_tasks import deep_srl

TAGS = ('O', 'B-X', 'I-X', 'B-Y', 'I-Y')
K = len(TAGS)
ALLOWED = tag_schemes.allowed(TAGS)
P = 2  # features of the predicate
MODEL = deep_srl.DeepSrl(
  num_outputs=K, lstm_dim=F, num_layers=3, variant='allennlp'
)


class Vocabulary(reference.Vocabulary):
  def get_token_from_index(self, index, namespace):
    return self.labels[index]


def make_theirs(torch, added):
  """AllenNLP's model; `added` are appended to its encoder's outputs."""
  theirs = reference.load(
    'models.semantic_role_labeler',
    'modules.stacked_alternating_lstm',
    'modules.seq2seq_encoders.pytorch_seq2seq_wrapper',
  )
  lstm = theirs.stacked_alternating_lstm.StackedAlternatingLstm(
    D + P, F, 3, recurrent_dropout_probability=0.1
  )

  class Append(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.encoder = theirs.pytorch_seq2seq_wrapper.PytorchSeq2SeqWrapper(lstm)

    def get_input_dim(self):
      return D + P

    def get_output_dim(self):
      return F + E

    def forward(self, inputs, mask):
      return torch.cat([self.encoder(inputs, mask), added[0]], dim=-1)

  model = theirs.semantic_role_labeler.SemanticRoleLabeler(
    vocab=Vocabulary(TAGS),
    text_field_embedder=reference.make_embedder(torch, D),
    encoder=Append(),
    binary_feature_dim=P,
    ignore_span_metric=True,
    srl_eval_path=None,
  )
  reference.disturb(torch, model)
  return model.eval()


def params_of(model, gradients=False):
  table = model.binary_feature_embedding.weight
  return {
    'model': {
      'encoder': reference.highway_lstms(
        model.encoder.encoder._module, gradients
      ),
      'logits': reference.linear(model.tag_projection_layer._module, gradients),
    },
    'predicate': (table.grad if gradients else table).detach().numpy(),
  }


def mean_loss(logits, tags, mask):
  """AllenNLP's: the mean over sentences of their means over words."""
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, tags)
  return ((losses * mask).sum(axis=1) / mask.sum(axis=1)).mean()


def test_equals_allennlp_with_its_gradient_and_its_decoding(torch):
  torch.manual_seed(0)
  batch = cases.make_batch(1)
  added = reference.make_added(torch, batch)
  model = make_theirs(torch, added)
  (text,) = reference.make_texts(torch, batch)
  rng = np.random.default_rng(1)
  mask = batch.mask[:, 0]
  tags = rng.integers(0, K, mask.shape)
  predicate = (np.arange(mask.shape[1]) == 0) | (rng.random(mask.shape) < 0.3)
  length = text['mask'].shape[1]
  outputs = model(
    text,
    torch.tensor(predicate[:, :length].astype('i8')),
    torch.tensor(tags[:, :length]),
    [{'words': [], 'verb': ''}] * len(mask),
  )
  outputs['loss'].backward()

  def compute(params, x, added):
    features = params['predicate'][predicate.astype(int)][:, None]
    logits = MODEL.apply(
      {'params': params['model']},
      jnp.concatenate([x, features], axis=-1),
      batch.mask,
      added,
      train=False,
    )
    return mean_loss(logits, tags, mask), logits

  step = jax.jit(jax.value_and_grad(compute, argnums=(0, 1, 2), has_aux=True))
  params = params_of(model)
  (loss, logits), (by_params, by_x, by_added) = step(
    params, batch.x, batch.added
  )
  theirs = outputs['logits'].detach().numpy()
  real = mask[:, :length]
  np.testing.assert_allclose(
    logits[:, :length][real], theirs[real], rtol=0, atol=1e-5
  )
  assert abs(float(loss) - outputs['loss'].item()) < 1e-4
  cases.assert_equal_trees(by_params, params_of(model, gradients=True), 1e-4)
  for found, tensors in ((by_x, [text['vectors']]), (by_added, added)):
    expected = reference.gradient_of(tensors, batch)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)

  # It adds probabilities, to 100,000 for the begin, which would round them to
  # 1/128 in float32.
  outputs['class_probabilities'] = outputs['class_probabilities'].double()
  torch.set_default_dtype(torch.float64)
  try:
    expected_paths = model.decode(outputs)['tags']
  finally:
    torch.set_default_dtype(torch.float32)
  probabilities = jax.nn.softmax(logits)
  scores = crf.best_scores(probabilities, jnp.zeros((K, K)), ALLOWED, mask)
  paths = [
    [TAGS[k] for k in row[: words.sum()]]
    for row, words in zip(scores.argmax(axis=-1), mask, strict=True)
  ]
  assert paths == expected_paths
  # The constraints matter.
  assert (scores.argmax(axis=-1) != logits.argmax(axis=-1))[mask].any()


def test_the_best_allowed_path_is_found():
  T = 4
  logits = np.random.default_rng(2).normal(0, 2, (20, T, K)).astype('f4')
  log_probs = np.asarray(jax.nn.log_softmax(logits))
  scores = crf.best_scores(
    log_probs, jnp.zeros((K, K)), ALLOWED, np.ones((20, T), bool)
  )

  def is_allowed(path):
    states = (K, *path, K + 1)  # of the begin and the end
    return all(ALLOWED[a][b] for a, b in itertools.pairwise(states))

  paths = [*filter(is_allowed, itertools.product(range(K), repeat=T))]
  assert len(paths) < K**T / 2
  for row, found in zip(log_probs, scores.argmax(axis=-1), strict=True):
    sums = [sum(row[t, k] for t, k in enumerate(path)) for path in paths]
    assert tuple(map(int, found)) == paths[np.argmax(sums)]


@pytest.mark.parametrize('variant', ['published', 'allennlp'])
def test_drops_in_training_and_starts_as_its_paper(variant):
  model = MODEL.clone(
    variant=variant, dropout_rate=0.5, lstm_dim=32, num_layers=1
  )
  batch = cases.make_batch(1, with_added=False)
  init = jax.jit(lambda rng: model.init(rng, *batch.inputs, train=False))
  params = cases.nn.unbox(init(jax.random.key(0)))['params']
  kernel = np.asarray(params['logits']['kernel'])
  bias = np.asarray(params['logits']['bias'])
  if variant == 'published':
    assert 0.008 < kernel.std() < 0.012
    assert (bias == 0).all()
  else:
    np.testing.assert_allclose(kernel.T @ kernel, np.eye(K), atol=1e-5)
    assert 0 < np.abs(bias).max() <= 32**-0.5
  first, second = cases.drop_twice(model, params, batch)
  assert np.isfinite(first).all()
  assert (first.dtype, first.shape) == (jnp.float32, (*batch.x.shape[::2], K))
  assert jnp.abs(first - second)[batch.mask[:, 0]].max() > 1e-4


def test_empty_texts_and_padding_are_ignored():
  batch = cases.make_batch(1)
  params = cases.make_params(MODEL, batch)
  step = cases.make_step(MODEL, lambda logits: logits[:, 0].sum())
  _, logits, _ = step(params, batch)
  empty = batch.with_an_empty_text()
  found = step(params, empty)
  assert cases.is_finite(found)
  real = empty.mask[:, 0]
  np.testing.assert_allclose(found[1][real], logits[real], rtol=0, atol=1e-5)


def test_wrong_arguments_are_refused():
  with pytest.raises(ValueError, match=r'expected \[B, 1, T, D\]: a tagger'):
    cases.axes_of(MODEL, cases.make_batch(2))
  with pytest.raises(ValueError, match="'own', expected one of .'published'"):
    cases.axes_of(MODEL.clone(variant='own'), cases.make_batch(1))
