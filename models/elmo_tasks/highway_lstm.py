"""Highway LSTMs that read forward and backward in turns (He et al. 2017).

Shapes: T position, B batch, D features, G the gates: five, six with the
highway; F cells, P cells of the position before, Q all cells of the five gates,
one gate after the other. Parameters, cells, hidden states and gates are
float32, matrix products are in the module's `dtype`.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import lax

from models import dropout, initial, layers
from models.elmo_tasks import parts
from models.layers import Dtype, named

Array = jax.Array

# Input, forget, candidate, output, transform: the order of AllenNLP 0.9.0,
# modules/augmented_lstm.py. The highway, a sixth block, reads the input only.
NUM_GATES = 5
FORGET, CANDIDATE = 1, 2
KERNEL_NAMES = ('embed', 'gates', 'mlp')

# All gates are one tanh: sigmoid(x) = tanh(x / 2) / 2 + 1 / 2.
_SCALES_G1 = np.full((NUM_GATES, 1), 0.5, np.float32)
_SCALES_G1[CANDIDATE] = 1
_FORGET_BIAS_G1 = np.zeros((NUM_GATES, 1), np.float32)
_FORGET_BIAS_G1[FORGET] = initial.FORGET_BIAS


class HighwayLstm(nn.Module):
  """A layer, which reads its input in one direction.

  c' = sigmoid(f + 1) c + sigmoid(i) tanh(j) and h' = sigmoid(t) sigmoid(o)
  tanh(c') + (1 - sigmoid(t)) k, with i, f, j, o and t from W [x; h] + b, but k
  from W x + b.
  `is_backward` is its direction; the rest, see `AlternatingHighwayLstm`.
  """

  lstm_dim: int
  is_backward: bool
  dropout_rate: float
  drops_outputs: bool
  input_bias: bool
  dtype: Dtype

  @nn.compact
  def __call__(self, x_TBD: Array, mask_TB: Array, *, train: bool) -> Array:
    """Returns the outputs [T, B, F] in `dtype`, 0 at padding, as is x."""
    _, B, D = x_TBD.shape
    F = self.lstm_dim
    draw = named(orthogonal_blocks, KERNEL_NAMES)
    kernel_DGF = self.param('input_kernel', draw, (D, NUM_GATES + 1, F))
    recurrent_PGF = self.param('recurrent_kernel', draw, (F, NUM_GATES, F))
    num_biases = NUM_GATES + self.input_bias
    bias_GF = self.param(
      'bias',
      named(nn.initializers.zeros, KERNEL_NAMES[1:]),
      (num_biases, F),
    )
    scale_BF = self._scale(B, train)
    hiddens_TBF = _read(
      (self.is_backward, self.dtype),
      x_TBD.astype(self.dtype),
      kernel_DGF,
      recurrent_PGF,
      jnp.pad(bias_GF, ((0, NUM_GATES + 1 - num_biases), (0, 0))),
      scale_BF,
      mask_TB,
    )
    if self.drops_outputs:
      hiddens_TBF = hiddens_TBF * scale_BF.astype(self.dtype)
    return hiddens_TBF

  def _scale(self, B: int, train: bool) -> Array:
    """Returns the factors [B, F] of the hidden states."""
    share = dropout.kept_share(self.dropout_rate)
    if not train or self.dropout_rate == 0:
      fill = share if self.drops_outputs else 1.0
      return jnp.full((B, self.lstm_dim), fill, jnp.float32)
    seeds = dropout.draw_seeds(self.make_rng('dropout'), (B,))
    keep_B1F = dropout.keep_mask(
      seeds, (B, 1, self.lstm_dim), self.dropout_rate
    )
    factor = 1.0 if self.drops_outputs else 1 / share
    return keep_B1F[:, 0] * jnp.float32(factor)


class AlternatingHighwayLstm(nn.Module):
  """Layers of highway LSTMs, the first forward, each against the one below.

  Attributes:
    num_layers: of one direction each.
    lstm_dim: F of each layer.
    dropout_rate: of hidden states, by one mask for all positions of a sequence
      in a layer.
    drops_outputs: drop a layer's outputs with the states that the next position
      reads, unscaled in training; without training both are scaled by the kept
      share (luheng/deep_srl, neural_srl/theano/layer.py). Else drop the states
      only, scaled in training (AllenNLP 0.9.0).
    input_bias: whether k has a bias; False is AllenNLP's
      `use_input_projection_bias=false`.
    dtype: of matrix products and outputs.
  """

  num_layers: int
  lstm_dim: int
  dropout_rate: float = 0.0
  drops_outputs: bool = False
  input_bias: bool = True
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x_BTD: Array, mask_BT: Array, *, train: bool) -> Array:
    """Returns the last layer's outputs [B, T, F], 0 at padding.

    Args:
      x_BTD: float; padding may hold NaN.
      mask_BT: bool; True at real words, which come first.
      train: apply dropout (rng stream 'dropout').
    """
    x_TBD = parts.zero_padding(x_BTD, mask_BT).swapaxes(0, 1)
    for i in range(self.num_layers):
      x_TBD = HighwayLstm(
        lstm_dim=self.lstm_dim,
        is_backward=i % 2 == 1,
        dropout_rate=self.dropout_rate,
        drops_outputs=self.drops_outputs,
        input_bias=self.input_bias,
        dtype=self.dtype,
        name=f'layer_{i}',
      )(x_TBD, mask_BT.T, train=train)
    return x_TBD.swapaxes(0, 1)


def orthogonal_blocks(rng: Array, shape: tuple[int, ...]) -> Array:
  """Returns a kernel [inputs, G, F], each gate's block of it orthonormal."""
  inputs, G, F = shape
  draw = nn.initializers.orthogonal()
  blocks = [draw(key, (inputs, F)) for key in jax.random.split(rng, G)]
  return jnp.stack(blocks, axis=1)


# (Whether to read backward, dtype of the matrix products).
_Fields = tuple[bool, Any]


# The gradient is ours: one product makes each kernel's gradient, where JAX adds
# up arrays as large as the kernels at every position.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _read(fields: _Fields, *arguments: Array) -> Array:
  """Returns a layer's hidden states [T, B, F], 0 at padding, see `_run`."""
  return _run(fields, *arguments)[0]


def _run(
  fields: _Fields,
  x_TBD: Array,
  kernel_DGF: Array,
  recurrent_PGF: Array,
  bias_GF: Array,
  scale_BF: Array,
  mask_TB: Array,
) -> tuple[Array, tuple]:
  """Returns a layer's hidden states, and the residuals of their gradient.

  Hidden states times `scale_BF` are what the next position reads.
  """
  is_backward, dtype = fields
  (T, B, _), F = x_TBD.shape, kernel_DGF.shape[-1]
  # Gathered once before the loop, except along the cells.
  R_PGF = nn.with_logical_constraint(
    (recurrent_PGF * _SCALES_G1).astype(dtype), (None, None, 'activation_mlp')
  )
  # With an axis of gates, XLA would transpose at each product on a CPU.
  R_PQ = R_PGF.reshape(F, -1)
  W_DQ, W_DF = _split_kernel(kernel_DGF, dtype)
  gates_TBQ = _product('TBD,DQ->TBQ', x_TBD, W_DQ)
  highway_TBF = _product('TBD,DF->TBF', x_TBD, W_DF)
  scales_Q = np.repeat(_SCALES_G1[:, 0], F)
  gate_bias_Q = ((bias_GF[:NUM_GATES] + _FORGET_BIAS_G1) * _SCALES_G1).reshape(
    -1
  )

  def step(carry: tuple, i: Array) -> tuple[tuple, None]:
    cell_BF, hidden_BF, tanhs_TBQ, cells_TBF, hiddens_TBF = carry
    t = T - 1 - i if is_backward else i
    tanhs_BQ = jnp.tanh(
      _at(tanhs_TBQ, t) * scales_Q
      + _product('BP,PQ->BQ', (hidden_BF * scale_BF).astype(dtype), R_PQ)
      + gate_bias_Q
    )
    k_BF = _at(highway_TBF, t) + bias_GF[NUM_GATES]
    write, forget, candidate, output, transform = _open(tanhs_BQ)
    real_B1 = _at(mask_TB, t)[:, None]
    cell_BF = jnp.where(real_B1, forget * cell_BF + write * candidate, 0)
    out_BF = output * jnp.tanh(cell_BF)
    hidden_BF = jnp.where(real_B1, transform * (out_BF - k_BF) + k_BF, 0)
    carry = (
      cell_BF,
      hidden_BF,
      _put(tanhs_TBQ, tanhs_BQ, t),
      _put(cells_TBF, cell_BF, t),
      _put(hiddens_TBF, hidden_BF, t),
    )
    return carry, None

  # The tanhs of the gates take the places of the products in memory, and a scan
  # would fill what its positions return with zeros first.
  zeros_BF = jnp.zeros((B, F), jnp.float32)
  empty_TBF = lax.empty((T, B, F), jnp.float32)
  (*_, tanhs_TBQ, cells_TBF, hiddens_TBF), _ = lax.scan(
    step,
    (zeros_BF, zeros_BF, gates_TBQ, empty_TBF, lax.empty((T, B, F), dtype)),
    jnp.arange(T),
  )
  saved = (
    x_TBD,
    kernel_DGF,
    recurrent_PGF,
    bias_GF,
    scale_BF,
    mask_TB,
    tanhs_TBQ,
    highway_TBF,
    cells_TBF,
    hiddens_TBF,
  )
  return hiddens_TBF, saved


def _run_backward(
  fields: _Fields, saved: tuple, d_hiddens_TBF: Array
) -> tuple[Array | None, ...]:
  """Returns the gradients of `_read`'s arguments."""
  is_backward, dtype = fields
  x_TBD, kernel_DGF, recurrent_PGF, bias_GF, scale_BF, mask_TB, *rest = saved
  tanhs_TBQ, highway_TBF, cells_TBF, hiddens_TBF = rest
  T, B, F = cells_TBF.shape
  # XLA would transpose the small kernel at every position on a CPU.
  R_GFP = nn.with_logical_constraint(
    recurrent_PGF.astype(dtype).transpose(1, 2, 0),
    (None, 'activation_mlp', None),
  )
  R_QP = R_GFP.reshape(-1, F)
  slopes_Q = np.repeat(_SCALES_G1[:, 0] ** 2, F)

  def step(carry: tuple, i: Array) -> tuple[tuple, None]:
    d_cell_BF, d_read_BF, d_gates_TBQ, d_highway_TBF = carry
    t = i if is_backward else T - 1 - i
    before = jnp.clip(t + 1 if is_backward else t - 1, 0, T - 1)
    real_B1 = _at(mask_TB, t)[:, None]
    tanhs_BQ = _at(tanhs_TBQ, t)
    write, forget, candidate, output, transform = _open(tanhs_BQ)
    k_BF = _at(highway_TBF, t) + bias_GF[NUM_GATES]
    tanh_cell_BF = jnp.tanh(_at(cells_TBF, t))
    cell_before_BF = jnp.where(i == T - 1, 0, _at(cells_TBF, before))
    d_hidden_BF = jnp.where(
      real_B1, _at(d_hiddens_TBF, t) + d_read_BF * scale_BF, 0
    )
    d_out_BF = d_hidden_BF * transform
    d_cell_BF = jnp.where(real_B1, d_cell_BF, 0) + d_out_BF * output * (
      1 - tanh_cell_BF**2
    )
    d_opened = (
      d_cell_BF * candidate,
      d_cell_BF * cell_before_BF,
      d_cell_BF * write,
      d_out_BF * tanh_cell_BF,
      d_hidden_BF * (output * tanh_cell_BF - k_BF),
    )
    slopes_BQ = slopes_Q * (1 - tanhs_BQ**2)
    d_gates_BQ = (jnp.concatenate(d_opened, axis=1) * slopes_BQ).astype(dtype)
    d_highway_BF = (d_hidden_BF - d_out_BF).astype(dtype)
    carry = (
      d_cell_BF * forget,
      _product('BQ,QP->BP', d_gates_BQ, R_QP),
      _put(d_gates_TBQ, d_gates_BQ, t),
      _put(d_highway_TBF, d_highway_BF, t),
    )
    return carry, None

  zeros_BF = jnp.zeros((B, F), jnp.float32)
  empty = (lax.empty(x.shape, dtype) for x in (tanhs_TBQ, highway_TBF))
  (*_, d_gates_TBQ, d_highway_TBF), _ = lax.scan(
    step, (zeros_BF, zeros_BF, *empty), jnp.arange(T)
  )

  read_TBF = (hiddens_TBF * scale_BF).astype(dtype)
  no_BF = jnp.zeros_like(read_TBF[:1])
  read_TBP = jnp.concatenate(
    [read_TBF[1:], no_BF] if is_backward else [no_BF, read_TBF[:-1]]
  )
  d_recurrent_PQ = _sum_outer(read_TBP, d_gates_TBQ)
  W_DQ, W_DF = _split_kernel(kernel_DGF, dtype)
  d_x_TBD = _product('TBQ,DQ->TBD', d_gates_TBQ, W_DQ) + _product(
    'TBF,DF->TBD', d_highway_TBF, W_DF
  )
  d_kernel = (
    _sum_outer(x_TBD, d_gates_TBQ),
    _sum_outer(x_TBD, d_highway_TBF),
  )
  d_bias = (
    layers.sum_rows(x.reshape(T * B, -1), jnp.float32)
    for x in (d_gates_TBQ, d_highway_TBF)
  )
  return (
    d_x_TBD.astype(x_TBD.dtype),
    nn.with_logical_constraint(
      jnp.concatenate(d_kernel, axis=1).reshape(kernel_DGF.shape), KERNEL_NAMES
    ),
    nn.with_logical_constraint(
      d_recurrent_PQ.reshape(recurrent_PGF.shape), KERNEL_NAMES
    ),
    jnp.concatenate([*d_bias], axis=1).reshape(bias_GF.shape),
    None,  # of the scale
    None,  # of the mask
  )


_read.defvjp(_run, _run_backward)


def _split_kernel(kernel_DGF: Array, dtype: Dtype) -> tuple[Array, Array]:
  """Returns the gates' kernel [D, Q] and the highway's [D, F]."""
  W_DGF = kernel_DGF.astype(dtype)
  return W_DGF[:, :NUM_GATES].reshape(len(W_DGF), -1), W_DGF[:, NUM_GATES]


def _open(tanhs_BQ: Array) -> tuple[Array, ...]:
  """Returns i, f, j, o, t after their sigmoids, j's tanh; each [B, F]."""
  gates = jnp.split(tanhs_BQ, NUM_GATES, axis=1)
  return tuple(
    gate if i == CANDIDATE else gate / 2 + 0.5 for i, gate in enumerate(gates)
  )


def _at(x: Array, t: Array) -> Array:
  return lax.dynamic_index_in_dim(x, t, axis=0, keepdims=False)


def _put(x: Array, value: Array, t: Array) -> Array:
  return lax.dynamic_update_index_in_dim(x, value.astype(x.dtype), t, axis=0)


def _product(spec: str, a: Array, b: Array) -> Array:
  return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)


def _sum_outer(a: Array, b: Array) -> Array:
  """Returns the sum of outer products of all positions' vectors."""
  # Of matrices: with more axes, XLA would transpose both first on a CPU.
  rows_a, rows_b = (x.reshape(-1, x.shape[-1]) for x in (a, b))
  return jnp.dot(rows_a.T, rows_b, preferred_element_type=jnp.float32)
