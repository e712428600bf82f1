"""Batches of texts of like length, and their results in order again.

Shapes: B rows of a batch, T position.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar('T')


class Batch(NamedTuple):
  """Texts that are computed together.

  Attributes:
    numbers: of the texts.
    texts: each a sequence of words or tokens, or whatever has a length.
    rows: B, at least as many.
    length: T, at least the longest text's and what is added to it.
  """

  numbers: tuple[int, ...]
  texts: tuple[Any, ...]
  rows: int
  length: int


def read_ahead(
  texts: Iterable[Sequence], num_tokens: int, *, multiple: int = 1
) -> Iterator[list[tuple[int, Sequence]]]:
  """Yields stretches of (number, text), of about so many tokens.

  Args:
    texts: in their order.
    num_tokens: of a stretch, two more a text counted.
    multiple: all stretches but the last have a multiple of so many texts.
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
) -> Iterator[Batch]:
  """Yields batches of texts of like length, the longest first.

  Args:
    items: (number, text).
    batch_tokens: B x T of a batch, unless one text is longer.
    added: what is added to each text: its two ends.
    longest: T is no more than this, which no text exceeds.
  """
  items = sorted(items, key=lambda item: -len(item[1]))
  first = 0
  while first < len(items):
    length = round_length(len(items[first][1]) + added)
    length = length if longest is None else min(length, longest)
    rows = max(1, batch_tokens // length)
    part = items[first : first + rows]
    yield Batch(*zip(*part, strict=True), round_rows(len(part), rows), length)
    first += rows


def round_length(length: int) -> int:
  """Returns a length's next one of those that programs are compiled for.

  Eight from each power of two to the next: with sentences of unlike lengths in
  a batch, 7 % of positions are padding where lengths spread as in English.
  """
  step = 1 << max((length - 1).bit_length() - 4, 0)
  return -(-length // step) * step


def round_rows(count: int, most: int) -> int:
  """Returns the next power of two; `most` if it is beyond."""
  return min(1 << (count - 1).bit_length(), most)


def in_order(numbered: Iterable[tuple[int, T]]) -> Iterator[T]:
  """Yields what is numbered 0, 1, ... in that order; holds what comes early."""
  held: dict[int, T] = {}
  following = 0
  for number, value in numbered:
    held[number] = value
    while following in held:
      yield held.pop(following)
      following += 1
