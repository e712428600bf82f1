"""Windows of a long text against a search of all of them."""

import pytest

from train.vectors import token_windows


def naive(num_tokens, size, stride, left_only):
  """For each token, bounds of the window that shows most round it."""
  bounds, start = [], 0
  while True:
    bounds.append((start, min(start + size, num_tokens)))
    if bounds[-1][1] == num_tokens:
      break
    start += stride

  def context(token, bound):
    left, right = token - bound[0], bound[1] - 1 - token
    if left_only:
      return left
    return min(left, right) + 0.01 * (bound[1] - bound[0])

  return [
    max(
      (bound for bound in bounds if bound[0] <= token < bound[1]),
      key=lambda bound: context(token, bound),
    )
    for token in range(num_tokens)
  ]


@pytest.mark.parametrize('left_only', [False, True])
def test_each_token_where_most_is_seen_round_it(left_only):
  for size in (1, 2, 5, 8):
    for stride in range(1, size + 1):
      for num_tokens in range(1, 30):
        windows = token_windows.cut(
          num_tokens, size, stride, left_only=left_only
        )
        found = [
          (token, (window.start, window.end))
          for window in windows
          for token in range(window.first, window.last)
        ]
        expected = naive(num_tokens, size, stride, left_only)
        assert found == list(enumerate(expected)), (size, stride, num_tokens)


def test_a_long_text_is_cut_in_no_time():
  windows = token_windows.cut(1_000_000, 510, 255, left_only=False)
  assert windows[0] == (0, 510, 0, 383)
  assert windows[-1].last == 1_000_000
  assert token_windows.cut(0, 5, 2, left_only=True) == [(0, 0, 0, 0)]


def test_strides_that_leave_tokens_out():
  for stride in (0, 6):
    with pytest.raises(ValueError, match=f'--stride={stride}: expected 1 to 5'):
      token_windows.cut(9, 5, stride, left_only=False)
