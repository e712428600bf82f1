"""Coreference against plain scores, padding, dropout, memory."""

import functools

import coref_cases as cases
import jax
import numpy as np
import pytest
from elmo_task_cases import is_finite
from flax import linen as nn

from models.elmo_tasks.coref import loss, model, pairs, spans
from models.layers import LOWEST


def score(params, x):
  """Two hidden layers and a score."""
  for name in ('hidden_0', 'hidden_1', 'score'):
    x = x @ params[name]['kernel'] + params[name]['bias']
    x = x if name == 'score' else np.maximum(x, 0)
  return x[..., 0]


def all_scores(params, vectors, speakers, genre):
  """Scores of all pairs [target, antecedent], without mention scores."""
  K = len(vectors)
  target, antecedent = np.indices((K, K))
  distance = np.maximum(target - antecedent, 0)
  pair = [
    vectors[target],
    vectors[antecedent],
    vectors[target] * vectors[antecedent],
    params['speakers'][1 * (speakers[target] == speakers[antecedent])],
    np.broadcast_to(params['genres'][genre], (K, K, cases.FEATURES)),
    params['distances'][spans.bucket(distance)],
  ]
  return score(params['pair_scorer'], np.concatenate(pair, axis=-1))


def plain_logits(variant, params, vectors, speakers, genre):
  """Returns each target's {antecedent: logit}, by the papers."""
  mention = score(params['mention_scorer'], vectors)
  both = mention[:, None] + mention
  K = len(vectors)
  chosen = [range(max(0, k - cases.ANTECEDENTS), k) for k in range(K)]
  if variant == '2018':
    coarse = params['coarse']
    both = both + (vectors @ coarse['kernel'] + coarse['bias']) @ vectors.T
    chosen = [
      sorted(range(k), key=lambda j, k=k: -both[k, j])[: cases.ANTECEDENTS]
      for k in range(K)
    ]
    fine = both + all_scores(params, vectors, speakers, genre)
    refined = []
    for k in range(K):
      logits = np.array([0, *(fine[k, j] for j in chosen[k])])
      shares = np.exp(logits) / np.exp(logits).sum()
      expected = shares @ vectors[[k, *chosen[k]]]
      gate = params['refinement']
      share = np.concatenate([vectors[k], expected]) @ gate['kernel']
      share = 1 / (1 + np.exp(-share - gate['bias']))
      refined.append(share * expected + (1 - share) * vectors[k])
    vectors = np.array(refined)
  fine = both + all_scores(params, vectors, speakers, genre)
  return [{j: fine[k, j] for j in chosen[k]} for k in range(K)]


def run_recorded(module, params, documents, monkeypatch):
  """Returns outputs, and the vectors of kept spans."""
  score_pairs, kept = model.EndToEndCoref._score_pairs, []

  def record(self, spans_BKS, *rest):
    kept.append(spans_BKS)
    return score_pairs(self, spans_BKS, *rest)

  @jax.jit
  def run(params):
    found = cases.apply(module, params, documents.x, documents.added, documents)
    return found, kept.pop()

  with monkeypatch.context() as patch:
    patch.setattr(model.EndToEndCoref, '_score_pairs', record)
    return jax.device_get(run(params))


@pytest.mark.slow
@pytest.mark.parametrize('variant', ['2017', '2018'])
def test_equals_plain_scores_whatever_the_padding(variant, monkeypatch):
  documents, module = cases.Documents(), cases.MODELS[variant]
  params = cases.make_params(module, documents)
  found, kept = run_recorded(module, params, documents, monkeypatch)
  for b in range(2):
    ours = cases.real(found, b, b)
    speakers = documents.speakers[b][documents.mask[b]][ours['starts']]
    vectors, genre = kept[b, : len(speakers)], documents.genres[b]
    expected = plain_logits(variant, params, vectors, speakers, genre)
    for k, by_place in enumerate(expected):
      logits, places = ours['logits'][k], ours['antecedents'][k].tolist()
      padding = [-1] * (cases.ANTECEDENTS - len(by_place))
      assert places == sorted(by_place, reverse=True) + padding
      assert logits[0] == 0
      for place, logit in zip(places, logits[1:], strict=True):
        if place < 0:
          assert logit == LOWEST
        else:
          assert abs(logit - by_place[place]) < 1e-4

  losses = np.asarray(jax.jit(loss.antecedent_losses)(found, cases.MENTIONS))
  assert (losses > 1).all()
  padded, golden = cases.pad()
  step = cases.make_step(variant)
  padded_losses, padded_found, gradients = step(params, padded, golden)
  assert padded_losses[1] == 0
  assert (padded_found['starts'][1] == -1).all()
  np.testing.assert_allclose(padded_losses[[*cases.PLACES]], losses, rtol=1e-5)
  for number, b in enumerate(cases.PLACES):
    expected = cases.real(found, number, number)
    cases.assert_close_trees(
      cases.real(padded_found, b, number), expected, 1e-5
    )
  for by_words in gradients[1:]:
    assert not by_words[~padded.mask].any()

  # The gradient is the loss's along a random direction.
  rng = np.random.default_rng(1)
  along = jax.tree.map(lambda p: rng.normal(size=p.shape), params)

  def moved(by):
    params_then = jax.tree.map(
      lambda p, a: (p + by * a).astype('f4'), params, along
    )
    return step(params_then, padded, golden)[0].sum(dtype='f8')

  products = jax.tree.map(lambda a, g: (a * g).sum(), along, gradients[0])
  expected = (moved(1e-3) - moved(-1e-3)) / 2e-3
  assert abs(sum(jax.tree.leaves(products)) / expected - 1) < 1e-2
  assert all(np.abs(g).max() > 0 for g in jax.tree.leaves(gradients[0]))


def test_drops_in_training_without_added_vectors():
  documents, module = cases.Documents(), cases.MODELS['2017']
  documents.added = None
  params = cases.make_params(module, documents)

  @jax.jit
  def run(key):
    rngs = {'dropout': key}
    return cases.apply(module, params, documents.x, None, documents, True, rngs)

  first, second = (
    jax.device_get(run(jax.random.key(seed))) for seed in range(2)
  )
  assert is_finite(first)
  assert np.abs(first['mention_scores'] - second['mention_scores']).max() > 0.1


@pytest.mark.slow
def test_a_long_document_takes_bounded_memory(monkeypatch):
  monkeypatch.setattr(pairs, 'NUM_GROUPS', 1)  # compiles faster
  module = model.EndToEndCoref(num_genres=7)
  B, T, R, V = 1, 2000, 39, 100

  def shape(*sizes, dtype='f4'):
    return jax.ShapeDtypeStruct(sizes, dtype)

  x, mask = shape(B, 1, T, 500), shape(B, 1, T, dtype=bool)
  rest = {
    'sentences_BT': shape(B, T, dtype='i4'),
    'sentence_rows_BRV': shape(B, R, V, dtype='i4'),
    'speakers_BT': shape(B, T, dtype='i4'),
    'genres_B': shape(B, dtype='i4'),
  }
  params = nn.unbox(
    jax.eval_shape(
      functools.partial(module.init, train=False),
      jax.random.key(0),
      x,
      mask,
      **rest,
    )['params']
  )

  def compute(params, x, mask, rest, key, golden):
    outputs = module.apply(
      {'params': params}, x, mask, **rest, train=True, rngs={'dropout': key}
    )
    assert outputs['logits'].shape == (1, 800, 251)
    return loss.antecedent_losses(outputs, golden).sum()

  compiled = (
    jax.jit(jax.grad(compute))
    .lower(
      params, x, mask, rest, jax.random.key(0), shape(1, 300, 3, dtype='i4')
    )
    .compile()
  )
  found = compiled.memory_analysis().temp_size_in_bytes
  # The features of all pairs would take 3.2e9 bytes: 4 x 800 x 250 x (3 x
  # 1,320 + 60).
  assert 0 < found < 1e9


@pytest.mark.parametrize(
  ('module', 'texts', 'message'),
  [
    (model.EndToEndCoref(3, variant='2019'), 1, "variant is '2019'"),
    (cases.MODELS['2017'], 2, r'expected \[B, 1, T, D\]'),
  ],
)
def test_bad_arguments_are_refused(module, texts, message):
  documents = cases.Documents()
  x, mask = (
    np.stack([array] * texts, axis=1) for array in (documents.x, documents.mask)
  )
  with pytest.raises(ValueError, match=message):
    module.apply({}, x, mask, **cases.arrays_of(documents), train=False)
