"""ELMo's character encoder: a word as a vector of its characters.

Shapes: C characters of a word, E character embedding, N filters, P projection.

A word is 50 character ids as the released program trains on (bilm-tf,
data.py): a UTF-8 byte, or one of five symbols from 256 on. `NO_CHARACTER`
stands for each character of a word that is not there, and its embedding is
zero. In the ids from which the released program computes vectors, all are one
higher and no character is 0: theirs = (ours + 1) % 262.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jax.sharding import PartitionSpec

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

# Distinct words are encoded in so many parts as hold some, of these.
NUM_PARTS = 8
# Characters of words that are short: nine types of ten in English.
SHORT = 20
_LONG = 1 << 30  # beyond the numbers of words

Encode = Callable[[Any, Array], Array]  # (parameters, [M, C]) -> [M, P]


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


def are_short(characters: Array, widest: int) -> Array:
  """Returns whether a word's first `SHORT` characters tell all of it.

  Where all that a filter can see is padding, its answer is the same at every
  place, and one of them is enough to find the largest.

  Args:
    characters: int [..., C].
    widest: characters that the widest filter sees.

  Returns:
    bool [...]; nowhere if C is `SHORT` or less, where there is nothing to gain,
    or a filter is wider than that.
  """
  if not widest < SHORT < characters.shape[-1]:
    return jnp.zeros(characters.shape[:-1], bool)
  rest = characters[..., SHORT - widest :]
  return (rest == rest[..., :1]).all(axis=-1)


def without_padding(
  run: Callable[[Array], Any], characters: Array, widest: int
) -> Any:
  """Returns `run(characters)`, of short words alone at a third of the work.

  Args:
    run: what needs nothing of words but what all filters see of them.
    characters: int [..., C].
    widest: as `are_short` takes it.
  """
  if not widest < SHORT < characters.shape[-1]:
    return run(characters)
  return lax.cond(
    are_short(characters, widest).all(),
    lambda characters: run(characters[..., :SHORT]),
    run,
    characters,
  )


def encode_once(
  encode: Encode,
  widest: int,
  params: Any,
  characters_KBTC: Array,
  words_KBT: Array,
) -> Array:
  """Encodes words of which many are the same, each of them once a device.

  Text repeats itself: of 1,000 words a half is distinct. Each device looks at
  its own rows; the whole encoder comes there once, and its gradients are summed
  once. Inside, nothing travels: loops of different lengths would wait for each
  other.

  Args:
    encode: the encoder as a function.
    widest: characters that its widest filter sees.
    params: its parameters.
    characters_KBTC: int [K, B, T, C], the rows of a batch second.
    words_KBT: int, equal where the characters are; 0 or more, below 2^30.

  Returns:
    [K, B, T, P], as `encode(params, characters_KBTC)`.
  """

  def encode_rows(
    params: Any, characters_KBTC: Array, words_KBT: Array
  ) -> Array:
    vectors_NP = _encode_distinct(
      encode,
      widest,
      params,
      characters_KBTC.reshape(-1, characters_KBTC.shape[-1]),
      words_KBT.reshape(-1),
    )
    return vectors_NP.reshape(*words_KBT.shape, -1)

  mesh = jax.sharding.get_abstract_mesh()
  axes = nn.logical_to_mesh_axes(('batch',))[0] or ()
  axes = (axes,) if isinstance(axes, str) else tuple(axes)
  if mesh.empty or math.prod(mesh.shape[axis] for axis in axes) == 1:
    return encode_rows(params, characters_KBTC, words_KBT)
  rows = PartitionSpec(None, axes)
  return jax.shard_map(
    encode_rows,
    in_specs=(PartitionSpec(), rows, rows),
    out_specs=rows,
    check_vma=False,
  )(params, characters_KBTC, words_KBT)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _encode_distinct(
  encode: Encode,
  widest: int,
  params: Any,
  characters_NC: Array,
  words_N: Array,
) -> Array:
  """Returns `encode(params, characters_NC)` [N, P], each word encoded once.

  All shapes are static; the loop over parts ends with the last distinct word,
  and the long ones are in the last parts. The derivative is written out because
  JAX has none of such a loop; it encodes again, so that of the encoder's inside
  only one part is ever held.
  """
  return _encode_once(encode, widest, params, characters_NC, words_N)[0]


def _encode_once(
  encode: Encode,
  widest: int,
  params: Any,
  characters_NC: Array,
  words_N: Array,
) -> tuple[Array, tuple]:
  """Returns the vectors, and what their derivative needs."""
  N = words_N.size
  part = -(-N // NUM_PARTS)
  numbers_N = jnp.where(
    are_short(characters_NC, widest), words_N, words_N + _LONG
  )
  _, first_N, place_N = jnp.unique(
    numbers_N, size=N, return_index=True, return_inverse=True
  )
  num_parts = place_N.max() // part + 1
  first_M = jnp.pad(first_N, (0, NUM_PARTS * part - N), mode='edge')
  shape = jax.eval_shape(encode, params, characters_NC[:part])

  def encode_part(i: Array, vectors_MP: Array) -> Array:
    rows = lax.dynamic_slice_in_dim(first_M, i * part, part)
    vectors = without_padding(
      functools.partial(encode, params),
      characters_NC[rows],
      widest,
    )
    return lax.dynamic_update_slice_in_dim(vectors_MP, vectors, i * part, 0)

  vectors_MP = lax.fori_loop(
    0,
    num_parts,
    encode_part,
    jnp.zeros((NUM_PARTS * part, *shape.shape[1:]), shape.dtype),
  )
  saved = (params, characters_NC, first_M, place_N, num_parts)
  return vectors_MP[place_N], saved


def _encode_once_backward(
  encode: Encode, widest: int, saved: tuple, gradient_NP: Array
) -> tuple[Any, None, None]:
  params, characters_NC, first_M, place_N, num_parts = saved
  part = len(first_M) // NUM_PARTS
  d_vectors_MP = jnp.zeros((len(first_M), gradient_NP.shape[-1]))
  d_vectors_MP = d_vectors_MP.at[place_N].add(gradient_NP.astype(jnp.float32))
  d_vectors_MP = d_vectors_MP.astype(gradient_NP.dtype)

  def add_part(i: Array, total: Any) -> Any:
    rows = lax.dynamic_slice_in_dim(first_M, i * part, part)
    d_vectors = lax.dynamic_slice_in_dim(d_vectors_MP, i * part, part)

    def derive(characters: Array) -> Any:
      _, pull = jax.vjp(lambda params: encode(params, characters), params)
      return pull(d_vectors)[0]

    d_params = without_padding(derive, characters_NC[rows], widest)
    return jax.tree.map(jnp.add, total, d_params)

  zeros = jax.tree.map(jnp.zeros_like, params)
  return lax.fori_loop(0, num_parts, add_part, zeros), None, None


_encode_distinct.defvjp(_encode_once, _encode_once_backward)
