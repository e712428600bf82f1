"""ELMo's character encoder: a word vector from the word's characters.

Shapes: C characters of a word, E their embedding, N filters, P projection, M
words. A word is 50 character ids as in bilm-tf's training (data.py): UTF-8
bytes and five symbols from 256 on; a padding word is all `NO_CHARACTER`,
embedded as zero. The released program that computes vectors uses (id + 1) % 262
instead.
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

from models import initial, layers

Array = jax.Array
Dtype = jax.typing.DTypeLike

NUM_CHARACTERS = 261  # 256 bytes; sentence and word begin and end; padding
NO_CHARACTER = 261

# Initial values of bilm-tf, training.py (Kim et al. 2015).
CHARACTER_LIMIT = 1.0
FILTER_LIMIT = 0.05
GATE_BIAS = -2.0  # nearly closes a highway's gate

NUM_PARTS = 8  # of a batch's words; parts without distinct words are skipped
TPU_PART = 576  # the same on a TPU at least, whose matrix units want many rows
SHORT = 20  # characters of a short word: nine types of ten in English
_LONG = 1 << 30  # added to the numbers of long words, to sort these last

Encode = Callable[[Any, Array], Array]  # (parameters, [M, C]) -> [M, P]


class Convolution(nn.Module):
  """The maximum of N = `count` filters of `width` characters, then ReLU.

  As drawn, kernel and bias lie between these limits and their negatives.
  """

  width: int
  count: int
  dtype: Dtype = jnp.float32
  kernel_limit: float = FILTER_LIMIT
  bias_limit: float = 0.0

  @nn.compact
  def __call__(self, characters: Array) -> Array:
    """Returns [..., N] for embedded characters [..., C, E]."""
    E = characters.shape[-1]
    kernel = self.param(
      'kernel',
      layers.named(
        initial.symmetric_uniform(self.kernel_limit), (None, None, 'mlp')
      ),
      (self.width, E, self.count),
    )
    bias = self.param(
      'bias',
      layers.named(initial.symmetric_uniform(self.bias_limit), ('mlp',)),
      (self.count,),
    )
    characters, kernel, bias = nn.dtypes.promote_dtype(
      characters, kernel, bias, dtype=self.dtype
    )
    # One matrix product: XLA's CPU compiler is slow at the gradient of a
    # convolution's kernel (jax 0.10).
    places = characters.shape[-2] - self.width + 1
    windows = jnp.concatenate(
      [characters[..., i : i + places, :] for i in range(self.width)], axis=-1
    )
    outputs = jnp.tensordot(windows, kernel.reshape(-1, self.count), axes=1)
    # The bias is the same everywhere and does not change the maximum's place.
    return nn.relu(outputs.max(axis=-2) + bias)


class Highway(nn.Module):
  """g relu(W x + b) + (1 - g) x with g = sigmoid(W' x + b').

  Srivastava et al. 2015. The release calls the transform gate g 'carry'; W' and
  b' are stored behind W and b.
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
      layers.named(
        nn.initializers.normal(1 / math.sqrt(N)), ('embed', None, 'mlp')
      ),
      (N, 2, N),
    )
    bias = self.param('bias', layers.named(bias_init, (None, 'mlp')), (2, N))
    x, kernel, bias = nn.dtypes.promote_dtype(x, kernel, bias, dtype=self.dtype)
    both = jnp.tensordot(x, kernel, axes=1) + bias
    gate = jax.nn.sigmoid(both[..., 1, :])
    return gate * nn.relu(both[..., 0, :]) + (1 - gate) * x


class CharacterEncoder(nn.Module):
  """Character embeddings, filters (width, count), highways and projection."""

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
      layers.named(initial.symmetric_uniform(CHARACTER_LIMIT), (None, None)),
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
  """Returns bool [...], whether `SHORT` characters determine a word's vector.

  One place of padding suffices for a filter's maximum. All words count as long
  if C is `SHORT` or less, or the widest filter is wider.
  """
  if not widest < SHORT < characters.shape[-1]:
    return jnp.zeros(characters.shape[:-1], bool)
  rest = characters[..., SHORT - widest :]
  return (rest == rest[..., :1]).all(axis=-1)


def without_padding(
  run: Callable[[Array], Any], characters: Array, widest: int
) -> Any:
  """Returns `run(characters)`, at a third of the cost if all words are short.

  `run` must depend on the filters' maxima alone.
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
  """Returns `encode(params, characters_KBTC)`, equal words encoded once.

  Half of 1,000 words are distinct. Each device loops over its own rows without
  communication, as lengths differ. `widest` is the width of the widest filter;
  `words_KBT` number the distinct words below 2^30.
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


# JAX cannot differentiate the loop, which ends with the last distinct word; our
# backward pass encodes again.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _encode_distinct(
  encode: Encode, widest: int, params: Any, characters_NC: Array, words_N: Array
) -> Array:
  """Returns `encode(params, characters_NC)` [N, P], each word encoded once."""
  return _encode_once(encode, widest, params, characters_NC, words_N)[0]


def _encode_once(
  encode: Encode, widest: int, params: Any, characters_NC: Array, words_N: Array
) -> tuple[Array, tuple]:
  """Returns the vectors, and the residuals of their gradient."""
  N = words_N.size
  num_parts, part = _divide(N)
  numbers_N = jnp.where(
    are_short(characters_NC, widest), words_N, words_N + _LONG
  )
  _, first_N, place_N = jnp.unique(
    numbers_N, size=N, return_index=True, return_inverse=True
  )
  used_parts = place_N.max() // part + 1
  first_M = jnp.pad(first_N, (0, num_parts * part - N), mode='edge')
  shape = jax.eval_shape(encode, params, characters_NC[:part])

  def encode_part(i: Array, vectors_MP: Array) -> Array:
    rows = lax.dynamic_slice_in_dim(first_M, i * part, part)
    vectors = without_padding(
      functools.partial(encode, params), characters_NC[rows], widest
    )
    return lax.dynamic_update_slice_in_dim(vectors_MP, vectors, i * part, 0)

  vectors_MP = jnp.zeros((num_parts * part, *shape.shape[1:]), shape.dtype)
  with layers.at_most(num_parts):
    vectors_MP = lax.fori_loop(0, used_parts, encode_part, vectors_MP)
  saved = (params, characters_NC, first_M, place_N, used_parts)
  return vectors_MP[place_N], saved


def _encode_once_backward(
  encode: Encode, widest: int, saved: tuple, gradient_NP: Array
) -> tuple[Any, None, None]:
  params, characters_NC, first_M, place_N, used_parts = saved
  num_parts, part = _divide(place_N.size)
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
  with layers.at_most(num_parts):
    return lax.fori_loop(0, used_parts, add_part, zeros), None, None


def _divide(num_words: int) -> tuple[int, int]:
  """Returns the number of parts of a batch's words, and the words of a part."""
  part = -(-num_words // NUM_PARTS)
  if layers.platform() == 'tpu':
    part = max(part, TPU_PART)
  return -(-num_words // part), part


_encode_distinct.defvjp(_encode_once, _encode_once_backward)
