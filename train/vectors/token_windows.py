"""Texts beyond a model's positions, in windows that overlap.

Each token's vector comes from the window that shows most round it, as BERT's
question answering takes its answers.
"""

from typing import NamedTuple

import numpy as np

from data.inputs import windows


class Window(NamedTuple):
  """A stretch of a text, and the part of it that counts.

  Attributes:
    start: first token that the model sees.
    end: one past the last.
    first: first token whose vector is taken from here.
    last: one past the last such.
  """

  start: int
  end: int
  first: int
  last: int


def cut(
  num_tokens: int, size: int, stride: int, *, left_only: bool
) -> list[Window]:
  """Cuts a text so that every token counts in one window.

  Windows begin `stride` tokens apart. A token counts where the smaller of what
  is seen left and right of it is largest, or, with `left_only`, where most is
  seen left of it; of equals the first.

  Args:
    num_tokens: of the text; of none there is one empty window.
    size: tokens of a window, at most.
    stride: 1 to size.
    left_only: the model does not look to the right.

  Returns:
    The windows in which any token counts, in their order.

  Raises:
    ValueError: at any other stride.
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
