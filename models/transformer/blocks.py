"""The MLP and the transformer blocks.

Shapes: B batch, T position, D embed, F mlp, L layers. Parameters, softmax and
layer-norm statistics are float32, the rest is in the module's `dtype`.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models import dropout, layers, norms
from models.dropout import Seeds
from models.layers import (
  Dtype,
  Initializer,
  Linear,
  add_bias,
  constrain_hidden,
  get_gelu,
  truncated_normal,
)
from models.norms import LayerNorm, Sum
from models.transformer.layout import Layout
from models.transformer.self_attention import KeyValue, Past, SelfAttention

Array = jax.Array
# Dropouts of hidden states in a block: of attention's output and the MLP's.
NUM_DROPOUTS = 2
BlockOutputs = tuple[Array | Sum, tuple[KeyValue | None, Array | None]]


class Mlp(nn.Module):
  """A layer norm and two dense layers with a GELU between; as in `Block`."""

  mlp_dim: int
  gelu: str = 'tanh'
  gated: bool = False
  biases: bool = True
  kernel_init: Initializer = truncated_normal
  out_init: Initializer = truncated_normal
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, total: Sum) -> tuple[Array, Array]:
    """Returns a sum after its norm, and the last layer of it, [B, T, D]."""
    D = total.x.shape[-1]
    first = Linear(
      features=(2, self.mlp_dim) if self.gated else (self.mlp_dim,),
      in_names=('embed',),
      out_names=('gates', 'mlp') if self.gated else ('mlp',),
      kernel_init=self.kernel_init,
      dtype=self.dtype,
      has_bias=self.biases,
      name='in',
    )
    last = Linear(
      features=(D,),
      in_names=('mlp',),
      out_names=('embed',),
      kernel_init=self.out_init,
      dtype=self.dtype,
      has_bias=self.biases,
      name='out',
    )
    kernel_FD, bias_1D = last.weights((self.mlp_dim,))
    x_BTD, y_BTD = _norm_mlp(
      (self.dtype, self.gelu, self.gated),
      total,
      *first.weights((D,)),
      kernel_FD,
    )
    return x_BTD, add_bias(y_BTD, bias_1D)


# The gradient is ours: it keeps the standardised sum and the first layer's
# result alone, and computes the rest again.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _norm_mlp(fields: tuple, *arguments: Any) -> tuple[Array, Array]:
  return _norm_mlp_forward(fields, *arguments)[0]


def _norm_mlp_forward(
  fields: tuple, total: Sum, kernel_DF: Array, bias_1F: Array, kernel_FD: Array
) -> tuple[tuple[Array, Array], tuple]:
  dtype, *form = fields
  standard = norms.standardize(total)
  x_BTD = norms.rescale(standard, dtype)
  hidden_BTF = layers.product(x_BTD, kernel_DF, bias_1F)
  if not form[-1]:  # the halves of a gated one lie on all devices
    hidden_BTF = nn.with_logical_constraint(
      hidden_BTF, ('batch', 'activation_length', 'activation_mlp')
    )
  y_BTD = _activate(*form, hidden_BTF) @ kernel_FD
  return (x_BTD, y_BTD), (standard, kernel_DF, kernel_FD, hidden_BTF)


def _activate(gelu: str, gated: bool, hidden_BTF: Array) -> Array:
  """Returns the GELU; `gated`, of the first half, times the second half.

  Shazeer 2020, "GLU variants improve Transformer", equation 6.
  """
  if not gated:
    return get_gelu(gelu)(hidden_BTF)
  first, second = jnp.split(hidden_BTF, 2, axis=-1)
  return get_gelu(gelu)(first) * second


def _norm_mlp_backward(
  fields: tuple, saved: tuple, gradients: tuple[Array, Array]
) -> tuple[Any, ...]:
  dtype, *form = fields
  if layers.platform() != 'tpu':
    # The barrier keeps the compiler from sharing work between both passes; a
    # TPU's would also not fuse the matrix product that makes a gradient.
    saved, gradients = lax.optimization_barrier((saved, gradients))
  standard, kernel_DF, kernel_FD, hidden_BTF = saved
  by_x_BTD, by_y_BTD = gradients

  active_BTF, back = jax.vjp(functools.partial(_activate, *form), hidden_BTF)
  (by_hidden_BTF,) = back(by_y_BTD @ kernel_FD.T)
  by_x_BTD += by_hidden_BTF @ kernel_DF.T
  return layers.in_order(
    norms.standardize_backward(standard, by_x_BTD),
    layers.by_kernel(norms.rescale(standard, dtype), by_hidden_BTF),
    layers.sum_rows(by_hidden_BTF),
    layers.by_kernel(active_BTF, by_y_BTD),
  )


_norm_mlp.defvjp(_norm_mlp_forward, _norm_mlp_backward)


class Block(nn.Module):
  """Fields and sub-layers of both kinds of block, which order them.

  A block takes the result of the block before and the other arguments of
  `SelfAttention`. As the body of a scan it returns its result and a pair: the
  written keys and values, and with `keep_hidden` the hidden states [B, T, D],
  else None. They are sown as 'hidden' where 'intermediates' is mutable. What
  the first block takes and what the last one's result means say `enter` and
  `leave`.

  Attributes:
    dropout_rate: of the outputs of attention and MLP; 0 outside of training.
    attention_dropout_rate: of the attention probabilities; likewise.
    causal: a position looks at those before it and itself.
    attention: see `SelfAttention`.
    null_key: likewise.
    gelu: 'erf' or 'tanh'.
    gated: the MLP's GELU is multiplied by a second projection.
    biases: whether matrices and norms have any.
    window: see `SelfAttention`.
    global_every: likewise.
    query_key_norm: likewise.
    packed: likewise.
    embeds_norm: the first block's input has passed a norm, and needs no other
      (Warner et al. 2024).
    kernel_init: draws the matrices that read the hidden states.
    out_init: draws the matrices that add to the hidden states.
  """

  num_heads: int
  mlp_dim: int
  dropout_rate: float = 0.0
  attention_dropout_rate: float = 0.0
  causal: bool = False
  attention: str = 'auto'
  null_key: bool = False
  gelu: str = 'tanh'
  gated: bool = False
  biases: bool = True
  window: int = 0
  global_every: int = 1
  query_key_norm: bool = False
  packed: bool = False
  embeds_norm: bool = False
  layer_norm_epsilon: float = 1e-12
  kernel_init: Initializer = truncated_normal
  out_init: Initializer = truncated_normal
  dtype: Dtype = jnp.float32
  keep_hidden: bool = False

  def attend(
    self,
    total: Sum,
    mask_BS: Array,
    seeds: Seeds | None,
    past: Past | None,
    layout: Layout | None,
  ) -> tuple[Array, Array, KeyValue | None]:
    """Returns a sum after its norm, attention's term, and the new past."""
    x_BTD, attended_BTD, present = SelfAttention(
      num_heads=self.num_heads,
      dropout_rate=self.attention_dropout_rate,
      causal=self.causal,
      attention=self.attention,
      null_key=self.null_key,
      biases=self.biases,
      window=self.window,
      global_every=self.global_every,
      query_key_norm=self.query_key_norm,
      packed=self.packed,
      layer_norm_epsilon=self.layer_norm_epsilon,
      kernel_init=self.kernel_init,
      out_init=self.out_init,
      dtype=self.dtype,
      name='attention',
    )(total, mask_BS, self.mask_of(seeds, NUM_DROPOUTS), past, layout)
    return x_BTD, self.drop(attended_BTD, self.mask_of(seeds, 0)), present

  def transform(self, total: Sum, seeds: Seeds | None) -> tuple[Array, Array]:
    """Returns a sum after its norm, and the MLP's term of the residual sum."""
    x_BTD, mlp_BTD = Mlp(
      mlp_dim=self.mlp_dim,
      gelu=self.gelu,
      gated=self.gated,
      biases=self.biases,
      kernel_init=self.kernel_init,
      out_init=self.out_init,
      dtype=self.dtype,
      name='mlp',
    )(total)
    return x_BTD, self.drop(mlp_BTD, self.mask_of(seeds, 1))

  def mask_of(self, seeds: Seeds | None, which: int) -> Seeds | None:
    """Returns the seeds of a mask of the layer.

    Masks 0 and 1 are of the sub-layers' outputs, 2 + n of head n.
    """
    return seeds and seeds.replace(mask=which)

  def drop(self, x_BTD: Array, seeds: Seeds | None) -> Array:
    """Returns the output of a sub-layer, after dropout."""
    if not self.dropout_rate:
      return x_BTD
    return dropout.drop(x_BTD, seeds, self.dropout_rate)

  def measure(self, name: str, x_BTD: Array) -> Sum:
    """Returns a sum that still has to pass the layer norm `name`."""
    norm = LayerNorm(
      self.layer_norm_epsilon, self.dtype, has_bias=self.biases, name=name
    )
    return norm.measure(x_BTD)

  def finish(
    self, result: Any, hidden: Callable[[], Array], present: KeyValue | None
  ) -> BlockOutputs:
    """Returns the block's outputs, with its hidden states where asked for."""
    if self.keep_hidden or self.is_mutable_collection('intermediates'):
      hidden_BTD = constrain_hidden(hidden())
      self.sow('intermediates', 'hidden', hidden_BTD)
    return result, (present, hidden_BTD if self.keep_hidden else None)


class PostNormBlock(Block):
  """BERT's and GPT's: sub-layer, dropout, residual sum, then layer norm.

  The last norm is left to the reader of the result: the next block does it
  where it reads the sum, without a copy of the norm's result in memory.
  """

  @nn.compact
  def __call__(
    self,
    total: Sum,
    mask_BS: Array,
    seeds: Seeds | None = None,
    past: Past | None = None,
    layout: Layout | None = None,
  ) -> BlockOutputs:
    """Returns the block's output, see `Block`."""
    x_BTD, attended_BTD, present = self.attend(
      total, mask_BS, seeds, past, layout
    )
    total = self.measure('attention_norm', x_BTD + attended_BTD)
    x_BTD, mlp_BTD = self.transform(total, seeds)
    total = self.measure('mlp_norm', constrain_hidden(x_BTD + mlp_BTD))
    return self.finish(total, lambda: self.leave(total, self.dtype), present)

  @staticmethod
  def enter(x_BTD: Array) -> Sum:
    """Returns the first block's argument, of [B, T, D]."""
    return norms.identity_sum(x_BTD)

  @staticmethod
  def leave(total: Sum, dtype: Dtype) -> Array:
    """Returns the hidden states [B, T, D] of a block's result."""
    return norms.normalize(total, dtype)


class PreNormBlock(Block):
  """GPT-2's and ModernBERT's: norm, sub-layer, dropout, sum without a norm."""

  @nn.compact
  def __call__(
    self,
    x_BTD: Array,
    mask_BS: Array,
    seeds: Seeds | None = None,
    past: Past | None = None,
    layout: Layout | None = None,
  ) -> BlockOutputs:
    """Returns the block's output, see `Block`."""
    total = self.measure('attention_norm', x_BTD)
    if self.embeds_norm:
      chosen = (
        jnp.where(layout.is_first, same, normed)
        for same, normed in zip(norms.identity_sum(x_BTD), total, strict=True)
      )
      total = Sum(*chosen)._replace(x=x_BTD)
    _, attended_BTD, present = self.attend(total, mask_BS, seeds, past, layout)
    x_BTD = x_BTD + attended_BTD
    total = self.measure('mlp_norm', x_BTD)
    x_BTD = constrain_hidden(x_BTD + self.transform(total, seeds)[1])
    return self.finish(x_BTD, lambda: x_BTD, present)

  @staticmethod
  def enter(x_BTD: Array) -> Array:
    """Returns the first block's argument, of [B, T, D]."""
    return x_BTD

  @staticmethod
  def leave(x_BTD: Array, dtype: Dtype) -> Array:
    """Returns the hidden states [B, T, D] of a block's result."""
    return x_BTD
