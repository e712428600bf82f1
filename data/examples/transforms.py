"""Sentence pairs and next tokens, made on the device inside the training step.

Every row has its own key, so batch size, order and sharding cannot change it.
Only the content of a pair reveals its label. The lengths are chosen before the
label is drawn. A random second text has the length of the true second text, and
sentence bounds at its ends where the true text has them. If the other window
holds no text of this form, the row has weight 0 in the next-sentence loss.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from data.examples import chance, pair_lengths

Array = jax.Array
Batch = dict[str, Array]

# Places in the random numbers of a row; coins for the truncation follow.
_TARGET, _RUN, _SHAVE, _BOUNDARY, _PLACE, _LABEL, _START = range(7)
_NUM_PAIR_DRAWS = 7

# Share of the passes over a document with a shorter target length
# (google-research/bert, create_pretraining_data.py).
SHORT_SEQ_PROB = 0.1

# Added to the id of a token that begins a unit, above all ids: marks travel
# with the tokens, and cost neither room nor time.
UNIT_START = 1 << 30


class Specials(NamedTuple):
  """Ids of the special tokens; `separators` [SEP] stand between two texts."""

  pad: int
  cls: int
  sep: int
  mask: int
  separators: int = 1

  @property
  def in_pair(self) -> int:
    """How many symbols a row of two texts has."""
    return 2 + self.separators


def row_keys(key: Array, ids_B: Array) -> Array:
  """Returns a key [B] for each row, from a key of the step and row ids."""
  return jax.vmap(functools.partial(jax.random.fold_in, key))(ids_B)


def next_tokens(batch: Mapping[str, Array], *, length: int) -> Batch:
  """Turns windows of `streams` into inputs and next-token targets.

  Returns:
    `tokens, positions, targets` int32 [B, T], `token_mask` bool [B, T],
    `loss_weights` float32 [B, T], 0 where no token follows or the row is not an
    example. T is `length`.
  """
  window, lengths = batch['window'], batch['lengths'][:, None]
  place = jnp.broadcast_to(
    jnp.arange(length, dtype=jnp.int32), window[:, 1:].shape
  )
  follows = (place + 1 < lengths) & batch['example_mask'][:, None]
  return {
    'tokens': window[:, :-1],
    'token_mask': place < lengths,
    'positions': place,
    'targets': window[:, 1:],
    'loss_weights': follows.astype(jnp.float32),
  }


def sample_pairs(
  batch: Mapping[str, Array],
  keys_B: Array,
  *,
  length: int,
  specials: Specials,
  short_seq_prob: float,
  negatives: bool = True,
  units: bool = False,
) -> Batch:
  """Turns windows of `pairs.PairExamples` into inputs [CLS] A [SEP] B [SEP].

  B continues A or, in half of the rows, comes from the other window. Row
  lengths follow google-research/bert (create_pretraining_data.py), where each
  pass over a document has one target: `length - 3` tokens or, with probability
  `short_seq_prob`, fewer, uniform in 2..length - 3. Whole sentences fill it, so
  short targets give more rows a pass: 0.1 of the passes give about 0.19 of the
  rows at length 128, 0.25 at 512. A row is also short where its document ends.
  A short chunk is not cut, and starts and ends anywhere, unlike the release's
  whole sentences: few rows would find another text of whole sentences as long
  as B (0.13 to 0.18 of English rows at 128, 0.43 to 0.56 at 512).

  A full row of length 16 as an example. Both windows have W = 18 tokens in
  three sentences, `|` is a sentence boundary, and W is wider than the row so
  that truncation has something to cut:

    window  a1 a2 a3 a4|b1 b2 b3 b4 b5|c1 c2 c3 c4 c5 c6 c7 c8 c9
    chunk      a2 a3 a4 b1 b2 b3 b4 b5|c1 c2 c3 c4 c5 c6 c7        15 tokens
    A | B         a3 a4 b1 b2 b3 b4 b5|c1 c2 c3 c4 c5 c6           13 tokens
    other   x1 x2 x3|y1 y2 y3 y4 y5 y6|z1 z2 z3 z4 z5 z6 z7 z8 z9
    not B'           y1 y2 y3 y4 y5 y6|      ends a sentence, B does not
    B'                                 z1 z2 z3 z4 z5 z6
    tokens  [CLS] a3 a4 b1 b2 b3 b4 b5 [SEP] z1 z2 z3 z4 z5 z6 [SEP]
    types     0   0  0  0  0  0  0  0    0   1  1  1  1  1  1    1

  The boundary before c1 is drawn, then a chunk of length - 3 + length // 8
  tokens round it. One token at a time is cut from the longer of A and B, at the
  front or the back by a coin: a2, then c7. Label 1 replaces B by B'.

  `keys_B` may be the keys of `masking.mask_units`. With `negatives=False` no
  labels are drawn: B always continues A, and NSP weights are 0. With `units`,
  windows have marks `UNIT_START`, which become `unit_starts`. Where tokenizers
  set two [SEP] between texts, the row has both, and room for a token less.

  Returns:
    `tokens, token_types, positions` int32 [B, T], `token_mask` bool [B, T],
    `nsp_labels` int32 [B] (0: B continues A), `nsp_weights` float32 [B], 0 for
    rows without a sentence boundary, without a matching text in the other
    window and for rows that are no examples; `example_mask` bool [B]; with
    `units`, `unit_starts` bool [B, T].
  """
  pair = functools.partial(
    _sample_pair,
    length=length,
    specials=specials,
    short_seq_prob=short_seq_prob,
    negatives=negatives,
  )
  draws_BN = jax.vmap(functools.partial(pair_draws, length=length))(keys_B)
  names = ('window', 'sentence_starts', 'lengths')
  names += ('other_window', 'other_starts', 'other_lengths', 'example_mask')
  result = jax.vmap(pair)(*(batch[name] for name in names), draws_BN)
  if units:
    result['unit_starts'] = result['tokens'] >= UNIT_START
    result['tokens'] &= UNIT_START - 1
  return result | {'example_mask': batch['example_mask']}


def pair_draws(key: Array, length: int) -> Array:
  """Returns the random numbers of one row's pair, uint32 [7 + length // 8]."""
  key = jax.random.fold_in(key, 0)
  return jax.random.bits(key, (_NUM_PAIR_DRAWS + length // 8,), jnp.uint32)


def _sample_pair(
  window: Array,
  starts: Array,
  size: Array,
  other: Array,
  other_starts: Array,
  other_size: Array,
  is_example: Array,
  draws: Array,
  *,
  length: int,
  specials: Specials,
  short_seq_prob: float,
  negatives: bool,
) -> Batch:
  """Makes one row of `sample_pairs`."""
  width = window.shape[0]
  place = jnp.arange(width)
  # A full window's last token only tells whether a sentence ends before it.
  usable = jnp.minimum(size, width - 1)
  boundaries = starts & (place > 0) & (place < usable)
  has_boundary = boundaries.any()

  # Where the document ends, its last sentence is cut at random: else the true
  # B would end with a sentence far more often than other text can.
  last = jnp.max(jnp.where(boundaries, place, 0))
  shave = chance.below(draws[_SHAVE], usable - last)
  usable -= jnp.where(has_boundary & (size < width), shave, 0)

  most = length - specials.in_pair
  target = pair_lengths.draw_length(
    boundaries,
    usable,
    draws[_TARGET],
    draws[_RUN],
    most=most,
    short_seq_prob=short_seq_prob,
  )
  # The chunk [low, low + chunk) holds the boundary strictly inside.
  longer = jnp.where(target < most, 0, length // 8)
  chunk = jnp.minimum(usable, target + longer)
  boundary = jnp.where(
    has_boundary,
    chance.pick(boundaries, draws[_BOUNDARY]),
    1 + chance.below(draws[_BOUNDARY], usable - 1),
  )
  lowest = jnp.maximum(0, boundary - chunk + 1)
  highest = jnp.minimum(boundary - 1, usable - chunk)
  low = lowest + chance.below(draws[_PLACE], highest - lowest + 1)
  low = jnp.minimum(low, usable - chunk)  # a single token is all A
  size_a, size_b = boundary - low, low + chunk - boundary

  # Cut the longer to the other's size, then both in turn, B first.
  excess = jnp.maximum(0, chunk - target)
  more = size_a - size_b
  both = jnp.maximum(0, excess - jnp.abs(more))
  cut_a = jnp.minimum(excess, jnp.maximum(more, 0)) + both // 2
  cut_b = excess - cut_a
  coins = (draws[_NUM_PAIR_DRAWS:] & 1).astype(jnp.int32)
  turn = jnp.arange(len(coins))
  front_a = jnp.sum(jnp.where(turn < cut_a, coins, 0))
  front_b = jnp.sum(jnp.where((turn >= cut_a) & (turn < excess), coins, 0))
  start_a, size_a = low + front_a, size_a - cut_a
  start_b, size_b = boundary + front_b, size_b - cut_b

  # Text of the other window that looks like B from outside.
  bounds = starts | (place == size)
  other_bounds = other_starts | (place == other_size)
  begin, end = place + front_b, place + front_b + size_b
  alike = other_starts & (end <= jnp.minimum(other_size, width - 1))
  for there, here in ((begin, start_b), (end, start_b + size_b)):
    alike &= other_bounds[jnp.minimum(there, width - 1)] == bounds[here]
  told = has_boundary & alike.any() & is_example & negatives
  negative = told & ((draws[_LABEL] & 1) == 1)
  other_b = width + chance.pick(alike, draws[_START]) + front_b
  start_b = jnp.where(negative, other_b, start_b)

  position = jnp.arange(length)
  first_b = size_a + 1 + specials.separators
  last_sep = first_b + size_b
  in_a = (position > 0) & (position <= size_a)
  in_b = (position >= first_b) & (position < last_sep)
  source = jnp.where(in_a, start_a + position - 1, start_b + position - first_b)
  text = jnp.concatenate([window, other])[jnp.where(in_a | in_b, source, 0)]
  is_sep = (position > size_a) & (position < first_b) | (position == last_sep)
  tokens = jnp.full((length,), specials.pad, jnp.int32)
  tokens = jnp.where(in_a | in_b, text, tokens)
  tokens = jnp.where(is_sep, specials.sep, tokens)
  tokens = jnp.where(position == 0, specials.cls, tokens)
  return {
    'tokens': tokens,
    'token_types': (in_b | (position == last_sep)).astype(jnp.int32),
    'positions': position.astype(jnp.int32),
    'token_mask': position <= last_sep,
    'nsp_labels': negative.astype(jnp.int32),
    'nsp_weights': told.astype(jnp.float32),
  }


def predict_text(batch: Mapping[str, Array], *, specials: Specials) -> Batch:
  """Adds to the batch next-token targets, but never [CLS] or [SEP].

  Their places depend on the truncation. Adds `targets` int32 [B, T] and
  `loss_weights` float32 [B, T], 0 where no target is and in rows of no example.
  """

  def following(values: Array, fill: int | bool) -> Array:
    return jnp.pad(values[:, 1:], ((0, 0), (0, 1)), constant_values=fill)

  targets = following(batch['tokens'], specials.pad)
  follows = following(batch['token_mask'], False)
  follows &= (targets != specials.cls) & (targets != specials.sep)
  follows &= batch['example_mask'][:, None]
  return {
    **batch,
    'targets': targets,
    'loss_weights': follows.astype(jnp.float32),
  }
