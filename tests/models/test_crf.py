"""The CRF against all paths, written out."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import crf

B, T, K = 6, 5, 3
# Prefixes, gaps, one place, none.
MASK = np.array(
  [
    [1, 1, 1, 1, 1],
    [1, 1, 1, 0, 0],
    [1, 0, 0, 1, 1],
    [0, 1, 0, 1, 0],
    [0, 0, 0, 1, 0],
    [0, 0, 0, 0, 0],
  ],
  bool,
)
# Tag 1 does not begin a row, 0 does not end it, 2 does not follow 0.
ALLOWED = np.ones((K + 2, K + 2), bool)
ALLOWED[K, 1] = ALLOWED[0, K + 1] = ALLOWED[0, 2] = False
ALLOWED = tuple(map(tuple, ALLOWED))


@functools.cache
def drawn():
  """Logits, of other rows NaN where the mask is False; transitions; tags."""
  rng = np.random.default_rng(3)
  logits = 2 * rng.normal(size=(B, T, K)).astype('f4')
  logits[1:4][~MASK[1:4]] = np.nan
  transitions = 2 * rng.normal(size=(K, K)).astype('f4')
  tags = np.where(MASK, rng.integers(0, K, (B, T)), -100)
  return logits, transitions, tags


def score(logits, transitions, path):
  """The score of a path over logits [length, K]."""
  emitted = sum(logits[t, tag] for t, tag in enumerate(path))
  return emitted + sum(transitions[a, b] for a, b in itertools.pairwise(path))


def paths_of(row):
  """Returns the logits of a row's places, and all paths over them."""
  logits = np.float64(drawn()[0][row][MASK[row]])
  return logits, [*itertools.product(range(K), repeat=len(logits))]


def test_log_likelihood_is_that_of_all_paths_and_differentiates():
  logits, transitions, tags = drawn()

  @jax.jit
  def run(logits, transitions):
    def total(logits, transitions):
      rows = crf.log_likelihood(logits, transitions, tags, MASK)
      return rows.sum(), rows

    return jax.grad(total, argnums=(0, 1), has_aux=True)(logits, transitions)

  (by_logits, by_transitions), found = run(logits, transitions)
  expected_by = np.zeros((K, K))
  for row in range(B - 1):
    emitted, paths = paths_of(row)
    scores = np.array([score(emitted, transitions, path) for path in paths])
    partition = np.logaddexp.reduce(scores)
    own = tuple(tags[row][MASK[row]])
    expected = score(emitted, transitions, own) - partition
    assert abs(found[row] - expected) < 1e-5
    # The gradient is the count of a path less the expected count.
    chances = np.exp(scores - partition)
    for path, count in ((own, 1), *zip(paths, -chances, strict=True)):
      for a, b in itertools.pairwise(path):
        expected_by[a, b] += count
  assert found[-1] == 0
  np.testing.assert_allclose(by_transitions, expected_by, rtol=0, atol=1e-5)
  assert np.isfinite(by_logits).all()
  assert (by_logits[~MASK] == 0).all()
  np.testing.assert_allclose(by_logits.sum(axis=-1), 0, rtol=0, atol=1e-5)


@functools.partial(jax.jit, static_argnums=2)
def best(logits, transitions, allowed):
  return crf.best_scores(logits, transitions, allowed, MASK)


@pytest.mark.parametrize('allowed', [None, ALLOWED])
def test_best_scores_are_those_of_all_paths(allowed):
  logits, transitions, _ = drawn()
  found = np.asarray(best(logits, transitions, allowed))
  costs = np.where(np.array(ALLOWED if allowed else True), 0, -10_000)
  costs = np.broadcast_to(costs, (K + 2, K + 2))
  changed = 0
  for row in range(B - 1):
    emitted, paths = paths_of(row)
    scores = np.array(
      [
        score(emitted, transitions + costs[:K, :K], path)
        + costs[K, path[0]]
        + costs[path[-1], K + 1]
        for path in paths
      ]
    )
    expected = [
      [scores[[path[t] == k for path in paths]].max() for k in range(K)]
      for t in range(len(emitted))
    ]
    rows = found[row][MASK[row]]
    np.testing.assert_allclose(rows, expected, rtol=1e-6, atol=1e-4)
    best_path = paths[scores.argmax()]
    assert tuple(rows.argmax(axis=-1)) == best_path
    assert scores.max() > -1000
    changed += best_path != tuple(emitted.argmax(axis=-1))
  assert changed >= 2
  np.testing.assert_array_equal(found[~MASK], logits[~MASK])


def test_a_pair_of_scans_reads_a_long_row():
  logits = jnp.zeros((1, 4096, K)).at[0, 0, 1].set(9.0)
  stay = np.eye(K, dtype='f4')  # every change costs 1
  mask = np.ones((1, 4096), bool)
  found = jax.jit(lambda x: crf.best_scores(x, stay, None, mask))(logits)
  np.testing.assert_array_equal(found.argmax(axis=-1), 1)
  np.testing.assert_array_equal(found[..., 1], 9 + 4095)


def test_the_module_draws_and_uses_its_transitions():
  logits, _, tags = drawn()
  model = crf.Crf(K, ALLOWED)
  large = crf.Crf(200).init(
    jax.random.key(0), jnp.zeros((1, 1, 200)), MASK[:1, :1]
  )
  values = np.asarray(large['params']['transitions'].value)
  # Xavier normal: the variance of [200, 200] is 2 / 400.
  assert abs(values.std() * np.sqrt(200) - 1) < 0.02
  assert abs(np.mean(values**4) / values.var() ** 2 - 3) < 0.2

  variables = {'params': {'transitions': drawn()[1]}}
  found = model.apply(variables, logits, MASK)
  expected = crf.best_scores(logits, drawn()[1], ALLOWED, MASK)
  np.testing.assert_allclose(found, expected, rtol=1e-6)
  for train, best in ((False, expected), (True, logits)):
    found = model.apply(variables, logits, MASK, train=train, method='outputs')
    np.testing.assert_allclose(found['logits'], best, rtol=1e-6)
    np.testing.assert_array_equal(found['emissions'], logits)
    np.testing.assert_array_equal(found['transitions'], drawn()[1])


def test_constraints_of_other_tags_are_refused():
  logits, transitions, _ = drawn()
  with pytest.raises(ValueError, match=r'are \(5, 5\), expected \(4, 4\)'):
    crf.best_scores(logits[..., :2], transitions[:2, :2], ALLOWED, MASK)
