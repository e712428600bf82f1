"""Spans as vectors, and their scores as mentions.

Shapes: B document, R sentence, T word of a sentence, U word of the padded grid
(R x T), E features of an encoded word, H features of a word's own vector, P
features of a width, W width of a span in words, N candidate, K kept span, F
hidden, S features of a span: [first word; last word; width; head].
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from models.elmo_tasks.coref import scorer, spans
from models.layers import LOWEST

Array = jax.Array


class Words(NamedTuple):
  """Words of documents, 0 at padding.

  Attributes:
    encoded_BRTE: outputs of the BiLSTM.
    own_BRTH: vectors of words, of which heads are averages.
    heads_BRT: float32 logits of the average's weights.
  """

  encoded_BRTE: Array
  own_BRTH: Array
  heads_BRT: Array


def score_candidates(
  weights: scorer.Weights,
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
  B, R, T, E = words.encoded_BRTE.shape
  of_first_EF, of_last_EF, of_width_PF, of_head_HF = jnp.split(
    weights.first_DF, [E, 2 * E, 2 * E + P]
  )
  # A span's head is an average of the words in it: weights by width and place.
  heads_BRTW = spans.windows(words.heads_BRT[..., None], W)[..., 0]
  inside_WW = jnp.tril(jnp.ones((W, W), bool))
  shares_BRTWW = jax.nn.softmax(
    jnp.where(inside_WW, heads_BRTW[..., None, :], LOWEST), axis=-1
  )
  own_BRTWF = spans.windows(words.own_BRTH @ of_head_HF, W)
  hidden_BRTWF = shares_BRTWW.astype(own_BRTWF.dtype) @ own_BRTWF
  hidden_BRTWF += spans.windows(words.encoded_BRTE @ of_last_EF, W)
  hidden_BRTWF += (words.encoded_BRTE @ of_first_EF)[..., None, :]
  hidden_BNF = hidden_BRTWF.reshape(B, R * T * W, -1)
  widths_NP = jnp.tile(widths_WP, (R * T, 1))
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
  B, R, T, E = words.encoded_BRTE.shape
  first_BK, longer_BK = candidates_BK // W, candidates_BK % W
  last_BK = first_BK + longer_BK
  encoded_BUE = words.encoded_BRTE.reshape(B, R * T, E)
  widths_BKP = scorer.drop_features(drop, widths_WP[longer_BK])
  # Weights of all words: a product's gradient is faster than a look-up's.
  places_U = jnp.arange(R * T)
  is_inside_BKU = (places_U >= first_BK[..., None]) & (
    places_U <= last_BK[..., None]
  )
  shares_BKU = jax.nn.softmax(
    jnp.where(is_inside_BKU, words.heads_BRT.reshape(B, 1, R * T), LOWEST),
    axis=-1,
  )
  own_BUH = words.own_BRTH.reshape(B, R * T, -1)
  look_up = jax.vmap(lambda x_UE, places_K: x_UE[places_K])
  return jnp.concatenate(
    [
      look_up(encoded_BUE, first_BK),
      look_up(encoded_BUE, last_BK),
      widths_BKP,
      shares_BKU.astype(own_BUH.dtype) @ own_BUH,
    ],
    axis=-1,
  )
