"""Overlapping windows of a text, as in google-research/bert (run_squad.py)."""

from collections.abc import Sequence

import numpy as np

# Of two windows with equal context the longer one wins: run_squad.py.
LENGTH_BONUS = 0.01


def cut(length: int, room: int, stride: int) -> list[tuple[int, int]]:
  """Returns [begin, end) of windows of `room`, `stride` apart; at least one."""
  stride = min(stride, room)
  count = max(0, -(-(length - room) // stride)) + 1
  starts = range(0, count * stride, stride)
  return [(start, min(start + room, length)) for start in starts]


def owners(
  bounds: Sequence[tuple[int, int]], num_tokens: int, *, left_only: bool = False
) -> np.ndarray:
  """Returns the number of the best window for each token, int64 [num_tokens].

  The best shows most context of the token, on its left with `left_only`; of
  equals the first. `bounds` are [begin, end) of windows that cover all tokens.
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
