"""Which of the overlapping windows of a text speaks for each of its tokens.

That which shows most round it, as google-research/bert has it (run_squad.py).
"""

from collections.abc import Sequence

import numpy as np

# Of two windows that show as much, the longer: run_squad.py.
LENGTH_BONUS = 0.01


def owners(
  bounds: Sequence[tuple[int, int]],
  num_tokens: int,
  *,
  left_only: bool = False,
) -> np.ndarray:
  """Returns the number of the window that speaks for each token.

  Of equals it is the first.

  Args:
    bounds: first token of each window and the one after its last; every token
      is in one, and of none there is one window.
    num_tokens: of the text.
    left_only: what stands right of a token does not count.

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
