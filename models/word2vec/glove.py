"""GloVe: vectors of words by a regression on logarithms of counts.

Pennington et al. 2014; where paper and released program (glove.c) differ, as
released. There is no network: an update adds to the rows of its entries in two
tables, so the gradients are written out, and no table of them exists.

Shapes: B row of entries, T entry of a row, D embed, E = D + 1 with a bias.

A batch has `words` and `contexts` int [B, T], the `logs` of their counts and
the weights f of the entries, `weights`, float32 [B, T]; padding has weight 0.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import layers
from models.word2vec import batched
from models.word2vec.batched import Rows, Table, Tables, take

Array = jax.Array
INPUTS = 'words', 'contexts', 'logs', 'weights'


class Glove(nn.Module):
  """The tables of a GloVe.

  `input` has the vectors w and biases b of words, `output` the vectors c and
  biases d of contexts. Each is [V, E], V padded, the bias in the last column,
  and lies in shards of its rows.

  Attributes:
    vocab_size: V, unpadded.
    embed_dim: D.
  """

  vocab_size: int
  embed_dim: int

  def setup(self):
    """Creates the tables; vectors and biases are U(-1/2, 1/2) / D."""
    shape = layers.pad_vocab(self.vocab_size), self.embed_dim + 1
    init = batched.draw_rows(self.vocab_size, self.embed_dim)
    self.tables = {
      'input': Table(init, shape, name='input')(),
      'output': Table(init, shape, name='output')(),
    }

  def example_inputs(self) -> tuple[tuple, dict[str, Any]]:
    """Returns shapes of a smallest call's inputs, and its keyword arguments."""
    return (), {'method': 'create'}

  def create(self) -> None:
    """Makes `setup` create the tables, without computing anything."""

  def __call__(self, *inputs: Array, train: bool) -> dict[str, Array]:
    """Returns {'loss', 'entries'}, float32 [B]: sums over the entries of a row.

    The inputs are the batch's `INPUTS`. The loss of an entry is
    f (w . c + b + d - log X)^2 / 2, which the release prints.
    """
    del train
    batch = dict(zip(INPUTS, inputs, strict=True))
    errors_BT = _errors(*_rows(self.tables, batch), batch)
    weights_BT = batch['weights']
    return {
      'loss': (weights_BT * errors_BT**2).sum(axis=1) / 2,
      'entries': count_entries(batch),
    }


def count_entries(batch: Mapping[str, Array]) -> Array:
  """Returns the number of entries of each row, float32 [B]."""
  return (batch['weights'] > 0).sum(axis=1).astype(jnp.float32)


def gradients(tables: Tables, batch: Mapping[str, Array]) -> list[Rows]:
  """Returns the negative gradient of each entry's loss, [B, T, E] of a table.

  All rows are read before any is changed.
  """
  words_BTE, contexts_BTE = _rows(tables, batch)
  slopes_BT1 = -(batch['weights'] * _errors(words_BTE, contexts_BTE, batch))
  slopes_BT1 = slopes_BT1[..., None]
  return [
    Rows('input', batch['words'], slopes_BT1 * _with_one(contexts_BTE)),
    Rows('output', batch['contexts'], slopes_BT1 * _with_one(words_BTE)),
  ]


def update(
  tables: Tables, squares: Tables, batch: Mapping[str, Array], rate: Array
) -> tuple[dict[str, Array], dict[str, Array], Array]:
  """Returns new tables, sums of squares, and the gradients' squared norm.

  AdaGrad as released until January 2020: the gradient g of each entry is first
  multiplied by the rate, r g; a number moves by -r g / sqrt(G), where G is 1
  and the sum of all (r g)^2 before; then (r g)^2 is added to G. The entries of
  an update read the same tables and sums, and both of their changes are summed.
  Where the norm is not finite, nothing changes; nor at a rate of 0.
  """
  found = gradients(tables, batch)
  square = sum(jnp.vdot(row.deltas, row.deltas) for row in found)
  rate = jnp.where(jnp.isfinite(square), rate, 0.0)
  changes = {}
  for table, ids, deltas in found:
    steps = jnp.where(rate > 0, rate * deltas, 0.0)
    old = take(squares[table], ids)
    # Sums are at least 1. That they are read for both changes lets the table
    # be written in its place: else the compiler would copy it for its reader.
    sums = jnp.where(old > 0, steps**2, 0.0)
    changes[table] = ids, steps * jax.lax.rsqrt(old), sums
  tables, squares = dict(tables), dict(squares)
  for table, (ids, moves, sums) in changes.items():
    for target, added in ((tables, moves), (squares, sums)):
      target[table] = target[table].at[ids].add(added, mode='promise_in_bounds')
  return tables, squares, square


def _rows(tables: Tables, batch: Mapping[str, Array]) -> tuple[Array, Array]:
  """Returns the rows of words and contexts, each float32 [B, T, E]."""
  return (
    take(tables['input'], batch['words']),
    take(tables['output'], batch['contexts']),
  )


def _errors(
  words_BTE: Array, contexts_BTE: Array, batch: Mapping[str, Array]
) -> Array:
  """Returns w . c + b + d - log X, float32 [B, T]."""
  products_BTE = jnp.where(
    _is_bias(words_BTE), words_BTE + contexts_BTE, words_BTE * contexts_BTE
  )
  return products_BTE.sum(axis=-1) - batch['logs']


def _with_one(rows_BTE: Array) -> Array:
  """Returns rows with 1 in place of the bias: the gradient of the score."""
  return jnp.where(_is_bias(rows_BTE), 1.0, rows_BTE)


def _is_bias(rows: Array) -> Array:
  return jnp.arange(rows.shape[-1]) == rows.shape[-1] - 1
