"""Random examples of a probing task, whose answer lies in one layer."""

import numpy as np

from train.probing.examples import Example, ProbeSplit

L, D, K = 3, 8, 4
PIECES = 600


def vectors(layer=2, seed=0):
  """Float16 [600, L, D] of noise; in one layer a piece's class is marked."""
  random = np.random.default_rng(seed)
  layers = random.normal(size=(PIECES, L, D)).astype(np.float16)
  layers[np.arange(PIECES), layer, np.arange(PIECES) % K] += 4
  return layers


def split(count, num_spans=1, seed=0, length=None):
  """Sentences of 2 to 12 pieces, or of one `length`, a target for each piece.

  Spans have one piece or two; the classes of a target are those of the pieces
  of its first span.
  """
  random = np.random.default_rng(seed)
  examples = []
  for _ in range(count):
    size = length or random.integers(2, 13)
    pieces = random.integers(0, PIECES - size) + np.arange(size)
    sides = []
    for _ in range(num_spans):
      first = random.integers(0, size, size)
      end = np.minimum(first + random.integers(1, 3, size), size)
      sides.append(np.stack([first, end], 1).astype(np.int32))
    labels = np.zeros((size, K), np.uint8)
    for number, (first, end) in enumerate(sides[0]):
      labels[number, pieces[first:end] % K] = 1
    examples.append(Example((pieces,) * num_spans, tuple(sides), labels))
  gold = sum(example.labels.sum(0, dtype=int) for example in examples)
  return ProbeSplit(examples, gold, 0, {}, 0)
