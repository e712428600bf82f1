"""Cosine similarity of texts, and the lines of a file nearest to queries.

Shapes: Q query, N line, D the vectors' width.
"""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from etils import epath

from train.vectors import line_index, text_counts
from train.vectors.request import Request
from train.vectors.trained_model import TrainedModel

TOP_K = 10
BLOCK_LINES = 16_384  # that are compared with queries at a time
BLOCK_QUERIES = 256
# More than float32 loses in a product of two vectors of length 1.
NEAR = 1e-4

Record = dict[str, float | int | str | Sequence[str]]


def pairs(
  found: TrainedModel, file: epath.PathLike, request: Request
) -> Iterator[Record]:
  """Yields records of a file's pairs: 'similarity', 'line' and 'texts'."""
  read, shown = (text_counts.read_pairs(file) for _ in range(2))
  similarities = compare(found, read, request)
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
    yield float(one.array.astype(np.float64) @ other.array)


def nearest(
  found: TrainedModel,
  queries: Sequence[str],
  file: epath.PathLike,
  request: Request,
  *,
  top_k: int = TOP_K,
  index: str | os.PathLike | None = None,
) -> Iterator[Record]:
  """Yields the `top_k` nearest lines of each query, in order.

  A record has 'query', 'similarity', 'line' from 1 and 'text'. Equally near
  lines come in the order of the file. The file is read twice, the vectors of
  its lines in blocks: from an `index`, which is made if it is not there, or
  computed anew. The request must normalise.
  """
  if index is None:
    lines = text_counts.lines(file)
    found_vectors = (each.array for each in found.vectors(lines, request))
    blocks = map(np.stack, _batched(found_vectors, BLOCK_LINES))
  else:
    vectors_ND = line_index.open_index(found, file, request, index)
    blocks = (
      vectors_ND[first : first + BLOCK_LINES]
      for first in range(0, len(vectors_ND), BLOCK_LINES)
    )
  wanted = [each.array for each in found.vectors(queries, request)]
  results = search(np.stack(wanted), blocks, top_k)
  numbers = {int(line) for _, lines in results for line in lines}
  texts = {
    number: line
    for number, line in enumerate(text_counts.lines(file))
    if number in numbers
  }
  for query, (similarities, lines) in zip(queries, results, strict=True):
    for similarity, line in zip(similarities, lines, strict=True):
      yield {
        'query': query,
        'similarity': float(similarity),
        'line': int(line) + 1,
        'text': texts[int(line)],
      }


def search(
  queries_QD: np.ndarray, blocks: Iterable[np.ndarray], top_k: int
) -> list[tuple[np.ndarray, np.ndarray]]:
  """Returns each query's (similarities, row numbers), the nearest first.

  `blocks` are vectors [n, D] of successive rows. All vectors have length 1, or
  0. Products are in float32; those that may count are computed again in
  float64, so that equal rows are equally near, and the first of them is first.
  """
  best = [(np.empty(0), np.empty(0, int)) for _ in queries_QD]
  first = 0
  for block_ND in blocks:
    for start in range(0, len(queries_QD), BLOCK_QUERIES):
      part_QD = queries_QD[start : start + BLOCK_QUERIES]
      for number, rough_N in enumerate(part_QD @ block_ND.T, start):
        best[number] = _merge(
          best[number], rough_N, queries_QD[number], block_ND, first, top_k
        )
    first += len(block_ND)
  return best


def _merge(
  best: tuple[np.ndarray, np.ndarray],
  rough_N: np.ndarray,
  query_D: np.ndarray,
  block_ND: np.ndarray,
  first: int,
  top_k: int,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the best of before and of a block, whose rows begin at `first`."""
  similarities, lines = best
  least = similarities[-1] if len(lines) == top_k else -np.inf
  if top_k < len(rough_N):
    least = max(least, np.partition(rough_N, -top_k)[-top_k])
  rows = np.flatnonzero(rough_N >= least - NEAR)
  # A product of matrices would sum equal rows in different orders.
  exact = (block_ND[rows] * query_D.astype(np.float64)).sum(axis=1)
  similarities = np.concatenate([similarities, exact])
  lines = np.concatenate([lines, first + rows])
  order = np.lexsort([lines, -similarities])[:top_k]
  return similarities[order], lines[order]


def _batched(items: Iterable, count: int) -> Iterator[tuple]:
  """Yields tuples of items, as `itertools.batched` of Python 3.12."""
  items = iter(items)
  while part := tuple(itertools.islice(items, count)):
    yield part
