"""GPT and GPT-2: left-to-right transformers (Radford et al. 2018, 2019).

Shapes: B batch, T position, S slot of the cache, D embed, N heads, H head,
F mlp, L layers, V vocabulary, padded to a multiple of 128.
"""

import math
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models import layers
from models.dropout import Dropout
from models.norms import LayerNorm
from models.transformer import blocks, stack
from models.transformer.layout import Layout

Array = jax.Array
Dtype = jax.typing.DTypeLike

# Not truncated: openai/finetune-transformer-lm train.py, openai/gpt-2 model.py.
INIT_STDDEV = 0.02
PRE_NORM_POSITION_STDDEV = 0.01


class Cache(NamedTuple):
  """Keys and values of the positions read so far.

  Attributes:
    keys: [L, Z, H, S], Z = B x N; or L arrays [Z, H, S] if not `stacked`.
    values: [L, Z, S, H], or L arrays [Z, S, H].
    mask: bool [B, S], True at slots that hold a real token.
    end: int32 [], slots written so far, padding included.
  """

  keys: Any
  values: Any
  mask: Array
  end: Array


class GptEmbeddings(nn.Module):
  """Sum of token and position embeddings, with dropout.

  With `drop_tables` dropout is of the elements of both tables, once for the
  whole batch and the softmax (GPT); else of the sum (GPT-2). There is no table
  of positions if `max_length` is 0.
  """

  vocab_size: int
  embed_dim: int
  max_length: int
  dropout_rate: float
  drop_tables: bool
  position_stddev: float
  dtype: Dtype = jnp.float32

  def setup(self):
    """Creates the two tables."""
    table_rate = self.dropout_rate if self.drop_tables else 0.0
    self.tokens = layers.TokenTable(
      self.vocab_size,
      self.embed_dim,
      dropout_rate=table_rate,
      table_init=nn.initializers.normal(INIT_STDDEV),
      dtype=self.dtype,
    )
    positions_TD = None
    if self.max_length:
      positions_TD = self.param(
        'positions',
        layers.named(
          nn.initializers.normal(self.position_stddev), ('length', 'embed')
        ),
        (self.max_length, self.embed_dim),
      )
    self.table_dropout = Dropout(table_rate)
    self.sum_dropout = Dropout(self.dropout_rate - table_rate)
    if positions_TD is not None:
      positions_TD = self.table_dropout(positions_TD)
    self.positions_TD = positions_TD

  def __call__(self, tokens_BT: Array, positions_BT: Array) -> Array:
    """Returns [B, T, D] for ids [B, T] of tokens and positions."""
    x_BTD = self.tokens(tokens_BT)
    if self.positions_TD is not None:
      positions_TD = layers.whole_width(self.positions_TD)
      positions_BTD = jnp.take(positions_TD, positions_BT, axis=0, mode='clip')
      x_BTD = x_BTD + positions_BTD.astype(self.dtype)
    return self.sum_dropout(x_BTD)


class Gpt(nn.Module):
  """GPT, or with `pre_norm` GPT-2, with the tied language-model head.

  GPT: layer norm after each residual sum, none at the end; all weights and
  tables N(0, 0.02); embedding dropout applies to the tables' elements, for the
  softmax too (openai/finetune-transformer-lm train.py).

  GPT-2: layer norm before attention and MLP and after the last block; positions
  N(0, 0.01) (openai/gpt-2 model.py); the output matrices of attention and MLP
  are scaled by 1/sqrt(2 L) (Radford et al. 2019, section 2.3). Its release has
  no dropout: here it applies to the sum of embeddings, as in Hugging Face's.

  Attributes:
    vocab_size: unpadded.
    max_length: rows of the position table.
    gelu: 'erf' or 'tanh'.
    dtype: of activations; parameters, logits and statistics are float32.
    scan_layers: run the layers in a loop, else unrolled; stored alike.
    unrolled_layers: the last so many follow the loop in a training step, which
      is faster on a TPU; each adds to the time to compile.
    attention: see `SelfAttention`.
    null_key: likewise.
    biases: this and the next seven: see `models.bert.Bert`. A `window` is not
      for decoding, which counts slots of the cache, padding included.
    remat: recompute activations in the backward pass.
    stacked: one array holds a parameter of all layers; else each layer has its
      own, which decoding reads without a copy (`prepare_decoding`).
  """

  FORM = 'gpt'  # see `task_model`

  vocab_size: int
  num_layers: int
  embed_dim: int
  num_heads: int
  mlp_dim: int
  max_length: int = 512
  dropout_rate: float = 0.1
  attention_dropout_rate: float = 0.1
  pre_norm: bool = False
  gelu: str = 'tanh'
  layer_norm_epsilon: float = 1e-5
  dtype: Dtype = jnp.float32
  scan_layers: bool = True
  unrolled_layers: int = 12
  remat: bool = False
  attention: str = 'auto'
  null_key: bool = False
  biases: bool = True
  gated: bool = False
  positions: str = 'learned'
  rotary_base: float = 10_000.0
  local_rotary_base: float = 10_000.0
  window: int = 0
  global_every: int = 3
  query_key_norm: bool = False
  stacked: bool = True

  @property
  def norm(self) -> str:
    """Where the norms are, as in `models.bert.Bert`."""
    return 'pre' if self.pre_norm else 'post'

  @nn.compact
  def __call__(
    self,
    tokens: Array,
    token_mask: Array,
    positions: Array,
    *,
    train: bool,
    cache: Cache | None = None,
    all_layers: bool = False,
    score_positions: int = 0,
  ) -> dict[str, Any]:
    """Predicts at each position the token that follows it.

    A position sees the real tokens up to itself, the cache's first. Padding may
    lie anywhere; outputs at padding are meaningless.

    With the collection 'intermediates' mutable, it sows `embedded` [B, T, D],
    `layers/hidden` [L, B, T, D] (before the final norm) and
    `layers/attention/attention` [L, B, N, T, S], each in a tuple of one;
    `layers_0/hidden` and so on if not `stacked`.

    Args:
      tokens: int [B, T].
      token_mask: bool [B, T], True at real tokens; without a cache also int
        [B, T], the number of each token's text, see `models.bert.Bert`.
      positions: int [B, T], below `max_length`.
      train: apply dropout (rng stream 'dropout').
      cache: of the preceding tokens, at first `empty_cache`. It needs T free
        slots; otherwise its last slots are overwritten.
      all_layers: return the output of every layer too.
      score_positions: number of rows of the position table to score like
        tokens: GPT's release keeps both in one table.

    Returns:
      hidden [B, T, D] in `dtype`, lm_logits [B, T, V padded] in float32; in
      training lm_head, what the logits are made of (`layers.Head`); with a
      cache, `cache` with the T tokens added; with `all_layers` layers [L + 1,
      B, T, D], the embeddings first and 'hidden' last; with `score_positions`
      position_logits [B, T, score_positions] in float32.
    """
    T = tokens.shape[1]
    stack.check_sizes(self, T)
    embeddings = GptEmbeddings(
      vocab_size=self.vocab_size,
      embed_dim=self.embed_dim,
      max_length=self.max_length if self.positions == 'learned' else 0,
      dropout_rate=self.dropout_rate if train else 0.0,
      drop_tables=not self.pre_norm,
      position_stddev=(
        PRE_NORM_POSITION_STDDEV if self.pre_norm else INIT_STDDEV
      ),
      dtype=self.dtype,
      name='embeddings',
    )
    embedded_BTD = layers.constrain_hidden(embeddings(tokens, positions))
    self.sow('intermediates', 'embedded', embedded_BTD)

    mask_BS = token_mask
    if cache is not None:
      mask_BS = lax.dynamic_update_slice_in_dim(
        cache.mask, token_mask, cache.end, axis=1
      )
    x_BTD, (present, hidden_LBTD) = self._run_layers(
      embedded_BTD,
      mask_BS,
      cache,
      stack.layout_of(self, positions),
      train=train,
      keep_hidden=all_layers,
    )
    if self.pre_norm:
      x_BTD = LayerNorm(
        self.layer_norm_epsilon,
        self.dtype,
        has_bias=self.biases,
        name='final_norm',
      )(x_BTD)
      x_BTD = layers.constrain_hidden(x_BTD)

    head = embeddings.tokens.head(x_BTD)
    outputs = {
      'hidden': x_BTD,
      'lm_logits': nn.with_logical_constraint(
        head.logits(), ('batch', 'activation_length', 'activation_vocab')
      ),
    }
    if train:
      outputs['lm_head'] = head
    if score_positions:
      outputs['position_logits'] = layers.score_rows(
        x_BTD,
        embeddings.positions_TD[:score_positions],
        jnp.zeros(score_positions),
      )
    if all_layers:
      outputs['layers'] = stack.gather_layers(embedded_BTD, hidden_LBTD, x_BTD)
    if cache is not None:
      keys, values = present
      outputs['cache'] = Cache(keys, values, mask_BS, cache.end + T)
    return outputs

  def _run_layers(
    self,
    x_BTD: Array,
    mask_BS: Array,
    cache: Cache | None,
    layout: Layout | None,
    *,
    train: bool,
    keep_hidden: bool,
  ) -> tuple[Array, tuple[Any, Any]]:
    """Returns the last output, the cache's keys and values, and all outputs."""
    block = blocks.PreNormBlock if self.pre_norm else blocks.PostNormBlock
    out_stddev = INIT_STDDEV
    if self.pre_norm:
      out_stddev /= math.sqrt(2 * self.num_layers)
    fields = stack.block_fields(self, train=train) | dict(
      kernel_init=nn.initializers.normal(INIT_STDDEV),
      out_init=nn.initializers.normal(out_stddev),
      causal=True,
      keep_hidden=keep_hidden,
    )
    if self.stacked:
      past = cache and (cache.keys, cache.values, cache.end)
      return stack.run_layers(
        self, block, x_BTD, mask_BS, past, layout, **fields
      )
    if train:
      raise ValueError('stacked is False, for decoding; train expects True')
    pairs = []
    result = block.enter(x_BTD)
    for i in range(self.num_layers):
      past = cache and (cache.keys[i], cache.values[i], cache.end)
      result, pair = block(name=f'layers_{i}', **fields)(
        result, mask_BS, None, past, stack.layer_of(layout, i)
      )
      pairs.append(pair)
    present, hidden = zip(*pairs, strict=True)
    return block.leave(result, self.dtype), (
      cache and tuple(zip(*present, strict=True)),
      hidden,
    )


def empty_cache(model: Gpt, batch: int, slots: int) -> Cache:
  """Returns an empty cache of S slots; every step attends to all of them."""
  Z, H = batch * model.num_heads, model.embed_dim // model.num_heads

  def zeros(*shape: int) -> Any:
    if model.stacked:
      return jnp.zeros((model.num_layers, *shape), model.dtype)
    return tuple(jnp.zeros(shape, model.dtype) for _ in range(model.num_layers))

  return Cache(
    keys=zeros(Z, H, slots),
    values=zeros(Z, slots, H),
    mask=jnp.zeros((batch, slots), bool),
    end=jnp.zeros((), jnp.int32),
  )


def prepare_decoding(model: Gpt, params: dict) -> tuple[Gpt, dict]:
  """Returns the model unstacked and its parameters cast, for fast decoding."""
  if not model.stacked:
    return model, params

  def cast(path: tuple, leaf: Array) -> Array:
    norm = any(key.key.endswith('norm') for key in path)
    return leaf if norm else leaf.astype(model.dtype)

  params = jax.tree_util.tree_map_with_path(cast, params)
  stack = params.pop('layers')
  for i in range(model.num_layers):
    params[f'layers_{i}'] = jax.tree.map(operator.itemgetter(i), stack)
  return model.clone(stacked=False), params


def rescale_init(
  model: Gpt, params: dict, *, stddev: float, position_stddev: float
) -> dict:
  """Returns newly drawn parameters with other scales, see `bert.rescale_init`.

  `stddev` is for weight matrices and the token table; GPT-2's scaled output
  matrices keep their proportion.
  """
  positions = PRE_NORM_POSITION_STDDEV if model.pre_norm else INIT_STDDEV
  factors = dict.fromkeys(('kernel', 'embedding'), stddev / INIT_STDDEV)
  factors['positions'] = position_stddev / positions
  return jax.tree_util.tree_map_with_path(
    lambda path, leaf: leaf * factors.get(path[-1].key, 1), params
  )
