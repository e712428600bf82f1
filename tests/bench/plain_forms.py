"""Functions of `models` in forms that JAX itself differentiates.

For those whose own code cannot be left to JAX: recurrences that hold arrays of
all positions in the loop, of which JAX makes a gradient of another order of
time, and layer norms, whose statistics are constants to JAX. Shapes are theirs.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from models import lstm, norms
from models.elmo_tasks import highway_lstm
from models.elmo_tasks.coref import coupled_lstm
from models.transformer import blocks

NUM_GATES = highway_lstm.NUM_GATES


def lstm_recur(
  fields, gates_KTBGF, recurrent_KPGF, projection_KFP, *state_and_mask
):
  """Returns what `lstm._recur` does."""
  cell_clip, projection_clip, dtype = fields
  *state, mask_TB = state_and_mask
  R_KPQ = _join(recurrent_KPGF.astype(dtype))

  def step(state, inputs):
    (cell_KBF, hidden_KBP), (gates_KBQ, mask_B) = state, inputs
    gates_KBQ = gates_KBQ + _read(hidden_KBP.astype(dtype), R_KPQ)
    gates_KBGF = gates_KBQ.reshape(*cell_KBF.shape[:2], lstm.NUM_GATES, -1)
    new_cell_KBF, out = lstm._advance(cell_KBF, gates_KBGF, cell_clip)
    if projection_KFP is not None:
      out = _read(out.astype(dtype), projection_KFP.astype(dtype))
    hidden_KBP = lstm._where(
      mask_B, lstm._clip(out, projection_clip), hidden_KBP
    )
    return (lstm._where(mask_B, new_cell_KBF, cell_KBF), hidden_KBP), hidden_KBP

  inputs = (_join(gates_KTBGF).swapaxes(0, 1), mask_TB)
  (cell_KBF, _), hiddens_TKBP = lax.scan(step, tuple(state), inputs)
  return hiddens_TKBP, cell_KBF


def highway_read(
  fields, x_TBD, kernel_DGF, recurrent_PGF, bias_GF, scale_BF, mask_TB
):
  """Returns what `highway_lstm._read` does."""
  is_backward, dtype = fields
  F = kernel_DGF.shape[-1]
  W_DQ, W_DF = highway_lstm._split_kernel(kernel_DGF, dtype)
  R_PQ = recurrent_PGF.astype(dtype).reshape(F, -1)
  bias_Q = (bias_GF[:NUM_GATES] + highway_lstm._FORGET_BIAS_G1).reshape(-1)
  gates_TBQ = _product('TBD,DQ->TBQ', x_TBD, W_DQ) + bias_Q
  highway_TBF = _product('TBD,DF->TBF', x_TBD, W_DF) + bias_GF[NUM_GATES]

  def step(state, inputs):
    (cell_BF, hidden_BF), (gates_BQ, k_BF, mask_B) = state, inputs
    read_BF = (hidden_BF * scale_BF).astype(dtype)
    gates_BQ = gates_BQ + _product('BP,PQ->BQ', read_BF, R_PQ)
    write, forget, candidate, *others = jnp.split(gates_BQ, NUM_GATES, axis=1)
    output, transform = map(jax.nn.sigmoid, others)
    written_BF = jax.nn.sigmoid(write) * jnp.tanh(candidate)
    cell_BF = jax.nn.sigmoid(forget) * cell_BF + written_BF
    cell_BF = jnp.where(mask_B[:, None], cell_BF, 0)
    out_BF = output * jnp.tanh(cell_BF)
    hidden_BF = transform * out_BF + (1 - transform) * k_BF
    hidden_BF = jnp.where(mask_B[:, None], hidden_BF, 0)
    return (cell_BF, hidden_BF), hidden_BF.astype(dtype)

  zeros_BF = jnp.zeros((x_TBD.shape[1], F), jnp.float32)
  inputs = (gates_TBQ, highway_TBF, mask_TB)
  return lax.scan(step, (zeros_BF, zeros_BF), inputs, reverse=is_backward)[1]


def coupled_recur(
  dtype, gates_KTBGF, recurrent_KFGF, cell_K1F, hidden_K1F, first_TKB, kept_TKBF
):
  """Returns what `coupled_lstm._recur` does."""
  K, _, B, G, F = gates_KTBGF.shape
  R_KPQ = _join(recurrent_KFGF.astype(dtype))

  def step(state, inputs):
    (cell_KBF, hidden_KBF), (gates_KBQ, first_KB, kept_KBF) = state, inputs
    cell_KBF = jnp.where(first_KB[..., None], cell_K1F, cell_KBF)
    hidden_KBF = jnp.where(first_KB[..., None], hidden_K1F, hidden_KBF)
    read_KBF = coupled_lstm._drop(hidden_KBF, kept_KBF).astype(dtype)
    gates_KBQ = gates_KBQ + _read(read_KBF, R_KPQ)
    state = coupled_lstm._advance(cell_KBF, gates_KBQ.reshape(K, B, G, F))
    return state, state[1]

  zeros_KBF = jnp.zeros((K, B, F))
  inputs = (_join(gates_KTBGF).swapaxes(0, 1), first_TKB, kept_TKBF)
  return lax.scan(step, (zeros_KBF, zeros_KBF), inputs)[1]


def normalize(total, dtype):
  """Returns what `norms.normalize` does."""
  return norms.rescale(norms.standardize(_with_gradients(total)), dtype)


def norm_mlp(fields, total, kernel_DF, bias_1F, kernel_FD):
  """Returns what `blocks._norm_mlp` does."""
  dtype, *form = fields
  x_BTD = normalize(total, dtype)
  hidden_BTF = x_BTD @ kernel_DF + bias_1F
  return x_BTD, blocks._activate(*form, hidden_BTF) @ kernel_FD


def _with_gradients(total):
  """Returns a sum whose mean and factor are functions of x to JAX."""
  x = total.x.astype(jnp.float32)

  def moving(function):  # 0, with the gradient of the function
    value = function(x)
    return value - lax.stop_gradient(value)

  average = functools.partial(jnp.mean, axis=-1, keepdims=True)
  D = x.shape[-1]
  mean = total.mean + total.share * D * moving(average)
  variance = moving(
    lambda x: average(jnp.square(x - lax.stop_gradient(average(x))))
  )
  # The derivative of (variance + epsilon) ** -0.5.
  slope = -0.5 * total.factor**3
  factor = total.factor + slope * total.share * D * variance
  return total._replace(mean=mean, factor=factor)


def log_loss(logits, labels):
  """Returns what `objectives._log_loss` does."""
  classes = lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
  labels = jnp.clip(labels, 0, logits.shape[-1] - 1)[..., None]
  at_labels = jnp.where(classes == labels, logits, 0).sum(axis=-1)
  return jax.nn.logsumexp(logits, axis=-1) - at_labels, at_labels


def _join(x):
  """Returns [..., gates x F] of [..., gates, F]."""
  return x.reshape(*x.shape[:-2], -1)


def _read(hidden_KBP, R_KPQ):
  # Of matrices: with an axis of gates, XLA would transpose the kernel at every
  # position on a CPU.
  return _product('KBP,KPQ->KBQ', hidden_KBP, R_KPQ)


def _product(spec, a, b):
  return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)


# Name of a derivative -> the function in its place.
PLAIN = {
  'models.norms.normalize': normalize,
  'models.transformer.blocks._norm_mlp': norm_mlp,
  'train.engine.objectives._log_loss': log_loss,
  'models.lstm._recur': lstm_recur,
  'models.elmo_tasks.highway_lstm._read': highway_read,
  'models.elmo_tasks.coref.coupled_lstm._recur': coupled_recur,
}
