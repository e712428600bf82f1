"""Bidirectional GRUs as cuDNN computes them, both directions in one loop.

Shapes: K the two directions, B text, T position, D features, G the three gates,
F cells.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models.layers import Dtype, constrain_hidden, named

Array = jax.Array

NUM_GATES = 3  # reset, update, candidate
KERNEL_NAMES = ('towers', 'embed', 'gates', 'mlp')
# allenai/document-qa: docqa/nn/recurrent_layers.py. As TensorFlow's, cut at two
# standard deviations without rescaling; biases are 0.
INIT_STDDEV = 0.05
truncated_normal = nn.initializers.truncated_normal(INIT_STDDEV)


class BiGru(nn.Module):
  """Two GRUs, one per direction (Cho et al. 2014, in the form of cuDNN).

  The gates are r, u = sigmoid(W [x; h] + b), the candidate is c = tanh(W_c x +
  b_c + r (R_c h + b_r)), and h' = u h + (1 - u) c. Of the two biases that cuDNN
  adds up in r and u there is one.

  Attributes:
    gru_dim: F of each direction.
    dtype: of products and outputs; parameters and states are float32.
  """

  gru_dim: int
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x_BTD: Array, mask_BT: Array) -> Array:
    """Reads the real words (`mask_BT` True, first in each row) both ways.

    Returns [B, T, 2 F], forward then backward, 0 at padding.
    """
    B, T, D = x_BTD.shape
    G, F = NUM_GATES, self.gru_dim
    input_kernel_KDGF = self.param(
      'input_kernel', named(truncated_normal, KERNEL_NAMES), (2, D, G, F)
    )
    recurrent_KFGF = self.param(
      'recurrent_kernel', named(truncated_normal, KERNEL_NAMES), (2, F, G, F)
    )
    bias_KGF = self.param(
      'bias',
      named(nn.initializers.zeros, ('towers', 'gates', 'mlp')),
      (2, G, F),
    )
    recurrent_bias_KF = self.param(
      'recurrent_bias', named(nn.initializers.zeros, ('towers', 'mlp')), (2, F)
    )
    # Padding may hold NaN, and 0 x NaN would spoil the gradient.
    # Constrained, as in `lstm.BiLstm`.
    x_BTD = constrain_hidden(jnp.where(mask_BT[:, :, None], x_BTD, 0))
    x_BTD, input_kernel_KDGF, bias_KGF = nn.dtypes.promote_dtype(
      x_BTD, input_kernel_KDGF, bias_KGF, dtype=self.dtype
    )
    gates_KTBGF = jnp.einsum('BTD,KDGF->KTBGF', x_BTD, input_kernel_KDGF)
    gates_KTBGF = gates_KTBGF + bias_KGF[:, None, None]
    outputs_TKBF = _recur(
      self.dtype,
      _turn_second(gates_KTBGF),
      recurrent_KFGF,
      recurrent_bias_KF,
      _turn_second(jnp.broadcast_to(mask_BT.T, (2, T, B))),
    )
    outputs_KTBF = _turn_second(outputs_TKBF.swapaxes(0, 1)).astype(self.dtype)
    outputs_BTF = outputs_KTBF.transpose(2, 1, 0, 3).reshape(B, T, 2 * F)
    return constrain_hidden(outputs_BTF)


def _turn_second(x_KT: Array) -> Array:
  """Reverses the positions of the second direction, padding included."""
  forward, backward = x_KT
  return jnp.stack([forward, backward[::-1]])


# The gradient is ours: one product makes the kernel's gradient, where JAX adds
# up an array as large as the kernel at every position.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recur(dtype: Any, *arguments: Array) -> Array:
  """Returns h after each position, float32 [T, K, B, F], 0 at padding."""
  return _run(dtype, *arguments, save=False)[0]


def _run(
  dtype: Any,
  gates_KTBGF: Array,
  recurrent_KFGF: Array,
  recurrent_bias_KF: Array,
  mask_KTB: Array,
  *,
  save: bool = True,
) -> tuple[Array, tuple]:
  """Returns the outputs of `_recur` and the residuals of its gradient."""
  K, T, B, _, F = gates_KTBGF.shape
  R_KFGF = recurrent_KFGF.astype(dtype)

  def step(carry: tuple, t: Array) -> tuple[tuple, Array]:
    hidden_KBF, saved_KTBAF = carry
    read_KBGF = _product('KBP,KPGF->KBGF', hidden_KBF.astype(dtype), R_KFGF)
    both_KBGF = _at(gates_KTBGF, t) + read_KBGF
    reset_KBF, update_KBF = (
      jax.nn.sigmoid(both_KBGF[:, :, i]) for i in range(2)
    )
    # Of the candidate, before the reset.
    read_KBF = read_KBGF[:, :, 2] + recurrent_bias_KF[:, None]
    new_KBF = jnp.tanh(_at(gates_KTBGF, t)[:, :, 2] + reset_KBF * read_KBF)
    if save:
      parts = (reset_KBF, update_KBF, new_KBF, read_KBF)
      saved_KTBAF = lax.dynamic_update_index_in_dim(
        saved_KTBAF, jnp.stack(parts, axis=2).astype(dtype), t, axis=1
      )
    hidden_KBF = update_KBF * hidden_KBF + (1 - update_KBF) * new_KBF
    # The backward direction meets the padding first, with a state of 0.
    hidden_KBF = jnp.where(_at(mask_KTB, t)[:, :, None], hidden_KBF, 0)
    return (hidden_KBF, saved_KTBAF), hidden_KBF

  # A scan would fill what its positions return with zeros first.
  saved_KTBAF = lax.empty((K, T, B, 4, F), dtype) if save else None
  start_KBF = jnp.zeros((K, B, F), jnp.float32)
  (_, saved_KTBAF), hiddens_TKBF = lax.scan(
    step, (start_KBF, saved_KTBAF), jnp.arange(T)
  )
  return hiddens_TKBF, (saved_KTBAF, hiddens_TKBF, recurrent_KFGF, mask_KTB)


def _run_backward(
  dtype: Any, saved: tuple, d_hiddens_TKBF: Array
) -> tuple[Array | None, ...]:
  """Returns the gradients of `_recur`'s arguments."""
  parts_KTBAF, hiddens_TKBF, recurrent_KFGF, mask_KTB = saved
  T, K, B, F = hiddens_TKBF.shape
  # XLA would transpose the small kernel at every position on a CPU.
  R_KPQ = recurrent_KFGF.astype(dtype).reshape(K, F, NUM_GATES * F)
  before_TKBF = jnp.concatenate(
    [jnp.zeros_like(hiddens_TKBF[:1]), hiddens_TKBF[:-1]]
  )

  def step(carry: tuple, inputs: tuple) -> tuple[tuple, None]:
    d_hidden_KBF, d_gates_KTBGF = carry
    t, d_output_KBF, hidden_KBF = inputs
    reset_KBF, update_KBF, new_KBF, read_KBF = jnp.moveaxis(
      _at(parts_KTBAF, t).astype(jnp.float32), 2, 0
    )
    d_hidden_KBF = jnp.where(
      _at(mask_KTB, t)[:, :, None], d_hidden_KBF + d_output_KBF, 0
    )
    d_new_KBF = d_hidden_KBF * (1 - update_KBF) * (1 - new_KBF * new_KBF)
    d_update_KBF = (
      d_hidden_KBF * (hidden_KBF - new_KBF) * update_KBF * (1 - update_KBF)
    )
    d_reset_KBF = d_new_KBF * read_KBF * reset_KBF * (1 - reset_KBF)
    d_reads_KBQ = jnp.concatenate(
      [d_reset_KBF, d_update_KBF, d_new_KBF * reset_KBF], axis=-1
    )
    d_gates_KTBGF = lax.dynamic_update_index_in_dim(
      d_gates_KTBGF,
      jnp.stack([d_reset_KBF, d_update_KBF, d_new_KBF], axis=2).astype(dtype),
      t,
      axis=1,
    )
    d_hidden_KBF = d_hidden_KBF * update_KBF + _product(
      'KBQ,KPQ->KBP', d_reads_KBQ.astype(dtype), R_KPQ
    )
    return (d_hidden_KBF, d_gates_KTBGF), None

  (_, d_gates_KTBGF), _ = lax.scan(
    step,
    (
      jnp.zeros_like(hiddens_TKBF[0]),
      lax.empty((K, T, B, NUM_GATES, F), dtype),
    ),
    (jnp.arange(T), d_hiddens_TKBF, before_TKBF),
    reverse=True,
  )
  # The candidate reads the state by way of the reset gate.
  d_reads_KTBGF = d_gates_KTBGF.at[:, :, :, 2].multiply(parts_KTBAF[:, :, :, 0])
  d_recurrent_KFGF = _product(
    'TKBP,KTBGF->KPGF', before_TKBF.astype(dtype), d_reads_KTBGF
  )
  d_bias_KF = d_reads_KTBGF[:, :, :, 2].sum(axis=(1, 2), dtype=jnp.float32)
  return (
    d_gates_KTBGF,
    nn.with_logical_constraint(d_recurrent_KFGF, KERNEL_NAMES),
    d_bias_KF,
    None,  # of the mask
  )


_recur.defvjp(_run, _run_backward)


def _at(x_KT: Array, t: Array) -> Array:
  """Returns one position of [K, T, ...]."""
  return lax.dynamic_index_in_dim(x_KT, t, axis=1, keepdims=False)


def _product(spec: str, a: Array, b: Array) -> Array:
  return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)
