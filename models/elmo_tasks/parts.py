"""Parts of ELMo's task models: dropout, attention, pooling, linear layers.

Shapes: B example, P text of an example, T position, S position of the text
attended to, D features, F cells. Masks are True at real words, which come
first; a text may be empty.
"""

import math

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import dropout, initial, layers, lstm
from models.layers import Dtype

Array = jax.Array

# AllenNLP 0.9.0: nn/util.py, masked_softmax; models/esim.py and
# biattentive_classification_network.py, pooling.
SOFTMAX_EPSILON = 1e-13
POOL_FILLER = 1e7  # beyond all values, with either sign


def check_texts(shape: tuple[int, ...], expected: int, model: str) -> None:
  """Checks that words [B, P, T, D] have P = `expected`; raises ValueError."""
  if len(shape) != 4 or shape[1] != expected:
    raise ValueError(
      f'vectors of words are {shape}, expected [B, {expected}, T, D]: {model}'
      f' reads {expected} {"text" if expected == 1 else "texts"} an example'
    )


def zero_padding(x: Array, mask: Array) -> Array:
  """Returns [..., T, D] with zeros where the mask [..., T] is False.

  Padding may hold NaN, and 0 x NaN would spoil sums and gradients.
  """
  return jnp.where(mask[..., None], x, 0)


def append(x: Array, added: Array | None, mask: Array) -> Array:
  """Returns [..., T, D + E]: x with more vectors of words [..., T, E]."""
  if added is None:
    return x
  added = zero_padding(added, mask).astype(x.dtype)
  return jnp.concatenate([x, added], axis=-1)


class VariationalDropout(nn.Module):
  """Dropout with one mask for all positions of a text.

  Gal and Ghahramani 2016, only on inputs, as AllenNLP's InputVariationalDropout
  computes it. The rng stream is 'dropout'.
  """

  rate: float

  def __call__(self, x: Array) -> Array:
    """Returns [..., T, D] with dropout."""
    if self.rate == 0:
      return x
    ones = jnp.ones((*x.shape[:-2], 1, x.shape[-1]), x.dtype)
    return x * dropout.apply(self.make_rng('dropout'), ones, self.rate)


def read_texts(
  bilstm: lstm.BiLstm, x_BPTD: Array, mask_BPT: Array, *, train: bool
) -> Array:
  """Returns a BiLSTM's outputs [B, P, T, 2 F], 0 at padding."""
  B, P, T, D = x_BPTD.shape
  outputs_RTF, _ = bilstm(
    x_BPTD.reshape(B * P, T, D), mask_BPT.reshape(B * P, T), train=train
  )
  return outputs_RTF.reshape(B, P, T, -1)


def masked_softmax(logits: Array, mask: Array) -> Array:
  """Returns the softmax over the True places of the last axis, float32.

  It is AllenNLP's: padding takes part with logits of 0 before the rest is
  scaled to a sum of 1, so logits far below 0 lose precision beside padding.
  Without a True place all are 0.
  """
  logits = jnp.where(mask, logits, 0).astype(jnp.float32)
  shares = jax.nn.softmax(logits, axis=-1) * mask
  return shares / (shares.sum(axis=-1, keepdims=True) + SOFTMAX_EPSILON)


def attend(x: Array, keys: Array, mask: Array) -> Array:
  """Returns for each vector an average of the keys, by dot products.

  Args:
    x: float [..., T, D].
    keys: float [..., S, D].
    mask: bool [..., S], of the keys.

  Returns:
    float [..., T, D], in the dtype of x; 0 without keys.
  """
  logits = jnp.einsum(
    '...TD,...SD->...TS', x, keys, preferred_element_type=jnp.float32
  )
  weights = masked_softmax(logits, mask[..., None, :]).astype(x.dtype)
  return jnp.einsum('...TS,...SD->...TD', weights, keys)


def max_pool(x: Array, mask: Array) -> Array:
  """Returns the maxima over real words: [..., D] of [..., T, D], or 0."""
  largest = jnp.where(mask[..., None], x, -POOL_FILLER).max(axis=-2)
  return jnp.where(mask.any(axis=-1)[..., None], largest, 0)


def attentive_pool(x: Array, mask: Array, name: str) -> Array:
  """Returns averages by a softmax of linear scores: [..., D], or 0.

  The parameters of the scores are the caller's under `name`.
  """
  scores = linear(x, 1, 'torch', out_names=('classes',), name=name)[..., 0]
  weights = masked_softmax(scores, mask).astype(x.dtype)
  return jnp.einsum('...T,...TD->...D', weights, x)


def linear(
  x: Array,
  features: int | tuple[int, ...],
  start: str,
  *,
  name: str,
  out_names: tuple[str | None, ...] = ('mlp',),
  dtype: Dtype = jnp.float32,
) -> Array:
  """Returns x times a matrix, with a bias, [..., *features].

  The parameters are the caller's under `name`; `start` is one of
  `initial.LINEARS`.
  """
  features = (features,) if isinstance(features, int) else features
  kernel_init, bias_init = initial.LINEARS[start](
    x.shape[-1], math.prod(features)
  )
  return layers.Linear(
    features=features,
    in_names=('embed',),
    out_names=out_names,
    kernel_init=kernel_init,
    bias_init=bias_init,
    dtype=dtype,
    name=name,
  )(x)


def maxout(
  x: Array,
  features: int,
  pool_size: int,
  *,
  name: str,
  out_name: str = 'mlp',
  dtype: Dtype = jnp.float32,
) -> Array:
  """Returns [..., features], each the maximum of `pool_size` linear outputs.

  Goodfellow et al. 2013, as AllenNLP's Maxout. The parameters are the caller's
  under `name`.
  """
  return linear(
    x,
    (features, pool_size),
    'torch',
    name=name,
    out_names=(out_name, None),
    dtype=dtype,
  ).max(axis=-1)
