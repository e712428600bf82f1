"""Batches [B, T] of texts of similar length, and results in order again."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import jax
import numpy as np

T = TypeVar('T')

# A layer's outputs of 1024 tokens stay in a CPU's cache: with MiniLM a tenth to
# a fifth less time a token than with 2048 and 4096, in PyTorch too.
CPU_BATCH_TOKENS = 1024
ACCELERATOR_BATCH_TOKENS = 32_768


def default_tokens(backend: str | None = None) -> int:
  """Returns the rows times length of a batch for a JAX backend, or for ours.

  A MiniLM computes a quarter of them on a CPU in less time than a program of
  another length takes to be traced and read from the cache.
  """
  is_cpu = (backend or jax.default_backend()) == 'cpu'
  return CPU_BATCH_TOKENS if is_cpu else ACCELERATOR_BATCH_TOKENS


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
  most_padding: int | None = None,
) -> Iterator[TextBatch]:
  """Yields batches of texts of similar length, the longest first.

  `items` are (number, text). A batch has B x T <= `batch_tokens`, unless one
  text is longer. T includes `added` framing tokens and is at most `longest`.

  Each length is a program to trace and compile. Batches keep a length until
  they would have padded `most_padding` tokens more than shorter ones, by
  default a quarter of `default_tokens`.
  """
  items = sorted(items, key=lambda item: -len(item[1]))
  spare = default_tokens() // 4 if most_padding is None else most_padding
  first = length = padded = 0
  while first < len(items):
    shortest = round_length(len(items[first][1]) + added)
    shortest = shortest if longest is None else min(shortest, longest)
    rows = max(1, batch_tokens // length) if length else 1
    padded += min(rows, len(items) - first) * (length - shortest)
    if not length or padded > spare:
      length, padded = shortest, 0
    rows = max(1, batch_tokens // length)
    part = items[first : first + rows]
    yield TextBatch(
      *zip(*part, strict=True), round_rows(len(part), rows), length
    )
    first += rows


def round_length(length: int) -> int:
  """Rounds a length up to one of few, so that few programs are compiled.

  There are eight lengths from each power of two to the next.
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
