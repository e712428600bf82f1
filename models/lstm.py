"""LSTMs: with projection, several towers in one loop; and bidirectional.

Shapes: T position, K towers, B batch, P projection, G the four gates, F cells,
D features. Parameters, cells and hidden states are float32, matrix products are
in the module's `dtype`.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models import initial, layers
from models.dropout import Dropout
from models.layers import Dtype, named

Array = jax.Array

NUM_GATES = 4  # input, candidate, forget, output: TensorFlow's order, i j f o
KERNEL_NAMES = ('towers', 'embed', 'gates', 'mlp')
PROJECTION_NAMES = ('towers', 'mlp', 'embed')


class ProjectedLstm(nn.Module):
  """One LSTM layer per tower, recurring through a clipped projection.

  Sak et al. 2014 without peepholes, as TensorFlow's LSTMCell computes it: c' =
  clip(sigmoid(f + 1) c + sigmoid(i) tanh(j)), h' = clip(W_p (sigmoid(o)
  tanh(c'))), gates from W [x; h] + b. The clips are the largest absolute
  values. Without `projection_dim`, h' is unprojected and P is F. `initial` is
  one of `initial.LSTMS`, whereas a projection starts as TensorFlow's.
  """

  lstm_dim: int
  projection_dim: int | None
  cell_clip: float | None = None
  projection_clip: float | None = None
  dtype: Dtype = jnp.float32
  initial: str = 'tensorflow'

  @nn.compact
  def __call__(
    self,
    x_TKBP: Array,
    cell_KBF: Array,
    hidden_KBP: Array,
    mask_TB: Array | None = None,
  ) -> tuple[Array, Array, Array]:
    """Runs all towers over all positions, from the float32 state.

    Args:
      x_TKBP: float [T, K, B, inputs].
      cell_KBF: before the first position.
      hidden_KBP: likewise.
      mask_TB: bool; where False a row keeps its state and its output is 0.

    Returns:
      Outputs [T, K, B, P] in `dtype`; last cell [K, B, F], hidden [K, B, P].
    """
    towers, inputs = x_TKBP.shape[1], x_TKBP.shape[-1]
    P, F = self.projection_dim or self.lstm_dim, self.lstm_dim
    input_init, recurrent_init, bias_init = initial.LSTMS[self.initial](
      inputs, P, F
    )
    input_kernel_KPGF = self.param(
      'input_kernel',
      named(input_init, KERNEL_NAMES),
      (towers, inputs, NUM_GATES, F),
    )
    recurrent_KPGF = self.param(
      'recurrent_kernel',
      named(recurrent_init, KERNEL_NAMES),
      (towers, P, NUM_GATES, F),
    )
    bias_KGF = self.param(
      'bias',
      named(bias_init, ('towers', 'gates', 'mlp')),
      (towers, NUM_GATES, F),
    )
    projection_KFP = None
    if self.projection_dim is not None:
      projection_KFP = self.param(
        'projection_kernel',
        named(initial.glorot_uniform(F, P), PROJECTION_NAMES),
        (towers, F, P),
      )
    x_TKBP, input_kernel_KPGF, bias_KGF = nn.dtypes.promote_dtype(
      x_TKBP, input_kernel_KPGF, bias_KGF, dtype=self.dtype
    )
    gates_KTBGF = jnp.einsum('TKBP,KPGF->KTBGF', x_TKBP, input_kernel_KPGF)
    gates_KTBGF = nn.with_logical_constraint(
      _add_bias(gates_KTBGF, bias_KGF),
      (None, None, 'batch', None, 'activation_mlp'),
    )
    hiddens_TKBP, cell_KBF = _recur(
      (self.cell_clip, self.projection_clip, self.dtype),
      gates_KTBGF,
      recurrent_KPGF,
      projection_KFP,
      cell_KBF,
      hidden_KBP,
      mask_TB,
    )
    outputs_TKBP = hiddens_TKBP
    if mask_TB is not None:
      outputs_TKBP = jnp.where(mask_TB[:, None, :, None], hiddens_TKBP, 0)
    return outputs_TKBP.astype(self.dtype), cell_KBF, hiddens_TKBP[-1]


class BiLstm(nn.Module):
  """Layers of two LSTMs, one per direction, each reading both outputs below.

  As a bidirectional `torch.nn.LSTM` on packed sequences, but with 1 added to
  the forget gates. `lstm_dim` is of one direction, `initial` one of
  `initial.LSTMS`, and `dropout_rate` of each layer's outputs but the last's.
  """

  num_layers: int
  lstm_dim: int
  dtype: Dtype = jnp.float32
  initial: str = 'tensorflow'
  dropout_rate: float = 0.0

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask_BT: Array, *, train: bool = False
  ) -> tuple[Array, Array]:
    """Reads the real tokens (`mask_BT` True, first in each row) both ways.

    Returns [B, T, 2 F], forward then backward, 0 at padding; and [B, 2 F], the
    top layer's last outputs: forward at the last real token, backward at the
    first. Both are 0 for a row without tokens.
    """
    state_KBF = jnp.zeros((2, len(x_BTD), self.lstm_dim), jnp.float32)
    # Padding may hold NaN, and 0 x NaN would spoil the gradient.
    x_BTD = jnp.where(mask_BT[:, :, None], x_BTD, 0).astype(self.dtype)
    # On a mesh of three axes XLA (jax 0.10) gives the gradients of some rows to
    # others, where the input of a product has no constrained sharding.
    x_BTD = layers.constrain_hidden(x_BTD)
    for i in range(self.num_layers):
      if i and train:
        x_BTD = Dropout(self.dropout_rate)(x_BTD)
      x_KBTD = jnp.stack([x_BTD, reverse(x_BTD, mask_BT)])
      outputs_TKBF, _, last_KBF = ProjectedLstm(
        lstm_dim=self.lstm_dim,
        projection_dim=None,
        dtype=self.dtype,
        initial=self.initial,
        name=f'layer_{i}',
      )(x_KBTD.transpose(2, 0, 1, 3), state_KBF, state_KBF, mask_BT.T)
      forward_BTF, backward_BTF = outputs_TKBF.transpose(1, 2, 0, 3)
      x_BTD = jnp.concatenate(
        [forward_BTF, reverse(backward_BTF, mask_BT)], axis=-1
      )
      x_BTD = layers.constrain_hidden(x_BTD)
    last_BD = jnp.concatenate(list(last_KBF), axis=-1)
    return x_BTD, last_BD.astype(self.dtype)


def reverse(x_BTD: Array, mask_BT: Array) -> Array:
  """Reverses the real tokens of each row (mask True), which stay first."""
  T = x_BTD.shape[1]
  before_BT = mask_BT.sum(axis=1, keepdims=True) - 1 - jnp.arange(T)
  from_BT = jnp.where(mask_BT, before_BT, jnp.arange(T))
  return jnp.take_along_axis(x_BTD, from_BT[:, :, None], axis=1)


@jax.custom_vjp
def _add_bias(gates_KTBGF: Array, bias_KGF: Array) -> Array:
  return gates_KTBGF + bias_KGF[:, None, None]


def _add_bias_backward(_: None, gradient_KTBGF: Array) -> tuple[Array, Array]:
  if not layers.sums_by_products(gradient_KTBGF):
    return gradient_KTBGF, gradient_KTBGF.sum(axis=(1, 2))
  ones_RTB = jnp.ones((8, *gradient_KTBGF.shape[1:3]), gradient_KTBGF.dtype)
  sums_RKGF = _product('RTB,KTBGF->RKGF', ones_RTB, gradient_KTBGF)
  return gradient_KTBGF, sums_RKGF[0].astype(gradient_KTBGF.dtype)


_add_bias.defvjp(
  lambda gates, bias: (_add_bias(gates, bias), None), _add_bias_backward
)


# (cell_clip, projection_clip, dtype of the matrix products).
_Fields = tuple[float | None, float | None, Any]


# The gradient is ours: one product makes the kernels' gradients, where JAX adds
# up arrays as large as the kernels at every position.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recur(fields: _Fields, *arguments: Array | None) -> tuple[Array, Array]:
  """Returns h after each position [T, K, B, P], and the last cell, float32."""
  return _run(fields, *arguments, save=False)[0]


def _run(
  fields: _Fields,
  gates_KTBGF: Array,
  recurrent_KPGF: Array,
  projection_KFP: Array | None,
  cell_KBF: Array,
  hidden_KBP: Array,
  mask_TB: Array | None,
  *,
  save: bool = True,
) -> tuple[tuple[Array, Array], tuple]:
  """Returns the outputs of `_recur` and the residuals of its gradient."""
  cell_clip, projection_clip, dtype = fields
  # Gathered once before the loop, except along the cells.
  R_KPGF = _constrain(recurrent_KPGF.astype(dtype), '...M')
  if projection_KFP is not None:
    W_KFP = _constrain(projection_KFP.astype(dtype), '.M.')

  def step(carry: tuple, inputs: tuple) -> tuple[tuple, tuple]:
    cell_KBF, hidden_KBP, saved_KTBGF = carry
    t, mask_B = inputs
    # Towers first: a transposition takes a third of the product's time.
    gates_KBGF = lax.dynamic_index_in_dim(
      gates_KTBGF, t, axis=1, keepdims=False
    ) + _product('KBP,KPGF->KBGF', hidden_KBP.astype(dtype), R_KPGF)
    new_cell_KBF, out_KBF = _advance(cell_KBF, gates_KBGF, cell_clip)
    new_hidden_KBP = out_KBF
    if projection_KFP is not None:
      new_hidden_KBP = _product('KBF,KFP->KBP', out_KBF.astype(dtype), W_KFP)
    new_hidden_KBP = _clip(new_hidden_KBP, projection_clip)
    new_cell_KBF = _where(mask_B, new_cell_KBF, cell_KBF)
    new_hidden_KBP = _where(mask_B, new_hidden_KBP, hidden_KBP)
    if save:
      saved_KTBGF = lax.dynamic_update_index_in_dim(
        saved_KTBGF, gates_KBGF.astype(dtype), t, axis=1
      )
    carry = new_cell_KBF, new_hidden_KBP, saved_KTBGF
    return carry, (new_hidden_KBP, cell_KBF if save else None)

  # A scan would fill what its positions return with zeros first.
  saved_KTBGF = lax.empty(gates_KTBGF.shape, dtype) if save else None
  (last_cell_KBF, _, saved_KTBGF), (hiddens_TKBP, cells_TKBF) = lax.scan(
    step,
    (cell_KBF, hidden_KBP, saved_KTBGF),
    (jnp.arange(gates_KTBGF.shape[1]), mask_TB),
  )
  before_TKBP = jnp.concatenate([hidden_KBP[None], hiddens_TKBP])
  saved = (
    saved_KTBGF,
    cells_TKBF,
    before_TKBP,
    recurrent_KPGF,
    projection_KFP,
    mask_TB,
  )
  return (hiddens_TKBP, last_cell_KBF), saved


def _run_backward(
  fields: _Fields, saved: tuple, cotangents: tuple[Array, Array]
) -> tuple[Array | None, ...]:
  """Returns the gradients of `_recur`'s arguments."""
  cell_clip, projection_clip, dtype = fields
  gates_KTBGF, cells_TKBF, hiddens_TKBP, recurrent, projection, mask_TB = saved
  d_hiddens_TKBP, d_cell_KBF = cotangents
  R_KPGF = _constrain(recurrent.astype(dtype), '...M')
  if projection is not None:
    R_KGFP = R_KPGF.transpose(0, 2, 3, 1)
    W_KPF = _constrain(projection.astype(dtype), '.M.').swapaxes(1, 2)

  def through_gates(d_gates_KBGF: Array) -> Array:
    """Returns the gradient of the hidden state that the gates read."""
    if projection is not None:
      return _product('KBGF,KGFP->KBP', d_gates_KBGF, R_KGFP)
    # XLA would transpose the small kernel at every position on a CPU: a third
    # of the recurrence's time at 300 cells.
    joined = (_join_gates(x) for x in (d_gates_KBGF, R_KPGF))
    return _product('KBQ,KPQ->KBP', *joined)

  def step(carry: tuple, inputs: tuple) -> tuple[tuple, tuple]:
    d_cell_KBF, d_hidden_KBP, d_gates_KTBGF = carry
    t, d_output_KBP, cell_KBF, hidden_KBP, mask_B = inputs
    d_hidden_KBP = d_hidden_KBP + d_output_KBP
    gates_KBGF = lax.dynamic_index_in_dim(
      gates_KTBGF, t, axis=1, keepdims=False
    )
    (_, out_KBF), pull = jax.vjp(
      functools.partial(_advance, clip=cell_clip),
      cell_KBF,
      gates_KBGF.astype(jnp.float32),
    )
    d_projected_KBP = _where(mask_B, d_hidden_KBP, 0)
    if projection_clip is not None:
      inside = jnp.abs(hidden_KBP) < projection_clip
      d_projected_KBP = jnp.where(inside, d_projected_KBP, 0)
    d_out_KBF = d_projected_KBP
    if projection is not None:
      d_out_KBF = _product('KBP,KPF->KBF', d_projected_KBP.astype(dtype), W_KPF)
    d_old_cell_KBF, d_gates_KBGF = pull(
      (_where(mask_B, d_cell_KBF, 0), d_out_KBF)
    )
    d_old_hidden_KBP = through_gates(d_gates_KBGF.astype(dtype))
    # A masked row keeps its state, and so its gradient.
    d_old_cell_KBF = _where(mask_B, d_old_cell_KBF, d_cell_KBF)
    d_old_hidden_KBP = _where(mask_B, d_old_hidden_KBP, d_hidden_KBP)
    d_gates_KTBGF = lax.dynamic_update_index_in_dim(
      d_gates_KTBGF, d_gates_KBGF.astype(dtype), t, axis=1
    )
    return (d_old_cell_KBF, d_old_hidden_KBP, d_gates_KTBGF), (
      d_projected_KBP.astype(dtype),
      out_KBF.astype(dtype),
    )

  (d_cell_KBF, d_hidden_KBP, d_gates_KTBGF), (d_projected_TKBP, outs_TKBF) = (
    lax.scan(
      step,
      (
        d_cell_KBF,
        jnp.zeros_like(hiddens_TKBP[0]),
        lax.empty(gates_KTBGF.shape, dtype),
      ),
      (
        jnp.arange(gates_KTBGF.shape[1]),
        d_hiddens_TKBP,
        cells_TKBF,
        hiddens_TKBP[1:],
        mask_TB,
      ),
      reverse=True,
    )
  )
  d_recurrent_KPGF = _product(
    'TKBP,KTBGF->KPGF', hiddens_TKBP[:-1].astype(dtype), d_gates_KTBGF
  )
  d_projection_KFP = None
  if projection is not None:
    d_projection_KFP = nn.with_logical_constraint(
      _product('TKBF,TKBP->KFP', outs_TKBF, d_projected_TKBP), PROJECTION_NAMES
    )
  return (
    d_gates_KTBGF,
    nn.with_logical_constraint(d_recurrent_KPGF, KERNEL_NAMES),
    d_projection_KFP,
    d_cell_KBF,
    d_hidden_KBP,
    None,  # of the mask
  )


_recur.defvjp(_run, _run_backward)


def _advance(
  cell_KBF: Array, gates_KBGF: Array, clip: float | None
) -> tuple[Array, Array]:
  """Returns the next cell and the projection's input, [K, B, F]."""
  write, candidate, forget, read = (
    gates_KBGF[:, :, i] for i in range(NUM_GATES)
  )
  kept_KBF = jax.nn.sigmoid(forget + initial.FORGET_BIAS) * cell_KBF
  written_KBF = jax.nn.sigmoid(write) * jnp.tanh(candidate)
  cell_KBF = _clip(kept_KBF + written_KBF, clip)
  return cell_KBF, jax.nn.sigmoid(read) * jnp.tanh(cell_KBF)


def _join_gates(x: Array) -> Array:
  """Returns [..., gates x F] of [..., gates, F]."""
  return x.reshape(*x.shape[:-2], -1)


def _constrain(kernel: Array, axes: str) -> Array:
  """Constrains a kernel's sharding: only an axis 'M' may be split."""
  names = tuple('activation_mlp' if axis == 'M' else None for axis in axes)
  return nn.with_logical_constraint(kernel, names)


def _clip(x: Array, limit: float | None) -> Array:
  return x if limit is None else jnp.clip(x, -limit, limit)


def _where(mask_B: Array | None, x_KBN: Array, other_KBN: Array) -> Array:
  if mask_B is None:
    return x_KBN
  return jnp.where(mask_B[:, None], x_KBN, other_KBN)


def _product(spec: str, a: Array, b: Array) -> Array:
  return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)
