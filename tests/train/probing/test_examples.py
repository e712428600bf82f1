"""Spans of words become spans of pieces, and labels numbers."""

import numpy as np

from data.tasks.probes.targets import Sentence, Target
from train.probing import examples
from train.probing.examples import Features

# Five words of 2, 1, 0, 3 and 1 pieces, from row 10 on.
WORDS = tuple('abcde')
OFFSETS = np.cumsum([0, 2, 1, 0, 3, 1])
FEATURES = Features(np.zeros((17, 3, 4), np.float16), {WORDS: (10, OFFSETS)})


def test_spans_are_projected():
  targets = (
    Target(((0, 1), (3, 5)), ('X', 'Y')),
    Target(((1, 4), (3, 4)), ('Y',)),
    Target(((2, 3), (0, 1)), ('X',)),  # a word without pieces
    Target(((0, 1), (4, 5)), ('Z',)),  # not known from training
  )
  sentences = [Sentence(WORDS, targets), Sentence(WORDS, ())]
  split = examples.project(sentences, FEATURES, ('X', 'Y'), lambda label: True)
  (example,) = split.examples  # the other has no targets
  one, two = example.pieces
  # Pieces outside of all spans are left out.
  assert one.tolist() == [10, 11, 12, 13, 14, 15]
  assert two.tolist() == [13, 14, 15, 16]
  assert example.spans[0].tolist() == [[0, 2], [2, 6], [0, 2]]
  assert example.spans[1].tolist() == [[0, 4], [0, 3], [3, 4]]
  assert example.labels.tolist() == [[1, 1], [0, 1], [0, 0]]
  assert example.sizes == (6, 4, 3)
  assert split.gold.tolist() == [1, 2]
  assert (split.missed, split.unseen, split.without_pieces) == (2, {'Z': 1}, 1)
  # Classes that are not scored cannot be missed.
  split = examples.project(
    sentences, FEATURES, ('X', 'Y'), lambda label: label == 'Z'
  )
  assert split.missed == 1


def test_missed_labels_are_told(capsys):
  sentences = [Sentence(WORDS, (Target(((2, 3),), ('Z',)),))]
  split = examples.project(sentences, FEATURES, ('X',), lambda label: True)
  assert not split.examples and split.missed == 1
  examples.tell('pos', 'dev', split)
  said = capsys.readouterr().err
  assert 'pos, dev: not in the training split, so never found: Z (1' in said
  assert 'pos, dev: 1 targets of words without pieces' in said
