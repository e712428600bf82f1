"""Layers that all models share: matrices, GELUs, the token table.

Shapes: B batch, T position, P predicted position, D embed, V vocabulary, padded
to a multiple of 128. Parameters, softmax and layer-norm statistics are float32,
the rest is in the module's `dtype`.
"""

import contextlib
import functools
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models import dropout

Array = jax.Array
Params = Mapping[str, Any]  # a tree of arrays, by the names of modules
Dtype = jax.typing.DTypeLike
Initializer = Callable[..., Array]  # (rng, shape) -> float32 of that shape

LOWEST = jnp.finfo(jnp.float32).min  # finite: a masked row gives no NaN

named = nn.with_logical_partitioning  # (initializer, logical axis names)


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


def at_most(times: int) -> contextlib.AbstractContextManager:
  """Names a loop that ends with the data, so that its trips can be counted."""
  return jax.named_scope(f'at_most_{times}_times')


def platform() -> str:
  """Returns the platform traced for: cpu, gpu or tpu.

  It is that of the mesh in scope, else JAX's own.
  """
  device = jax.sharding.get_abstract_mesh().abstract_device
  found = jax.default_backend() if device is None else device.platform
  return 'gpu' if found in ('cuda', 'rocm') else found


def _make_gelu(gelu: Callable[[Array], Array]) -> Callable[[Array], Array]:
  """Returns a GELU that saves memory: its backward pass recomputes it."""

  def backward(x: Array, gradient: Array) -> tuple[Array]:
    if platform() != 'tpu':
      # The barrier keeps the compiler from sharing work between both passes; a
      # TPU's would also not fuse the matrix product that makes the gradient.
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


def _erf_gelu(x: Array) -> Array:
  """Returns x Phi(x); on a TPU in bfloat16 `near_erf_gelu`.

  There erf takes half as long as a layer's matrix products.
  """
  if platform() == 'tpu' and x.dtype == jnp.bfloat16:
    return near_erf_gelu(x)
  return nn.gelu(x, approximate=False)


def near_erf_gelu(x: Array) -> Array:
  """Returns x Phi(x) to 4e-5, its derivative to 1.3e-4, up to |x| = 100.

  Phi's logit is a polynomial, fitted to the least of the largest errors among
  factors that bfloat16 has, the first of them a sum of two. Where each
  operation is rounded to bfloat16, that adds up to 0.01.
  """
  u = jnp.clip(x, -5, 5)  # the polynomial falls from 8 on
  square = u * u
  cubic = 0.00164794921875 + square * (
    0.07373046875 - 0.00066375732421875 * square
  )
  factor = 1.59375 + cubic
  return x * jax.nn.sigmoid(u * factor)


GELUS: dict[str, Callable[[Array], Array]] = {
  # x * Phi(x), near it on a TPU in bfloat16: BERT's release of 2018-10-31.
  'erf': _make_gelu(_erf_gelu),
  # Its tanh approximation, under 5e-4 apart: GPT, and BERT since 2019-02-07.
  'tanh': _make_gelu(_tanh_gelu),
  'relu': nn.relu,  # ERNIE's; its result tells its gradient
}


def get_gelu(name: str) -> Callable[[Array], Array]:
  """Returns the GELU 'erf' or 'tanh', or 'relu'; ValueError for others."""
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


class Linear(nn.Module):
  """A matrix multiplication, with a bias or without, over one or more axes.

  The input's last axes, named `in_names`, are contracted into axes of sizes
  `features`, named `out_names`. `bias_names` None means `out_names`.
  """

  features: tuple[int, ...]
  in_names: tuple[str, ...]
  out_names: tuple[str, ...]
  bias_names: tuple[str, ...] | None = None
  kernel_init: Initializer = truncated_normal
  bias_init: Initializer = nn.initializers.zeros
  dtype: Dtype = jnp.float32
  has_bias: bool = True

  def __call__(self, x: Array) -> Array:
    """Returns x @ kernel + bias, [..., *features]."""
    num_axes = len(self.in_names)
    kernel, bias = self.weights(x.shape[-num_axes:])
    x = x.astype(kernel.dtype).reshape(*x.shape[:-num_axes], -1)
    return product(x, kernel, bias).reshape(*x.shape[:-1], *self.features)

  @nn.compact
  def weights(self, in_shape: Sequence[int]) -> tuple[Array, Array]:
    """Returns kernel [in, out] and bias [1, out], of one matrix, in `dtype`."""
    read = functools.partial(read_param, self)
    kernel = read(
      'kernel',
      named(self.kernel_init, self.in_names + self.out_names),
      (*in_shape, *self.features),
    )
    bias = jnp.zeros(self.features)
    if self.has_bias:
      bias = read(
        'bias',
        named(self.bias_init, self.bias_names or self.out_names),
        self.features,
      )
    width = math.prod(self.features)
    kernel, bias = kernel.reshape(-1, width), bias.reshape(1, width)
    return kernel.astype(self.dtype), bias.astype(self.dtype)


def read_param(
  module: nn.Module, name: str, init: Initializer, shape: Sequence[int]
) -> Array:
  """Returns a parameter, neighbouring axes of which a step may have joined."""
  if module.is_initializing() or not module.has_variable('params', name):
    return module.param(name, init, shape)
  found = nn.unbox(module.get_variable('params', name))

  def ends(shape: Sequence[int]) -> list[int]:
    return list(itertools.accumulate(shape, operator.mul))

  if found.size != math.prod(shape) or not {*ends(found.shape)} <= {
    1,
    *ends(shape),
  }:
    where = '/'.join((*module.path, name))
    raise ValueError(
      f'parameter {where} is {found.shape}, expected {tuple(shape)}, perhaps'
      ' with neighbouring axes joined'
    )
  return found


@jax.custom_vjp
def product(x: Array, kernel: Array, bias: Array) -> Array:
  """Returns x @ kernel + bias, over the last axis."""
  return add_bias(x @ kernel, bias)


def _product_backward(
  saved: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array, Array]:
  x, kernel = saved
  return in_order(
    gradient @ kernel.T, by_kernel(x, gradient), sum_rows(gradient)
  )


product.defvjp(
  lambda x, kernel, bias: (product(x, kernel, bias), (x, kernel)),
  _product_backward,
)


def by_kernel(x: Array, gradient: Array) -> Array:
  """Returns the gradient of a kernel from its product's with x."""
  rows = tuple(range(x.ndim - 1))
  return jnp.tensordot(x, gradient, (rows, rows))


def in_order(*gradients: Any) -> tuple:
  """Returns gradients of one layer, all made before those of the next.

  XLA's CPU compiler would put the kernels' gradients off, and keep what they
  are made of: 0.16 GiB of MiniLM at 16 x 384 (jax 0.10).
  """
  if platform() == 'tpu':
    return gradients
  return lax.optimization_barrier(gradients)


def add_bias(x: Array, bias: Array) -> Array:
  """Returns x + bias [1, width], over the last axis."""
  # In float32, so that the gradient of a bias is summed so.
  wide = bias.reshape((1,) * (x.ndim - 1) + bias.shape[-1:])
  total = x.astype(jnp.float32) + wide.astype(jnp.float32)
  return total.astype(x.dtype)


def sums_by_products(x: Array) -> bool:
  """Returns whether a product with 8 rows of ones sums x up best.

  A TPU's matrix unit does it beside other work; 8 rows fill its registers.
  """
  return platform() == 'tpu' and x.dtype == jnp.bfloat16


def sum_rows(x: Array, dtype: Dtype | None = None) -> Array:
  """Returns the sum over all axes but the last, [1, width], summed in float32.

  `dtype` is of the result; by default it is that of x.
  """
  dtype = dtype or x.dtype
  rows = x.reshape(-1, x.shape[-1])
  if not sums_by_products(x):
    return rows.sum(axis=0, keepdims=True, dtype=jnp.float32).astype(dtype)
  ones = jnp.ones((8, rows.shape[0]), x.dtype)
  sums = jnp.dot(ones, rows, preferred_element_type=jnp.float32)
  return sums[:1].astype(dtype)


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


class Head(NamedTuple):
  """What the logits of tokens are made of.

  Attributes:
    x_BPD: the vectors of places.
    table_VD: the vectors of tokens.
    bias_V: added to each place's logits.
  """

  x_BPD: Array
  table_VD: Array
  bias_V: Array

  def logits(self) -> Array:
    """Returns them, float32 [B, P, V]."""
    return score_rows(*self)


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
      table_VD = dropout.apply(rng, table_VD, self.dropout_rate)
    self.table_VD = table_VD

  def __call__(self, tokens_BT: Array) -> Array:
    """Looks tokens up: int [B, T] -> [B, T, D]."""
    table_VD = whole_width(self.table_VD, 'activation_vocab')
    return jnp.take(table_VD, tokens_BT, axis=0, mode='clip').astype(self.dtype)

  def head(self, x_BPD: Array, bias_V: Array | None = None) -> Head:
    """Returns what the logits of vectors [B, P, D] are made of.

    They are the lowest float32 at padding, `vocab_size` and up.
    """
    padded = len(self.table_VD)
    bias_V = jnp.zeros(padded) if bias_V is None else bias_V
    bias_V = mask_padding(bias_V, self.vocab_size)
    return Head(x_BPD, self.table_VD, bias_V)

  def attend(self, x_BPD: Array, bias_V: Array | None = None) -> Array:
    """Returns the logits, float32 [B, P, V], of `head`."""
    return self.head(x_BPD, bias_V).logits()


@jax.custom_vjp
def score_rows(x_BPD: Array, table_VD: Array, bias_V: Array) -> Array:
  """Returns the products with all rows of a table, float32 [B, P, V]."""
  logits_BPV = jnp.einsum(
    'BPD,VD->BPV',
    x_BPD,
    table_VD.astype(x_BPD.dtype),
    preferred_element_type=jnp.float32,
  )
  return logits_BPV + bias_V


def _score_rows_backward(saved: tuple, gradient_BPV: Array) -> tuple:
  x_BPD, table_VD, bias_V = saved
  gradient_BPV = gradient_BPV.astype(x_BPD.dtype)
  if platform() != 'tpu':
    # The barrier keeps the compiler from computing it for each of its readers.
    # A TPU's does so inside of the products, for less than an array costs.
    gradient_BPV = lax.optimization_barrier(gradient_BPV)
  by_table_VD = jnp.einsum(
    'BPV,BPD->VD', gradient_BPV, x_BPD, preferred_element_type=jnp.float32
  )
  return (
    jnp.einsum('BPV,VD->BPD', gradient_BPV, table_VD.astype(x_BPD.dtype)),
    by_table_VD.astype(table_VD.dtype),
    sum_rows(gradient_BPV, bias_V.dtype)[0],
  )


score_rows.defvjp(
  lambda *arrays: (score_rows(*arrays), arrays), _score_rows_backward
)


def mask_padding(logits: Array, vocab_size: int) -> Array:
  """Returns logits with the lowest float32 at padding, `vocab_size` and up."""
  return jnp.where(jnp.arange(logits.shape[-1]) < vocab_size, logits, LOWEST)


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


def mean_pool(x: Array, mask: Array) -> Array:
  """Returns means over the True places: [..., D] of [..., T, D], or 0."""
  count = jnp.maximum(mask.sum(axis=-1), 1)[..., None]
  kept = jnp.where(mask[..., None], x, 0)
  return kept.sum(axis=-2) / count.astype(x.dtype)


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
