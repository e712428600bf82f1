"""The BiLSTM with a CRF against AllenNLP's tagger on PyTorch."""

import allennlp_reference as reference
import elmo_task_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elmo_task_cases import D, E, F

from models import crf
from models.elmo_tasks import bilstm_crf

TAGS = ('O', 'B-X', 'I-X', 'L-X', 'U-X')
K = len(TAGS)
MODEL = bilstm_crf.BilstmTagger(num_outputs=K, lstm_dim=F)


def make_theirs(torch, added):
  """AllenNLP's tagger; `added` are appended to its dropped outputs."""
  torch.manual_seed(3)
  theirs = reference.load(
    'models.crf_tagger', 'modules.seq2seq_encoders.pytorch_seq2seq_wrapper'
  )

  class Append(torch.nn.Module):
    def get_input_dim(self):
      return 2 * F

    def get_output_dim(self):
      return 2 * F + E

    def forward(self, inputs):
      return torch.cat([inputs, added[0]], dim=-1)

  model = theirs.crf_tagger.CrfTagger(
    vocab=reference.Vocabulary(TAGS),
    text_field_embedder=reference.make_embedder(torch, D),
    encoder=theirs.pytorch_seq2seq_wrapper.PytorchSeq2SeqWrapper(
      torch.nn.LSTM(D, F, 2, dropout=0.5, bidirectional=True, batch_first=True)
    ),
    feedforward=Append(),
    label_encoding='BIOUL',
    include_start_end_transitions=False,
    dropout=0.5,
  )
  # The constraints are a parameter, too.
  constraints = model.crf._constraint_mask.detach().clone()
  reference.disturb(torch, model)
  model.crf._constraint_mask.data = constraints
  return model.eval()


def params_of(model, gradients=False):
  transitions = model.crf.transitions
  return {
    'tagger': {
      'encoder': reference.bilstm(model.encoder._module, gradients),
      'logits': reference.linear(model.tag_projection_layer._module, gradients),
    },
    'crf': (transitions.grad if gradients else transitions).detach().numpy(),
  }


def test_equals_allennlp_with_its_gradient(torch):
  batch = cases.make_batch(1)
  added = reference.make_added(torch, batch)
  model = make_theirs(torch, added)
  (text,) = reference.make_texts(torch, batch)
  tags = np.random.default_rng(1).integers(0, K, batch.mask[:, 0].shape)
  length = text['mask'].shape[1]
  outputs = model(text, torch.tensor(tags[:, :length]))
  outputs['loss'].backward()
  allowed = tuple(map(tuple, model.crf._constraint_mask.numpy() > 0))
  assert 0 < np.sum(allowed) < K * K

  def compute(params, x, added, mask):
    logits = MODEL.apply(
      {'params': params['tagger']}, x, mask, added, train=False
    )
    likelihoods = crf.log_likelihood(logits, params['crf'], tags, mask[:, 0])
    scores = crf.best_scores(logits, params['crf'], allowed, mask[:, 0])
    return -likelihoods.sum(), (logits, scores)

  step = jax.jit(jax.value_and_grad(compute, argnums=(0, 1, 2), has_aux=True))
  params = params_of(model)
  arrays = params, batch.x, batch.added, batch.mask
  (loss, (logits, scores)), (by_params, by_x, by_added) = step(*arrays)
  real = batch.mask[:, 0]
  theirs = outputs['logits'].detach().numpy()
  np.testing.assert_allclose(
    logits[:, :length][real[:, :length]],
    theirs[real[:, :length]],
    rtol=0,
    atol=1e-5,
  )
  assert abs(float(loss) - outputs['loss'].item()) < 1e-4
  cases.assert_equal_trees(by_params, params_of(model, gradients=True), 1e-4)
  expected = reference.gradient_of([text['vectors']], batch)
  assert np.abs(expected).max() > 1e-2
  np.testing.assert_allclose(by_x, expected, rtol=0, atol=1e-4)
  expected = reference.gradient_of(added, batch)
  assert np.abs(expected).max() > 1e-2
  np.testing.assert_allclose(by_added, expected, rtol=0, atol=1e-4)
  paths = [
    row[: mask.sum()].tolist()
    for row, mask in zip(scores.argmax(axis=-1), real, strict=True)
  ]
  assert paths == outputs['tags']
  # The constraints matter.
  assert (scores.argmax(axis=-1) != logits.argmax(axis=-1))[real].any()

  empty = batch.with_an_empty_text()
  found = step(params, empty.x, empty.added, empty.mask)
  assert cases.is_finite(found)
  np.testing.assert_allclose(found[0][1][0][1:], logits[1:], rtol=0, atol=1e-5)


def test_drops_in_training_without_added_vectors():
  batch = cases.make_batch(1, with_added=False)
  first, second = cases.drop_twice(
    MODEL, cases.make_params(MODEL, batch), batch
  )
  assert np.isfinite(first).all()
  assert jnp.abs(first - second)[batch.mask[:, 0]].min() > 1e-6


def test_two_texts_are_refused():
  with pytest.raises(ValueError, match=r'expected \[B, 1, T, D\]: a tagger'):
    cases.axes_of(MODEL, cases.make_batch(2))
