"""ESIM for pairs of texts (Chen et al. 2017), as AllenNLP 0.9.0 builds it.

Shapes: B example, P the two texts, T position, D features, E added features, F
cells. Sizes, rates and initial values are those of AllenNLP 0.9.0,
training_config/esim.jsonnet.
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import layers, lstm
from models.dropout import Dropout
from models.elmo_tasks import parts
from models.layers import Dtype

Array = jax.Array


class Esim(nn.Module):
  """Two BiLSTMs with attention between the texts, pooled for a classifier.

  Attributes:
    num_outputs: classes; 1 for a score.
    lstm_dim: F of each direction.
    hidden_dim: outputs of the projection and of the last hidden layer.
    dropout_rate: of the BiLSTMs' inputs, with one mask for all positions of a
      text, and of the classifier's layers.
    dtype: of activations; parameters and logits are float32.
  """

  num_outputs: int
  lstm_dim: int = 300
  hidden_dim: int = 300
  dropout_rate: float = 0.5
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(
    self,
    x_BPTD: Array,
    mask_BPT: Array,
    added_BPTE: Array | None = None,
    *,
    train: bool,
  ) -> Array:
    """Returns float32 logits [B, num_outputs].

    Args:
      x_BPTD: vectors of words, float [B, 2, T, D].
      mask_BPT: bool; True at real words, which come first.
      added_BPTE: float [B, 2, T, E], appended to the first BiLSTM's outputs.
      train: apply dropout (rng stream 'dropout').
    """
    parts.check_texts(x_BPTD.shape, 2, 'ESIM')
    rate = self.dropout_rate if train else 0.0
    make_bilstm = functools.partial(
      lstm.BiLstm, 1, self.lstm_dim, self.dtype, 'orthogonal'
    )
    make_linear = functools.partial(
      parts.linear, start='xavier', dtype=self.dtype
    )
    x_BPTD = parts.zero_padding(x_BPTD.astype(self.dtype), mask_BPT)
    encoded_BPTD = parts.read_texts(
      make_bilstm(name='encoder'),
      parts.VariationalDropout(rate)(x_BPTD),
      mask_BPT,
      train=train,
    )
    encoded_BPTD = parts.append(encoded_BPTD, added_BPTE, mask_BPT)
    attended_BPTD = parts.attend(
      encoded_BPTD, encoded_BPTD[:, ::-1], mask_BPT[:, ::-1]
    )
    # AllenNLP drops nothing before the projection.
    compared_BPTD = jnp.concatenate(
      [
        encoded_BPTD,
        attended_BPTD,
        encoded_BPTD - attended_BPTD,
        encoded_BPTD * attended_BPTD,
      ],
      axis=-1,
    )
    projected_BPTF = nn.relu(
      make_linear(compared_BPTD, self.hidden_dim, name='projection')
    )
    composed_BPTF = parts.read_texts(
      make_bilstm(name='composition'),
      parts.VariationalDropout(rate)(projected_BPTF),
      mask_BPT,
      train=train,
    )
    pooled_BPF = jnp.concatenate(
      [
        layers.mean_pool(composed_BPTF, mask_BPT),
        parts.max_pool(composed_BPTF, mask_BPT),
      ],
      axis=-1,
    )
    pooled_BF = Dropout(rate)(pooled_BPF.reshape(len(pooled_BPF), -1))
    hidden_BF = nn.relu(make_linear(pooled_BF, self.hidden_dim, name='hidden'))
    return parts.linear(
      Dropout(rate)(hidden_BF.astype(jnp.float32)),
      self.num_outputs,
      'xavier',
      out_names=('classes',),
      name='logits',
    )
