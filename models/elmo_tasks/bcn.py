"""BCN for single texts (McCann et al. 2017), as AllenNLP 0.9.0 builds it.

Shapes: B example, T position, D features, E added features, F cells, N pooled
features. Sizes and rates are those of AllenNLP 0.9.0,
training_config/biattentive_classification_network_elmo.jsonnet, initial values
PyTorch's.
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


class Bcn(nn.Module):
  """Two BiLSTMs with self-attention between them, four poolings and maxouts.

  Attributes:
    num_outputs: classes.
    hidden_dim: outputs of the layer before the BiLSTMs.
    lstm_dim: F of each direction.
    maxout_dims: outputs of the maxout layers before the last.
    maxout_pool: linear outputs of which a maxout layer takes the largest.
    input_dropout_rate: of the vectors of words; 0.25 without ELMo
      (biattentive_classification_network.jsonnet).
    hidden_dropout_rate: of the first layer's outputs.
    pooled_dropout_rate: of the pooled vectors.
    maxout_dropout_rates: of the outputs of each layer of `maxout_dims`.
    dtype: of activations; parameters and logits are float32.
  """

  num_outputs: int
  hidden_dim: int = 300
  lstm_dim: int = 300
  maxout_dims: tuple[int, ...] = (1200, 600)
  maxout_pool: int = 4
  input_dropout_rate: float = 0.5
  hidden_dropout_rate: float = 0.25
  pooled_dropout_rate: float = 0.1
  maxout_dropout_rates: tuple[float, ...] = (0.2, 0.3)
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
      x_BPTD: vectors of words, float [B, 1, T, D].
      mask_BPT: bool; True at real words, which come first.
      added_BPTE: float [B, 1, T, E], appended to the second BiLSTM's outputs.
      train: apply dropout (rng stream 'dropout').
    """
    parts.check_texts(x_BPTD.shape, 1, 'the BCN')

    def drop(x: Array, rate: float) -> Array:
      return Dropout(rate if train else 0.0)(x)

    make_bilstm = functools.partial(
      lstm.BiLstm, 1, self.lstm_dim, self.dtype, 'torch'
    )
    x_BPTD = parts.zero_padding(x_BPTD.astype(self.dtype), mask_BPT)
    hidden_BPTF = nn.relu(
      parts.linear(
        drop(x_BPTD, self.input_dropout_rate),
        self.hidden_dim,
        'torch',
        dtype=self.dtype,
        name='hidden',
      )
    )
    encoded_BPTF = parts.read_texts(
      make_bilstm(name='encoder'),
      drop(hidden_BPTF, self.hidden_dropout_rate),
      mask_BPT,
      train=train,
    )
    attended_BPTF = parts.attend(encoded_BPTF, encoded_BPTF, mask_BPT)
    integrated_BPTF = parts.read_texts(
      make_bilstm(name='integrator'),
      jnp.concatenate(
        [
          encoded_BPTF,
          encoded_BPTF - attended_BPTF,
          encoded_BPTF * attended_BPTF,
        ],
        axis=-1,
      ),
      mask_BPT,
      train=train,
    )
    read_BTN = parts.append(integrated_BPTF, added_BPTE, mask_BPT)[:, 0]
    mask_BT = mask_BPT[:, 0]
    pooled_BN = jnp.concatenate(
      [
        parts.max_pool(read_BTN, mask_BT),
        -parts.max_pool(-read_BTN, mask_BT),  # the minima
        layers.mean_pool(read_BTN, mask_BT),
        parts.attentive_pool(read_BTN, mask_BT, 'pooling'),
      ],
      axis=-1,
    )
    pooled_BN = drop(pooled_BN, self.pooled_dropout_rate)
    sizes = zip(self.maxout_dims, self.maxout_dropout_rates, strict=True)
    for i, (width, rate) in enumerate(sizes):
      pooled_BN = parts.maxout(
        pooled_BN,
        width,
        self.maxout_pool,
        dtype=self.dtype,
        name=f'maxout_{i}',
      )
      pooled_BN = drop(pooled_BN, rate)
    return parts.maxout(
      pooled_BN.astype(jnp.float32),
      self.num_outputs,
      self.maxout_pool,
      out_name='classes',
      name='logits',
    )
