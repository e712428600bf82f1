"""The CRF by brute force, and with the tagger below it as AllenNLP's."""

import itertools

import allennlp_reference as reference
import elmo_task_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elmo_task_cases import D, F

from data.vocabulary import tag_schemes
from models.elmo_tasks import bilstm_crf, crf

LABELS = tag_schemes.bioul_labels(('O', 'B-X', 'I-X'))
K = len(LABELS)
ALLOWED = tag_schemes.allowed(LABELS)
TAGGER = bilstm_crf.BilstmTagger(num_outputs=K, lstm_dim=F)
# Of five positions those with tags; also none, and holes as between words.
MASKS = np.array(
  [[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 1, 1, 0], [0, 0, 0, 0, 0]], bool
)


@pytest.fixture(scope='module')
def scores():
  rng = np.random.default_rng(0)
  logits = rng.normal(0, 2, (*MASKS.shape, K)).astype('f4')
  transitions = rng.normal(size=(K, K)).astype('f4')
  return logits, transitions


def paths_of(logits, transitions, mask, allowed=None):
  """Yields every path of a row and its score."""
  places = np.flatnonzero(mask)
  for path in itertools.product(range(K), repeat=len(places)):
    score = sum(logits[t, k] for t, k in zip(places, path, strict=True))
    score += sum(transitions[a, b] for a, b in itertools.pairwise(path))
    if allowed:
      whole = (K, *path, K + 1)
      wrong = sum(not allowed[a][b] for a, b in itertools.pairwise(whole))
      score -= 10_000 * wrong
    yield path, score


def test_log_likelihood_by_brute_force(scores):
  logits, transitions = scores
  tags = np.random.default_rng(1).integers(0, K, MASKS.shape)
  found = crf.log_likelihood(logits, transitions, tags, MASKS)
  for row, mask in enumerate(MASKS):
    every = dict(paths_of(logits[row], transitions, mask))
    total = np.logaddexp.reduce(list(every.values()))
    expected = every[tuple(tags[row, mask])] - total
    np.testing.assert_allclose(found[row], expected, rtol=0, atol=1e-4)
  assert found[3] == 0


@pytest.mark.parametrize('allowed', [None, ALLOWED], ids=['any', 'bioul'])
def test_best_scores_by_brute_force(scores, allowed):
  logits, transitions = scores
  found = crf.best_scores(logits, transitions, allowed, MASKS)
  np.testing.assert_array_equal(found[~MASKS], logits[~MASKS])
  for row, mask in enumerate(MASKS[:3]):
    every = dict(paths_of(logits[row], transitions, mask, allowed))
    best = max(every, key=every.get)
    assert tuple(found[row, mask].argmax(axis=-1)) == best
    if allowed:
      assert every[best] > -1000
    for place, t in enumerate(np.flatnonzero(mask)):
      for k in range(K):
        through = max(s for path, s in every.items() if path[place] == k)
        np.testing.assert_allclose(found[row, t, k], through, rtol=1e-6)


def test_gradient_is_finite_with_noise_at_skipped_positions(scores):
  logits, transitions = scores
  logits = np.where(MASKS[..., None], logits, np.nan)

  def loss(logits, transitions):
    tags = jnp.zeros(MASKS.shape, jnp.int32)
    return crf.log_likelihood(logits, transitions, tags, MASKS).sum()

  by_logits, by_transitions = jax.grad(loss, argnums=(0, 1))(
    logits, transitions
  )
  assert jnp.isfinite(by_transitions).all()
  assert not by_logits[~MASKS].any()
  # The gradient is of probabilities: each tagged position's sums to 0.
  np.testing.assert_allclose(by_logits.sum(axis=-1), 0, atol=1e-5)
  assert np.abs(by_logits[MASKS]).max() > 0.1


def test_a_table_of_another_size_is_refused(scores):
  logits, transitions = scores
  with pytest.raises(ValueError, match=r'are \(5, 5\), expected \(7, 7\)'):
    crf.best_scores(logits, transitions, np.ones((5, 5), bool), MASKS)


def make_theirs(torch):
  theirs = reference.load(
    'models.crf_tagger', 'modules.seq2seq_encoders.pytorch_seq2seq_wrapper'
  )
  model = theirs.crf_tagger.CrfTagger(
    vocab=reference.Vocabulary(LABELS),
    text_field_embedder=reference.make_embedder(torch, D),
    encoder=theirs.pytorch_seq2seq_wrapper.PytorchSeq2SeqWrapper(
      torch.nn.LSTM(D, F, 2, bidirectional=True, batch_first=True)
    ),
    label_encoding='BIOUL',
    include_start_end_transitions=False,
    calculate_span_f1=False,
  )
  reference.disturb(torch, model)
  with torch.no_grad():  # so that tags are sure
    model.tag_projection_layer._module.weight *= 8
  return model.eval()


def params_of(model, gradients=False):
  transitions = model.crf.transitions
  transitions = transitions.grad if gradients else transitions
  return {
    'tagger': {
      'encoder': reference.bilstm(model.encoder._module, gradients),
      'logits': reference.linear(model.tag_projection_layer._module, gradients),
    },
    'transitions': transitions.detach().numpy().copy(),
  }


def test_equals_allennlp_with_its_gradient(torch):
  batch = cases.make_batch(1, with_added=False)
  model = make_theirs(torch)
  (text,) = reference.make_texts(torch, batch)
  mask = batch.mask[:, 0]
  longest = mask.sum(axis=1).max()
  tags = np.random.default_rng(2).integers(0, K, mask.shape)
  outputs = model(text, tags=torch.tensor(tags[:, :longest]))
  outputs['loss'].backward()

  @jax.jit
  def step(params, x):
    def compute(params, x):
      logits = TAGGER.apply(
        {'params': params['tagger']}, x, batch.mask, train=False
      )
      found = crf.log_likelihood(logits, params['transitions'], tags, mask)
      return -found.sum(), logits

    compute = jax.value_and_grad(compute, argnums=(0, 1), has_aux=True)
    (loss, logits), gradients = compute(params, x)
    best = crf.best_scores(logits, params['transitions'], ALLOWED, mask)
    return loss, logits, gradients, best.argmax(axis=-1)

  loss, logits, (by_params, by_x), best = step(params_of(model), batch.x)
  theirs = outputs['logits'].detach().numpy()
  np.testing.assert_allclose(
    np.where(mask[..., None], logits, 0)[:, :longest],
    np.where(mask[:, :longest, None], theirs, 0),
    rtol=0,
    atol=1e-5,
  )
  assert abs(loss - outputs['loss'].item()) < 1e-4
  cases.assert_equal_trees(by_params, params_of(model, gradients=True), 1e-4)
  np.testing.assert_allclose(
    by_x, reference.gradient_of([text['vectors']], batch), rtol=0, atol=1e-4
  )
  for row, path in enumerate(outputs['tags']):
    assert best[row, mask[row]].tolist() == path


def test_module_has_the_transitions(scores):
  logits, _ = scores
  model = crf.Crf(K, ALLOWED)
  params = model.init(jax.random.key(0), logits, MASKS)['params']
  params = {'transitions': params['transitions'].unbox()}
  assert params['transitions'].shape == (K, K)
  assert 0.3 < np.std(params['transitions']) * np.sqrt(K) < 1.7
  found = model.apply({'params': params}, logits, MASKS)
  expected = crf.best_scores(logits, params['transitions'], ALLOWED, MASKS)
  np.testing.assert_array_equal(found, expected)
