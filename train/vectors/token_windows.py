"""Overlapping windows for texts beyond a model's positions."""

from typing import NamedTuple

import numpy as np

from data.inputs import windows


class Window(NamedTuple):
  """Tokens [start, end) of a text; [first, last) belong to the window."""

  start: int
  end: int
  first: int
  last: int


def cut(
  num_tokens: int, size: int, stride: int, *, left_only: bool
) -> list[Window]:
  """Returns windows of a text, `stride` (1 to `size`) tokens apart.

  Each token belongs to the window in which the smaller of its left and right
  context is largest, as in BERT's question answering, or, with `left_only`, its
  left context is; of equal windows to the first. A text without tokens has one
  empty window.
  """
  if not 1 <= stride <= size:
    raise ValueError(
      f'--stride={stride}: expected 1 to {size}, the tokens of a window; a'
      ' longer one would leave tokens out'
    )
  if num_tokens <= size:
    return [Window(0, num_tokens, 0, num_tokens)]
  bounds = windows.cut(num_tokens, size, stride)
  owners = windows.owners(bounds, num_tokens, left_only=left_only)
  edges = [0, *(np.flatnonzero(np.diff(owners)) + 1), num_tokens]
  return [
    Window(*bounds[owners[first]], int(first), int(last))
    for first, last in zip(edges, edges[1:], strict=False)
  ]
