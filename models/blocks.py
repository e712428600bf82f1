"""Attention, MLP, and the blocks that transformers are stacked from.

Shapes: B batch, T query position, S key position, D embed, N heads, H head,
F mlp, Q the three of query, key and value, L layers, Z rows times heads.

One dtype policy: parameters, softmax and layer-norm statistics are float32,
the rest is in the module's `dtype`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models.layers import (
  Dropout,
  Dtype,
  Initializer,
  LayerNorm,
  Linear,
  constrain_hidden,
  get_gelu,
  truncated_normal,
)

Array = jax.Array
# What a layer has seen, in slots: keys [Z, H, S] and values [Z, S, H], each the
# way around that its product reads it. Z is B x N: with an axis each, XLA's CPU
# compiler would copy them at every step for a batch of 1 (jax 0.10).
KeyValue = tuple[Array, Array]
Past = tuple[Array, Array, Array]  # those, and the first slot to write


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


def write_past(past: Past, key_BTNH: Array, value_BTNH: Array) -> KeyValue:
  """Returns the keys and values of a past with T more slots written."""
  key_ZHS, value_ZSH, start = past
  B, T, N, H = key_BTNH.shape
  key_ZHT = key_BTNH.transpose(0, 2, 3, 1).reshape(B * N, H, T)
  value_ZTH = value_BTNH.swapaxes(1, 2).reshape(B * N, T, H)
  return (
    lax.dynamic_update_slice_in_dim(key_ZHS, key_ZHT, start, axis=2),
    lax.dynamic_update_slice_in_dim(value_ZSH, value_ZTH, start, axis=1),
  )


def score_past(query_BTNH: Array, key_ZHS: Array) -> Array:
  """Returns the float32 scores [B, N, T, S] of queries with cached keys."""
  B, T, N, H = query_BTNH.shape
  query_ZTH = query_BTNH.swapaxes(1, 2).reshape(B * N, T, H)
  scores_ZTS = jnp.einsum(
    'ZTH,ZHS->ZTS', query_ZTH, key_ZHS, preferred_element_type=jnp.float32
  )
  return scores_ZTS.reshape(B, N, T, -1)


def mix_past(weights_BNTS: Array, value_ZSH: Array) -> Array:
  """Returns the contexts [B, T, N, H] of cached values."""
  B, N, T, S = weights_BNTS.shape
  weights_ZTS = weights_BNTS.reshape(B * N, T, S)
  context_ZTH = jnp.einsum('ZTS,ZSH->ZTH', weights_ZTS, value_ZSH)
  return context_ZTH.reshape(B, N, T, -1).swapaxes(1, 2)


def causal_mask(length: int, slots: int, first: Array | int) -> Array:
  """Returns bool [T, S]: whether position first + t may look at slot s."""
  return jnp.arange(slots) <= first + jnp.arange(length)[:, None]


class SelfAttention(nn.Module):
  """Multi-head self-attention (Vaswani et al. 2017, section 3.2).

  Attributes:
    num_heads: N, divides D.
    dropout_rate: of the attention probabilities.
    kernel_init: draws the projections to query, key and value.
    out_init: draws the output projection.
    dtype: of the computation.
  """

  num_heads: int
  dropout_rate: float = 0.0
  kernel_init: Initializer = truncated_normal
  out_init: Initializer = truncated_normal
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: Array, past: Past | None = None
  ) -> tuple[Array, KeyValue | None]:
    """Mixes positions; sows the probabilities as 'attention' [B, N, T, S].

    Args:
      x_BTD: float [B, T, D].
      mask: bool, broadcast to [B, N, T, S]; True where T may look at S.
      past: keys and values of S slots, into which those of `x_BTD` are written
        before any is looked at; None: S are the positions of `x_BTD`.

    Returns:
      [B, T, D] in `dtype`, and the keys and values of a past as written.
    """
    D = x_BTD.shape[-1]
    H = D // self.num_heads
    # One multiplication; query, key and value are slices of its output.
    qkv_BTQNH = Linear(
      features=(3, self.num_heads, H),
      in_names=('embed',),
      out_names=('qkv', 'heads', 'head'),
      kernel_init=self.kernel_init,
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
    query_BTNH = query_BTNH * jnp.asarray(H**-0.5, self.dtype)
    present = None
    if past is None:
      scores_BNTS = jnp.einsum(
        'BTNH,BSNH->BNTS',
        query_BTNH,
        key_BSNH,
        preferred_element_type=jnp.float32,
      )
    else:
      present = write_past(past, key_BSNH, value_BSNH)
      scores_BNTS = score_past(query_BTNH, present[0])
    weights_BNTS = masked_softmax(scores_BNTS, mask)
    self.sow('intermediates', 'attention', weights_BNTS)
    weights_BNTS = Dropout(self.dropout_rate)(weights_BNTS.astype(self.dtype))
    if past is None:
      context_BTNH = jnp.einsum('BNTS,BSNH->BTNH', weights_BNTS, value_BSNH)
    else:
      context_BTNH = mix_past(weights_BNTS, present[1])
    context_BTNH = nn.with_logical_constraint(
      context_BTNH,
      ('batch', 'activation_length', 'activation_heads', 'activation_head'),
    )
    x_BTD = Linear(
      features=(D,),
      in_names=('heads', 'head'),
      out_names=('embed',),
      kernel_init=self.out_init,
      dtype=self.dtype,
      name='out',
    )(context_BTNH)
    return x_BTD, present


class Mlp(nn.Module):
  """Two dense layers with a GELU between.

  Attributes:
    mlp_dim: F.
    gelu: 'erf' or 'tanh'.
    kernel_init: draws the first layer's kernel.
    out_init: draws the second layer's kernel.
    dtype: of the computation.
  """

  mlp_dim: int
  gelu: str = 'tanh'
  kernel_init: Initializer = truncated_normal
  out_init: Initializer = truncated_normal
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x_BTD: Array) -> Array:
    """Returns [B, T, D] for [B, T, D]."""
    hidden_BTF = Linear(
      features=(self.mlp_dim,),
      in_names=('embed',),
      out_names=('mlp',),
      kernel_init=self.kernel_init,
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
      kernel_init=self.out_init,
      dtype=self.dtype,
      name='out',
    )(get_gelu(self.gelu)(hidden_BTF))


class Block(nn.Module):
  """What both kinds of block share: fields and sub-layers, but not their order.

  A block takes and returns what `SelfAttention` does (so it can be the body of
  a scan), and sows the hidden states that it returns as 'hidden' [B, T, D].

  Attributes:
    num_heads: N.
    mlp_dim: F.
    dropout_rate: of the outputs of attention and MLP; 0 outside of training.
    attention_dropout_rate: of the attention probabilities; likewise.
    gelu: 'erf' or 'tanh'.
    layer_norm_epsilon: added to the variance.
    kernel_init: draws the matrices that read the hidden states.
    out_init: draws those whose output is added to the hidden states.
    dtype: of the computation.
  """

  num_heads: int
  mlp_dim: int
  dropout_rate: float = 0.0
  attention_dropout_rate: float = 0.0
  gelu: str = 'tanh'
  layer_norm_epsilon: float = 1e-12
  kernel_init: Initializer = truncated_normal
  out_init: Initializer = truncated_normal
  dtype: Dtype = jnp.float32

  def attend(
    self, x_BTD: Array, mask: Array, past: Past | None
  ) -> tuple[Array, KeyValue | None]:
    """Returns what attention adds to the hidden states, and its past."""
    attended_BTD, present = SelfAttention(
      num_heads=self.num_heads,
      dropout_rate=self.attention_dropout_rate,
      kernel_init=self.kernel_init,
      out_init=self.out_init,
      dtype=self.dtype,
      name='attention',
    )(x_BTD, mask, past)
    return Dropout(self.dropout_rate)(attended_BTD), present

  def transform(self, x_BTD: Array) -> Array:
    """Returns what the MLP adds to the hidden states."""
    mlp_BTD = Mlp(
      mlp_dim=self.mlp_dim,
      gelu=self.gelu,
      kernel_init=self.kernel_init,
      out_init=self.out_init,
      dtype=self.dtype,
      name='mlp',
    )(x_BTD)
    return Dropout(self.dropout_rate)(mlp_BTD)

  def normalize(self, x_BTD: Array, name: str) -> Array:
    """Returns the layer norm of that name, applied."""
    return LayerNorm(self.layer_norm_epsilon, self.dtype, name=name)(x_BTD)

  def finish(self, x_BTD: Array) -> Array:
    """Pins how the block's output is sharded, and sows it as 'hidden'."""
    x_BTD = constrain_hidden(x_BTD)
    self.sow('intermediates', 'hidden', x_BTD)
    return x_BTD


class PostNormBlock(Block):
  """Attention and MLP, each with dropout, residual sum, then layer norm.

  BERT's and GPT's.
  """

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: Array, past: Past | None = None
  ) -> tuple[Array, KeyValue | None]:
    """Returns the block's output, as `Block` says."""
    attended_BTD, present = self.attend(x_BTD, mask, past)
    x_BTD = self.normalize(x_BTD + attended_BTD, 'attention_norm')
    x_BTD = self.normalize(x_BTD + self.transform(x_BTD), 'mlp_norm')
    return self.finish(x_BTD), present


class PreNormBlock(Block):
  """Layer norm, then attention or MLP, with dropout, residual sum.

  GPT-2's: the hidden states themselves are only added to, never normalised.
  """

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: Array, past: Past | None = None
  ) -> tuple[Array, KeyValue | None]:
    """Returns the block's output, as `Block` says."""
    attended_BTD, present = self.attend(
      self.normalize(x_BTD, 'attention_norm'), mask, past
    )
    x_BTD = x_BTD + attended_BTD
    x_BTD = x_BTD + self.transform(self.normalize(x_BTD, 'mlp_norm'))
    return self.finish(x_BTD), present


def forward_flops(
  *, batch: int, length: int, num_layers: int, embed_dim: int, mlp_dim: int
) -> int:
  """Returns the FLOPs of a stack's multiplications in a forward pass.

  Of [m, k] by [k, n] they are 2 m n k: the projections, and the attention
  scores and contexts over all T x T, padding and what a mask hides included.

  Args:
    batch: B.
    length: T.
    num_layers: L.
    embed_dim: D.
    mlp_dim: F.
  """
  B, T, D = batch, length, embed_dim
  projections = 2 * B * T * D * (4 * D + 2 * mlp_dim)  # q, k, v, out; in, out
  attention = 2 * 2 * B * T * T * D  # scores and context, over all heads
  return num_layers * (projections + attention)


def stack_layers(
  block: type[nn.Module],
  *,
  num_layers: int,
  scan_layers: bool,
  remat: bool,
  name: str,
  in_axes: Any = nn.broadcast,
  **fields,
) -> Callable[..., tuple[Array, Any]]:
  """Repeats a block, its parameters stacked along a first axis 'layers'.

  Args:
    block: module class, called as block(carry, *arguments) -> (carry, output);
      outputs are stacked as the parameters are.
    num_layers: L.
    scan_layers: run one compiled layer in a loop; else all L are unrolled
      (more to compile, a third faster on a CPU). Parameters and dropout masks
      are the same either way.
    remat: keep only each layer's input for the backward pass and compute the
      rest again. Scan the layers for it: of unrolled ones XLA's CPU compiler
      computes twice and still keeps all.
    name: of the stack among its parent's parameters.
    in_axes: of the arguments: `nn.broadcast` for one that is the same for each
      layer, 0 for one whose first axis is the layers; or a tuple of these.
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
    in_axes=in_axes,
    length=num_layers,
    unroll=1 if scan_layers else num_layers,
    metadata_params={nn.PARTITION_NAME: 'layers'},
  )(name=name, **fields)
