"""Candidates, pruning and distances of spans against plain loops."""

import math

import jax
import numpy as np
import pytest

from models.elmo_tasks.coref import spans

WIDTH = 4
LENGTHS = [[7, 5, 2], [3, 8, 8, 6], [], [1]]
T = 27
SENTENCES = np.array(
  [
    np.pad(
      np.repeat(np.arange(len(lengths)), lengths),
      (0, T - sum(lengths)),
      constant_values=-1,
    )
    for lengths in LENGTHS
  ],
  'i4',
)
RATIO = 0.9


def is_crossing(a, b):
  return a[0] < b[0] <= a[1] < b[1] or b[0] < a[0] <= b[1] < a[1]


def prune(scores, lengths, may_cross):
  """Returns the kept spans of a document, first and last word."""
  ends = np.cumsum(lengths)
  candidates = [
    (t, t + w)
    for length, end in zip(lengths, ends, strict=True)
    for t in range(end - length, end)
    for w in range(WIDTH)
    if t + w < end
  ]
  order = sorted(
    candidates,
    key=lambda span: -scores[span[0] * WIDTH + span[1] - span[0]],
  )
  kept = []
  for span in order:
    if len(kept) == math.floor(RATIO * sum(lengths)):
      break
    if may_cross or not any(is_crossing(span, other) for other in kept):
      kept.append(span)
  return sorted(kept)


@pytest.mark.parametrize('may_cross', [False, True])
def test_pruning_equals_a_plain_loop(may_cross):
  K = spans.max_kept(T, WIDTH, RATIO)

  @jax.jit
  def run(scores_BN):
    return spans.prune(
      scores_BN,
      spans.candidates(SENTENCES, WIDTH),
      spans.num_kept(SENTENCES >= 0, RATIO),
      K,
      WIDTH,
      may_cross=may_cross,
    )

  crossings = 0
  for seed in range(20):
    rng = np.random.default_rng(seed)
    shape = len(LENGTHS), T * WIDTH
    # Every other time of few values, so of many ties.
    scores = rng.normal(size=shape) if seed % 2 else rng.integers(0, 4, shape)
    scores = scores.astype('f4')
    found = np.asarray(run(scores))
    for b, lengths in enumerate(LENGTHS):
      expected = prune(scores[b], lengths, may_cross)
      real = found[b, : len(expected)]
      ours = [(s // WIDTH, s // WIDTH + s % WIDTH) for s in real.tolist()]
      assert ours == expected
      assert (found[b, len(expected) :] == shape[1]).all()
      crossings += any(is_crossing(a, b) for a in ours for b in ours)
  assert (crossings > 0) == may_cross


def test_fewer_spans_than_may_be_kept():
  # 3 of the 4 spans of one and two words cross none, at a ratio of 2 a word.
  sentences = np.array([[0, 0, -1]])
  K = spans.max_kept(3, 2, 2.0)
  assert K == 5  # all spans, as if of three words
  scores = np.arange(6, dtype='f4')[None]
  found = spans.prune(
    scores,
    spans.candidates(sentences, 2),
    spans.num_kept(sentences >= 0, 2.0),
    K,
    2,
    may_cross=False,
  )
  np.testing.assert_array_equal(found, [[0, 1, 2, 6, 6]])


def test_numbers_of_kept_spans_are_as_of_python():
  lengths = np.arange(200)
  mask = np.arange(200) < lengths[:, None]
  for ratio in (0.1, 0.3, 0.4, 0.7):
    expected = [math.floor(ratio * n) for n in lengths.tolist()]
    np.testing.assert_array_equal(spans.num_kept(mask, ratio), expected)


def test_bins_of_distances():
  bins = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 7: 5, 8: 6, 15: 6, 16: 7}
  bins |= {31: 7, 32: 8, 63: 8, 64: 9, 1000: 9}
  np.testing.assert_array_equal(
    spans.bucket(np.array([*bins])), [*bins.values()]
  )
  assert max(bins.values()) + 1 == spans.NUM_DISTANCES
