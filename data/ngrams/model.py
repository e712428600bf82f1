"""A back-off model: every n-gram estimator and every ARPA file is one.

The probability of a word after a history is that of the longest known n-gram of
both, times the back-off weights of the longer histories that are known.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_WORDS = 1 << 20  # looked up at a time


class Level(NamedTuple):
  """All n-grams of one order of a model.

  Attributes:
    keys: int64 [n-grams], sorted, see `data.ngrams.counts`.
    log_probs: float32 [n-grams], log10 of the last word's probability.
    backoffs: float32 [n-grams], log10 of the weight of shorter histories.
  """

  keys: np.ndarray
  log_probs: np.ndarray
  backoffs: np.ndarray


@dataclasses.dataclass(frozen=True)
class Model:
  """A back-off model of n-grams.

  Attributes:
    words: the V words, `counts.SYMBOLS` first.
    levels: the n-grams of 1, 2, .. N words; the first has one of each word.
    method: how it was estimated, for people.
  """

  words: Sequence[str]
  levels: Sequence[Level]
  method: str = ''

  @property
  def order(self) -> int:
    """N, words of the longest n-grams."""
    return len(self.levels)

  @functools.cached_property
  def ids(self) -> dict[str, int]:
    """The id of each word."""
    return {word: i for i, word in enumerate(self.words)}

  def log_probs(self, ids: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Returns the log-probability of each word, float64 [words], in nats.

    Args:
      ids: int [words] of one or more texts, `counts.UNKNOWN` for unknown words.
        The value of `counts.BEGIN` means nothing.
      starts: bool [words], True at the first word of each text, which has no
        history. A text whose history is its beginning starts with
        `counts.BEGIN`.
    """
    found = np.empty(len(ids))
    longest = self.order - 1
    for first in range(0, len(ids), _WORDS):
      # Words before the part are history only.
      begin = max(first - longest, 0)
      part = slice(begin, first + _WORDS)
      scores = self._score(np.asarray(ids[part], np.int64), starts[part])
      found[first : first + _WORDS] = scores[first - begin :]
    return found * np.log(10)

  def _score(self, ids: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Returns log10 probabilities of words, see `log_probs`."""
    numbers = ids
    scores = self.levels[0].log_probs[ids].astype(np.float64)
    for lower, level in zip(self.levels, self.levels[1:], strict=False):
      heads = np.concatenate([[-1], numbers[:-1]])
      heads[starts] = -1
      known = heads >= 0
      numbers = np.full(len(ids), -1)
      numbers[known] = lookup(
        level.keys, heads[known] * len(self.words) + ids[known]
      )
      # The longer n-gram, or the shorter one's with a weight where one is.
      scores[known] += lower.backoffs[heads[known]]
      hit = numbers >= 0
      scores[hit] = level.log_probs[numbers[hit]]
    return scores


def lookup(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
  """Returns the place of each integer among sorted keys, -1 without one."""
  if not len(keys):
    return np.full(len(wanted), -1)
  order = np.argsort(wanted)  # sorted ones are found faster
  wanted = wanted[order]
  places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
  found = np.empty(len(wanted), np.int64)
  found[order] = np.where(keys[places] == wanted, places, -1)
  return found


def perplexity(log_probs: np.ndarray) -> float:
  """Returns the perplexity of words by log-probabilities in nats."""
  mean = -log_probs.mean(dtype=float) if len(log_probs) else np.nan
  return float(np.exp(mean)) if not mean > 700 else float('inf')
