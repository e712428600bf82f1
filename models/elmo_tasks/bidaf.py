"""BiDAF (Seo et al. 2017), as AllenNLP 0.9.0 builds it.

Shapes: B example, P a question and its text, Q word of the question, T word of
the text, D features, E added features, F cells, S words attended to. Sizes and
rates are those of AllenNLP 0.9.0, training_config/bidaf_elmo.jsonnet, initial
values PyTorch's, but for those of AllenNLP's own modules.
"""

import functools
import math

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import initial, layers, lstm
from models.dropout import Dropout
from models.elmo_tasks import parts
from models.layers import Dtype

Array = jax.Array


class Bidaf(nn.Module):
  """Attention between question and text, then the answer's first and last word.

  Attributes:
    lstm_dim: F of each layer and direction.
    num_layers: of the BiLSTM that reads the text after the attention.
    num_highway: highway layers on the vectors of words.
    dropout_rate: of the outputs of all BiLSTMs' layers, and of the pointers'
      inputs.
    max_question: words of a question that are read at most.
    dtype: of activations; parameters and logits are float32.
  """

  lstm_dim: int = 100
  num_layers: int = 2
  num_highway: int = 2
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
    """Returns float32 logits [B, T, 2] of the text's words, see `mask_logits`.

    Args:
      x_BPTD: vectors of words, float [B, 2, T, D], the question's first.
      mask_BPT: bool; True at real words, which come first.
      added_BPTE: float [B, 2, T, E], appended to the first BiLSTM's outputs.
      train: apply dropout (rng stream 'dropout').
    """
    parts.check_texts(x_BPTD.shape, 2, 'BiDAF')

    def drop(x: Array) -> Array:
      return Dropout(self.dropout_rate if train else 0.0)(x)

    make_bilstm = functools.partial(
      lstm.BiLstm,
      lstm_dim=self.lstm_dim,
      dtype=self.dtype,
      initial='torch',
      dropout_rate=self.dropout_rate,
    )
    highways = [
      QuestionHighway(self.dtype, name=f'highway_{i}')
      for i in range(self.num_highway)
    ]
    encoder = make_bilstm(num_layers=1, name='encoder')

    def encode(x: Array, mask: Array, added: Array | None) -> Array:
      x = parts.zero_padding(x.astype(self.dtype), mask)
      for highway in highways:
        x = highway(x)
      x, _ = encoder(x, mask, train=train)
      return parts.append(drop(x), added, mask)

    (question_BQD, question_mask_BQ), (x_BTD, mask_BT) = [
      (encode(x, mask, added), mask)
      for x, mask, added in split(
        x_BPTD, mask_BPT, added_BPTE, self.max_question
      )
    ]
    scores_BTQ = Similarity(name='similarity')(x_BTD, question_BQD)
    merged_BTD = flow(
      x_BTD,
      question_BQD,
      parts.masked_softmax(scores_BTQ, question_mask_BQ[:, None]),
      parts.masked_softmax(row_maxima(scores_BTQ, question_mask_BQ), mask_BT),
    )

    def point(x_BTD: Array, name: str) -> Array:
      return parts.linear(
        drop(x_BTD).astype(jnp.float32),
        1,
        'torch',
        out_names=('classes',),
        name=name,
      )[..., 0]

    modelled_BTF, _ = make_bilstm(num_layers=self.num_layers, name='model')(
      merged_BTD, mask_BT, train=train
    )
    modelled_BTF = drop(modelled_BTF)
    first_BT = point(
      jnp.concatenate([merged_BTD, modelled_BTF], axis=-1), 'first'
    )
    chances_BT = parts.masked_softmax(first_BT, mask_BT).astype(self.dtype)
    start_B1F = jnp.einsum('BT,BTF->BF', chances_BT, modelled_BTF)[:, None]
    ends_BTF, _ = make_bilstm(num_layers=1, name='end')(
      jnp.concatenate(
        [
          merged_BTD,
          modelled_BTF,
          jnp.broadcast_to(start_B1F, modelled_BTF.shape),
          modelled_BTF * start_B1F,
        ],
        axis=-1,
      ),
      mask_BT,
      train=train,
    )
    last_BT = point(
      jnp.concatenate([merged_BTD, drop(ends_BTF)], axis=-1), 'last'
    )
    return mask_logits(jnp.stack([first_BT, last_BT], axis=-1), mask_BT)


class QuestionHighway(nn.Module):
  """g x + (1 - g) relu(W x + b) with g = sigmoid(W' x + b'), AllenNLP's.

  W' and b' are stored behind W and b; b' starts at 1, to carry x.
  """

  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """Returns [..., D] for [..., D]."""
    D = x.shape[-1]
    kernel_init, bias_init = initial.LINEARS['torch'](D, 2 * D)
    both = layers.Linear(
      features=(2, D),
      in_names=('embed',),
      out_names=(None, 'mlp'),
      kernel_init=kernel_init,
      bias_init=lambda *draw: bias_init(*draw).at[1].set(1.0),
      dtype=self.dtype,
      name='linear',
    )(x)
    gate = jax.nn.sigmoid(both[..., 1, :])
    return gate * x + (1 - gate) * nn.relu(both[..., 0, :])


class Similarity(nn.Module):
  """Scores w_x . x + w_s . s + (w_p * x) . s + b of two texts' words.

  Attributes:
    start: of the three vectors, 'joined' as one vector of 3 D (AllenNLP's
      LinearSimilarity), with b = 0; or 'apart', Glorot's for each, and for b
      (document-qa's TriLinear, where b has a fan of 1).
  """

  start: str = 'joined'

  @nn.compact
  def __call__(self, x_BTD: Array, others_BSD: Array) -> Array:
    """Returns float32 [B, T, S]."""
    D = x_BTD.shape[-1]
    kernel_init, bias_init = {
      'joined': (
        initial.symmetric_uniform(math.sqrt(6 / (3 * D + 1))),
        nn.initializers.zeros,
      ),
      'apart': (initial.glorot_uniform(D, D), initial.glorot_uniform(1, 1)),
    }[self.start]
    of_x, of_other, of_product = self.param(
      'kernel', layers.named(kernel_init, (None, 'embed')), (3, D)
    )
    bias = self.param('bias', layers.named(bias_init, ()), ())
    dtype = x_BTD.dtype
    product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
    dots_BTS = product(
      'BTD,BSD->BTS', x_BTD * of_product.astype(dtype), others_BSD
    )
    of_x_BT = product('BTD,D->BT', x_BTD, of_x.astype(dtype))
    of_other_BS = product('BSD,D->BS', others_BSD, of_other.astype(dtype))
    return dots_BTS + of_x_BT[:, :, None] + of_other_BS[:, None] + bias


def split(
  x_BPTD: Array, mask_BPT: Array, added_BPTE: Array | None, max_question: int
) -> list[tuple[Array, Array, Array | None]]:
  """Returns vectors, mask and added vectors of the question and of the text.

  Of the question's places only the first `max_question` are kept.
  """
  Q = min(x_BPTD.shape[2], max_question)
  arrays = x_BPTD, mask_BPT, added_BPTE
  return [
    tuple(x if x is None else x[:, p, :length] for x in arrays)
    for p, length in ((0, Q), (1, x_BPTD.shape[2]))
  ]


def row_maxima(scores_BTQ: Array, mask_BQ: Array) -> Array:
  """Returns the highest score of each word, [B, T], or 0 without a question."""
  found_BT = jnp.where(mask_BQ[:, None], scores_BTQ, layers.LOWEST).max(axis=2)
  return jnp.where(mask_BQ.any(axis=1)[:, None], found_BT, 0)


def flow(
  x_BTD: Array, question_BQD: Array, to_question_BTQ: Array, to_text_BT: Array
) -> Array:
  """Returns [x; a; x * a; x * c], [B, T, 4 D], the attention's outputs.

  Args:
    x_BTD: the text's words.
    question_BQD: the question's words.
    to_question_BTQ: weights of the question's words, whose average is a.
    to_text_BT: weights of the text's words, whose average is c.
  """
  dtype = x_BTD.dtype
  attended_BTD = jnp.einsum(
    'BTQ,BQD->BTD', to_question_BTQ.astype(dtype), question_BQD
  )
  context_BD = jnp.einsum('BT,BTD->BD', to_text_BT.astype(dtype), x_BTD)
  return jnp.concatenate(
    [x_BTD, attended_BTD, x_BTD * attended_BTD, x_BTD * context_BD[:, None]],
    axis=-1,
  )


def mask_logits(logits_BT2: Array, mask_BT: Array) -> Array:
  """Returns the logits, which are -1e7 at padding."""
  return jnp.where(mask_BT[:, :, None], logits_BT2, -parts.POOL_FILLER)
