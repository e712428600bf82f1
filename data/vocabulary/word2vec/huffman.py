"""Huffman trees over words, for a softmax of few decisions (word2vec.c).

Frequent words have short paths. Ties are broken as in the release, so that the
same counts give the same tree; there the words are sorted by falling count.
"""

from typing import NamedTuple

import numpy as np

MAX_PATH = 40  # of word2vec.c; a path of 40 needs 267 million words of text


class Tree(NamedTuple):
  """Paths from the root to words.

  Attributes:
    paths: int32 [V, P], inner nodes from the root on, -1 behind the end; words
      without a count have none.
    turns: bool [V, P], whether the path turns to code 0.
  """

  paths: np.ndarray
  turns: np.ndarray


def build(counts: np.ndarray) -> Tree:
  """Returns the tree of words by their counts, int [V]; 0: not in the tree.

  Raises ValueError without two words, or if a path is longer than `MAX_PATH`.
  """
  words = np.flatnonzero(counts)
  words = words[np.argsort(-counts[words], kind='stable')]
  size = len(words)
  if size < 2:
    raise ValueError(f'a tree of {size} words, expected 2 or more')
  weights = counts[words].tolist()
  parents = [0] * (2 * size - 1)
  codes = [0] * (2 * size - 1)
  inner = []  # weights of inner nodes, which ascend
  word, node = size - 1, 0

  def next_smallest() -> tuple[int, int]:
    """Takes the lightest word or node; returns its (weight, number)."""
    nonlocal word, node
    if word >= 0 and (node >= len(inner) or weights[word] < inner[node]):
      word -= 1
      return weights[word + 1], word + 1
    node += 1
    return inner[node - 1], size + node - 1

  for number in range(size, 2 * size - 1):
    (first, one), (second, other) = next_smallest(), next_smallest()
    parents[one] = parents[other] = number
    codes[other] = 1
    inner.append(first + second)
  root = 2 * size - 2
  lengths = [0] * (2 * size - 1)
  for number in range(root - 1, -1, -1):
    lengths[number] = lengths[parents[number]] + 1
  longest = max(lengths[:size])
  if longest > MAX_PATH:
    raise ValueError(
      f'a path of {longest} nodes to a word, expected {MAX_PATH} at most: raise'
      ' objective.min_count'
    )
  paths = np.full((len(counts), longest), -1, np.int32)
  turns = np.zeros((len(counts), longest), bool)
  parents, codes = np.array(parents), np.array(codes)
  at, left = np.arange(size), np.array(lengths[:size])
  while left.any():  # from all words towards the root
    some = np.flatnonzero(left)
    left[some] -= 1
    turns[words[some], left[some]] = codes[at[some]] == 0
    at[some] = parents[at[some]]
    paths[words[some], left[some]] = at[some] - size
  return Tree(paths, turns)
