"""End-to-end coreference resolution (Lee et al. 2017, 2018).

Shapes: B document, T word, R row of sentences, V word of a row, D features of a
word, E added features or features of an encoded word, H features of a word's
own vector, W width of a span in words, N candidate, K kept span, A antecedent,
F hidden, S features of a span. Sources:
kentonl/e2e-coref @ 53c41166 (2017) and @ 9d1ee197 (2018); AllenNLP 0.9.0,
models/coreference_resolution/coref.py and training_config/coref.jsonnet.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models import dropout, layers, lstm
from models.dropout import Dropout
from models.elmo_tasks import parts
from models.elmo_tasks.coref import (
  coupled_lstm,
  mentions,
  pairs,
  scorer,
  spans,
)
from models.layers import Dtype, named

Array = jax.Array

VARIANTS = ('2017', '2018', 'allennlp')


class EndToEndCoref(nn.Module):
  """Spans of words scored as mentions, and pairs of them as coreferent.

  '2017' is the model of the paper: a BiLSTM with coupled gates over each
  sentence; spans [first word; last word; width; head], whose head is an average
  of the words' own vectors by scores of their encodings; spans kept by score
  that do not cross; antecedents scored by a network on [target; antecedent;
  product; same speaker; genre; distance]. Two unknown speakers are the same
  one, as in the release.

  '2018' adds the higher-order inference of Lee et al. 2018: antecedents are
  chosen from all spans before by their mention scores and a bilinear score,
  which the final score keeps, and spans are refined once, by a gate, with
  the antecedents they expect (second order). Kept from that release: highway
  layers between LSTMs, their dropout of twice `dropout_rate`, a dropout mask
  of its own for the heads. Its sizes are num_layers=3, max_width=30,
  max_antecedents=50. Not kept: its head vectors of other training (they are
  the first `head_dim` features of x here) and one orthonormal matrix for a
  gate's input and hidden kernels (hidden only, as in 2017).

  'allennlp' is AllenNLP's: an ordinary BiLSTM over the whole document, heads
  scored by the words' own vectors, spans may cross, neither speakers nor
  genres, dropout only of vectors and hidden layers. Its max_antecedents is
  100. The BiLSTM starts Xavier uniform where AllenNLP's starts Xavier normal.

  Memory is bounded by `pairs`, for pairs of spans; candidates are scored
  without gradient, from products of words instead of span vectors, and only
  kept spans again with gradient, by the same dropout masks.

  Attributes:
    num_genres: of documents.
    variant: one of `VARIANTS`.
    lstm_dim: of each direction.
    num_layers: of the BiLSTM.
    hidden_dim: F of the scores' two layers each.
    head_dim: H, the first features of x, which are the words' own vectors; 0
      for all, as 'allennlp' has it whatever is given.
    max_width: W, the most words of a span.
    kept_per_word: spans kept for each word of a document.
    max_antecedents: A at most.
    feature_dim: of each embedding of widths, speakers, genres, distances.
    dropout_rate: of all but the vectors of words.
    lexical_dropout_rate: of the vectors of words.
    dtype: of activations; parameters and scores are float32.
  """

  num_genres: int
  variant: str = '2017'
  lstm_dim: int = 200
  num_layers: int = 1
  hidden_dim: int = 150
  head_dim: int = 0
  max_width: int = 10
  kept_per_word: float = 0.4
  max_antecedents: int = 250
  feature_dim: int = 20
  dropout_rate: float = 0.2
  lexical_dropout_rate: float = 0.5
  dtype: Dtype = jnp.float32

  num_outputs = 3  # of a link: first and last word, antecedent

  @nn.compact
  def __call__(
    self,
    x_B1TD: Array,
    mask_B1T: Array,
    added_B1TE: Array | None = None,
    *,
    sentences_BT: Array,
    sentence_rows_BRV: Array,
    speakers_BT: Array,
    genres_B: Array,
    train: bool,
  ) -> dict[str, Array]:
    """Returns the kept spans of documents and scores of their antecedents.

    K = floor(kept_per_word T), or all spans if they are fewer, at least 1; a
    document keeps at most floor(kept_per_word x its words). A =
    min(max_antecedents, K).

    Args:
      x_B1TD: vectors of words, float.
      mask_B1T: bool; True at real words, which come first.
      added_B1TE: float, appended to the BiLSTM's outputs.
      sentences_BT: int32, the number of each word's sentence, -1 at padding.
      sentence_rows_BRV: int32, the places of the sentences' words in rows of
        whole sentences, in which the BiLSTM reads them; -1 at padding, at the
        end of rows. 'allennlp' does not read it.
      speakers_BT: int, the number of each word's speaker, 0 if unknown.
      genres_B: int in 0..num_genres - 1.
      train: apply dropout (rng stream 'dropout').

    Returns:
      starts, ends: int32 [B, K], first and last word; -1 at padding, at the
        end.
      antecedents: int32 [B, K, A], places of spans among the kept, nearest
        first; -1 where there is none, at the end.
      logits: float32 [B, K, 1 + A], of no antecedent, which is 0, and of each
        antecedent; the lowest float32 where there is none.
      mention_scores: float32 [B, K]; 0 at padding.

    Raises:
      ValueError: if the variant is unknown or x_B1TD is not one text.
    """
    if self.variant not in VARIANTS:
      raise ValueError(
        f'variant is {self.variant!r}, expected one of {VARIANTS}'
      )
    parts.check_texts(x_B1TD.shape, 1, 'coreference')
    x_BTD, mask_BT = x_B1TD[:, 0].astype(self.dtype), mask_B1T[:, 0]
    D, W = x_BTD.shape[-1], self.max_width
    rate = self.dropout_rate if train else 0.0
    lexical_drop = Dropout(self.lexical_dropout_rate if train else 0.0)
    x_BTD = parts.zero_padding(x_BTD, mask_BT)
    dropped_BTD = lexical_drop(x_BTD)
    head_dim = D if self.variant == 'allennlp' else self.head_dim or D
    words = self._read(
      dropped_BTD,
      (lexical_drop(x_BTD) if self.variant == '2018' else dropped_BTD)[
        ..., :head_dim
      ],
      mask_BT,
      None if added_B1TE is None else added_B1TE[:, 0],
      sentences_BT,
      sentence_rows_BRV,
      train=train,
    )
    widths_WP = self._table('widths', W)
    num_features = 2 * words.encoded_BTE.shape[-1] + words.own_BTH.shape[-1]
    num_features += self.feature_dim
    weights = self._scorer('mention_scorer')(num_features)
    make_drop = self._make_drop(len(x_BTD), rate)

    N = mask_BT.shape[1] * W
    kept_BK = spans.prune(
      mentions.score_candidates(
        weights,
        widths_WP,
        words,
        make_drop(jnp.arange(N, dtype=jnp.int32)[None]),
      ),
      spans.candidates(sentences_BT, W),
      spans.num_kept(mask_BT, self.kept_per_word),
      spans.max_kept(mask_BT.shape[1], W, self.kept_per_word),
      W,
      may_cross=self.variant == 'allennlp',
    )
    is_real_BK = kept_BK < N
    kept_BK = jnp.where(is_real_BK, kept_BK, 0)
    spans_BKS = jnp.where(
      is_real_BK[..., None],
      mentions.span_vectors(widths_WP, words, kept_BK, make_drop(kept_BK)),
      0,
    )
    scores_BK = mentions.score(weights, spans_BKS, make_drop(kept_BK))
    scores_BK = jnp.where(is_real_BK, scores_BK, 0)

    first_BK, longer_BK = kept_BK // W, kept_BK % W
    speakers_BK = jnp.take_along_axis(speakers_BT, first_BK, axis=1)
    antecedents_BKA, scores_BKA = self._score_pairs(
      spans_BKS, scores_BK, is_real_BK, speakers_BK, genres_B, rate
    )
    scores_BKA = jnp.where(antecedents_BKA >= 0, scores_BKA, layers.LOWEST)
    return {
      'starts': jnp.where(is_real_BK, first_BK, -1),
      'ends': jnp.where(is_real_BK, first_BK + longer_BK, -1),
      'antecedents': antecedents_BKA,
      'logits': jnp.pad(scores_BKA, [(0, 0), (0, 0), (1, 0)]),
      'mention_scores': scores_BK,
    }

  def _read(
    self,
    x_BTD: Array,
    own_BTH: Array,
    mask_BT: Array,
    added_BTE: Array | None,
    sentences_BT: Array,
    sentence_rows_BRV: Array,
    *,
    train: bool,
  ) -> mentions.Words:
    """Returns words, read by the BiLSTM."""
    rate = self.dropout_rate
    if self.variant == 'allennlp':
      encoded_BTE, _ = lstm.BiLstm(
        self.num_layers,
        self.lstm_dim,
        self.dtype,
        'orthogonal',
        name='encoder',
      )(x_BTD, mask_BT, train=train)
      encoded_BTE = parts.zero_padding(encoded_BTE, mask_BT)
    else:
      bilstm = coupled_lstm.CoupledBiLstm(
        self.num_layers,
        self.lstm_dim,
        # The release of 2018: 0.4 beside 0.2 elsewhere.
        2 * rate if self.variant == '2018' else rate,
        self.dtype,
        name='encoder',
      )
      encoded_BTE = _read_rows(
        bilstm, x_BTD, sentences_BT, sentence_rows_BRV, train=train
      )
    encoded_BTE = parts.append(encoded_BTE, added_BTE, mask_BT)
    read = own_BTH if self.variant == 'allennlp' else encoded_BTE
    heads_BT = self._linear(read.shape[-1], 1, 'head', 'classes')(read)[..., 0]
    return mentions.Words(encoded_BTE, own_BTH, heads_BT.astype(jnp.float32))

  def _score_pairs(
    self,
    spans_BKS: Array,
    scores_BK: Array,
    is_real_BK: Array,
    speakers_BK: Array,
    genres_B: Array,
    rate: float,
  ) -> tuple[Array, Array]:
    """Returns antecedents, -1 where none, and their scores [B, K, A]."""
    (B, K, S), P = spans_BKS.shape, self.feature_dim
    A = min(self.max_antecedents, K)
    distances_10P = self._table('distances', spans.NUM_DISTANCES)
    speakers_2P, genres_BP = None, None
    if self.variant != 'allennlp':
      speakers_2P = self._table('speakers', 2)
      genres_BP = self._table('genres', self.num_genres)[genres_B]
    weights = self._scorer('pair_scorer')(
      3 * S + (P if self.variant == 'allennlp' else 3 * P)
    )
    seeds_BK = None
    if rate:
      drawn = dropout.draw_seeds(self.make_rng('dropout'), (B, K))
      seeds_BK = drawn.first, drawn.second
    coarse_BKK = None
    if self.variant == '2018':
      coarse_BKK = self._coarse_scores(spans_BKS, rate)
      gate = self._linear(2 * S, S, 'refinement').weights((2 * S,))

    def score(inputs: tuple) -> tuple[Array, Array]:
      spans_KS, scores_K, count, speakers_K, genre_P, seeds_K, coarse_KK = (
        inputs
      )
      features = pairs.Features(
        distances_10P,
        speakers_2P,
        genre_P,
        speakers_K,
        are_dropped=self.variant != 'allennlp',
      )
      if coarse_KK is None:
        places_K1 = jnp.arange(K)[:, None]
        antecedents_KA = places_K1 - 1 - jnp.arange(A)
        is_real_KA = (antecedents_KA >= 0) & (places_K1 < count)
        found_KA = pairs.nearest_scores(
          weights,
          spans_KS,
          count,
          features,
          A,
          seeds_K and dropout.Seeds(*seeds_K),
          rate,
        )
        found_KA += scores_K[:, None] + scores_K[antecedents_KA]
        return jnp.where(is_real_KA, antecedents_KA, -1), found_KA
      coarse_KK = coarse_KK + scores_K[:, None] + scores_K
      chosen = pairs.choose(coarse_KK, count, A)

      def score_chosen(spans_KS: Array, turn: int) -> tuple[Array, Array]:
        return pairs.chosen_scores(
          weights,
          spans_KS,
          count,
          features,
          *chosen,
          seeds_K and dropout.Seeds(*seeds_K, dropout.salt(turn)),
          rate,
        )

      _, expected_KS = score_chosen(spans_KS, 0)
      found_KA, _ = score_chosen(_refine(*gate, spans_KS, expected_KS), 1)
      return chosen[0], found_KA

    # A document after the other, as the loops skip blocks of each one's own.
    return lax.map(
      score,
      (
        spans_BKS,
        scores_BK,
        is_real_BK.sum(axis=1),
        speakers_BK,
        genres_BP,
        seeds_BK,
        coarse_BKK,
      ),
    )

  def _coarse_scores(self, spans_BKS: Array, rate: float) -> Array:
    """Returns float32 [B, target, antecedent], bilinear scores."""
    S = spans_BKS.shape[-1]
    targets_BKS = Dropout(rate)(self._linear(S, S, 'coarse')(spans_BKS))
    return jnp.einsum(
      'BKS,BJS->BKJ',
      targets_BKS,
      Dropout(rate)(spans_BKS),
      preferred_element_type=jnp.float32,
    )

  def _make_drop(
    self, B: int, rate: float
  ) -> Callable[[Array], scorer.Drop | None]:
    """Returns a function of candidates' numbers that returns their dropout."""
    if not rate:
      return lambda candidates_BK: None
    seeds_B = dropout.draw_seeds(self.make_rng('dropout'), (B,))
    return lambda candidates_BK: scorer.Drop(
      seeds_B,
      candidates_BK,
      rate,
      with_features=self.variant != 'allennlp',
    )

  @property
  def _start(self) -> str:
    return 'allennlp' if self.variant == 'allennlp' else 'tensorflow'

  def _linear(
    self, fan_in: int, fan_out: int, name: str, out_name: str = 'mlp'
  ) -> layers.Linear:
    return scorer.linear(
      fan_in,
      fan_out,
      start=self._start,
      name=name,
      out_name=out_name,
      dtype=self.dtype,
    )

  def _scorer(self, name: str) -> scorer.Scorer:
    return scorer.Scorer(self.hidden_dim, self._start, self.dtype, name=name)

  def _table(self, name: str, rows: int) -> Array:
    kernel_init, _ = scorer.STARTS[self._start](rows, self.feature_dim)
    table = self.param(
      name, named(kernel_init, (None, 'embed')), (rows, self.feature_dim)
    )
    return jnp.asarray(table, self.dtype)


def _read_rows(
  bilstm: coupled_lstm.CoupledBiLstm,
  x_BTD: Array,
  sentences_BT: Array,
  rows_BRV: Array,
  *,
  train: bool,
) -> Array:
  """Returns a BiLSTM's outputs [B, T, E] on sentences, 0 at padding."""
  (B, T, _), (_, R, V) = x_BTD.shape, rows_BRV.shape
  places_BU = rows_BRV.reshape(B, R * V)
  look_up = jax.vmap(lambda x_TD, places_U: x_TD[places_U])

  def in_rows(x: Array) -> Array:
    found = look_up(x, jnp.maximum(places_BU, 0))
    return found.reshape(B * R, V, *x.shape[2:])

  sentences_NV = jnp.where(
    rows_BRV.reshape(B * R, V) >= 0, in_rows(sentences_BT), -1
  )
  outputs_NVE = bilstm(in_rows(x_BTD), sentences_NV, train=train)
  # Padding's place is behind the end, where nothing is written.
  ends_BU = jnp.where(places_BU < 0, T, places_BU)
  back_BT = jax.vmap(
    lambda ends_U: (
      jnp.zeros(T, jnp.int32).at[ends_U].set(jnp.arange(R * V), mode='drop')
    )
  )(ends_BU)
  outputs_BTE = look_up(outputs_NVE.reshape(B, R * V, -1), back_BT)
  return parts.zero_padding(outputs_BTE, sentences_BT >= 0)


def _refine(
  kernel: Array, bias_1S: Array, spans_KS: Array, expected_KS: Array
) -> Array:
  """Returns spans [K, S] mixed with the antecedents they expect."""
  both = jnp.concatenate([spans_KS, expected_KS], axis=-1)
  share_KS = nn.sigmoid(both @ kernel + bias_1S)
  return share_KS * expected_KS + (1 - share_KS) * spans_KS
