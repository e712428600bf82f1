"""The layers of a transformer, in a loop, unrolled, or both.

Shapes: B batch, T position, D embed, L layers.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import lax

from models import dropout
from models.dropout import Seeds
from models.layers import check_length
from models.transformer import layout as layouts
from models.transformer.blocks import Block, BlockOutputs
from models.transformer.layout import Layout
from models.transformer.self_attention import Past

Array = jax.Array


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
  forced = model.attention == 'fused'
  return dict(
    num_heads=model.num_heads,
    mlp_dim=model.mlp_dim,
    dropout_rate=model.dropout_rate if train else 0.0,
    attention_dropout_rate=model.attention_dropout_rate if train else 0.0,
    # A training whose sizes do not suit is refused; its samples need not suit.
    attention='suited' if forced and not train else model.attention,
    null_key=model.null_key,
    gelu=model.gelu,
    gated=model.gated,
    biases=model.biases,
    window=model.window,
    global_every=model.global_every,
    query_key_norm=model.query_key_norm,
    layer_norm_epsilon=model.layer_norm_epsilon,
    dtype=model.dtype,
  )


def layout_of(
  model: nn.Module, positions_BT: Array, *, embeds_norm: bool = False
) -> Layout | None:
  """Returns the layout of a model's layers; None where all are alike."""
  is_rotary = model.positions == 'rotary'
  if not (is_rotary or model.window or embeds_norm):
    return None
  return layouts.make(
    model.num_layers,
    positions_BT,
    model.embed_dim // model.num_heads,
    (model.rotary_base, model.local_rotary_base) if is_rotary else None,
    max_length=model.max_length,
    window=model.window,
    global_every=model.global_every,
  )


def count_unrolled(model: nn.Module) -> int:
  """Returns how many layers a training step takes out of the loop."""
  if not getattr(model, 'scan_layers', False) or model.remat:
    return 0
  return min(model.unrolled_layers, model.num_layers - 1)


class Split(NamedTuple):
  """A parameter of all layers, of which a step unrolls the last.

  Attributes:
    loop: of the first layers, stacked.
    last: of each of the others.
  """

  loop: Array
  last: tuple[Array, ...]


def run_layers(
  model: nn.Module,
  block: type[Block],
  x_BTD: Array,
  mask_BS: Array,
  past: Past | None = None,
  layout: Layout | None = None,
  **fields: Any,
) -> BlockOutputs:
  """Repeats a block, its parameters and outputs stacked along an axis 'layers'.

  With `scan_layers` one compiled layer runs in a loop, else all L are unrolled
  (more to compile, a third faster on a CPU); parameters and dropout masks are
  the same. `unrolled_layers` of them may follow the loop, see `Split`. With
  `remat` each layer keeps only its input for the backward pass; without the
  loop, XLA's CPU compiler would still keep everything.

  The arguments are those of a block, of which `past` and `layout` have an axis
  of layers; `fields` are the block's. An integer mask numbers the texts of
  packed rows, see `SelfAttention`.
  """
  fields['packed'] = jnp.issubdtype(mask_BS.dtype, jnp.integer)
  seeds = None
  if fields['dropout_rate'] or fields['attention_dropout_rate']:
    dropout.check_length(x_BTD.shape[1])
    seeds = dropout.draw_seeds(model.make_rng('dropout'), x_BTD.shape[:1])
    numbers = np.arange(model.num_layers, dtype=np.int32)
    seeds = seeds.replace(layer=jnp.asarray(dropout.salt(numbers)))
  if model.remat:
    # Unrolled, the compiler would merge both computations again.
    block = nn.remat(block, prevent_cse=not model.scan_layers)
  stack = nn.scan(
    block,
    variable_axes={'params': 0, 'intermediates': 0},
    split_rngs={'params': True},
    in_axes=(
      nn.broadcast,
      nn.broadcast if seeds is None else Seeds(nn.broadcast, nn.broadcast, 0),
      nn.broadcast if past is None else (0, 0, nn.broadcast),
      nn.broadcast if layout is None else _split_layout(layout, nn.broadcast),
    ),
    length=model.num_layers,
    unroll=1 if model.scan_layers else model.num_layers,
    metadata_params={nn.PARTITION_NAME: 'layers'},
  )(name='layers', **fields)
  # The kernel's kind of mask, made once for all layers.
  mask_BS = lax.optimization_barrier(mask_BS.astype(jnp.int32))
  if not model.is_initializing():
    params = model.variables['params'].get('layers')
    if params and isinstance(_first_leaf(params), Split):
      if past is not None or model.is_mutable_collection('intermediates'):
        raise ValueError(
          'parameters are split for a training step, which has no past and sows'
          ' nothing'
        )
      layer = block(parent=None, **fields)
      total, hidden = _run_split(
        layer, params, block.enter(x_BTD), mask_BS, seeds, layout
      )
      return block.leave(total, model.dtype), (None, hidden)
  result, (present, hidden) = stack(
    block.enter(x_BTD), mask_BS, seeds, past, layout
  )
  return block.leave(result, model.dtype), (present, hidden)


def _split_layout(layout: Layout, rest: Any) -> Layout:
  """Returns the axes of layers of a layout: 0, and `rest` of what has none."""
  has_none = layout.cos is None
  shared = None if has_none else rest
  return Layout(0, 0, shared, shared)


def layer_of(layout: Layout | None, i: Array | int) -> Layout | None:
  """Returns the layout of one layer."""
  if layout is None:
    return None
  return layout._replace(
    is_first=layout.is_first[i], is_local=layout.is_local[i]
  )


def _run_split(
  block: Block,
  params: Any,
  carry: Any,
  mask_BS: Array,
  seeds: Seeds | None,
  layout: Layout | None,
) -> tuple[Any, list[Array] | None]:
  """Runs the first layers in a loop and the last after it, see `Split`.

  Returns the last layer's result, and with `keep_hidden` each layer's states.
  """
  first = _first_leaf(params)
  in_loop, unrolled = len(first.loop), len(first.last)

  def part(read: Callable[[Split], Any]) -> Any:
    return jax.tree.map(read, params, is_leaf=_is_split)

  def run(carry: Any, layer: Any) -> tuple[Any, Array | None]:
    params, salt, i = layer
    own = seeds and seeds.replace(layer=salt)
    carry, (_, hidden_BTD) = block.apply(
      {'params': params}, carry, mask_BS, own, None, layer_of(layout, i)
    )
    return carry, hidden_BTD

  salts = seeds.layer if seeds else np.zeros(in_loop + unrolled, np.int32)
  numbers = np.arange(in_loop + unrolled)
  layers_in_loop = part(lambda leaf: leaf.loop), salts[:in_loop]
  carry, hidden_LBTD = lax.scan(
    run, carry, (*layers_in_loop, numbers[:in_loop])
  )
  hidden = list(hidden_LBTD) if block.keep_hidden else None
  for i in range(unrolled):
    last = part(lambda leaf, i=i: leaf.last[i])
    carry, hidden_BTD = run(carry, (last, salts[in_loop + i], in_loop + i))
    if block.keep_hidden:
      hidden.append(hidden_BTD)
  return carry, hidden


def parameter_of(leaf: Array | Split, layer: int) -> Array:
  """Returns the parameter of a layer, from 0, of that of all layers."""
  if not isinstance(leaf, Split):
    return leaf[layer]
  first = len(leaf.loop)
  return leaf.loop[layer] if layer < first else leaf.last[layer - first]


def _is_split(leaf: Any) -> bool:
  return isinstance(leaf, Split)


def _first_leaf(params: Any) -> Any:
  return jax.tree.leaves(params, is_leaf=_is_split)[0]
