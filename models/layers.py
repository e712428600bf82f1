"""What every model is made of: dropout, matrices, norms, the token table.

Shapes: B batch, T position, P predicted position, D embed, V vocabulary,
padded to a multiple of 128.

One dtype policy: parameters, softmax and layer-norm statistics are float32,
the rest is in the module's `dtype`.
"""

import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

Array = jax.Array
Dtype = jax.typing.DTypeLike
Initializer = Callable[..., Array]  # (rng, shape) -> float32 of that shape

# Of a dropout decision: rates are kept to within 1 / 2**17.
DROPOUT_BITS = 16

# Every weight matrix and table of BERT; like TensorFlow's, cut at two standard
# deviations without scaling up again (google-research/bert modeling.py).
INIT_STDDEV = 0.02
TRUNCATED_STDDEV = 0.87963 * INIT_STDDEV  # what is left of it
truncated_normal = nn.initializers.truncated_normal(INIT_STDDEV)

# Published vocabularies divide by nothing useful (30,522 = 2 x 3 x 5,087); 128
# is the width of a TPU's registers and divides over any sensible mesh.
VOCAB_MULTIPLE = 128
# Ends of the paths of parameters with a row for each token or word.
VOCAB_PARAMS = ('embedding', 'mlm/bias', 'softmax/kernel', 'softmax/bias')


def _make_gelu(gelu: Callable[[Array], Array]) -> Callable[[Array], Array]:
  """Returns a GELU whose backward pass keeps its input alone.

  What lies between is computed again: a Gaussian error function costs less
  than the memory of its arrays, the widest of a block.
  """

  def backward(x: Array, gradient: Array) -> tuple[Array]:
    # The barrier keeps the compiler from computing it once for both passes.
    x, gradient = lax.optimization_barrier((x, gradient))
    return jax.vjp(gelu, x)[1](gradient)

  light = jax.custom_vjp(gelu)
  light.defvjp(lambda x: (gelu(x), x), backward)
  return light


def _tanh_gelu(x: Array) -> Array:
  """Returns x/2 (1 + tanh u) as x sigmoid(2u), with u as published.

  The same but for roundings. For the constants around a tanh XLA's CPU compiler
  (jax 0.10) keeps an array of the shape of `x` each.
  """
  return x * jax.nn.sigmoid(
    2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
  )


GELUS: dict[str, Callable[[Array], Array]] = {
  # x * Phi(x) exactly: BERT's release of 2018-10-31.
  'erf': _make_gelu(functools.partial(nn.gelu, approximate=False)),
  # Its tanh approximation, under 5e-4 apart: GPT, and BERT since 2019-02-07.
  'tanh': _make_gelu(_tanh_gelu),
}


def get_gelu(name: str) -> Callable[[Array], Array]:
  """Returns the GELU of that name, 'erf' or 'tanh'; else a ValueError."""
  if name not in GELUS:
    raise ValueError(f'gelu is {name!r}, expected one of {sorted(GELUS)}')
  return GELUS[name]


def sinusoids(length: int, width: int) -> Array:
  """Returns waves [length, width]: sines in the first half, then cosines.

  Wavelengths grow geometrically from 2 pi to 200 pi positions: what is near is
  alike. A shift by k positions is one rotation, the same at every position
  (Vaswani et al. 2017, section 3.5, with 10,000 for our 100).
  """
  rates = 100.0 ** (-jnp.arange(width // 2) / (width // 2))
  angles = jnp.arange(length)[:, None] * rates
  return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)


def drop_threshold(rate: float) -> int:
  """Returns how many of the 2**16 values of a decision mean 'drop'.

  Args:
    rate: share of the elements to drop, 0 <= rate < 1.

  Raises:
    ValueError: if the rate is outside of that, or so close to 1 that nothing
      would be kept.
  """
  threshold = round(rate * 2**DROPOUT_BITS)
  if not 0 <= threshold < 2**DROPOUT_BITS:
    raise ValueError(f'dropout rate is {rate}, expected 0 <= rate < 1')
  return threshold


def keep_mask(rng: Array, shape: Sequence[int], rate: float) -> Array:
  """Draws which elements dropout keeps, two decisions from 32 random bits.

  Drawing is a pure function of the key and the position (JAX's partitionable
  threefry), so a mask does not depend on how the array is sharded.

  Args:
    rng: a key.
    shape: of the mask, rank 1 or more.
    rate: share of the elements to drop, rounded to a multiple of 2**-16.

  Returns:
    bool of that shape, True where an element is kept.
  """
  half = math.ceil(shape[-1] / 2)
  bits = jax.random.bits(rng, (*shape[:-1], half), jnp.uint32)
  threshold = drop_threshold(rate)
  # Halves of the last axis, not neighbours: no strided writes, and a last axis
  # of 2 would be padded to a whole register on a TPU.
  kept = jnp.concatenate(
    [(bits & 0xFFFF) >= threshold, (bits >> 16) >= threshold], axis=-1
  )
  return kept[..., : shape[-1]]


def kept_share(rate: float) -> float:
  """Returns the exact probability that dropout of a rate keeps an element."""
  return 1 - drop_threshold(rate) / 2**DROPOUT_BITS


def dropout(rng: Array, x: Array, rate: float) -> Array:
  """Returns x with some elements zero, the others scaled to keep the mean.

  Args:
    rng: a key.
    x: float, rank 1 or more.
    rate: share of the elements to drop; the scale is one over the exact
      probability of being kept, not over 1 - rate.
  """
  keep = keep_mask(rng, x.shape, rate)
  return jnp.where(keep, x * jnp.asarray(1 / kept_share(rate), x.dtype), 0)


class Dropout(nn.Module):
  """Dropout at a fixed rate; nothing, and no key needed, at rate 0.

  Keys are of the stream 'dropout'.
  """

  rate: float

  def __call__(self, x: Array) -> Array:
    """Returns x with dropout."""
    if self.rate == 0:
      return x
    return dropout(self.make_rng('dropout'), x, self.rate)

  def draw(self, shape: Sequence[int]) -> Array | None:
    """Returns the elements to keep, bool of a shape; None: all."""
    if self.rate == 0:
      return None
    return keep_mask(self.make_rng('dropout'), shape, self.rate)


class Linear(nn.Module):
  """A matrix multiplication with bias over one or more axes.

  Attributes:
    features: sizes of the output axes that replace the contracted ones.
    in_names: logical names of the contracted axes (the last of the input).
    out_names: logical names of the output axes, as long as `features`.
    bias_names: logical names of the bias where they are not `out_names`.
    kernel_init: draws the kernel; the bias starts at 0.
    dtype: of the computation and the output.
  """

  features: tuple[int, ...]
  in_names: tuple[str, ...]
  out_names: tuple[str, ...]
  bias_names: tuple[str, ...] | None = None
  kernel_init: Initializer = truncated_normal
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """Returns x @ kernel + bias, [..., *features]."""
    num_axes = len(self.in_names)
    kernel = self.param(
      'kernel',
      nn.with_logical_partitioning(
        self.kernel_init, self.in_names + self.out_names
      ),
      x.shape[-num_axes:] + self.features,
    )
    bias = self.param(
      'bias',
      nn.with_logical_partitioning(
        nn.initializers.zeros, self.bias_names or self.out_names
      ),
      self.features,
    )
    x, kernel, bias = nn.dtypes.promote_dtype(x, kernel, bias, dtype=self.dtype)
    return jnp.tensordot(x, kernel, axes=num_axes) + bias


class LayerNorm(nn.Module):
  """Layer norm over the last axis, statistics in float32.

  Attributes:
    epsilon: added to the variance.
    dtype: of the output.
  """

  epsilon: float
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """Returns x at mean 0 and variance 1, times scale, plus bias."""
    ones, zeros = nn.initializers.ones, nn.initializers.zeros
    names, shape = ('embed',), x.shape[-1:]
    scale = self.param(
      'scale', nn.with_logical_partitioning(ones, names), shape
    )
    bias = self.param('bias', nn.with_logical_partitioning(zeros, names), shape)
    x = x.astype(jnp.float32)
    x = x - x.mean(axis=-1, keepdims=True)
    variance = jnp.square(x).mean(axis=-1, keepdims=True)
    x = x * lax.rsqrt(variance + self.epsilon) * scale + bias
    return x.astype(self.dtype)


def pad_vocab(vocab_size: int) -> int:
  """Returns the number of rows of a token table for `vocab_size` tokens."""
  return math.ceil(vocab_size / VOCAB_MULTIPLE) * VOCAB_MULTIPLE


def num_parameters(params: dict, vocab_size: int) -> int:
  """Counts parameters without the padding of the vocabulary.

  Args:
    params: the unboxed tree of parameters, or of their shapes.
    vocab_size: V, unpadded.

  Returns:
    The count as published: 110,106,428 for BERT-Base uncased with both heads,
    124,439,808 for the smallest GPT-2 (a tied softmax matrix counts once),
    93,600,848 for ELMo without its softmax.
  """
  total = 0
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    name = jax.tree_util.keystr(path, simple=True, separator='/')
    rows, *others = leaf.shape or (1,)
    rows = vocab_size if name.endswith(VOCAB_PARAMS) else rows
    total += rows * math.prod(others)
  return total


class TokenTable(nn.Module):
  """Token embeddings, also the matrix of the output softmax.

  Attributes:
    vocab_size: tokens; the rows beyond, up to a multiple of 128, are zero and
      get no gradient.
    embed_dim: D.
    dropout_rate: of the table's elements, the same dropped for look-ups and
      for the softmax; 0 outside of training.
    table_init: draws the table.
    dtype: of the looked-up vectors.
  """

  vocab_size: int
  embed_dim: int
  dropout_rate: float = 0.0
  table_init: Initializer = truncated_normal
  dtype: Dtype = jnp.float32

  def setup(self):
    """Creates the table, its padding rows zero."""

    def init(rng, shape):
      table_VD = self.table_init(rng, (self.vocab_size, shape[1]))
      return jnp.pad(table_VD, ((0, shape[0] - self.vocab_size), (0, 0)))

    table_VD = self.param(
      'embedding',
      nn.with_logical_partitioning(init, ('vocab', 'embed')),
      (pad_vocab(self.vocab_size), self.embed_dim),
    )
    if self.dropout_rate:
      rng = self.make_rng('dropout')
      table_VD = dropout(rng, table_VD, self.dropout_rate)
    self.table_VD = table_VD

  def __call__(self, tokens_BT: Array) -> Array:
    """Looks tokens up: int [B, T] -> [B, T, D]."""
    # Ids are checked on the host when a store is built.
    table_VD = whole_width(self.table_VD, 'activation_vocab')
    return jnp.take(table_VD, tokens_BT, axis=0, mode='clip').astype(self.dtype)

  def attend(self, x_BPD: Array) -> Array:
    """Scores every token: [B, P, D] -> float32 [B, P, V], padding included."""
    return jnp.einsum(
      'BPD,VD->BPV',
      x_BPD,
      self.table_VD.astype(x_BPD.dtype),
      preferred_element_type=jnp.float32,
    )


def mask_padding(logits: Array, vocab_size: int) -> Array:
  """Gives the padding of a vocabulary the lowest float32.

  Before any softmax, so that padding is never predicted and never trained.

  Args:
    logits: float32 [..., V].
    vocab_size: tokens; the columns beyond are padding.
  """
  padded = logits.shape[-1]
  if padded == vocab_size:
    return logits
  lowest = jnp.finfo(jnp.float32).min
  return jnp.where(jnp.arange(padded) < vocab_size, logits, lowest)


def last_places(mask_BT: Array) -> Array:
  """Returns int [B], each row's last real token; 0 where a row has none.

  Args:
    mask_BT: bool [B, T], True at real tokens, which come first.
  """
  return jnp.maximum(mask_BT.sum(axis=1) - 1, 0)


def take_at(x_BTD: Array, places_B: Array) -> Array:
  """Returns [B, D], each row of [B, T, D] at a place of its own."""
  at_B11 = places_B.reshape(-1, 1, 1)
  return jnp.take_along_axis(x_BTD, at_B11, axis=1)[:, 0]


def constrain_hidden(x_BTD: Array) -> Array:
  """Pins how hidden states are sharded between blocks."""
  return nn.with_logical_constraint(
    x_BTD, ('batch', 'activation_length', 'activation_embed')
  )


def whole_width(table: Array, rows: str | None = None) -> Array:
  """Gathers the shards of a table [rows, D] along D, before look-ups.

  Without it the look-ups are sharded as the table is, and whole activations
  travel between the devices instead, which are larger.

  Args:
    table: [rows, D].
    rows: logical name of the rows where they stay sharded.
  """
  return nn.with_logical_constraint(table, (rows, 'activation_embed'))
