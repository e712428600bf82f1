"""The BiLSTM with coupled gates of end-to-end coreference (Lee et al. 2017).

Shapes: T position, K the two directions, B row, D features, G the three gates,
F cells. Parameters, cells and hidden states are float32, matrix products are in
the module's `dtype`. Source: kentonl/e2e-coref, util.py and coref_model.py.
"""

import functools
import math

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models import dropout, initial, layers, lstm
from models.dropout import Dropout
from models.layers import Dtype, named

Array = jax.Array

NUM_GATES = 3  # input, candidate, output; the input gate's rest forgets


class CoupledBiLstm(nn.Module):
  """Layers of two LSTMs, one per direction, whose forget gate is 1 - input.

  c' = (1 - sigmoid(i)) c + sigmoid(i) tanh(j), h' = tanh(c') sigmoid(o), gates
  from W x + R (m h) + b, where m is a dropout mask for all positions of a row.
  The first state is learned. Layers above the first are mixed with their input
  by a highway gate, as in the release of 2018.

  Attributes:
    num_layers: of both directions.
    lstm_dim: F of each direction.
    dropout_rate: of hidden states (m) and of each layer's outputs.
    dtype: of activations.
  """

  num_layers: int
  lstm_dim: int
  dropout_rate: float
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x_BTD: Array, mask_BT: Array, *, train: bool) -> Array:
    """Reads the real words (`mask_BT` True, first in each row) both ways.

    Returns [B, T, 2 F], forward then backward, 0 at padding.
    """
    rate = self.dropout_rate if train else 0.0
    x_BTD = jnp.where(mask_BT[:, :, None], x_BTD, 0).astype(self.dtype)
    for i in range(self.num_layers):
      x_KBTD = jnp.stack([x_BTD, lstm.reverse(x_BTD, mask_BT)])
      outputs_TKBF = CoupledLstm(
        self.lstm_dim, rate, self.dtype, name=f'layer_{i}'
      )(x_KBTD.transpose(2, 0, 1, 3), mask_BT.T)
      forward_BTF, backward_BTF = outputs_TKBF.transpose(1, 2, 0, 3)
      read_BTD = jnp.concatenate(
        [forward_BTF, lstm.reverse(backward_BTF, mask_BT)], axis=-1
      )
      read_BTD = Dropout(rate)(read_BTD)
      if i:
        gate_BTD = nn.sigmoid(
          layers.Linear(
            features=read_BTD.shape[-1:],
            in_names=('embed',),
            out_names=('mlp',),
            kernel_init=initial.glorot_uniform(*2 * read_BTD.shape[-1:]),
            bias_init=vector_init,
            dtype=self.dtype,
            name=f'highway_{i}',
          )(read_BTD)
        )
        read_BTD = gate_BTD * read_BTD + (1 - gate_BTD) * x_BTD
      x_BTD = jnp.where(mask_BT[:, :, None], read_BTD, 0)
    return x_BTD


class CoupledLstm(nn.Module):
  """One layer of `CoupledBiLstm`: both directions in one loop."""

  lstm_dim: int
  dropout_rate: float
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x_TKBD: Array, mask_TB: Array) -> Array:
    """Returns the outputs [T, K, B, F] in `dtype`, 0 where the mask is False.

    Padding is finite there, and comes last. The rng stream is 'dropout'
    where the rate is not 0.
    """
    towers, B, D = x_TKBD.shape[1:]
    F, G = self.lstm_dim, NUM_GATES
    input_kernel_KDGF = self.param(
      'input_kernel',
      named(
        initial.glorot_uniform(D, G * F), ('towers', 'embed', 'gates', 'mlp')
      ),
      (towers, D, G, F),
    )
    recurrent_KFGF = self.param(
      'recurrent_kernel',
      named(block_orthonormal, ('towers', 'embed', 'gates', 'mlp')),
      (towers, F, G, F),
    )
    bias_KGF = self.param(
      'bias', named(_bias_init, ('towers', 'gates', 'mlp')), (towers, G, F)
    )
    cell_KF, hidden_KF = (
      self.param(
        name,
        named(initial.glorot_uniform(1, F), ('towers', 'mlp')),
        (towers, F),
      )
      for name in ('initial_cell', 'initial_hidden')
    )
    gates_KTBGF = jnp.einsum(
      'TKBD,KDGF->KTBGF',
      x_TKBD.astype(self.dtype),
      input_kernel_KDGF.astype(self.dtype),
    )
    gates_KTBGF += bias_KGF.astype(self.dtype)[:, None, None]
    kept_KBF = jnp.ones((towers, B, F))
    if self.dropout_rate:
      rng = self.make_rng('dropout')
      kept_KBF = dropout.apply(rng, kept_KBF, self.dropout_rate)
    outputs_TKBF = _recur(
      self.dtype,
      gates_KTBGF,
      recurrent_KFGF,
      jnp.broadcast_to(cell_KF[:, None], kept_KBF.shape),
      jnp.broadcast_to(hidden_KF[:, None], kept_KBF.shape),
      kept_KBF,
    )
    # Padding is last, so it changes no output of a word.
    outputs_TKBF = jnp.where(mask_TB[:, None, :, None], outputs_TKBF, 0)
    return outputs_TKBF.astype(self.dtype)


def vector_init(rng: Array, shape: tuple[int, ...]) -> Array:
  """Returns a vector as TensorFlow's default starts it, Glorot uniform."""
  return initial.symmetric_uniform(math.sqrt(3 / math.prod(shape)))(rng, shape)


def _bias_init(rng: Array, shape: tuple[int, ...]) -> Array:
  # The release has one bias beside each kernel; this is their sum.
  draw = initial.symmetric_uniform(math.sqrt(3 / math.prod(shape[1:])))
  of_input, of_hidden = jax.random.split(rng)
  return draw(of_input, shape) + draw(of_hidden, shape)


def block_orthonormal(rng: Array, shape: tuple[int, ...]) -> Array:
  """Returns kernels [K, F, G, F], orthonormal for each gate."""
  K, F, G, _ = shape
  keys = jax.random.split(rng, K * G)
  draw = nn.initializers.orthogonal()
  kernels = [draw(key, (F, F)) for key in keys]
  return jnp.stack(kernels).reshape(K, G, F, F).transpose(0, 2, 1, 3)


# One product makes the kernel's gradient, where JAX adds up arrays as large as
# the kernel at every position.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recur(dtype: Dtype, *arguments: Array) -> Array:
  """Returns h after each position, float32 [T, K, B, F]."""
  return _run(dtype, *arguments, save=False)[0]


def _run(
  dtype: Dtype,
  gates_KTBGF: Array,
  recurrent_KFGF: Array,
  cell_KBF: Array,
  hidden_KBF: Array,
  kept_KBF: Array,
  *,
  save: bool = True,
) -> tuple[Array, tuple]:
  """Returns the outputs of `_recur` and the residuals of its gradient."""
  R_KFGF = recurrent_KFGF.astype(dtype)

  def step(carry: tuple, t: Array) -> tuple[tuple, tuple]:
    cell_KBF, hidden_KBF, saved_KTBGF = carry
    gates_KBGF = lax.dynamic_index_in_dim(
      gates_KTBGF, t, axis=1, keepdims=False
    ) + _product(
      'KBE,KEGF->KBGF', (hidden_KBF * kept_KBF).astype(dtype), R_KFGF
    )
    new_cell_KBF, new_hidden_KBF = _advance(cell_KBF, gates_KBGF)
    if save:
      saved_KTBGF = lax.dynamic_update_index_in_dim(
        saved_KTBGF, gates_KBGF.astype(dtype), t, axis=1
      )
    carry = new_cell_KBF, new_hidden_KBF, saved_KTBGF
    return carry, (new_hidden_KBF, cell_KBF if save else None)

  saved_KTBGF = lax.empty(gates_KTBGF.shape, dtype) if save else None
  (_, _, saved_KTBGF), (hiddens_TKBF, cells_TKBF) = lax.scan(
    step,
    (cell_KBF, hidden_KBF, saved_KTBGF),
    jnp.arange(gates_KTBGF.shape[1]),
  )
  before_TKBF = jnp.concatenate([hidden_KBF[None], hiddens_TKBF[:-1]])
  saved = saved_KTBGF, cells_TKBF, before_TKBF, recurrent_KFGF, kept_KBF
  return hiddens_TKBF, saved


def _run_backward(
  dtype: Dtype, saved: tuple, d_hiddens_TKBF: Array
) -> tuple[Array, ...]:
  """Returns the gradients of `_recur`'s arguments."""
  gates_KTBGF, cells_TKBF, before_TKBF, recurrent, kept_KBF = saved
  K, F, G, _ = recurrent.shape
  R_KEQ = recurrent.astype(dtype).reshape(K, F, G * F)

  def step(carry: tuple, inputs: tuple) -> tuple[tuple, None]:
    d_cell_KBF, d_hidden_KBF, d_gates_KTBGF = carry
    t, d_output_KBF, cell_KBF = inputs
    gates_KBGF = lax.dynamic_index_in_dim(
      gates_KTBGF, t, axis=1, keepdims=False
    )
    pull = jax.vjp(_advance, cell_KBF, gates_KBGF.astype(jnp.float32))[1]
    d_cell_KBF, d_gates_KBGF = pull((d_cell_KBF, d_hidden_KBF + d_output_KBF))
    d_gates_KBGF = d_gates_KBGF.astype(dtype)
    d_hidden_KBF = kept_KBF * _product(
      'KBQ,KEQ->KBE', d_gates_KBGF.reshape(K, -1, G * F), R_KEQ
    )
    d_gates_KTBGF = lax.dynamic_update_index_in_dim(
      d_gates_KTBGF, d_gates_KBGF, t, axis=1
    )
    return (d_cell_KBF, d_hidden_KBF, d_gates_KTBGF), None

  zeros_KBF = jnp.zeros(kept_KBF.shape)
  (d_cell_KBF, d_hidden_KBF, d_gates_KTBGF), _ = lax.scan(
    step,
    (zeros_KBF, zeros_KBF, lax.empty(gates_KTBGF.shape, dtype)),
    (jnp.arange(len(cells_TKBF)), d_hiddens_TKBF, cells_TKBF),
    reverse=True,
  )
  d_recurrent_KFGF = _product(
    'TKBE,KTBGF->KEGF', (before_TKBF * kept_KBF).astype(dtype), d_gates_KTBGF
  )
  return (
    d_gates_KTBGF,
    d_recurrent_KFGF,
    d_cell_KBF,
    d_hidden_KBF,
    zeros_KBF,  # of the dropout mask, which nothing learns
  )


_recur.defvjp(_run, _run_backward)


def _advance(cell_KBF: Array, gates_KBGF: Array) -> tuple[Array, Array]:
  """Returns the next cell and the next hidden state, [K, B, F]."""
  write, candidate, read = (gates_KBGF[:, :, i] for i in range(NUM_GATES))
  write_KBF = jax.nn.sigmoid(write)
  cell_KBF = (1 - write_KBF) * cell_KBF + write_KBF * jnp.tanh(candidate)
  return cell_KBF, jnp.tanh(cell_KBF) * jax.nn.sigmoid(read)


def _product(spec: str, a: Array, b: Array) -> Array:
  return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)
