"""The MLP and the transformer blocks.

Shapes: B batch, T position, D embed, F mlp, L layers. Parameters, softmax and
layer-norm statistics are float32, the rest is in the module's `dtype`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from models.attention import KeyValue, Past, SelfAttention
from models.layers import (
  Dropout,
  Dtype,
  Initializer,
  LayerNorm,
  Linear,
  check_length,
  constrain_hidden,
  get_gelu,
  truncated_normal,
)

Array = jax.Array
BlockOutputs = tuple[Array, tuple[KeyValue | None, Array | None]]


class Mlp(nn.Module):
  """Two dense layers with a GELU between; fields as in `Block`."""

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
  """Fields and sub-layers of both kinds of block, which order them.

  A block takes the arguments of `SelfAttention` and returns, as the body of a
  scan, the hidden states [B, T, D] (sown as 'hidden') and a pair: the written
  keys and values, and with `keep_hidden` the hidden states again, else None.

  Attributes:
    dropout_rate: of the outputs of attention and MLP; 0 outside of training.
    attention_dropout_rate: of the attention probabilities; likewise.
    gelu: 'erf' or 'tanh'.
    kernel_init: draws the matrices that read the hidden states.
    out_init: draws the matrices that add to the hidden states.
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
  keep_hidden: bool = False

  def attend(
    self, x_BTD: Array, mask: Array, past: Past | None
  ) -> tuple[Array, KeyValue | None]:
    """Returns attention's term of the residual sum, and the new past."""
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
    """Returns the MLP's term of the residual sum."""
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
    """Applies the layer norm `name`."""
    return LayerNorm(self.layer_norm_epsilon, self.dtype, name=name)(x_BTD)

  def finish(self, x_BTD: Array, present: KeyValue | None) -> BlockOutputs:
    """Constrains the block's sharding, sows its output, and returns it."""
    x_BTD = constrain_hidden(x_BTD)
    self.sow('intermediates', 'hidden', x_BTD)
    return x_BTD, (present, x_BTD if self.keep_hidden else None)


class PostNormBlock(Block):
  """BERT's and GPT's: sub-layer, dropout, residual sum, then layer norm."""

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: Array, past: Past | None = None
  ) -> BlockOutputs:
    """Returns the block's output, see `Block`."""
    attended_BTD, present = self.attend(x_BTD, mask, past)
    x_BTD = self.normalize(x_BTD + attended_BTD, 'attention_norm')
    x_BTD = self.normalize(x_BTD + self.transform(x_BTD), 'mlp_norm')
    return self.finish(x_BTD, present)


class PreNormBlock(Block):
  """GPT-2's: layer norm, sub-layer, dropout, residual sum without a norm."""

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: Array, past: Past | None = None
  ) -> BlockOutputs:
    """Returns the block's output, see `Block`."""
    attended_BTD, present = self.attend(
      self.normalize(x_BTD, 'attention_norm'), mask, past
    )
    x_BTD = x_BTD + attended_BTD
    x_BTD = x_BTD + self.transform(self.normalize(x_BTD, 'mlp_norm'))
    return self.finish(x_BTD, present)


def gather_layers(
  embedded_BTD: Array, hidden: Array | Sequence[Array], last_BTD: Array
) -> Array:
  """Returns all layers' outputs, [L + 1, B, T, D], ending with `last_BTD`."""
  return jnp.stack([embedded_BTD, *hidden[:-1], last_BTD])


def check_sizes(model: nn.Module, length: int) -> None:
  """Checks that `num_heads` divides `embed_dim`, and the length of an input."""
  if model.embed_dim % model.num_heads:
    raise ValueError(
      f'embed_dim is {model.embed_dim}, expected a multiple of num_heads '
      f'({model.num_heads})'
    )
  check_length(length, model.max_length)


def block_fields(model: nn.Module, *, train: bool) -> dict[str, Any]:
  """Returns the fields that a transformer and its blocks have in common."""
  return dict(
    num_heads=model.num_heads,
    mlp_dim=model.mlp_dim,
    dropout_rate=model.dropout_rate if train else 0.0,
    attention_dropout_rate=model.attention_dropout_rate if train else 0.0,
    gelu=model.gelu,
    layer_norm_epsilon=model.layer_norm_epsilon,
    dtype=model.dtype,
  )


def stack_layers(
  model: nn.Module,
  block: type[nn.Module],
  in_axes: Any = nn.broadcast,
  **fields: Any,
) -> Callable[..., tuple[Array, Any]]:
  """Repeats a block, its parameters and outputs stacked along an axis 'layers'.

  With `scan_layers` one compiled layer runs in a loop, else all L are unrolled
  (more to compile, a third faster on a CPU); parameters and dropout masks are
  the same. With `remat` each layer keeps only its input for the backward pass;
  without the loop, XLA's CPU compiler would still keep everything.

  The block is called as block(carry, *arguments) -> (carry, output). `in_axes`
  of an argument is `nn.broadcast` if all layers share it, 0 if its first axis
  is the layers. `fields` are the block's.
  """
  if model.remat:
    # Unrolled, the compiler would merge both computations again.
    block = nn.remat(block, prevent_cse=not model.scan_layers)
  return nn.scan(
    block,
    variable_axes={'params': 0, 'intermediates': 0},
    split_rngs={'params': True, 'dropout': True},
    in_axes=in_axes,
    length=model.num_layers,
    unroll=1 if model.scan_layers else model.num_layers,
    metadata_params={nn.PARTITION_NAME: 'layers'},
  )(name='layers', **fields)
