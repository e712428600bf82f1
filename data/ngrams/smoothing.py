"""Probabilities from counts of n-grams, each way as a back-off model.

Sources: Chen and Goodman 1998 (An empirical study of smoothing techniques for
language modeling) for all of them, section 3 for modified Kneser-Ney; Katz
1987; Jelinek and Mercer 1980.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from data.ngrams.counts import BEGIN, NgramCounts
from data.ngrams.model import Level, Model

# Discounts of n-grams seen once, twice and more, where a text is too small to
# estimate them: those of KenLM's --discount_fallback.
FALLBACK = (0.5, 1.0, 1.5)
KATZ_LARGEST = 5  # counts above are reliable (Katz 1987, section IV)
ADDED = 1.0  # Laplace
_SAMPLED = 1 << 20  # n-grams that Jelinek and Mercer's weights are fitted on
_ROUNDS = 50  # of expectation and maximisation


class _Table(NamedTuple):
  """An order of n-grams as parts of an estimate.

  Attributes:
    heads: number of the first n - 1 words; 0 of a single word.
    suffixes: number of the last n - 1 words.
    counts: float64, perhaps adjusted.
    begins: bool, whether the first word is `BEGIN`.
    num_heads: n-grams of the order below, 1 below single words.
  """

  heads: np.ndarray
  suffixes: np.ndarray
  counts: np.ndarray
  begins: np.ndarray
  num_heads: int

  def sum(self, values: np.ndarray) -> np.ndarray:
    """Returns the sum of values over the n-grams of each head."""
    return np.bincount(self.heads, values, minlength=self.num_heads)


# (a table, probabilities of the suffixes) -> the n-grams' probabilities, and
# the weight of the suffixes' after each head.
_Estimate = Callable[[_Table, np.ndarray], tuple[np.ndarray, np.ndarray]]


def _tables(counts: NgramCounts, order: int) -> list[_Table]:
  """Returns the counts of each order; `BEGIN` itself is never predicted."""
  if not 1 <= order <= len(counts.orders):
    raise ValueError(
      f'order {order}: expected 1 to {len(counts.orders)}, the counted ones'
    )
  tables: list[_Table] = []
  for n, (keys, times, suffixes) in enumerate(counts.orders[:order]):
    times = np.asarray(times, np.float64)
    if n == 0:
      begins = np.arange(counts.num_words) == BEGIN
      times = np.where(begins, 0.0, times)
      heads, num_heads = np.zeros(len(keys), np.int64), 1
    else:
      heads, num_heads = keys // counts.num_words, len(tables[-1].heads)
      begins = tables[-1].begins[heads]
    tables.append(_Table(heads, np.asarray(suffixes), times, begins, num_heads))
  return tables


def _adjusted(tables: Sequence[_Table]) -> list[_Table]:
  """Returns tables whose counts are numbers of different words before.

  The longest n-grams keep their counts, and so do those that begin a text:
  nothing is before them.
  """
  found = [tables[-1]]
  for table, longer in zip(tables[-2::-1], tables[:0:-1], strict=True):
    before = np.bincount(longer.suffixes, minlength=len(table.counts))
    kept = np.where(table.begins, table.counts, before.astype(float))
    found.append(table._replace(counts=kept))
  return found[::-1]


def _model(
  counts: NgramCounts,
  words: Sequence[str],
  tables: Sequence[_Table],
  estimates: Sequence[_Estimate],
  method: str,
) -> Model:
  """Returns the model of an estimate for each order.

  The suffixes of single words are no words: each word, but `BEGIN`, has the
  same probability.
  """
  levels: list[Level] = []
  below = np.full(counts.num_words, 1 / (counts.num_words - 1))
  for n, (table, estimate) in enumerate(zip(tables, estimates, strict=True)):
    lower = below if n == 0 else below[table.suffixes]
    probs, weights = estimate(table, lower)
    if n == 0:
      probs[BEGIN] = 0
    else:
      levels[-1] = levels[-1]._replace(backoffs=_log10(weights))
    keys = counts.orders[n].keys
    levels.append(Level(keys, _log10(probs), np.zeros(len(keys), np.float32)))
    below = probs
  return Model(words, tuple(levels), method)


def _log10(values: np.ndarray) -> np.ndarray:
  with np.errstate(divide='ignore'):
    # Rounding may leave a weight of -1e-17, or a probability above 1.
    return np.log10(np.maximum(values, 0)).astype(np.float32)


def _without_zero(totals: np.ndarray) -> np.ndarray:
  return np.where(totals > 0, totals, 1)


def _discounting(discounts: Sequence[float], interpolated: bool) -> _Estimate:
  """Returns the estimate that takes D1, D2 or D3+ from counts (section 3)."""
  by_count = np.array([0.0, *discounts])

  def estimate(table: _Table, lower: np.ndarray) -> tuple:
    taken = by_count[np.minimum(table.counts, len(discounts)).astype(int)]
    totals = table.sum(table.counts)
    weights = np.where(
      totals > 0, table.sum(taken) / _without_zero(totals), 1.0
    )
    probs = (table.counts - taken) / _without_zero(totals)[table.heads]
    if interpolated:
      probs += weights[table.heads] * lower
    return probs, weights

  return estimate


def _discounts(table: _Table) -> tuple[float, ...]:
  """Returns D1, D2 and D3+ by the numbers of counts 1 to 4 (section 3)."""
  once, twice, thrice, four = (
    float((table.counts == times).sum()) for times in (1, 2, 3, 4)
  )
  if not min(once, twice, thrice):
    return FALLBACK
  share = once / (once + 2 * twice)
  found = (
    1 - 2 * share * twice / once,
    2 - 3 * share * thrice / twice,
    3 - 4 * share * four / thrice,
  )
  # A small text gives a discount above its count, or below 0.
  sound = all(0 < d <= n for n, d in enumerate(found, start=1))
  return found if sound else FALLBACK


def modified_kneser_ney(
  counts: NgramCounts, words: Sequence[str], order: int
) -> Model:
  """Returns interpolated modified Kneser-Ney, as KenLM's lmplz makes it.

  The single words are mixed with a uniform distribution over all words and
  the unknown one.
  """
  tables = _adjusted(_tables(counts, order))
  discounts = [_discounts(table) for table in tables]
  told = '; '.join(' '.join(f'{d:.3f}' for d in row) for row in discounts)
  return _model(
    counts,
    words,
    tables,
    [_discounting(row, interpolated=True) for row in discounts],
    f'interpolated modified Kneser-Ney, discounts {told}',
  )


def kneser_ney(
  counts: NgramCounts,
  words: Sequence[str],
  order: int,
  discount: float | None = None,
) -> Model:
  """Returns interpolated Kneser-Ney with one discount of each order.

  It is n1 / (n1 + 2 n2), unless `discount` (0 to 1) is given. Single words are
  not discounted, so an unknown word has probability 0.
  """
  tables = _adjusted(_tables(counts, order))
  if discount is not None and not 0 <= discount <= 1:
    raise ValueError(f'discount {discount:g}: expected a number in [0, 1]')
  found = []
  for table in tables[1:]:
    once, twice = ((table.counts == times).sum() for times in (1, 2))
    guess = once / (once + 2 * twice) if once else 0.5
    found.append(guess if discount is None else discount)
  told = ' '.join(f'{d:.3f}' for d in found)
  return _model(
    counts,
    words,
    tables,
    [_discounting((d,), interpolated=True) for d in (0.0, *found)],
    f'interpolated Kneser-Ney, discounts {told}',
  )


def maximum_likelihood(
  counts: NgramCounts, words: Sequence[str], order: int
) -> Model:
  """Returns relative frequencies; a word never seen after a history has 0.

  A history that was never seen is shortened.
  """
  estimate = _discounting((0.0,), interpolated=False)
  tables = _tables(counts, order)
  return _model(counts, words, tables, [estimate] * order, 'maximum likelihood')


def add_k(
  counts: NgramCounts, words: Sequence[str], order: int, added: float = ADDED
) -> Model:
  """Returns (count + k) / (count of the history + k V), Lidstone's law.

  V includes the unknown word and the text's end. As a back-off model, only the
  longest n-grams have probabilities of their own; after every shorter history
  all words are equally probable.
  """
  if not added > 0:
    raise ValueError(f'k {added:g}: expected a number above 0')
  *shorter, longest = _tables(counts, order)
  mass = added * (counts.num_words - 1)

  def smooth(table: _Table, lower: np.ndarray) -> tuple:
    weights = mass / (table.sum(table.counts) + mass)
    probs = table.counts / (table.sum(table.counts) + mass)[table.heads]
    return probs + weights[table.heads] * lower, weights

  def uniform(table: _Table, lower: np.ndarray) -> tuple:
    return lower.copy(), np.ones(table.num_heads)

  return _model(
    counts,
    words,
    [*shorter, longest],
    [*[uniform] * len(shorter), smooth],
    f'add-k, k = {added:g}',
  )


def katz(counts: NgramCounts, words: Sequence[str], order: int) -> Model:
  """Returns Katz's back-off: counts to 5 discounted as Good and Turing say.

  Where all words after a history were seen often, one of a count of 1 is added
  to the history's for the others; where there are no others, the seen words
  have all. Single words share what is left among those never seen.
  """
  tables = _tables(counts, order)
  return _model(counts, words, tables, [_katz] * order, 'Katz')


def _katz(table: _Table, lower: np.ndarray) -> tuple:
  kept = _good_turing(table.counts)
  by_count = np.minimum(table.counts, KATZ_LARGEST + 1).astype(int)
  totals, is_seen = table.sum(table.counts), table.counts > 0
  discounted = table.counts * kept[by_count]
  seen = table.sum(discounted)
  is_single = table.num_heads == 1
  # Of the shorter histories' probabilities, that of words not seen after this.
  others = 1 - table.sum(np.where(is_seen, lower, 0))
  if is_single:  # not by a difference: a million summands round too much
    others = lower[~is_seen & ~table.begins].sum(keepdims=True)
  takes = others > 1e-12  # else there are no other words
  full = (totals > 0) & (totals - seen < 1e-9 * totals)
  totals = np.where(takes, totals + full, seen)
  probs = discounted / _without_zero(totals)[table.heads]
  left = np.where(totals > 0, 1 - seen / _without_zero(totals), 1)
  weights = np.where(takes, left / np.maximum(others, 1e-12), 0)
  if is_single:
    probs = np.where(is_seen, probs, weights[0] * lower)
  return probs, weights


def _good_turing(times: np.ndarray) -> np.ndarray:
  """Returns the kept share of counts 0 to 5 and more (Katz 1987, eq. 7)."""
  n = np.array([(times == r).sum() for r in range(KATZ_LARGEST + 2)], float)
  kept = np.ones(KATZ_LARGEST + 2)
  if n[1:].all():
    r = np.arange(1, KATZ_LARGEST + 1)
    ratio = (r + 1) * n[2:] / (r * n[1:-1])
    most = (KATZ_LARGEST + 1) * n[-1] / n[1]
    found = (ratio - most) / (1 - most) if most < 1 else np.zeros(len(r))
    # A small text gives shares that are none: its counts are left alone.
    if ((found > 0) & (found <= 1)).all():
      kept[1:-1] = found
  return kept


def jelinek_mercer(
  counts: NgramCounts,
  words: Sequence[str],
  order: int,
  weights: Sequence[float] | None = None,
) -> Model:
  """Returns relative frequencies mixed with those of shorter histories.

  `weights` are those of 1, 2, .. N words beside the shorter history's mixture;
  below single words is the uniform distribution. By default they maximise the
  likelihood of the text with each n-gram left out of its own counts.
  """
  tables = _tables(counts, order)
  if weights is None:
    weights = _left_out(tables, counts.num_words)
  elif len(weights) != order or not all(0 <= w <= 1 for w in weights):
    raise ValueError(
      f'weights {", ".join(map(str, weights))}: expected {order} numbers in'
      ' [0, 1], of single words first'
    )

  def mix(weight: float) -> _Estimate:
    def estimate(table: _Table, lower: np.ndarray) -> tuple:
      totals = table.sum(table.counts)
      probs = table.counts / _without_zero(totals)[table.heads]
      rest = np.where(totals > 0, 1 - weight, 1.0)
      return weight * probs + rest[table.heads] * lower, rest

    return estimate

  told = ' '.join(f'{w:.3f}' for w in weights)
  return _model(
    counts,
    words,
    tables,
    [mix(weight) for weight in weights],
    f'Jelinek-Mercer, weights {told}',
  )


def _left_out(tables: Sequence[_Table], num_words: int) -> list[float]:
  """Returns Jelinek and Mercer's weights by leaving one out."""
  longest = tables[-1]
  step = max(1, -(-len(longest.counts) // _SAMPLED))
  chosen = np.arange(0, len(longest.counts), step)
  chosen = chosen[longest.counts[chosen] > 0]
  times = longest.counts[chosen]
  if not len(chosen):
    raise ValueError(
      f'order {len(tables)}: no text has {len(tables)} words, ends included, to'
      ' fit weights on: expected a lower order, or given weights'
    )
  rows = []  # of each order, the relative frequency with one left out
  for table in reversed(tables):
    others = table.sum(table.counts)[table.heads[chosen]] - 1
    share = (table.counts[chosen] - 1) / np.maximum(others, 1)
    rows.append((np.where(others > 0, share, 0), others > 0))
    chosen = table.suffixes[chosen]
  rows.reverse()
  weights = np.full(len(rows), 0.5)
  for _ in range(_ROUNDS):
    # The mixtures from below, then how likely each order made the word.
    mixed, parts = np.full(len(times), 1 / (num_words - 1)), []
    for weight, (share, known) in zip(weights, rows, strict=True):
      own = np.where(known, weight, 0) * share
      mixed = own + np.where(known, 1 - weight, 1) * mixed
      parts.append(own / mixed)
    reached = times.copy()
    for n in reversed(range(len(rows))):
      used = reached * parts[n]
      known = rows[n][1]
      weights[n] = used[known].sum() / max(reached[known].sum(), 1e-300)
      reached = reached - used
  return weights.tolist()


METHODS = {
  'modified_kneser_ney': modified_kneser_ney,
  'kneser_ney': kneser_ney,
  'katz': katz,
  'jelinek_mercer': jelinek_mercer,
  'add_k': add_k,
  'maximum_likelihood': maximum_likelihood,
}
