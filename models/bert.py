"""BERT: masked bidirectional transformer (Devlin et al. 2018).

Shapes: B batch, T position, D embed, N heads, F mlp, P predicted positions,
L layers, V vocabulary, padded to a multiple of 128.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import layers
from models.dropout import Dropout
from models.norms import LayerNorm
from models.transformer import blocks, stack

Array = jax.Array
Dtype = jax.typing.DTypeLike

HEADS = ('pooler', 'mlm', 'nsp')  # of pre-training
POOLS = ('first', 'last', 'mean')


class BertEmbeddings(nn.Module):
  """Sum of token, position and type embeddings, layer norm, dropout.

  There is no table of positions if `max_length` is 0, and none of types if
  `num_token_types` is.
  """

  vocab_size: int
  embed_dim: int
  max_length: int
  num_token_types: int
  dropout_rate: float
  layer_norm_epsilon: float
  dtype: Dtype = jnp.float32
  biases: bool = True

  def setup(self):
    """Creates the three tables and the layer norm."""
    self.tokens = layers.TokenTable(
      self.vocab_size, self.embed_dim, dtype=self.dtype
    )
    self.positions_TD = self._table('positions', 'length', self.max_length)
    self.types_KD = self._table('token_types', 'types', self.num_token_types)
    self.layer_norm = LayerNorm(
      self.layer_norm_epsilon, self.dtype, has_bias=self.biases
    )
    self.dropout = Dropout(self.dropout_rate)

  def _table(self, name: str, axis: str, rows: int) -> Array | None:
    if not rows:
      return None
    init = layers.named(layers.truncated_normal, (axis, 'embed'))
    return self.param(name, init, (rows, self.embed_dim))

  def __call__(
    self, tokens_BT: Array, token_types_BT: Array, positions_BT: Array
  ) -> Array:
    """Returns [B, T, D] for ids [B, T] of tokens, types and positions."""
    x_BTD = self.tokens(tokens_BT)
    for table_KD, ids_BT in (
      (self.types_KD, token_types_BT),
      (self.positions_TD, positions_BT),
    ):
      if table_KD is not None:
        table_KD = layers.whole_width(table_KD)
        x_BTD = x_BTD + jnp.take(table_KD, ids_BT, axis=0, mode='clip')
    return self.dropout(self.layer_norm(x_BTD))


def projections(params: dict, layers_LBTD: Array, layer: int) -> list[Array]:
  """Returns queries, keys and values of all heads of a layer, each [B, T, D].

  Args:
    params: of a Bert whose norms are behind its sums, unboxed, or as a
      training step splits them.
    layers_LBTD: its `layers`, see `Bert`.
    layer: from 0.
  """
  # What the layer reads is the output of that before it.
  x_BTD = layers_LBTD[layer]
  D = x_BTD.shape[-1]
  qkv = {
    name: stack.parameter_of(leaf, layer).astype(x_BTD.dtype)
    for name, leaf in params['layers']['attention']['qkv'].items()
  }
  x_BTE = x_BTD @ qkv['kernel'].reshape(D, -1)
  if 'bias' in qkv:
    x_BTE += qkv['bias'].reshape(-1)
  return jnp.split(x_BTE, 3, axis=-1)


class MlmHead(nn.Module):
  """Predicts tokens: dense, GELU, layer norm, a table, and a bias."""

  vocab_size: int
  gelu: str
  layer_norm_epsilon: float
  dtype: Dtype = jnp.float32
  biases: bool = True

  @nn.compact
  def __call__(
    self, x_BPD: Array, table: layers.TokenTable | None
  ) -> layers.Head:
    """Returns what the logits [B, P, V padded] of [B, P, D] are made of.

    Without a `table`, the embeddings', the head has one of its own.
    """
    D = x_BPD.shape[-1]
    if table is None:
      table = layers.TokenTable(
        self.vocab_size, D, dtype=self.dtype, name='table'
      )
    x_BPD = layers.Linear(
      features=(D,),
      in_names=('embed',),
      out_names=('embed_out',),
      bias_names=('embed',),
      dtype=self.dtype,
      has_bias=self.biases,
      name='dense',
    )(x_BPD)
    x_BPD = layers.get_gelu(self.gelu)(x_BPD)
    x_BPD = LayerNorm(
      self.layer_norm_epsilon,
      self.dtype,
      has_bias=self.biases,
      name='layer_norm',
    )(x_BPD)
    bias = self.param(
      'bias',
      layers.named(nn.initializers.zeros, ('vocab',)),
      (layers.pad_vocab(self.vocab_size),),
    )
    return table.head(x_BPD, bias)


class Bert(nn.Module):
  """BERT with all or some of its pre-training heads.

  With `norm` 'pre' it is ModernBERT's form (Warner et al. 2024): norms before
  attention and MLP but the first, which the embeddings' norm stands for, and
  one after the last layer; the pooler ends with a GELU and a norm.

  Attributes:
    vocab_size: unpadded.
    max_length: rows of the position table.
    gelu: 'erf' or 'tanh', or 'relu' in its place.
    dtype: of activations; parameters, logits and statistics are float32.
    scan_layers: run the layers in a loop, else unrolled; stored alike.
    unrolled_layers: the last so many follow the loop in a training step, which
      is faster on a TPU; each adds to the time to compile.
    remat: recompute activations in the backward pass.
    attention: see `SelfAttention`.
    null_key: likewise.
    norm: 'post', layer norms after residual sums, or 'pre'.
    biases: whether matrices and norms have any; the softmax has one.
    gated: see `Block`.
    positions: 'learned', a table, or 'rotary', turned queries and keys.
    rotary_base: see `layout.make`, of layers that see the whole row.
    local_rotary_base: likewise, of those that see a window.
    window: see `SelfAttention`.
    global_every: with a window, each so many layers see the whole row.
    query_key_norm: see `SelfAttention`.
    tied: whether the masked tokens' softmax reads the token table; else it has
      a table of its own.
    left_to_right: causal attention (Devlin et al. 2018, section 5.1, "LTR").
    pool: what the pooler reads, one of POOLS: the first token, [CLS]; the last
      real one, the only one that sees the whole row of a `left_to_right` model;
      or the mean of the real ones.
    heads: some of 'pooler', 'mlm' and 'nsp', which needs 'pooler'. Heads not
      listed create no parameters and no outputs.
  """

  FORM = 'bert'  # see `task_model`

  vocab_size: int
  num_layers: int
  embed_dim: int
  num_heads: int
  mlp_dim: int
  max_length: int = 512
  num_token_types: int = 2
  dropout_rate: float = 0.1
  attention_dropout_rate: float = 0.1
  gelu: str = 'tanh'
  layer_norm_epsilon: float = 1e-12
  dtype: Dtype = jnp.float32
  scan_layers: bool = True
  unrolled_layers: int = 12
  remat: bool = False
  attention: str = 'auto'
  null_key: bool = False
  norm: str = 'post'
  biases: bool = True
  gated: bool = False
  positions: str = 'learned'
  rotary_base: float = 10_000.0
  local_rotary_base: float = 10_000.0
  window: int = 0
  global_every: int = 3
  query_key_norm: bool = False
  tied: bool = True
  left_to_right: bool = False
  pool: str = 'first'
  heads: tuple[str, ...] = HEADS

  @property
  def embeds_norm(self) -> bool:
    """Whether the embeddings' norm stands for that of the first layer."""
    return self.norm == 'pre'

  def example_inputs(self) -> tuple[tuple, dict[str, Any]]:
    """Returns shapes of a smallest call's inputs, and its keyword arguments."""
    ids = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    mask = jax.ShapeDtypeStruct((1, 1), bool)
    return (ids, mask, ids, ids, ids), {'train': False}

  @nn.compact
  def __call__(
    self,
    tokens: Array,
    token_mask: Array,
    token_types: Array,
    positions: Array,
    mlm_positions: Array | None = None,
    *,
    train: bool,
    all_layers: bool = False,
  ) -> dict[str, Array]:
    """Encodes tokens and predicts the masked ones and the pair's label.

    With the collection 'intermediates' mutable, it sows `embedded` [B, T, D],
    `layers/hidden` [L, B, T, D] and `layers/attention/attention` [L, B, N, T,
    S], each in a tuple of one.

    Args:
      tokens: int [B, T].
      token_mask: bool [B, T], True at real tokens; or int [B, T] of rows with
        several texts that do not see each other: the number of each token's
        text, from 1 on, and 0 at padding.
      token_types: int [B, T], 0 in A and padding, 1 in B.
      positions: int [B, T], below `max_length`.
      mlm_positions: int [B, P] to predict; unused without the head 'mlm'.
      train: apply dropout (rng stream 'dropout').
      all_layers: return the output of every layer too.

    Returns:
      hidden [B, T, D] and, with 'pooler', pooled [B, D] in `dtype`; with 'mlm'
      mlm_logits [B, P, V padded] and with 'nsp' nsp_logits [B, 2] (0 = really
      next) in float32; with `all_layers` layers [L + 1, B, T, D], the
      embeddings first and 'hidden' last; with 'mlm' in training mlm_head, what
      the logits are made of (`layers.Head`).
    """
    self._check_heads(mlm_positions)
    T = tokens.shape[1]
    stack.check_sizes(self, T)
    embeddings = BertEmbeddings(
      vocab_size=self.vocab_size,
      embed_dim=self.embed_dim,
      max_length=self.max_length if self.positions == 'learned' else 0,
      num_token_types=self.num_token_types,
      dropout_rate=self.dropout_rate if train else 0.0,
      layer_norm_epsilon=self.layer_norm_epsilon,
      dtype=self.dtype,
      biases=self.biases,
      name='embeddings',
    )
    embedded_BTD = embeddings(tokens, token_types, positions)
    embedded_BTD = layers.constrain_hidden(embedded_BTD)
    self.sow('intermediates', 'embedded', embedded_BTD)

    is_pre = self.embeds_norm
    x_BTD, (_, hidden_LBTD) = stack.run_layers(
      self,
      blocks.PreNormBlock if is_pre else blocks.PostNormBlock,
      embedded_BTD,
      token_mask,
      layout=stack.layout_of(self, positions, embeds_norm=is_pre),
      embeds_norm=is_pre,
      **stack.block_fields(self, train=train),
      causal=self.left_to_right,
      keep_hidden=all_layers,
    )
    if is_pre:
      x_BTD = self._norm('final_norm')(x_BTD)
    # Also fixes the gradient, which the look-up of predictions would reshard.
    x_BTD = layers.constrain_hidden(x_BTD)

    outputs = {'hidden': x_BTD}
    if all_layers:
      outputs['layers'] = stack.gather_layers(embedded_BTD, hidden_LBTD, x_BTD)
    if 'pooler' in self.heads:
      read_BD = self._read_row(x_BTD, token_mask)
      pooled_BD = layers.Linear(
        features=(self.embed_dim,),
        in_names=('embed',),
        out_names=('embed_out',),
        bias_names=('embed',),
        dtype=self.dtype,
        has_bias=self.biases,
        name='pooler',
      )(read_BD)
      if is_pre:
        active_BD = layers.get_gelu(self.gelu)(pooled_BD)
        outputs['pooled'] = self._norm('pooler_norm')(active_BD)
      else:
        outputs['pooled'] = jnp.tanh(pooled_BD)
    if 'nsp' in self.heads:
      outputs['nsp_logits'] = layers.Linear(
        features=(2,), in_names=('embed',), out_names=('classes',), name='nsp'
      )(outputs['pooled'])
    if 'mlm' in self.heads:
      predicted_BPD = jnp.take_along_axis(
        x_BTD, mlm_positions[:, :, None], axis=1, mode='clip'
      )
      predicted_BPD = nn.with_logical_constraint(
        predicted_BPD, ('batch', 'activation_predictions', 'activation_embed')
      )
      head = MlmHead(
        vocab_size=self.vocab_size,
        gelu=self.gelu,
        layer_norm_epsilon=self.layer_norm_epsilon,
        dtype=self.dtype,
        biases=self.biases,
        name='mlm',
      )(predicted_BPD, embeddings.tokens if self.tied else None)
      outputs['mlm_logits'] = nn.with_logical_constraint(
        head.logits(), ('batch', 'activation_predictions', 'activation_vocab')
      )
      if train:
        outputs['mlm_head'] = head
    return outputs

  def _norm(self, name: str) -> LayerNorm:
    epsilon, biases = self.layer_norm_epsilon, self.biases
    return LayerNorm(epsilon, self.dtype, has_bias=biases, name=name)

  def _read_row(self, x_BTD: Array, mask_BT: Array) -> Array:
    """Returns what the pooler reads, [B, D]."""
    if self.pool == 'first':
      return x_BTD[:, 0]
    if self.pool == 'last':
      return layers.take_at(x_BTD, layers.last_places(mask_BT))
    return layers.mean_pool(x_BTD, mask_BT)

  def _check_heads(self, mlm_positions: Array | None) -> None:
    if self.pool not in POOLS:
      raise ValueError(f'pool is {self.pool!r}, expected one of {POOLS}')
    unknown = [head for head in self.heads if head not in HEADS]
    if unknown or ('nsp' in self.heads and 'pooler' not in self.heads):
      raise ValueError(
        f"heads is {self.heads}, expected some of {HEADS}, 'nsp' with 'pooler'"
      )
    if 'mlm' in self.heads and mlm_positions is None:
      raise ValueError(
        "no mlm_positions: give them, or leave 'mlm' out of heads"
      )


def rescale_init(
  params: dict,
  *,
  stddev: float,
  position_stddev: float,
  self_score: float = 0.0,
) -> dict:
  """Returns freshly drawn parameters with other scales and attention.

  Narrow models trained for a few thousand steps learn faster with weights
  larger than BERT's 0.02 (bert_tiny, 1,000 steps, one seed: 0.54 of the unigram
  perplexity with 0.02 for all at its best rate tried, 0.43 with 0.06 and
  positions at 0.02), and with heads that attend to neighbours at first
  (bert_tiny, 400 of 800 steps: 0.52 without, 0.47 with a score of 11, 0.68 with
  46). Heads that attend everywhere learn next sentences sooner, so bert_tiny
  has no such score. Keys equal to queries: Trockman and Kolter 2023, "Mimetic
  initialization of self-attention layers".

  `stddev` is of weight matrices and the token table before truncation,
  `position_stddev` of the position and token-type tables. `self_score` is the
  mean attention score of a token with itself; if not 0, positions start as
  waves and keys equal to queries.
  """

  def rescale(path: tuple, leaf: Array) -> Array:
    names = [key.key for key in path]
    if names[-1] == 'positions' and self_score:
      return position_stddev * math.sqrt(2) * layers.sinusoids(*leaf.shape)
    if names[-1] in ('positions', 'token_types'):
      return leaf * (position_stddev / layers.INIT_STDDEV)
    if names[-1] not in ('kernel', 'embedding'):
      return leaf
    scaled = leaf * (stddev / layers.INIT_STDDEV)
    if self_score and names[-2] == 'qkv':
      _, D, _, _, H = leaf.shape  # layers, embed, q k v, heads, head
      scale = math.sqrt(self_score / (D * math.sqrt(H)))
      query = leaf[:, :, :1] * (scale / layers.TRUNCATED_STDDEV)
      scaled = scaled.at[:, :, :2].set(query)
    return scaled

  return jax.tree_util.tree_map_with_path(rescale, params)
