"""BiDAF++ (Clark and Gardner 2018), as ELMo's authors train it on SQuAD.

Shapes: B example, P a question and its text, Q word of the question, T word of
the text, S word attended to, D features, E added features, F cells. The layers,
sizes, rates and initial values are those of allenai/document-qa,
docqa/elmo/ablate_elmo_model.py and docqa/nn.
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models.elmo_tasks import bidaf, gru, parts
from models.layers import LOWEST, Dtype, named

Array = jax.Array

NO_ALIGNMENT = -1.0  # as drawn


class BidafPlus(nn.Module):
  """BiDAF of GRUs, with attention of the text to itself before the pointers.

  Attributes:
    gru_dim: F of each direction; the dense layers have 2 F outputs.
    dropout_rate: of the GRUs' inputs and outputs up to the pointers, with one
      mask for all positions of a text.
    max_question: words of a question that are read at most.
    dtype: of activations; parameters and logits are float32.
  """

  gru_dim: int = 90
  dropout_rate: float = 0.2
  max_question: int = 64
  dtype: Dtype = jnp.float32

  num_outputs = 2  # logits of a word: the answer's first, its last

  @nn.compact
  def __call__(
    self,
    x_BPTD: Array,
    mask_BPT: Array,
    added_BPTE: Array | None = None,
    *,
    train: bool,
  ) -> Array:
    """Returns float32 logits [B, T, 2] of the text's words, -1e7 at padding.

    Args:
      x_BPTD: vectors of words, float [B, 2, T, D], the question's first.
      mask_BPT: bool; True at real words, which come first.
      added_BPTE: float [B, 2, T, E], appended to the first GRU's outputs.
      train: apply dropout (rng stream 'dropout').
    """
    parts.check_texts(x_BPTD.shape, 2, 'BiDAF++')
    make_gru = functools.partial(gru.BiGru, self.gru_dim, self.dtype)
    encoder = make_gru(name='encoder')

    def drop(x: Array) -> Array:
      return parts.VariationalDropout(self.dropout_rate if train else 0.0)(x)

    def dense(x: Array, name: str) -> Array:
      width = 2 * self.gru_dim
      return nn.relu(
        parts.linear(x, width, 'xavier', dtype=self.dtype, name=name)
      )

    def encode(x: Array, mask: Array, added: Array | None) -> Array:
      x = drop(parts.zero_padding(x.astype(self.dtype), mask))
      return parts.append(drop(encoder(x, mask)), added, mask)

    (question_BQD, question_mask_BQ), (x_BTD, mask_BT) = [
      (encode(x, mask, added), mask)
      for x, mask, added in bidaf.split(
        x_BPTD, mask_BPT, added_BPTE, self.max_question
      )
    ]
    scores_BTQ = bidaf.Similarity('apart', name='similarity')(
      x_BTD, question_BQD
    )
    merged_BTD = bidaf.flow(
      x_BTD,
      question_BQD,
      softmax(scores_BTQ, question_mask_BQ[:, None]),
      softmax(bidaf.row_maxima(scores_BTQ, question_mask_BQ), mask_BT),
    )
    read_BTF = dense(merged_BTD, 'merge')
    own_BTF = drop(make_gru(name='self_encoder')(drop(read_BTF), mask_BT))
    attended_BTF = ContextAttention(name='self_attention')(own_BTF, mask_BT)
    read_BTF += dense(
      jnp.concatenate([attended_BTF, own_BTF, attended_BTF * own_BTF], axis=-1),
      'self_merge',
    )
    read_BTF = drop(read_BTF)
    first_BTF = make_gru(name='first_encoder')(read_BTF, mask_BT)
    last_BTF = make_gru(name='last_encoder')(
      jnp.concatenate([read_BTF, first_BTF], axis=-1), mask_BT
    )
    logits = [
      parts.linear(
        x_BTF.astype(jnp.float32),
        1,
        'xavier',
        out_names=('classes',),
        name=name,
      )
      for name, x_BTF in (('first', first_BTF), ('last', last_BTF))
    ]
    return bidaf.mask_logits(jnp.concatenate(logits, axis=-1), mask_BT)


class ContextAttention(nn.Module):
  """Averages of a text's other words, or of none of them.

  The weights are exp(score) / (exp(b) + the sum of exp(score)): a word with low
  scores attends to nothing. b is learned.
  """

  @nn.compact
  def __call__(self, x_BTD: Array, mask_BT: Array) -> Array:
    """Returns [B, T, D], in the dtype of x."""
    b = self.param(
      'no_alignment', named(nn.initializers.constant(NO_ALIGNMENT), ()), ()
    )
    scores_BTS = bidaf.Similarity('apart', name='similarity')(x_BTD, x_BTD)
    others_BTS = mask_BT[:, None] & ~jnp.eye(x_BTD.shape[1], dtype=bool)
    weights_BTS = softmax(scores_BTS, others_BTS, b)
    return jnp.einsum('BTS,BSD->BTD', weights_BTS.astype(x_BTD.dtype), x_BTD)


def softmax(scores: Array, mask: Array, other: Array | None = None) -> Array:
  """Returns the softmax over the True places of the last axis, or 0 without.

  `other`, [], is the score of a further place, whose weight is not returned.
  """
  scores = jnp.where(mask, scores, LOWEST)
  highest = scores.max(axis=-1, keepdims=True)
  if other is not None:
    highest = jnp.maximum(highest, other)
  highest = lax.stop_gradient(highest)
  shares = jnp.where(mask, jnp.exp(scores - highest), 0)
  total = shares.sum(axis=-1, keepdims=True)
  if other is not None:
    total += jnp.exp(other - highest)
  return shares / jnp.where(total > 0, total, 1)
