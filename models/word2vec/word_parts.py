"""Sums over the parts of words, as fastText's vectors are.

A word has from no part to a hundred of them. The parts of a batch are taken
word after word in pieces of a fixed size, until all are done: padded to the
most parts of any word, there would be five times as many (of 100 novels).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array
PIECE = 4096  # parts


class Parts(NamedTuple):
  """The parts of each word, as rows of a table.

  Attributes:
    rows: int32 [M], all words' parts, word after word.
    counts: int32 [V], the number of parts of each word; they sum to M.
  """

  rows: Any
  counts: Any


def sum_rows(table: Array, tokens: Array, parts: Parts) -> Array:
  """Returns the sum of the rows of each word's parts, [..., D]."""

  def add(sums_TD: Array, words: Array, rows: Array) -> Array:
    return sums_TD.at[words].add(table[rows], mode='drop')

  sums_TD = jnp.zeros((tokens.size, table.shape[1]), table.dtype)
  sums_TD = _fold(add, sums_TD, tokens, parts)
  return sums_TD.reshape(*tokens.shape, -1)


def add_to_rows(
  table: Array, tokens: Array, deltas: Array, scales: Array, parts: Parts
) -> Array:
  """Adds the deltas [..., D] of words, times a row's scale, to their parts."""
  deltas_TD = deltas.reshape(tokens.size, -1)

  def add(table: Array, words: Array, rows: Array) -> Array:
    found = deltas_TD.at[words].get(mode='fill', fill_value=0)
    return table.at[rows].add(scales[rows][:, None] * found)

  return _fold(add, table, tokens, parts)


def _fold(
  add: Callable[[Array, Array, Array], Array],
  start: Array,
  tokens: Array,
  parts: Parts,
) -> Array:
  """Calls add(so far, words, rows) with all parts of a batch, [PIECE] each.

  `words` are places among the tokens; behind the last part, one too large.
  """
  tokens_T = tokens.ravel()
  rows_M, counts_V = map(jnp.asarray, parts)
  begins_V = jnp.cumsum(counts_V) - counts_V
  ends_T = jnp.cumsum(counts_V[tokens_T])
  shift_T = begins_V[tokens_T] - (ends_T - counts_V[tokens_T])

  def piece(number: Array, so_far: Array) -> Array:
    places = number * PIECE + jnp.arange(PIECE)
    words = jnp.searchsorted(ends_T, places, side='right')
    rows = rows_M.at[places + shift_T.at[words].get(mode='clip')]
    return add(so_far, words, rows.get(mode='clip'))

  return jax.lax.fori_loop(0, -(-ends_T[-1] // PIECE), piece, start)
