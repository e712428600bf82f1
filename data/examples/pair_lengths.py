"""The length of a pair's text, as in google-research/bert.

create_pretraining_data.py reads a document in passes. Each has one target, the
length of a full row or sometimes a shorter one, and whole sentences fill a row
until they reach it. A short target makes more rows, so the share of short rows
exceeds the share of short passes; sentences that another document's text
replaced are read again. Here every row draws its length from its own window,
with the probabilities of the release's rows.

One effect is left out: another document's text that ends too early makes the
release's row shorter, which reveals the label. Articles and novels hardly show
it (each eighth of the lengths has its share within 2 points); of documents of
452 tokens, the median of Python's manual, 57 % of the release's rows of 512 are
shorter than 449 tokens, 48 % of ours.
"""

import jax
import jax.numpy as jnp

from data.examples import chance

Array = jax.Array


def draw_length(
  boundaries: Array,
  usable: Array,
  target_draw: Array,
  run_draw: Array,
  *,
  most: int,
  short_seq_prob: float,
) -> Array:
  """Returns the tokens of text in a row, int32 []; a full row is `most`.

  `boundaries` is bool [W], True where a sentence starts after the first token,
  `usable` the tokens of the window; the draws are uint32 [].
  """
  if not short_seq_prob:
    return jnp.int32(most)
  place = jnp.arange(len(boundaries))
  starts = boundaries | (place == 0)
  bounds = boundaries | (place == usable)
  before = jax.lax.cummax(jnp.where(starts, place, 0))
  before = jnp.concatenate([jnp.zeros(1, before.dtype), before[:-1]])
  sizes = jnp.where(bounds, place - before, 0)
  target = _draw_target(sizes, usable, target_draw, most, short_seq_prob)

  # Consecutive sentences that reach the target, two at least: one alone is A,
  # and its B comes from elsewhere.
  first = chance.pick(starts & (place + target <= usable), run_draw)

  def next_bound(least: Array) -> Array:
    return jnp.min(jnp.where(bounds & (place >= least), place, usable))

  second = next_bound(next_bound(first + 1) + 1)
  end = next_bound(jnp.maximum(first + target, second))
  run = jnp.minimum(end - first, most)
  return jnp.where(target < jnp.minimum(usable, most), run, most)


def _draw_target(
  sizes: Array, usable: Array, draw: Array, most: int, short_seq_prob: float
) -> Array:
  """Returns the length that whole sentences have to reach, 2 to `most`.

  A target's weight is its probability in a pass of the release, times the rows
  that the pass makes of this window's text. Their number is inverse to the
  tokens a row takes: the target and the excess of its sentences (on average the
  sum of their squares by twice their sum, as of waiting times), times 3/4 if a
  row has several sentences, as half of the rows put back half of them.
  Integers, so that all devices round alike.
  """
  targets = jnp.arange(2, most + 1)
  full = jnp.clip(usable, 1, most)
  total = jnp.maximum(usable, 1)
  excess = jnp.sum(jnp.square(sizes)) // (2 * total)
  count = jnp.maximum(jnp.sum(sizes > 0), 1)

  of_size = jnp.zeros(most + 1, jnp.int32).at[jnp.minimum(sizes, most)].add(1)
  as_long = jnp.cumsum(of_size[::-1])[::-1]  # or longer

  def taken(tokens: Array) -> Array:
    share = 192 + 64 * as_long[tokens] // count  # of 256
    return ((tokens + excess) * share).astype(jnp.uint32)

  unit = 1 << 10
  weights = taken(full) * unit // taken(jnp.minimum(targets, full))
  heights = jnp.cumsum(weights)
  of_full = round(unit * (most - 1) * (1 - short_seq_prob) / short_seq_prob)
  at = draw % (heights[-1] + jnp.uint32(of_full))
  return jnp.minimum(2 + jnp.sum(heights <= at), most).astype(jnp.int32)
