"""Cosine similarity of texts."""

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from train.vectors import text_counts
from train.vectors.request import Request
from train.vectors.trained_model import TrainedModel


class Near(NamedTuple):
  """A line, its number from 1 and its similarity to a query, -1 to 1."""

  similarity: float
  line: int
  text: str


def records(
  found: TrainedModel,
  file: epath.PathLike,
  request: Request,
  query: str | None = None,
  top_k: int | None = None,
) -> Iterator[dict[str, float | str | Sequence[str]]]:
  """Yields records of a file's pairs, or of the lines nearest to a query.

  A record has 'similarity' and 'line', and the pair as 'texts' or the line as
  'text'. `top_k` is by default 10.
  """
  if query is not None:
    lines = text_counts.lines(file)
    for near in nearest(found, query, lines, request, top_k=top_k or 10):
      yield near._asdict()
    return
  pairs, shown = (text_counts.read_pairs(file) for _ in range(2))
  similarities = compare(found, pairs, request)
  for line, (pair, similarity) in enumerate(
    zip(shown, similarities, strict=True), start=1
  ):
    yield {'similarity': similarity, 'line': line, 'texts': pair}


def compare(
  found: TrainedModel, pairs: Iterable[Sequence[str]], request: Request
) -> Iterator[float]:
  """Yields the cosine similarity of each pair of texts, -1 to 1.

  The request must normalise. By a GPT, a text without tokens has similarity 0.
  """
  vectors = found.vectors(itertools.chain.from_iterable(pairs), request)
  for one, other in zip(vectors, vectors, strict=True):
    yield _cosine(one.array, other.array)


def nearest(
  found: TrainedModel,
  query: str,
  lines: Iterable[str],
  request: Request,
  *,
  top_k: int = 10,
) -> list[Near]:
  """Returns the `top_k` nearest lines in order; reads lines in stretches."""
  (wanted,) = found.vectors([query], request)
  lines, embedded = itertools.tee(lines)
  vectors = found.vectors(embedded, request)
  scored = (
    Near(_cosine(wanted.array, each.array), number, line)
    for number, (line, each) in enumerate(zip(lines, vectors, strict=True), 1)
  )
  return heapq.nsmallest(
    top_k, scored, key=lambda near: (-near.similarity, near.line)
  )


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
  return float(one.astype(np.float64) @ other)
