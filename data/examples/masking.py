"""Masks of pieces and of whole units, drawn on the device in the training step.

A unit, such as a word, is masked as a whole. Every row has its own key, as in
`transforms`.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from data.examples import chance
from data.examples.transforms import Specials

Array = jax.Array
Batch = dict[str, Array]

LONGEST_SPAN = 3  # words; ALBERT's (Lan et al. 2020)
_ORDER, _ACTION, _TOKEN = range(3)  # of the random numbers of a row


class Rates(NamedTuple):
  """How much is predicted, and what of it is hidden.

  Attributes:
    predicted: share of the tokens; with exact counting perhaps a scalar that
      is computed.
    masked: share of the predicted that become [MASK].
    random: share that become a random token; the rest stays.
    counting: 'exact', as BERT's release counts, or 'drawn', as ERNIE's.
  """

  predicted: float | Array
  masked: float
  random: float
  counting: str = 'exact'


def max_predictions(length: int, rates: Rates) -> int:
  """Returns P, the most predictions of a row of `length` tokens.

  Exact: 20 at 128, 77 at 512 and a rate of 0.15. Drawn numbers vary: room is
  for twice as many and 16 more, six standard deviations of words above.
  """
  exact = math.ceil(round(rates.predicted * length, 6))
  return exact if rates.counting == 'exact' else min(length, 2 * exact + 16)


def mask_units(
  batch: Mapping[str, Array],
  keys_B: Array,
  *,
  specials: Specials,
  vocab_size: int,
  rates: Rates,
  max_predictions: int,
  continuations: Array | None = None,
  longest_span: int = 1,
  unit_starts: Array | None = None,
) -> Batch:
  """Picks units to predict and hides most of their tokens.

  A unit is a piece; with `continuations`, bool [V], True for pieces that
  continue a word, a whole word; with `unit_starts`, bool [B, T], the tokens
  from one True to the next; with `longest_span` above 1 a span of 1 to so
  many of these, n of them with a probability in proportion to 1/n, as in ALBERT
  (Lan et al. 2020, section 3.3; there spans may begin anywhere, here a row is
  cut into spans first). No unit goes on behind a special token.

  Exact counting picks, of n tokens, specials included, min(P, max(1,
  round(r n))) of the text at random, without replacement; P is
  `max_predictions` and r `rates.predicted`. Units are taken in random order,
  and those that would exceed the count are skipped. Drawn counting picks each
  unit with probability r, so that the number varies; beyond P, the last places
  are neither predicted nor hidden.

  Each token of a picked unit is hidden by its own draw: it becomes [MASK] with
  probability `rates.masked`, a random token with `rates.random`, or stays. A
  random token is any of the unpadded vocabulary; with drawn counting, any but
  token 0. `batch` and `keys_B` may be the results and the keys of
  `transforms.sample_pairs`.

  Returns:
    The batch with new `tokens`, and `mlm_positions, mlm_targets` int32 [B, P],
    positions ascending, and `mlm_weights` float32 [B, P]: 0 in unused slots,
    which hold 0, and in rows that are no examples.
  """
  length = batch['tokens'].shape[1]
  # Rounded here, half to even as released, not in the device's arithmetic.
  if isinstance(rates.predicted, Array):
    counts = jnp.round(rates.predicted * jnp.arange(length + 1))
    counts = jnp.clip(counts, 1, max_predictions).astype(jnp.int32)
  else:
    counts = [max(1, round(rates.predicted * n)) for n in range(length + 1)]
    counts = jnp.asarray(np.minimum(counts, max_predictions), jnp.int32)
  exact = rates.counting == 'exact'
  lowest = 0 if exact else 1

  def mask_row(
    tokens: Array,
    token_mask: Array,
    is_example: Array,
    key: Array,
    starts: Array | None,
  ) -> tuple[Array, Array, Array, Array]:
    draws_NT = mask_draws(key, length)
    eligible = token_mask & (tokens != specials.cls) & (tokens != specials.sep)
    begins = eligible
    if continuations is not None:
      starts = ~jnp.asarray(continuations)[tokens]
    if starts is not None:
      # A continuation whose unit was cut off starts a unit of its own.
      begins &= starts | ~_after_text(eligible)
    if longest_span > 1:
      begins = _join(eligible, begins, span_draws(key, length), longest_span)
    if not exact:
      unit = _first_places(begins)
      picked = chance.happens(draws_NT[_ORDER], rates.predicted)
      chosen = eligible & picked[unit]
      chosen &= jnp.cumsum(chosen) <= max_predictions
    else:
      count = jnp.minimum(counts[token_mask.sum()], eligible.sum())
      choose = _choose_pieces if begins is eligible else _choose_units
      chosen = choose(eligible, begins, count, draws_NT[_ORDER])
    hide = chance.happens(draws_NT[_ACTION], rates.masked)
    change = chance.happens(draws_NT[_ACTION], rates.masked + rates.random)
    random = lowest + chance.below(draws_NT[_TOKEN], vocab_size - lowest)
    hidden = jnp.where(change, random, tokens)
    hidden = jnp.where(hide, specials.mask, hidden)

    places = jnp.where(chosen, jnp.arange(length), length)
    places = jnp.sort(places)[:max_predictions]
    used = places < length
    places = jnp.where(used, places, 0)
    targets = jnp.where(used, tokens[places], 0)
    weights = (used & is_example).astype(jnp.float32)
    return jnp.where(chosen, hidden, tokens), places, targets, weights

  names = ('tokens', 'token_mask', 'example_mask')
  values = jax.vmap(mask_row)(
    *(batch[name] for name in names), keys_B, unit_starts
  )
  names = ('tokens', 'mlm_positions', 'mlm_targets', 'mlm_weights')
  return {**batch, **dict(zip(names, values, strict=True))}


def mask_draws(key: Array, length: int) -> Array:
  """Returns the random numbers of one row's masking, uint32 [3, T]."""
  key = jax.random.fold_in(key, 1)
  return jax.random.bits(key, (3, length), jnp.uint32)


def span_draws(key: Array, length: int) -> Array:
  """Returns the random numbers of one row's spans, uint32 [T]."""
  key = jax.random.fold_in(key, 2)
  return jax.random.bits(key, (length,), jnp.uint32)


def _after_text(eligible: Array) -> Array:
  return jnp.concatenate([jnp.zeros(1, bool), eligible[:-1]])


def _first_places(begins: Array) -> Array:
  """Returns the place [T] where the unit of each token begins."""
  return jax.lax.cummax(jnp.where(begins, jnp.arange(len(begins)), 0))


def span_sizes(draws: Array, longest: int) -> Array:
  """Returns sizes in 1..longest, n with a probability in proportion to 1/n."""
  shares = 1 / np.arange(1, longest + 1)
  bounds = np.cumsum(shares)[:-1] / shares.sum()
  return 1 + sum((~chance.happens(draws, each)).astype(int) for each in bounds)


def _join(eligible: Array, begins: Array, draws: Array, longest: int) -> Array:
  """Returns bool [T], where spans of units begin, each of a drawn size."""
  length = len(begins)
  ends = jnp.cumsum(span_sizes(draws, longest))
  is_first = jnp.zeros(length + 1, bool).at[0].set(True)
  is_first = is_first.at[jnp.minimum(ends, length)].set(True)
  number = jnp.cumsum(begins) - 1  # of each token's unit
  joined = begins & is_first[jnp.maximum(number, 0)]
  return joined | (eligible & ~_after_text(eligible))


def _choose_pieces(
  eligible: Array, begins: Array, count: Array, draws: Array
) -> Array:
  """Returns bool [T], `count` of the eligible positions at random."""
  del begins  # all are units
  keys = _sort_keys(eligible, draws)
  last = jnp.sort(keys)[jnp.maximum(count - 1, 0)]
  return eligible & (keys <= last) & (count > 0)


def _choose_units(
  eligible: Array, begins: Array, count: Array, draws: Array
) -> Array:
  """Returns bool [T], whole units of `count` positions or somewhat fewer."""
  length = len(eligible)
  place = jnp.arange(length)
  # The next place that does not continue the unit at this one.
  stops = jnp.where(begins | ~eligible, place, length)
  stops = jax.lax.cummin(stops, reverse=True)
  stops = jnp.append(stops[1:], length)
  sizes = jnp.where(begins, stops - place, length + 1)

  order = jnp.argsort(_sort_keys(begins, draws))

  def take(taken: Array, size: Array) -> tuple[Array, Array]:
    fits = taken + size <= count
    return taken + jnp.where(fits, size, 0), fits

  _, fits = jax.lax.scan(take, jnp.zeros_like(count), sizes[order])
  taken = jnp.zeros(length, bool).at[order].set(fits)
  return eligible & taken[_first_places(begins)]


def _sort_keys(eligible: Array, draws: Array) -> Array:
  """Returns distinct uint32 [T]: the eligible first, in random order."""
  length = len(eligible)
  bits = (length - 1).bit_length()
  keys = (draws >> (bits + 1) << bits) | jnp.arange(length, dtype=jnp.uint32)
  return jnp.where(eligible, keys, keys | jnp.uint32(1 << 31))
