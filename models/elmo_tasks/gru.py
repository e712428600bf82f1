"""Bidirectional GRUs as cuDNN computes them, both directions in one loop.

Shapes: K the two directions, B text, T position, D features, G the three gates,
F cells, P cells of the position before, Q all cells of the gates.
"""

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


def _recur(
  dtype: Dtype,
  gates_KTBGF: Array,
  recurrent_KFGF: Array,
  recurrent_bias_KF: Array,
  mask_KTB: Array,
) -> Array:
  """Returns h after each position, float32 [T, K, B, F], 0 at padding."""
  K, T, B, G, F = gates_KTBGF.shape
  # A matrix: with an axis of gates, XLA would transpose the small kernel at
  # every position on a CPU. Each device has it whole, and the bias: of split
  # ones XLA computes a wrong gradient on a mesh of three axes (jax 0.10.2).
  R_KPQ = _gather(recurrent_KFGF.astype(dtype).reshape(K, F, G * F))
  recurrent_bias_KF = _gather(recurrent_bias_KF)

  def cell(hidden_KBF: Array, inputs: tuple) -> tuple[Array, Array]:
    gates_KBQ, mask_KB = inputs
    read_KBQ = jnp.einsum(
      'KBP,KPQ->KBQ',
      hidden_KBF.astype(dtype),
      R_KPQ,
      preferred_element_type=jnp.float32,
    )
    of_input, of_state = (
      jnp.split(x_KBQ, G, axis=-1) for x_KBQ in (gates_KBQ, read_KBQ)
    )
    reset_KBF, update_KBF = (
      jax.nn.sigmoid(of_input[i] + of_state[i]) for i in range(2)
    )
    candidate_KBF = jnp.tanh(
      of_input[2] + reset_KBF * (of_state[2] + recurrent_bias_KF[:, None])
    )
    hidden_KBF = update_KBF * hidden_KBF + (1 - update_KBF) * candidate_KBF
    # The backward direction meets the padding first, with a state of 0.
    hidden_KBF = jnp.where(mask_KB[:, :, None], hidden_KBF, 0)
    return hidden_KBF, hidden_KBF

  gates_TKBQ = gates_KTBGF.swapaxes(0, 1).reshape(T, K, B, G * F)
  start_KBF = jnp.zeros((K, B, F), jnp.float32)
  return lax.scan(cell, start_KBF, (gates_TKBQ, mask_KTB.swapaxes(0, 1)))[1]


def _gather(x: Array) -> Array:
  """Constrains an array to lie whole on each device."""
  return nn.with_logical_constraint(x, (None,) * x.ndim)
