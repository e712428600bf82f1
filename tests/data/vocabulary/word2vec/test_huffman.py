"""Huffman trees: the least mean path, and the order of the release."""

import heapq

import numpy as np
import pytest

from data.vocabulary.word2vec import huffman


def least_cost(counts):
  """Returns the sum of count times path length of any Huffman tree."""
  heap, cost = sorted(counts), 0
  while len(heap) > 1:
    joined = heapq.heappop(heap) + heapq.heappop(heap)
    cost += joined
    heapq.heappush(heap, joined)
  return cost


@pytest.mark.parametrize('seed', range(3))
def test_the_mean_path_is_the_shortest(seed):
  random = np.random.default_rng(seed)
  counts = np.minimum(random.zipf(1.3, 200), 100_000)
  tree = huffman.build(counts)
  lengths = (tree.paths >= 0).sum(axis=1)
  assert (lengths * counts).sum() == least_cost(counts.tolist())
  # Words are told apart by their turns, and nodes by their number.
  codes = {
    (tuple(path[path >= 0]), tuple(turns[: (path >= 0).sum()]))
    for path, turns in zip(tree.paths, tree.turns, strict=True)
  }
  assert len(codes) == len(counts)
  assert (tree.paths[:, 0] == len(counts) - 2).all()  # the root


def test_a_small_tree_is_the_known_one():
  tree = huffman.build(np.array([0, 5, 2, 1, 0]))
  np.testing.assert_array_equal(
    tree.paths, [[-1, -1], [1, -1], [1, 0], [1, 0], [-1, -1]]
  )
  # The two lightest are joined first, the lighter with code 0; then the joint
  # of 3 gets code 0, beside the word of 5.
  assert tree.turns.tolist()[1] == [False, False]
  assert tree.turns.tolist()[2] == [True, False]
  assert tree.turns.tolist()[3] == [True, True]


def test_impossible_trees_are_refused():
  with pytest.raises(ValueError, match='a tree of 1 words, expected 2'):
    huffman.build(np.array([3, 0]))
  fibonacci = [1, 1]
  while len(fibonacci) < 45:
    fibonacci.append(sum(fibonacci[-2:]))
  with pytest.raises(ValueError, match='path of 44 nodes .* expected 40'):
    huffman.build(np.array(fibonacci))
