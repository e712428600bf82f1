"""Batches [B, T] of texts of similar length, and results in order again."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import jax
import numpy as np

T = TypeVar('T')


class TextBatch(NamedTuple):
  """Numbered sequences of words or tokens, computed as `rows` x `length`."""

  numbers: tuple[int, ...]
  texts: tuple[Sequence[str] | Sequence[int], ...]
  rows: int
  length: int


def read_ahead(
  texts: Iterable[Sequence], num_tokens: int, *, multiple: int = 1
) -> Iterator[list[tuple[int, Sequence]]]:
  """Yields lists of (number, text) of about `num_tokens` tokens.

  All lists but the last have a multiple of `multiple` texts.
  """
  stretch, size = [], 0
  for item in enumerate(texts):
    stretch.append(item)
    size += len(item[1]) + 2
    if size >= num_tokens and len(stretch) % multiple == 0:
      yield stretch
      stretch, size = [], 0
  if stretch:
    yield stretch


def batches_by_length(
  items: Iterable[tuple[int, Sequence]],
  batch_tokens: int,
  *,
  added: int,
  longest: int | None = None,
) -> Iterator[TextBatch]:
  """Yields batches of texts of similar length, the longest first.

  `items` are (number, text). A batch has B x T <= `batch_tokens`, unless one
  text is longer. T includes `added` framing tokens and is at most `longest`.
  """
  items = sorted(items, key=lambda item: -len(item[1]))
  first = 0
  while first < len(items):
    length = round_length(len(items[first][1]) + added)
    length = length if longest is None else min(length, longest)
    rows = max(1, batch_tokens // length)
    part = items[first : first + rows]
    yield TextBatch(
      *zip(*part, strict=True), round_rows(len(part), rows), length
    )
    first += rows


def round_length(length: int) -> int:
  """Rounds a length up to one of few, so that few programs are compiled.

  Eight lengths from each power of two to the next: 7 % padding in English.
  """
  step = 1 << max((length - 1).bit_length() - 4, 0)
  return -(-length // step) * step


def round_rows(count: int, most: int) -> int:
  """Returns the next power of two, or `most` if that is less."""
  return min(1 << (count - 1).bit_length(), most)


def pad(
  texts: Sequence[Sequence[int]], rows: int, length: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns ids [B, T], zero-padded, and lengths [B], both int32."""
  ids_BT = np.zeros((rows, length), np.int32)
  lengths_B = np.zeros(rows, np.int32)
  for row, ids in enumerate(texts):
    ids_BT[row, : len(ids)] = ids
    lengths_B[row] = len(ids)
  return ids_BT, lengths_B


def on_host(
  computing: Iterable[tuple[T, jax.Array]],
) -> Iterator[tuple[T, np.ndarray]]:
  """Yields (item, array), fetched while the next array is computed."""
  following = itertools.chain(computing, [None])
  for (item, array), _ in itertools.pairwise(following):
    yield item, np.asarray(array)


def in_order(numbered: Iterable[tuple[int, T]]) -> Iterator[T]:
  """Yields values numbered 0, 1, ... in that order; holds early ones."""
  held: dict[int, T] = {}
  following = 0
  for number, value in numbered:
    held[number] = value
    while following in held:
      yield held.pop(following)
      following += 1
