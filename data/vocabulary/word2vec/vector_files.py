"""Writes vectors of words in the formats of word2vec.c, and classes of words.

`word_vectors` reads them, and gensim's KeyedVectors does.
"""

from collections.abc import Iterator, Sequence

import numpy as np

_BLOCK = 10_000  # words formatted at once


def as_text(words: Sequence[str], vectors: np.ndarray) -> Iterator[bytes]:
  """Yields the file `count dim`, then a word and its numbers a line.

  Numbers have nine digits, which float32 needs to be read as it was. Raises
  ValueError for a word twice, or with white space in it.
  """
  yield _header(words, vectors)
  for part in range(0, len(words), _BLOCK):
    some = slice(part, part + _BLOCK)
    lines = (
      f'{word} {" ".join(f"{number:.9g}" for number in vector)}\n'
      for word, vector in zip(words[some], vectors[some].tolist(), strict=True)
    )
    yield ''.join(lines).encode()


def as_binary(words: Sequence[str], vectors: np.ndarray) -> Iterator[bytes]:
  """Yields the file `count dim`, then words, each with its float32 numbers.

  They are little-endian. Raises ValueError as `as_text` does.
  """
  yield _header(words, vectors)
  for part in range(0, len(words), _BLOCK):
    some = slice(part, part + _BLOCK)
    block = vectors[some].astype('<f4')
    yield b''.join(
      word.encode() + b' ' + vector.tobytes() + b'\n'
      for word, vector in zip(words[some], block, strict=True)
    )


def classify(vectors: np.ndarray, num_classes: int) -> np.ndarray:
  """Returns k-means classes of vectors of length 1, int [n], always the same.

  As word2vec.c's -classes; the largest class is 0, the next 1, and so on.
  """
  from sklearn import cluster

  if len(vectors) < num_classes:
    raise ValueError(
      f'objective.classes={num_classes}: expected {len(vectors)} at most, the'
      ' number of words'
    )
  norms = np.linalg.norm(vectors, axis=1, keepdims=True)
  found = cluster.KMeans(num_classes, n_init=1, random_state=0).fit_predict(
    vectors / np.maximum(norms, 1e-9)
  )
  sizes = np.bincount(found, minlength=num_classes)
  ranks = np.empty(num_classes, int)
  ranks[np.argsort(-sizes, kind='stable')] = np.arange(num_classes)
  return ranks[found]


def as_classes(words: Sequence[str], classes: np.ndarray) -> Iterator[bytes]:
  """Yields a word and its class a line, sorted by class, then as given."""
  for i in np.argsort(classes, kind='stable'):
    yield f'{words[i]} {classes[i]}\n'.encode()


def _header(words: Sequence[str], vectors: np.ndarray) -> bytes:
  """Returns the first line, after checking the words."""
  if vectors.shape[:1] != (len(words),):
    raise ValueError(
      f'vectors {list(vectors.shape)}, expected one for each of'
      f' {len(words):,} words'
    )
  seen = set()
  for number, word in enumerate(words, 1):
    if word in seen or word.split() != [word]:
      fault = 'comes twice' if word in seen else 'is not one word'
      raise ValueError(f'word {number:,} of the vectors, {word!r}, {fault}')
    seen.add(word)
  return f'{len(words)} {vectors.shape[1]}\n'.encode()
