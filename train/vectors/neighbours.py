"""How near the vectors of texts are."""

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from train.params import trained
from train.vectors import text_counts, text_vectors
from train.vectors.text_plan import Request


class Near(NamedTuple):
  """A line that is near to a text.

  Attributes:
    similarity: -1 to 1.
    line: number of it, from 1.
    text: of it.
  """

  similarity: float
  line: int
  text: str


def compare(
  found: trained.Trained,
  pairs: Iterable[Sequence[str]],
  request: Request,
) -> Iterator[float]:
  """Yields the cosine similarity of each pair of texts, -1 to 1.

  Args:
    found: a BERT, GPT or GPT-2.
    pairs: of texts; of one without a token a BERT sees [CLS] and [SEP], a GPT
      nothing, which is like no other: 0.
    request: how the vectors are made; of sentences, normalised.
  """
  vectors = text_vectors.embed_texts(
    found, itertools.chain.from_iterable(pairs), request
  )
  for one, other in zip(vectors, vectors, strict=True):
    yield _cosine(one.array, other.array)


def nearest(
  found: trained.Trained,
  query: str,
  lines: Iterable[str],
  request: Request,
  *,
  top_k: int = 10,
) -> list[Near]:
  """Returns the lines nearest to a text, the nearest first.

  Args:
    found: a BERT, GPT or GPT-2.
    query: the text.
    lines: read once; no more than a stretch of them is held in memory.
    request: see `compare`.
    top_k: how many lines.
  """
  reading: dict[int, str] = {}

  def read() -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
      reading[number] = line
      yield line

  (wanted,) = text_vectors.embed_texts(found, [query], request)
  scored = (
    Near(_cosine(wanted.array, vectors.array), number, reading.pop(number))
    for number, vectors in enumerate(
      text_vectors.embed_texts(found, read(), request), start=1
    )
  )
  return heapq.nsmallest(
    top_k, scored, key=lambda near: (-near.similarity, near.line)
  )


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
  """Returns the product of two vectors of length 1."""
  return float(one.astype(np.float64) @ other)


def read_pairs(path: epath.PathLike) -> Iterator[list[str]]:
  """Yields the two texts of each line of a file.

  Raises:
    ValueError: naming the line that holds another number of texts.
  """
  for number, line in enumerate(text_counts.lines(path), start=1):
    pair = line.split('\t')
    if len(pair) != 2:
      raise ValueError(
        f'{path}, line {number:,}: {len(pair)} texts, expected 2 with a tab'
        f' between them, or --query: {line[:60]!r}'
      )
    yield pair
