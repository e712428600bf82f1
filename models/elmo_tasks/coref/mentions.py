"""Spans as vectors, and their scores as mentions.

Shapes: B document, T word, E features of an encoded word, H features of a
word's own vector, P features of a width, W width of a span in words, N
candidate, K kept span, F hidden, S features of a span: [first word; last word;
width; head].
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from models.elmo_tasks.coref import scorer, spans
from models.layers import LOWEST, constrain_hidden

Array = jax.Array


class Words(NamedTuple):
  """Words of documents, 0 at padding.

  Attributes:
    encoded_BTE: outputs of the BiLSTM.
    own_BTH: vectors of words, of which heads are averages.
    heads_BT: float32 logits of the average's weights.
  """

  encoded_BTE: Array
  own_BTH: Array
  heads_BT: Array


def score_candidates(
  weights: scorer.ScorerWeights,
  widths_WP: Array,
  words: Words,
  drop: scorer.Drop | None,
) -> Array:
  """Returns the mention scores of all spans, float32 [B, N], at no gradient.

  The first layer is applied to words before spans are made of them, so no
  candidate has a vector. Scores are meaningless at spans beyond a sentence.
  """
  weights, widths_WP, words = lax.stop_gradient((weights, widths_WP, words))
  W, P = widths_WP.shape
  B, T, E = words.encoded_BTE.shape
  of_first_EF, of_last_EF, of_width_PF, of_head_HF = jnp.split(
    weights.first_DF, [E, 2 * E, 2 * E + P]
  )
  # A span's head is an average of the words in it: weights by width and place.
  heads_BTW = spans.windows(words.heads_BT[..., None], W)[..., 0]
  inside_WW = jnp.tril(jnp.ones((W, W), bool))
  shares_BTWW = jax.nn.softmax(
    jnp.where(inside_WW, heads_BTW[..., None, :], LOWEST), axis=-1
  )
  own_BTWF = spans.windows(words.own_BTH @ of_head_HF, W)
  hidden_BTWF = shares_BTWW.astype(own_BTWF.dtype) @ own_BTWF
  hidden_BTWF += spans.windows(words.encoded_BTE @ of_last_EF, W)
  hidden_BTWF += (words.encoded_BTE @ of_first_EF)[..., None, :]
  hidden_BNF = hidden_BTWF.reshape(B, T * W, -1)
  widths_NP = jnp.tile(widths_WP, (T, 1))
  hidden_BNF += scorer.drop_features(drop, widths_NP[None]) @ of_width_PF
  return scorer.finish(weights, hidden_BNF, drop)


def span_vectors(
  widths_WP: Array,
  words: Words,
  candidates_BK: Array,
  drop: scorer.Drop | None,
) -> Array:
  """Returns the vectors [B, K, S] of spans by their number as candidates."""
  W = len(widths_WP)
  first_BK, longer_BK = candidates_BK // W, candidates_BK % W
  last_BK = first_BK + longer_BK
  widths_BKP = scorer.drop_features(drop, widths_WP[longer_BK])
  # Weights of all words: a product's gradient is faster than a look-up's.
  places_T = jnp.arange(words.heads_BT.shape[1])
  is_inside_BKT = (places_T >= first_BK[..., None]) & (
    places_T <= last_BK[..., None]
  )
  shares_BKT = jax.nn.softmax(
    jnp.where(is_inside_BKT, words.heads_BT[:, None], LOWEST), axis=-1
  )
  look_up = jax.vmap(lambda x_TE, places_K: x_TE[places_K])
  return jnp.concatenate(
    [
      look_up(words.encoded_BTE, first_BK),
      look_up(words.encoded_BTE, last_BK),
      widths_BKP,
      shares_BKT.astype(words.own_BTH.dtype) @ words.own_BTH,
    ],
    axis=-1,
  )


def score(
  weights: scorer.ScorerWeights, spans_BKS: Array, drop: scorer.Drop | None
) -> Array:
  """Returns the mention scores of spans by their vectors, float32 [B, K]."""
  # Constrained, as in `lstm.BiLstm`.
  first_BKF = constrain_hidden(spans_BKS) @ weights.first_DF
  return scorer.finish(weights, first_BKF, drop)
