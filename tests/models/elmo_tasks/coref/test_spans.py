"""Candidates, pruning and distances of spans against plain loops."""

import math

import jax
import numpy as np
import pytest

from models.elmo_tasks.coref import spans

WIDTH = 4
LENGTHS = np.array([[7, 0, 5, 2], [3, 8, 8, 6], [0, 0, 0, 0], [1, 0, 0, 0]])
MASK = np.arange(8) < LENGTHS[..., None]
RATIO = 0.9


def is_crossing(a, b):
  return a[0] < b[0] <= a[1] < b[1] or b[0] < a[0] <= b[1] < a[1]


def prune(scores, mask, may_cross):
  """Returns the kept spans of a document, first and last place in the grid."""
  T = mask.shape[1]
  candidates = [
    (r * T + t, r * T + t + w)
    for r in range(len(mask))
    for t in range(T)
    for w in range(WIDTH)
    if t + w < mask[r].sum()
  ]
  order = sorted(
    candidates,
    key=lambda span: -scores[span[0] * WIDTH + span[1] - span[0]],
  )
  kept = []
  for span in order:
    if len(kept) == math.floor(RATIO * mask.sum()):
      break
    if may_cross or not any(is_crossing(span, other) for other in kept):
      kept.append(span)
  return sorted(kept)


@pytest.mark.parametrize('may_cross', [False, True])
def test_pruning_equals_a_plain_loop(may_cross):
  K = spans.max_kept(MASK.shape[1:], WIDTH, RATIO)

  @jax.jit
  def run(scores_BN):
    return spans.prune(
      scores_BN,
      spans.candidates(MASK, WIDTH),
      spans.num_kept(MASK, RATIO),
      *(K, WIDTH),
      may_cross=may_cross,
    )

  crossings = 0
  for seed in range(20):
    rng = np.random.default_rng(seed)
    shape = len(MASK), MASK[0].size * WIDTH
    # Every other time of few values, so of many ties.
    scores = rng.normal(size=shape) if seed % 2 else rng.integers(0, 4, shape)
    scores = scores.astype('f4')
    found = np.asarray(run(scores))
    for b in range(len(MASK)):
      expected = prune(scores[b], MASK[b], may_cross)
      real = found[b, : len(expected)]
      ours = [(s // WIDTH, s // WIDTH + s % WIDTH) for s in real.tolist()]
      assert ours == expected
      assert (found[b, len(expected) :] == shape[1]).all()
      crossings += any(is_crossing(a, b) for a in ours for b in ours)
  assert (crossings > 0) == may_cross


def test_fewer_spans_than_may_be_kept():
  # 3 of the 4 spans of one and two words cross none, at a ratio of 2 a word.
  mask = np.arange(3) < np.array([[[2]]])
  K = spans.max_kept((1, 3), 2, 2.0)
  assert K == 5  # all spans of the grid
  scores = np.arange(6, dtype='f4')[None]
  found = spans.prune(
    scores,
    spans.candidates(mask, 2),
    spans.num_kept(mask, 2.0),
    *(K, 2),
    may_cross=False,
  )
  np.testing.assert_array_equal(found, [[0, 1, 2, 6, 6]])


def test_numbers_of_kept_spans_are_as_of_python():
  lengths = np.arange(200)
  mask = np.arange(200) < lengths[:, None, None]
  for ratio in (0.1, 0.3, 0.4, 0.7):
    expected = [math.floor(ratio * n) for n in lengths.tolist()]
    np.testing.assert_array_equal(spans.num_kept(mask, ratio), expected)


def test_words_are_numbered_without_padding():
  numbers = np.asarray(spans.word_numbers(MASK))
  for b in range(len(MASK)):
    real = numbers[b][MASK[b].ravel()]
    np.testing.assert_array_equal(real, np.arange(MASK[b].sum()))


def test_bins_of_distances():
  bins = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 7: 5, 8: 6, 15: 6, 16: 7}
  bins |= {31: 7, 32: 8, 63: 8, 64: 9, 1000: 9}
  np.testing.assert_array_equal(
    spans.bucket(np.array([*bins])), [*bins.values()]
  )
  assert max(bins.values()) + 1 == spans.NUM_DISTANCES
