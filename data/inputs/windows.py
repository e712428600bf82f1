"""Overlapping windows of a text, as google-research/bert cuts them.

run_squad.py: each token's output comes from the window that shows most context
on both sides of it.
"""

from collections.abc import Sequence

import numpy as np

# Of two windows that show as much, the longer: run_squad.py.
LENGTH_BONUS = 0.01


def cut(length: int, room: int, stride: int) -> list[tuple[int, int]]:
  """Returns begin and end of each window; an empty text has one.

  Args:
    length: tokens of the text.
    room: tokens of a window, at most.
    stride: tokens from the start of a window to that of the next.
  """
  stride = min(stride, room)
  count = max(0, -(-(length - room) // stride)) + 1
  starts = range(0, count * stride, stride)
  return [(start, min(start + room, length)) for start in starts]


def owners(
  bounds: Sequence[tuple[int, int]],
  num_tokens: int,
  *,
  left_only: bool = False,
) -> np.ndarray:
  """Returns the number of the best window for each token, of equals the first.

  Args:
    bounds: begin and end of each window; together they show every token.
    num_tokens: tokens of the text.
    left_only: count the context on the left of a token only.

  Returns:
    int64 [num_tokens].
  """
  best = np.full(num_tokens, -1.0)
  found = np.zeros(num_tokens, np.int64)
  for number, (start, end) in enumerate(bounds):
    context = np.arange(end - start)
    if not left_only:
      bonus = LENGTH_BONUS * (end - start)
      context = np.minimum(context, context[::-1]) + bonus
    better = context > best[start:end]
    best[start:end][better] = context[better]
    found[start:end][better] = number
  return found
