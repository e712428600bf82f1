"""The BiLSTM below a CRF tagger (Peters et al. 2018), as AllenNLP 0.9.0's.

Shapes: B example, T position, D features, E added features, F cells, K tags.
Sizes and rates are those of AllenNLP 0.9.0, training_config/ner_elmo.jsonnet,
initial values PyTorch's.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import lstm
from models.dropout import Dropout
from models.elmo_tasks import parts
from models.layers import Dtype

Array = jax.Array


class BilstmTagger(nn.Module):
  """A BiLSTM and a linear layer: scores of tags, for a `crf.Crf` beside it.

  Attributes:
    num_outputs: K tags.
    lstm_dim: F of each layer and direction.
    num_layers: of the BiLSTM.
    dropout_rate: of the vectors of words and of the outputs of each layer.
    dtype: of activations; parameters and logits are float32.
  """

  num_outputs: int
  lstm_dim: int = 200
  num_layers: int = 2
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
    """Returns float32 logits [B, T, num_outputs], meaningless at padding.

    Args:
      x_BPTD: vectors of words, float [B, 1, T, D].
      mask_BPT: bool; True at real words, which come first.
      added_BPTE: float [B, 1, T, E], appended to the BiLSTM's outputs.
      train: apply dropout (rng stream 'dropout').
    """
    parts.check_texts(x_BPTD.shape, 1, 'a tagger')
    rate = self.dropout_rate if train else 0.0
    encoded_BPTF = parts.read_texts(
      lstm.BiLstm(
        num_layers=self.num_layers,
        lstm_dim=self.lstm_dim,
        dtype=self.dtype,
        initial='torch',
        dropout_rate=self.dropout_rate,
        name='encoder',
      ),
      Dropout(rate)(x_BPTD),
      mask_BPT,
      train=train,
    )
    read_BPTF = parts.append(Dropout(rate)(encoded_BPTF), added_BPTE, mask_BPT)
    return parts.linear(
      read_BPTF[:, 0].astype(jnp.float32),
      self.num_outputs,
      'torch',
      out_names=('classes',),
      name='logits',
    )
