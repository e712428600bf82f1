"""Transformer building blocks, shared by every attention model.

Shapes: B batch, T query position, S key position, D embed, N heads, H head,
F mlp, Q the three of query, key and value.

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

# Of a dropout decision: rates are kept to within 1 / 2**17.
DROPOUT_BITS = 16

# Every weight matrix and table of BERT; like TensorFlow's, cut at two standard
# deviations without scaling up again (google-research/bert modeling.py).
INIT_STDDEV = 0.02
TRUNCATED_STDDEV = 0.87963 * INIT_STDDEV  # what is left of it
truncated_normal = nn.initializers.truncated_normal(INIT_STDDEV)

GELUS: dict[str, Callable[[Array], Array]] = {
  # x * Phi(x) exactly: BERT's release of 2018-10-31.
  'erf': functools.partial(nn.gelu, approximate=False),
  # Its tanh approximation, under 5e-4 apart: GPT, and BERT since 2019-02-07.
  'tanh': functools.partial(nn.gelu, approximate=True),
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


def dropout(rng: Array, x: Array, rate: float) -> Array:
  """Returns x with some elements zero, the others scaled to keep the mean.

  Args:
    rng: a key.
    x: float, rank 1 or more.
    rate: share of the elements to drop; the scale is one over the exact
      probability of being kept, not over 1 - rate.
  """
  kept_share = 1 - drop_threshold(rate) / 2**DROPOUT_BITS
  keep = keep_mask(rng, x.shape, rate)
  return jnp.where(keep, x * jnp.asarray(1 / kept_share, x.dtype), 0)


class Dropout(nn.Module):
  """Dropout at a fixed rate; nothing, and no key needed, at rate 0."""

  rate: float

  def __call__(self, x: Array) -> Array:
    """Returns x with dropout, keyed by the stream 'dropout'."""
    if self.rate == 0:
      return x
    return dropout(self.make_rng('dropout'), x, self.rate)


class Linear(nn.Module):
  """A matrix multiplication with bias over one or more axes.

  Attributes:
    features: sizes of the output axes that replace the contracted ones.
    in_names: logical names of the contracted axes (the last of the input).
    out_names: logical names of the output axes, as long as `features`.
    bias_names: logical names of the bias where they are not `out_names`.
    dtype: of the computation and the output.
  """

  features: tuple[int, ...]
  in_names: tuple[str, ...]
  out_names: tuple[str, ...]
  bias_names: tuple[str, ...] | None = None
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """Returns x @ kernel + bias, [..., *features]."""
    num_axes = len(self.in_names)
    kernel = self.param(
      'kernel',
      nn.with_logical_partitioning(
        truncated_normal, self.in_names + self.out_names
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


def masked_softmax(scores_BNTS: Array, mask: Array) -> Array:
  """Softmax over the last axis among the unmasked, in float32.

  Args:
    scores_BNTS: [B, N, T, S].
    mask: bool, broadcast to that shape; True where a key may be attended to.

  Returns:
    float32 [B, N, T, S]; rows that are wholly masked are all 0.
  """
  scores_BNTS = scores_BNTS.astype(jnp.float32)
  lowest = jnp.finfo(jnp.float32).min  # finite: a masked row gives no NaN
  weights_BNTS = jax.nn.softmax(jnp.where(mask, scores_BNTS, lowest), axis=-1)
  return jnp.where(mask, weights_BNTS, 0)


class SelfAttention(nn.Module):
  """Multi-head self-attention (Vaswani et al. 2017, section 3.2).

  Attributes:
    num_heads: N, divides D.
    dropout_rate: of the attention probabilities.
    dtype: of the computation.
  """

  num_heads: int
  dropout_rate: float = 0.0
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x_BTD: Array, mask: Array) -> Array:
    """Mixes positions; sows the probabilities as 'attention' [B, N, T, S].

    Args:
      x_BTD: float [B, T, D].
      mask: bool, broadcast to [B, N, T, S]; True where T may look at S.

    Returns:
      [B, T, D] in `dtype`.
    """
    D = x_BTD.shape[-1]
    H = D // self.num_heads
    # One multiplication; query, key and value are slices of its output.
    qkv_BTQNH = Linear(
      features=(3, self.num_heads, H),
      in_names=('embed',),
      out_names=('qkv', 'heads', 'head'),
      dtype=self.dtype,
      name='qkv',
    )(x_BTD)
    qkv_BTQNH = nn.with_logical_constraint(
      qkv_BTQNH,
      (
        'batch',
        'activation_length',
        'activation_qkv',
        'activation_heads',
        'activation_head',
      ),
    )
    query_BTNH, key_BSNH, value_BSNH = (qkv_BTQNH[:, :, i] for i in range(3))
    scores_BNTS = jnp.einsum(
      'BTNH,BSNH->BNTS',
      query_BTNH * jnp.asarray(H**-0.5, self.dtype),
      key_BSNH,
      preferred_element_type=jnp.float32,
    )
    weights_BNTS = masked_softmax(scores_BNTS, mask)
    self.sow('intermediates', 'attention', weights_BNTS)
    weights_BNTS = Dropout(self.dropout_rate)(weights_BNTS.astype(self.dtype))
    context_BTNH = jnp.einsum('BNTS,BSNH->BTNH', weights_BNTS, value_BSNH)
    context_BTNH = nn.with_logical_constraint(
      context_BTNH,
      ('batch', 'activation_length', 'activation_heads', 'activation_head'),
    )
    return Linear(
      features=(D,),
      in_names=('heads', 'head'),
      out_names=('embed',),
      dtype=self.dtype,
      name='out',
    )(context_BTNH)


class Mlp(nn.Module):
  """Two dense layers with a GELU between.

  Attributes:
    mlp_dim: F.
    gelu: 'erf' or 'tanh'.
    dtype: of the computation.
  """

  mlp_dim: int
  gelu: str = 'tanh'
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x_BTD: Array) -> Array:
    """Returns [B, T, D] for [B, T, D]."""
    hidden_BTF = Linear(
      features=(self.mlp_dim,),
      in_names=('embed',),
      out_names=('mlp',),
      dtype=self.dtype,
      name='in',
    )(x_BTD)
    hidden_BTF = nn.with_logical_constraint(
      hidden_BTF, ('batch', 'activation_length', 'activation_mlp')
    )
    return Linear(
      features=x_BTD.shape[-1:],
      in_names=('mlp',),
      out_names=('embed',),
      dtype=self.dtype,
      name='out',
    )(get_gelu(self.gelu)(hidden_BTF))


class PostNormBlock(nn.Module):
  """Attention and MLP, each with dropout, residual sum, then layer norm.

  Attributes:
    num_heads: N.
    mlp_dim: F.
    dropout_rate: of the outputs of attention and MLP; 0 outside of training.
    attention_dropout_rate: of the attention probabilities; likewise.
    gelu: 'erf' or 'tanh'.
    layer_norm_epsilon: added to the variance.
    dtype: of the computation.
  """

  num_heads: int
  mlp_dim: int
  dropout_rate: float = 0.0
  attention_dropout_rate: float = 0.0
  gelu: str = 'tanh'
  layer_norm_epsilon: float = 1e-12
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x_BTD: Array, mask: Array) -> tuple[Array, None]:
    """Returns the block's output, and nothing (the shape of a scan's body).

    Args:
      x_BTD: float [B, T, D].
      mask: bool, broadcast to [B, N, T, S].

    Returns:
      ([B, T, D] in `dtype`, None). The output is sown as 'hidden'.
    """
    attended_BTD = SelfAttention(
      num_heads=self.num_heads,
      dropout_rate=self.attention_dropout_rate,
      dtype=self.dtype,
      name='attention',
    )(x_BTD, mask)
    attended_BTD = Dropout(self.dropout_rate)(attended_BTD)
    x_BTD = LayerNorm(
      self.layer_norm_epsilon, self.dtype, name='attention_norm'
    )(x_BTD + attended_BTD)
    mlp_BTD = Mlp(self.mlp_dim, self.gelu, self.dtype, name='mlp')(x_BTD)
    mlp_BTD = Dropout(self.dropout_rate)(mlp_BTD)
    x_BTD = LayerNorm(self.layer_norm_epsilon, self.dtype, name='mlp_norm')(
      x_BTD + mlp_BTD
    )
    x_BTD = constrain_hidden(x_BTD)
    self.sow('intermediates', 'hidden', x_BTD)
    return x_BTD, None


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


def stack_layers(
  block: type[nn.Module],
  *,
  num_layers: int,
  scan_layers: bool,
  remat: bool,
  name: str,
  **fields,
) -> Callable[..., tuple[Array, None]]:
  """Repeats a block, its parameters stacked along a first axis 'layers'.

  Args:
    block: module class, called as block(carry, *arguments) -> (carry, None);
      the arguments are the same for each layer.
    num_layers: L.
    scan_layers: run one compiled layer in a loop; else all L are unrolled
      (more to compile, a third faster on a CPU). Parameters and dropout masks
      are the same either way.
    remat: keep only each layer's input for the backward pass and compute the
      rest again. Scan the layers for it: of unrolled ones XLA's CPU compiler
      computes twice and still keeps all.
    name: of the stack among its parent's parameters.
    **fields: of the block.

  Returns:
    The stacked module.
  """
  if remat:
    # A loop keeps the two computations apart by itself; unrolled, the compiler
    # would merge them again.
    block = nn.remat(block, prevent_cse=not scan_layers)
  return nn.scan(
    block,
    variable_axes={'params': 0, 'intermediates': 0},
    split_rngs={'params': True, 'dropout': True},
    in_axes=nn.broadcast,
    length=num_layers,
    unroll=1 if scan_layers else num_layers,
    metadata_params={nn.PARTITION_NAME: 'layers'},
  )(name=name, **fields)
