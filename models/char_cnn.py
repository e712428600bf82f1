"""ELMo's character encoder: a word as a vector of its characters.

Shapes: C characters of a word, E character embedding, N filters, P projection.

A word is 50 character ids as the released program trains on (bilm-tf,
data.py): a UTF-8 byte, or one of five symbols from 256 on. `NO_CHARACTER`
stands for each character of a word that is not there, and its embedding is
zero. In the ids from which the released program computes vectors, all are one
higher and no character is 0: theirs = (ours + 1) % 262.
"""

import math

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import layers, lstm

Array = jax.Array
Dtype = jax.typing.DTypeLike

NUM_CHARACTERS = 261  # 256 bytes; sentence and word begin and end; padding
NO_CHARACTER = 261

# bilm-tf, training.py: the embedding's and (Kim et al. 2015) the filters' start
# and the bias that keeps a highway's gate nearly shut at first.
CHARACTER_LIMIT = 1.0
FILTER_LIMIT = 0.05
GATE_BIAS = -2.0


class Convolution(nn.Module):
  """The largest answer of each filter anywhere in a word, then ReLU.

  Attributes:
    width: characters that a filter sees.
    count: N, how many filters.
    dtype: of the computation.
  """

  width: int
  count: int
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, characters: Array) -> Array:
    """Returns [..., N] for embedded characters [..., C, E]."""
    E = characters.shape[-1]
    kernel = self.param(
      'kernel',
      nn.with_logical_partitioning(
        lstm.symmetric_uniform(FILTER_LIMIT), (None, None, 'mlp')
      ),
      (self.width, E, self.count),
    )
    bias = self.param(
      'bias',
      nn.with_logical_partitioning(nn.initializers.zeros, ('mlp',)),
      (self.count,),
    )
    characters, kernel, bias = nn.dtypes.promote_dtype(
      characters, kernel, bias, dtype=self.dtype
    )
    # As one matrix product: XLA's CPU compiler has no fast way for the
    # gradient of a convolution's kernel (jax 0.10).
    places = characters.shape[-2] - self.width + 1
    windows = jnp.concatenate(
      [characters[..., i : i + places, :] for i in range(self.width)], axis=-1
    )
    answers = jnp.tensordot(windows, kernel.reshape(-1, self.count), axes=1)
    # The bias moves all places alike, and the largest stays the largest.
    return nn.relu(answers.max(axis=-2) + bias)


class Highway(nn.Module):
  """g relu(W x + b) + (1 - g) x with g = sigmoid(W' x + b').

  Srivastava et al. 2015. The release calls g 'carry' though it opens the
  transform; W' and b' lie behind W and b here.

  Attributes:
    dtype: of the computation.
  """

  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """Returns [..., N] for [..., N]."""
    N = x.shape[-1]

    def bias_init(rng: Array, shape: tuple[int, ...]) -> Array:
      del rng
      return jnp.zeros(shape).at[1].set(GATE_BIAS)

    kernel = self.param(
      'kernel',
      nn.with_logical_partitioning(
        nn.initializers.normal(1 / math.sqrt(N)), ('embed', None, 'mlp')
      ),
      (N, 2, N),
    )
    bias = self.param(
      'bias', nn.with_logical_partitioning(bias_init, (None, 'mlp')), (2, N)
    )
    x, kernel, bias = nn.dtypes.promote_dtype(x, kernel, bias, dtype=self.dtype)
    both = jnp.tensordot(x, kernel, axes=1) + bias
    gate = jax.nn.sigmoid(both[..., 1, :])
    return gate * nn.relu(both[..., 0, :]) + (1 - gate) * x


class CharacterEncoder(nn.Module):
  """Words as vectors of their characters (Kim et al. 2015), projected.

  Attributes:
    char_embed_dim: E.
    filters: (width, count) of each group of filters.
    num_highway: highway layers after them.
    projection_dim: P.
    dtype: of the computation.
  """

  char_embed_dim: int
  filters: tuple[tuple[int, int], ...]
  num_highway: int
  projection_dim: int
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, characters: Array) -> Array:
    """Returns [..., P] for character ids, int [..., C]."""
    table_CE = self.param(
      'characters',
      nn.with_logical_partitioning(
        lstm.symmetric_uniform(CHARACTER_LIMIT), (None, None)
      ),
      (NUM_CHARACTERS, self.char_embed_dim),
    )
    embedded = jnp.take(
      table_CE.astype(self.dtype), characters, axis=0, mode='fill', fill_value=0
    )
    x = jnp.concatenate(
      [
        Convolution(width, count, self.dtype, name=f'filters_{i}')(embedded)
        for i, (width, count) in enumerate(self.filters)
      ],
      axis=-1,
    )
    for i in range(self.num_highway):
      x = Highway(self.dtype, name=f'highway_{i}')(x)
    return layers.Linear(
      features=(self.projection_dim,),
      in_names=('mlp',),
      out_names=('embed',),
      kernel_init=nn.initializers.normal(1 / math.sqrt(x.shape[-1])),
      dtype=self.dtype,
      name='projection',
    )(x)
