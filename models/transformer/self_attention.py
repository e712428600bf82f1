"""Self-attention as a module: plain, in one kernel, or with cached keys.

Shapes: B batch, T query position, S key position, D embed, N heads, H head, Z
rows times heads.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models.dropout import Seeds
from models.layers import (
  Dtype,
  Initializer,
  Linear,
  add_bias,
  named,
  platform,
  read_param,
  truncated_normal,
)
from models.norms import LayerNorm, Sum, normalize
from models.transformer.attention import (
  attend,
  causal_mask,
  masked_softmax,
  score,
)
from models.transformer.layout import Layout, near, rotate

Array = jax.Array
# Cached keys [Z, H, S] and values [Z, S, H]. Z is B x N in one axis: with two,
# XLA's CPU compiler copies them at every step for a batch of 1 (jax 0.10).
KeyValue = tuple[Array, Array]
ATTENTION = ('plain', 'auto', 'suited', 'fused')
Past = tuple[Array, Array, Array]  # keys, values, and the first slot to write


def write_past(past: Past, key_BTNH: Array, value_BTNH: Array) -> KeyValue:
  """Returns the past's keys and values with T more slots written."""
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


def _with_null(mask: Array) -> Array:
  """Returns a mask [..., S + 1] whose last slot may be looked at."""
  return jnp.pad(mask, [(0, 0)] * 3 + [(0, 1)], constant_values=True)


def _constrained(context_BTNH: Array) -> Array:
  """Returns contexts, spread over the mesh."""
  return nn.with_logical_constraint(
    context_BTNH,
    ('batch', 'activation_length', 'activation_heads', 'activation_head'),
  )


class SelfAttention(nn.Module):
  """Multi-head self-attention (Vaswani et al. 2017, section 3.2).

  Attributes:
    dropout_rate: of the attention probabilities.
    attention: 'plain', 'fused' (a kernel, or a ValueError where the sizes do
      not suit it), 'suited' (the kernel where they do), 'auto' (likewise, on a
      TPU or a GPU alone).
    null_key: each head has a learned key of its own beside those of the
      positions, whose value is 0: it may look at nothing. Not for a kernel.
    biases: whether the projections have any.
    window: how many positions on each side a position of a local layer sees;
      0: no layer is local.
    global_every: one in so many layers is not local, for the estimate of the
      TPU's kernel; a layer's `layout` says whether it is.
    query_key_norm: queries and keys of each head pass a layer norm (Dehghani et
      al. 2023, "Scaling Vision Transformers", section 2). Not for a TPU's
      kernel.
    packed: rows hold several texts, and a position sees its own alone. Not with
      a past.
    kernel_init: draws the projection to query, key and value.
    out_init: draws the output projection.
  """

  num_heads: int
  dropout_rate: float = 0.0
  causal: bool = False
  attention: str = 'auto'
  null_key: bool = False
  biases: bool = True
  window: int = 0
  global_every: int = 1
  query_key_norm: bool = False
  packed: bool = False
  layer_norm_epsilon: float = 1e-12
  kernel_init: Initializer = truncated_normal
  out_init: Initializer = truncated_normal
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(
    self,
    total: Sum,
    mask_BS: Array,
    seeds: Seeds | None = None,
    past: Past | None = None,
    layout: Layout | None = None,
  ) -> tuple[Array, Array, KeyValue | None]:
    """Mixes positions; sows the probabilities as 'attention' [B, N, T, S].

    Those of a `null_key` are not among them: a row's sum is 1 without it.

    Args:
      total: of [B, T, D]; attention is to its norm.
      mask_BS: bool, True at slots that may be looked at; `packed`, int, the
        number of each position's text, from 1 on, and 0 at padding.
      seeds: of the first head's mask; the others' numbers follow.
      past: S slots, into which the keys and values are written (without
        dropout); else the slots are `total` itself.
      layout: of the layer, where layers differ or positions are rotated.

    Returns:
      The norm of `total`, [B, T, D] in `dtype`, attention to it, likewise, and
      the written past.
    """
    D, N = total.x.shape[-1], self.num_heads
    H = D // N
    if self.dropout_rate and seeds is None and not self.is_initializing():
      raise ValueError(f'dropout_rate is {self.dropout_rate} without seeds')
    qkv = Linear(
      features=(3, N, H),
      in_names=('embed',),
      out_names=('qkv', 'heads', 'head'),
      kernel_init=self.kernel_init,
      dtype=self.dtype,
      has_bias=self.biases,
      name='qkv',
    )
    out = Linear(
      features=(D,),
      in_names=('heads', 'head'),
      out_names=('embed',),
      kernel_init=self.out_init,
      dtype=self.dtype,
      has_bias=self.biases,
      name='out',
    )
    T = total.x.shape[1]
    sows = self.is_mutable_collection('intermediates')
    texts = 0
    if past is None and not sows:
      texts = self._texts_a_row(*total.x.shape[:2], H)
    if texts and platform() != 'gpu':
      from models.transformer import fused_attention

      kernel, bias = out.weights((N, H))
      shape = total.x.shape
      if texts > 1:
        total, mask_BS, layout = fused_attention.join_rows(
          texts, total, mask_BS, layout
        )
      form = fused_attention.kernels.KernelForm(
        N,
        self.causal,
        self.dropout_rate,
        self.packed or texts > 1,
        self.window,
        global_every=self.global_every,
      )
      x_BTD, context_BTD = fused_attention.attend(
        (form, self.dtype),
        total,
        *qkv.weights((D,)),
        kernel,
        mask_BS,
        seeds,
        fused_attention.turns_of(layout),
      )
      context_BTD = add_bias(context_BTD, bias)
      return x_BTD.reshape(shape), context_BTD.reshape(shape), None

    x_BTD = normalize(total, self.dtype)

    qkv_BTQNH = nn.with_logical_constraint(
      qkv(x_BTD),
      (
        'batch',
        'activation_length',
        'activation_qkv',
        'activation_heads',
        'activation_head',
      ),
    )
    qkv_BTQNH = self._turn(qkv_BTQNH, layout)
    if texts:
      from models.transformer import flash_attention

      fields = flash_attention.Fields(
        self.causal, self.dropout_rate, self.packed, self.window
      )
      is_local = layout is not None and layout.is_local
      context_BTNH = flash_attention.attend(
        fields, qkv_BTQNH, mask_BS, seeds, is_local
      )
      return x_BTD, out(_constrained(context_BTNH)), None

    # Their gradients are concatenated, where those of slices would be padded.
    query_BTNH, key_BSNH, value_BSNH = (
      part.squeeze(2) for part in lax.split(qkv_BTQNH, (1, 1, 1), axis=2)
    )
    query_BTNH = query_BTNH * jnp.asarray(H**-0.5, self.dtype)
    null_B1NH = None
    if self.null_key:
      null_B1NH = self._null_key(N, H, len(x_BTD))
    present = None
    start = 0 if past is None else past[2]
    mask = self._allowed(mask_BS, T, start, layout)

    def weigh(scores_BNTS: Array) -> Array:
      if null_B1NH is None:
        return masked_softmax(scores_BNTS, mask)
      scores_BNTS = jnp.concatenate(
        [scores_BNTS, score(query_BTNH, null_B1NH)], axis=-1
      )
      return masked_softmax(scores_BNTS, _with_null(mask))[..., :-1]

    if past is not None:
      present = write_past(past, key_BSNH, value_BSNH)
      weights_BNTS = weigh(score_past(query_BTNH, present[0]))
      self.sow('intermediates', 'attention', weights_BNTS)
      context_BTNH = mix_past(weights_BNTS.astype(self.dtype), present[1])
    else:
      if sows:  # else never computed
        self.sow(
          'intermediates', 'attention', weigh(score(query_BTNH, key_BSNH))
        )
      if null_B1NH is not None:
        mask = _with_null(mask)
        key_BSNH = jnp.concatenate([key_BSNH, null_B1NH], axis=1)
        value_BSNH = jnp.pad(value_BSNH, [(0, 0), (0, 1), (0, 0), (0, 0)])
      context_BTNH = attend(
        query_BTNH, key_BSNH, value_BSNH, mask, seeds, self.dropout_rate
      )
    return x_BTD, out(_constrained(context_BTNH)), present

  def _allowed(
    self, mask_BS: Array, length: int, start: Array | int, layout: Layout | None
  ) -> Array:
    """Returns bool, broadcast to [B, N, T, S]: T may look at S."""
    mask = mask_BS[:, None, None, :].astype(bool)
    slots = mask_BS.shape[1]
    if self.packed:
      mask = mask & (mask_BS[:, None, :, None] == mask_BS[:, None, None, :])
    if self.causal:
      mask = mask & causal_mask(length, slots, start)
    if self.window:
      is_near = near(length, slots, start, self.window)
      mask = mask & (is_near | ~layout.is_local)
    return mask

  def _turn(self, qkv_BTQNH: Array, layout: Layout | None) -> Array:
    """Returns queries and keys after their norms and rotations."""
    is_turned = layout is not None and layout.cos is not None
    if not (self.query_key_norm or is_turned):
      return qkv_BTQNH
    parts = [part.squeeze(2) for part in jnp.split(qkv_BTQNH, 3, axis=2)]
    for i, name in enumerate(('query_norm', 'key_norm')):
      if self.query_key_norm:
        norm = LayerNorm(
          self.layer_norm_epsilon, self.dtype, has_bias=False, name=name
        )
        parts[i] = norm(parts[i])
      if is_turned:
        parts[i] = rotate(parts[i], layout)
    return jnp.stack(parts, axis=2)

  def _null_key(self, num_heads: int, head: int, rows: int) -> Array:
    """Returns the learned key of each head for each row, [B, 1, N, H]."""
    init = named(self.kernel_init, ('heads', 'head'))
    null_key = read_param(self, 'null_key', init, (num_heads, head))
    null_NH = null_key.reshape(num_heads, head).astype(self.dtype)
    return jnp.broadcast_to(null_NH, (rows, 1, num_heads, head))

  def _texts_a_row(self, rows: int, length: int, head: int) -> int:
    """Returns how many rows the kernel takes as one; 0: no kernel is used."""
    if self.attention not in ATTENTION:
      raise ValueError(
        f'attention is {self.attention!r}, expected one of {ATTENTION}'
      )
    is_gpu = platform() == 'gpu'
    # A TPU's kernel has the projection in it.
    missing = ['null_key'] + ['query_key_norm'] * (not is_gpu)
    missing = [key for key in missing if getattr(self, key)]
    if missing and self.attention == 'fused':
      raise ValueError(
        f"model.attention='fused' has no {missing[0].replace('_', ' ')}: with"
        f' model.{missing[0]}={getattr(self, missing[0])} set'
        " model.attention='auto'"
      )
    if self.attention == 'plain' or missing:
      return 0
    if self.attention == 'auto' and platform() == 'cpu':
      return 0
    texts = 1
    # Each is loaded where it runs.
    if is_gpu:
      from models.transformer import flash_attention as kernel
    else:
      from models.transformer import fused_attention as kernel

      # Dropout draws by the row, and packed rows have numbers of their own.
      if not (self.packed or self.dropout_rate):
        texts = kernel.texts_a_row(rows, length)
    suits = kernel.suits(texts * length, self.num_heads, head, self.dtype)
    if self.attention == 'fused' and not suits:
      raise ValueError(
        f"model.attention='fused' needs {kernel.NEEDS}; found {length} tokens,"
        f' {self.num_heads} heads of {head} over {kernel.head_parts()}'
        f' devices, in {jnp.dtype(self.dtype).name}'
      )
    return texts if suits else 0
