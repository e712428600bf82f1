"""The vectors of words below a task model: table, characters, language model.

Shapes: B texts, T position, D features, V rows of the table, C characters of a
word, L layers of a language model.
"""

import math

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models import char_cnn, initial, layers, scalar_mix
from models.dropout import Dropout
from models.features import check_name
from models.layers import Dtype

Array = jax.Array

# What a task model reads of a language model's layers: ELMo's learned average,
# the last layer alone (Peters et al. 2017), or the plain mean.
FEATURES = ('mix', 'last', 'average')


class WordTable(nn.Module):
  """A vector for each word of a vocabulary; row 0 is of all other words.

  Attributes:
    num_rows: V.
    dim: D.
    fixed: the table gets no gradient.
  """

  num_rows: int
  dim: int
  fixed: bool = False
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, rows_BT: Array) -> Array:
    """Returns the vectors [B, T, D] of rows of the table, int [B, T].

    As drawn, the table is Glorot uniform, AllenNLP's default for embeddings.
    """
    table_VD = self.param(
      'table',
      layers.named(
        initial.glorot_uniform(self.num_rows, self.dim), (None, 'embed_out')
      ),
      (self.num_rows, self.dim),
    )
    if self.fixed:
      table_VD = lax.stop_gradient(table_VD)
    return jnp.take(table_VD.astype(self.dtype), rows_BT, axis=0)


class CharacterWords(nn.Module):
  """Filters (width, count) on a word's embedded characters, and their maxima.

  AllenNLP's character encoder, with PyTorch's initial values; a word's
  characters are ELMo's: bytes, between two symbols for its begin and its end.
  `dropout_rates` are of the embedded characters and of the maxima.
  """

  embed_dim: int
  filters: tuple[tuple[int, int], ...]
  dtype: Dtype = jnp.float32
  dropout_rates: tuple[float, float] = (0.0, 0.0)

  @nn.compact
  def __call__(self, characters_BTC: Array, *, train: bool = False) -> Array:
    """Returns [B, T, filters] of character ids, int [B, T, C].

    With `train`, dropout is applied (rng stream 'dropout').
    """
    below, above = self.dropout_rates if train else (0.0, 0.0)
    table = self.param(
      'characters',
      layers.named(
        initial.glorot_uniform(char_cnn.NUM_CHARACTERS, self.embed_dim),
        (None, None),
      ),
      (char_cnn.NUM_CHARACTERS, self.embed_dim),
    )
    convolutions = [
      char_cnn.Convolution(
        width,
        count,
        self.dtype,
        # torch.nn.Conv1d: +-1 / sqrt(fan in), the bias too.
        kernel_limit=1 / math.sqrt(width * self.embed_dim),
        bias_limit=1 / math.sqrt(width * self.embed_dim),
        name=f'filters_{i}',
      )
      for i, (width, count) in enumerate(self.filters)
    ]
    embedded = jnp.take(
      table.astype(self.dtype),
      characters_BTC,
      axis=0,
      mode='fill',
      fill_value=0,
    )
    embedded = Dropout(below)(embedded)
    maxima = [convolve(embedded) for convolve in convolutions]
    return Dropout(above)(jnp.concatenate(maxima, axis=-1))


class ContextualWords(nn.Module):
  """One vector a word of a frozen language model's layers, with dropout.

  Attributes:
    num_layers: L.
    features: one of `FEATURES`; each has a learned scale.
    layer_norm: see `scalar_mix.ScalarMix`.
    dropout_rate: of the result, in training.
  """

  num_layers: int
  features: str = 'mix'
  layer_norm: bool = False
  dropout_rate: float = 0.0

  @nn.compact
  def __call__(
    self, layers_BTLD: Array, mask_BT: Array, *, train: bool
  ) -> Array:
    """Returns [B, T, D] of the layers, the embeddings first."""
    check_name('features', self.features, FEATURES)
    layers_LBTD = jnp.moveaxis(layers_BTLD, 2, 0)
    num_layers = self.num_layers
    if self.features == 'average':
      layers_LBTD = layers_LBTD.mean(axis=0, keepdims=True)
      num_layers = 1
    mixed_BTD = scalar_mix.ScalarMix(
      num_layers,
      layer_norm=self.layer_norm,
      use_top_only=self.features != 'mix',
      name='mix',
    )(layers_LBTD, mask_BT)
    return Dropout(self.dropout_rate if train else 0.0)(mixed_BTD)
