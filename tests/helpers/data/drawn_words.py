"""Drawn vectors of words, some in two cases, and questions about them."""

import numpy as np

STEMS = [f'w{chr(97 + i // 8)}{chr(97 + i % 8)}' for i in range(32)]
# What compute-accuracy.c (word2vec 0.11.1 on PyPI) printed for them, by its
# threshold: right and known of all, semantic and syntactic questions.
ORIGINAL = {
  None: ((163, 352), (96, 176), (67, 176)),
  90: ((161, 293), (104, 176), (57, 117)),
}


def drawn_words():
  """Returns 128 words and their vectors: a stem, two endings, upper case."""
  rng = np.random.default_rng(0)
  base, step = rng.normal(size=(32, 6)), rng.normal(size=(2, 6))
  words, parts = [], []
  for ending, shift in (('', 0), ('s', step[0]), ('ly', step[1])):
    words += [stem + ending for stem in STEMS]
    parts.append(base + shift + 0.3 * rng.normal(size=(32, 6)))
  words += [word.upper() for word in words[::3]]
  vectors = np.concatenate(parts)
  near = vectors[::3] + 0.4 * rng.normal(size=(32, 6))
  return words, np.concatenate([vectors, near]).astype(np.float32)


def drawn_questions():
  """Returns the text of 1,056 questions, of which a third can be known."""
  lines = []
  for name, ending in (
    ('plurals', 's'),
    *((name, 'x') for name in 'abcd'),
    ('gram1-adverbs', 'ly'),
  ):
    lines.append(f': {name}')
    for i, a in enumerate(STEMS):
      for c in STEMS[i + 1 :: 3]:
        lines.append(f'{a} {a}{ending} {c.title()} {c}{ending}')
  return '\n'.join(lines) + '\n'
