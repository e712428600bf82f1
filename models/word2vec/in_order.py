"""word2vec's updates one after the other, as one thread of word2vec.c does.

Each pair of skip-gram, each word of CBOW and each sampled word sees the changes
of all before it. That is slow where steps are compiled for arrays; it is there
to compare with, and for texts too small for batches.

Shapes: as in `batched`; O place in the window, W sampled word.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from models.word2vec.batched import MAX_SCORE, Tables, Word2Vec

Array = jax.Array

_TABLE_SIZE = 1000  # of values of the sigmoid
# The release divides whole numbers (EXP_TABLE_SIZE / MAX_EXP / 2), so values
# are those of points up to 0.024 lower.
_PER_UNIT = int(_TABLE_SIZE // MAX_SCORE // 2)
_SIGMOID = (
  1 / (1 + np.exp(-(np.arange(_TABLE_SIZE) / _TABLE_SIZE * 2 - 1) * MAX_SCORE))
).astype(np.float32)


def update(
  model: Word2Vec, tables: Tables, batch: Mapping[str, Array], rate: Array
) -> dict[str, Array]:
  """Returns the tables after all updates of a batch, in the order of the text.

  The batch is as for `batched`, but with `draws` int [B, T, O, W] in
  place of `samples`: the sampled words of each pair, where O is 2 w, of places
  from left to right; of CBOW, O is 1.
  """
  w = model.window
  offsets = np.concatenate([np.arange(-w, 0), np.arange(1, w + 1)])
  tokens_BT, segments_BT = batch['tokens'], batch['segments']
  length = tokens_BT.shape[1]
  place_TO = jnp.arange(length)[:, None] + offsets
  inside_TO = (place_TO >= 0) & (place_TO < length)
  place_TO = jnp.clip(place_TO, 0, length - 1)
  used_BTO = (
    inside_TO
    & (segments_BT[:, place_TO] == segments_BT[..., None])
    & (segments_BT[..., None] >= 0)
    & (np.abs(offsets) <= batch['reach'][..., None])
  )
  updates = {
    'target': tokens_BT,
    'contexts': tokens_BT[:, place_TO],
    'used': used_BTO,
  } | {
    name: batch[name] for name in ('draws', 'paths', 'turns') if name in batch
  }
  updates = {
    name: array.reshape(-1, *array.shape[2:]) for name, array in updates.items()
  }
  of_word = _of_pairs if model.kind == 'skipgram' else _of_mean

  def one(tables: Tables, word: Tables) -> tuple[Tables, None]:
    return of_word(tables, word, rate), None

  return jax.lax.scan(one, dict(tables), updates)[0]


def _of_pairs(tables: Tables, word: Tables, rate: Array) -> Tables:
  """Updates the tables by each pair of a word and a word of its window."""

  def one(tables: Tables, pair: tuple) -> tuple[Tables, None]:
    context, used, draws = pair
    vector_D = tables['input'][context]
    tables, error_D = _learn(tables, vector_D, word, draws, rate * used)
    return _add(tables, 'input', context, error_D), None

  draws = word.get('draws')
  if draws is None:
    draws = jnp.zeros((len(word['used']), 0), jnp.int32)
  pairs = word['contexts'], word['used'], draws
  return jax.lax.scan(one, tables, pairs)[0]


def _of_mean(tables: Tables, word: Tables, rate: Array) -> Tables:
  """Updates the tables by a word and the mean of its window."""
  used_O1 = word['used'][:, None]
  count = used_O1.sum()
  vectors_OD = tables['input'][word['contexts']]
  mean_D = (vectors_OD * used_O1).sum(axis=0) / jnp.maximum(count, 1)
  draws = word['draws'][0] if 'draws' in word else None
  tables, error_D = _learn(tables, mean_D, word, draws, rate * (count > 0))
  return _add(tables, 'input', word['contexts'], used_O1 * error_D)


def _learn(
  tables: Tables, vector_D: Array, word: Tables, draws_W: Array, rate: Array
) -> tuple[Tables, Array]:
  """Updates the tables of targets; returns them and the error of a vector."""
  error_D = jnp.zeros_like(vector_D)
  if 'nodes' in tables:
    ids_P = jnp.maximum(word['paths'], 0)
    nodes_PD = tables['nodes'][ids_P]
    scores_P = nodes_PD @ vector_D
    learns_P = (word['paths'] >= 0) & (jnp.abs(scores_P) < MAX_SCORE)
    slopes_P = rate * learns_P * (word['turns'] - _sigmoid(scores_P))
    error_D += slopes_P @ nodes_PD
    tables = _add(tables, 'nodes', ids_P, slopes_P[:, None] * vector_D)
  if 'output' in tables:
    target = word['target']

    def one(so_far: tuple, sampled: tuple) -> tuple[tuple, None]:
      tables, error_D = so_far
      other, is_target = sampled
      learns = is_target | (other != target)
      other_D = tables['output'][other]
      score = other_D @ vector_D
      slope = rate * learns * (is_target - _sigmoid(score))
      tables = _add(tables, 'output', other, slope * vector_D)
      return (tables, error_D + slope * other_D), None

    others = jnp.concatenate([target[None], draws_W])
    (tables, error_D), _ = jax.lax.scan(
      one, (tables, error_D), (others, jnp.arange(len(others)) == 0)
    )
  return tables, error_D


def _add(tables: Tables, name: str, ids: Array, deltas: Array) -> Tables:
  return {**tables, name: tables[name].at[ids].add(deltas)}


def _sigmoid(scores: Array) -> Array:
  """Returns the release's sigmoid, of a table, and 0 or 1 beyond its ends."""
  place = ((scores + MAX_SCORE) * _PER_UNIT).astype(jnp.int32)
  inner = jnp.asarray(_SIGMOID)[jnp.clip(place, 0, _TABLE_SIZE - 1)]
  return jnp.where(jnp.abs(scores) <= MAX_SCORE, inner, scores > 0)
