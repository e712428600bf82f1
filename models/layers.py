"""Layers that all models share: dropout, matrices, norms, the token table.

Shapes: B batch, T position, P predicted position, D embed, V vocabulary, padded
to a multiple of 128. Parameters, softmax and layer-norm statistics are float32,
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

named = nn.with_logical_partitioning  # (initializer, logical axis names)

DROPOUT_BITS = 16  # random bits of a decision: rates are exact to 1 / 2**17

# Every weight matrix and table of BERT; like TensorFlow's, cut at two standard
# deviations without rescaling (google-research/bert modeling.py).
INIT_STDDEV = 0.02
TRUNCATED_STDDEV = 0.87963 * INIT_STDDEV  # of the truncated distribution
truncated_normal = nn.initializers.truncated_normal(INIT_STDDEV)

# Published sizes do not divide over a mesh (30,522 = 2 x 3 x 5,087); 128 is the
# width of a TPU's registers.
VOCAB_MULTIPLE = 128
# Ends of the paths of parameters with a row for each token or word.
VOCAB_PARAMS = ('embedding', 'mlm/bias', 'softmax/kernel', 'softmax/bias')


def _make_gelu(gelu: Callable[[Array], Array]) -> Callable[[Array], Array]:
  """Returns a GELU that saves memory: its backward pass recomputes it."""

  def backward(x: Array, gradient: Array) -> tuple[Array]:
    # The barrier keeps the compiler from sharing work between both passes.
    x, gradient = lax.optimization_barrier((x, gradient))
    return jax.vjp(gelu, x)[1](gradient)

  light = jax.custom_vjp(gelu)
  light.defvjp(lambda x: (gelu(x), x), backward)
  return light


def _tanh_gelu(x: Array) -> Array:
  """Returns x/2 (1 + tanh u) as x sigmoid(2u), which takes less memory."""
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
  """Returns the GELU named 'erf' or 'tanh'; raises ValueError for others."""
  if name not in GELUS:
    raise ValueError(f'gelu is {name!r}, expected one of {sorted(GELUS)}')
  return GELUS[name]


def sinusoids(length: int, width: int) -> Array:
  """Returns waves [length, width]: sines in the first half, then cosines.

  Wavelengths grow from 2 pi to 200 pi positions (Vaswani et al. 2017, section
  3.5, with 10,000 for our 100), so near positions are alike.
  """
  rates = 100.0 ** (-jnp.arange(width // 2) / (width // 2))
  angles = jnp.arange(length)[:, None] * rates
  return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)


def drop_threshold(rate: float) -> int:
  """Returns how many of the 2**16 random values drop an element."""
  threshold = round(rate * 2**DROPOUT_BITS)
  if not 0 <= threshold < 2**DROPOUT_BITS:
    raise ValueError(f'dropout rate is {rate}, expected 0 <= rate < 1')
  return threshold


def keep_mask(rng: Array, shape: Sequence[int], rate: float) -> Array:
  """Returns the dropout mask, bool of `shape`, True at the elements to keep.

  It does not depend on the sharding (JAX's partitionable threefry). The rate is
  rounded to a multiple of 2**-16.
  """
  half = math.ceil(shape[-1] / 2)
  bits = jax.random.bits(rng, (*shape[:-1], half), jnp.uint32)
  threshold = drop_threshold(rate)
  # Halves of the last axis: a TPU would pad an axis of 2 to a whole register.
  kept = jnp.concatenate(
    [(bits & 0xFFFF) >= threshold, (bits >> 16) >= threshold], axis=-1
  )
  return kept[..., : shape[-1]]


def kept_share(rate: float) -> float:
  """Returns the exact probability that dropout keeps an element."""
  return 1 - drop_threshold(rate) / 2**DROPOUT_BITS


def dropout(rng: Array, x: Array, rate: float) -> Array:
  """Returns x after dropout, scaled by the exact `kept_share`."""
  keep = keep_mask(rng, x.shape, rate)
  return jnp.where(keep, x * jnp.asarray(1 / kept_share(rate), x.dtype), 0)


class Dropout(nn.Module):
  """Dropout with keys of the rng stream 'dropout'; rate 0 needs no key."""

  rate: float

  def __call__(self, x: Array) -> Array:
    """Returns x with dropout."""
    if self.rate == 0:
      return x
    return dropout(self.make_rng('dropout'), x, self.rate)

  def draw(self, shape: Sequence[int]) -> Array | None:
    """Returns the dropout mask of `shape`; None at rate 0."""
    if self.rate == 0:
      return None
    return keep_mask(self.make_rng('dropout'), shape, self.rate)


class Linear(nn.Module):
  """A matrix multiplication with bias over one or more axes.

  The input's last axes, named `in_names`, are contracted into axes of sizes
  `features`, named `out_names`. `bias_names` None means `out_names`.
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
      named(self.kernel_init, self.in_names + self.out_names),
      x.shape[-num_axes:] + self.features,
    )
    bias = self.param(
      'bias',
      named(nn.initializers.zeros, self.bias_names or self.out_names),
      self.features,
    )
    x, kernel, bias = nn.dtypes.promote_dtype(x, kernel, bias, dtype=self.dtype)
    return jnp.tensordot(x, kernel, axes=num_axes) + bias


class LayerNorm(nn.Module):
  """Layer norm over the last axis, with float32 statistics."""

  epsilon: float
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """Returns x at mean 0 and variance 1, times scale, plus bias."""
    ones, zeros = nn.initializers.ones, nn.initializers.zeros
    names, shape = ('embed',), x.shape[-1:]
    scale = self.param('scale', named(ones, names), shape)
    bias = self.param('bias', named(zeros, names), shape)
    x = x.astype(jnp.float32)
    x = x - x.mean(axis=-1, keepdims=True)
    variance = jnp.square(x).mean(axis=-1, keepdims=True)
    x = x * lax.rsqrt(variance + self.epsilon) * scale + bias
    return x.astype(self.dtype)


def pad_vocab(vocab_size: int) -> int:
  """Returns the rows of a token table: `vocab_size` rounded up to 128."""
  return math.ceil(vocab_size / VOCAB_MULTIPLE) * VOCAB_MULTIPLE


def num_parameters(params: dict, vocab_size: int) -> int:
  """Counts parameters (unboxed arrays or shapes) without vocabulary padding.

  110,106,428 for BERT-Base uncased with both heads, 124,439,808 for the
  smallest GPT-2 (tied softmax), 93,600,848 for ELMo without softmax.
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

  Padding rows beyond `vocab_size` are zero and get no gradient. `dropout_rate`
  is of the table's elements, with one mask for look-ups and softmax.
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
      named(init, ('vocab', 'embed')),
      (pad_vocab(self.vocab_size), self.embed_dim),
    )
    if self.dropout_rate:
      rng = self.make_rng('dropout')
      table_VD = dropout(rng, table_VD, self.dropout_rate)
    self.table_VD = table_VD

  def __call__(self, tokens_BT: Array) -> Array:
    """Looks tokens up: int [B, T] -> [B, T, D]."""
    table_VD = whole_width(self.table_VD, 'activation_vocab')
    return jnp.take(table_VD, tokens_BT, axis=0, mode='clip').astype(self.dtype)

  def attend(self, x_BPD: Array) -> Array:
    """Returns logits, float32 [B, P, V] for [B, P, D], padding included."""
    return score_rows(x_BPD, self.table_VD)


def score_rows(x_BPD: Array, table_VD: Array) -> Array:
  """Returns the products with all rows of a table, float32 [B, P, V]."""
  return jnp.einsum(
    'BPD,VD->BPV',
    x_BPD,
    table_VD.astype(x_BPD.dtype),
    preferred_element_type=jnp.float32,
  )


def mask_padding(logits: Array, vocab_size: int) -> Array:
  """Returns logits with the lowest float32 at padding, `vocab_size` and up."""
  padded = logits.shape[-1]
  if padded == vocab_size:
    return logits
  lowest = jnp.finfo(jnp.float32).min
  return jnp.where(jnp.arange(padded) < vocab_size, logits, lowest)


def check_length(length: int, max_length: int) -> None:
  """Checks that a sequence is not longer than the model's `max_length`."""
  if length > max_length:
    raise ValueError(
      f'sequences are {length} tokens long, but the model reads at most'
      f' {max_length}: shorten them or raise max_length'
    )


def last_places(mask_BT: Array) -> Array:
  """Returns int [B], the last True of each row; 0 for an empty row."""
  return jnp.maximum(mask_BT.sum(axis=1) - 1, 0)


def take_at(x_BTD: Array, places_B: Array) -> Array:
  """Returns [B, D], the vector of each row at its place."""
  at_B11 = places_B.reshape(-1, 1, 1)
  return jnp.take_along_axis(x_BTD, at_B11, axis=1)[:, 0]


def constrain_hidden(x_BTD: Array) -> Array:
  """Constrains the sharding of hidden states between blocks."""
  return nn.with_logical_constraint(
    x_BTD, ('batch', 'activation_length', 'activation_embed')
  )


def whole_width(table: Array, rows: str | None = None) -> Array:
  """Gathers the shards of a table [rows, D] along D, before look-ups.

  Activations, the alternative, are larger. Rows named `rows` stay sharded.
  """
  return nn.with_logical_constraint(table, (rows, 'activation_embed'))
