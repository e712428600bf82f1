"""The BiLSTM with coupled gates of end-to-end coreference (Lee et al. 2017).

Rows hold whole sentences, one after the other, each of which is read from the
first state.

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
  from W x + R (m h) + b, where m is a dropout mask for all words of a sentence.
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
  def __call__(
    self, x_BTD: Array, sentences_BT: Array, *, train: bool
  ) -> Array:
    """Reads the sentences of rows both ways.

    Args:
      x_BTD: vectors of words.
      sentences_BT: int32, the number of each word's sentence, whose words stand
        together; -1 at padding, at the end.
      train: apply dropout (rng stream 'dropout').

    Returns:
      [B, T, 2 F], forward then backward, 0 at padding.
    """
    rate = self.dropout_rate if train else 0.0
    mask_BT = sentences_BT >= 0
    # A row back to front has the sentences back to front, each apart.
    backward_BT1 = lstm.reverse(sentences_BT[:, :, None], mask_BT)
    sentences_TKB = jnp.stack([sentences_BT, backward_BT1[..., 0]]).transpose(
      2, 0, 1
    )
    x_BTD = jnp.where(mask_BT[:, :, None], x_BTD, 0).astype(self.dtype)
    for i in range(self.num_layers):
      x_KBTD = jnp.stack([x_BTD, lstm.reverse(x_BTD, mask_BT)])
      outputs_TKBF = CoupledLstm(
        self.lstm_dim, rate, self.dtype, name=f'layer_{i}'
      )(x_KBTD.transpose(2, 0, 1, 3), sentences_TKB)
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
  def __call__(self, x_TKBD: Array, sentences_TKB: Array) -> Array:
    """Returns the outputs [T, K, B, F] in `dtype`, 0 at padding.

    Sentences are as in `CoupledBiLstm`, finite at padding. The rng stream is
    'dropout' where the rate is not 0.
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
    before_TKB = jnp.pad(
      sentences_TKB[:-1], [(1, 0), (0, 0), (0, 0)], constant_values=-1
    )
    kept_TKBF = None
    if self.dropout_rate:
      keep_KBTF = dropout.is_kept(
        dropout.draw_seeds(self.make_rng('dropout'), (towers, B)),
        sentences_TKB.transpose(1, 2, 0)[..., None],
        jnp.arange(F, dtype=jnp.int32),
        self.dropout_rate,
      )
      kept_TKBF = keep_KBTF.transpose(2, 0, 1, 3) / dropout.kept_share(
        self.dropout_rate
      )
    outputs_TKBF = _recur(
      self.dtype,
      gates_KTBGF,
      recurrent_KFGF,
      cell_KF[:, None],
      hidden_KF[:, None],
      sentences_TKB != before_TKB,
      kept_TKBF,
    )
    # Padding is last, so it changes no output of a word.
    outputs_TKBF = jnp.where(sentences_TKB[..., None] >= 0, outputs_TKBF, 0)
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
# the kernel at every position. On a mesh of three axes XLA (jax 0.10) gives a
# plain scan wrong gradients.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recur(dtype: Dtype, *arguments: Array | None) -> Array:
  """Returns h after each position, float32 [T, K, B, F]."""
  return _run(dtype, *arguments, save=False)[0]


def _run(
  dtype: Dtype,
  gates_KTBGF: Array,
  recurrent_KFGF: Array,
  cell_K1F: Array,
  hidden_K1F: Array,
  is_first_TKB: Array,
  kept_TKBF: Array | None,
  *,
  save: bool = True,
) -> tuple[Array, tuple]:
  """Returns the outputs of `_recur` and the residuals of its gradient.

  Where `is_first_TKB`, a row goes on from the first state.
  """
  R_KFGF = recurrent_KFGF.astype(dtype)
  K, T, B, _, F = gates_KTBGF.shape

  def step(carry: tuple, inputs: tuple) -> tuple[tuple, tuple]:
    cell_KBF, hidden_KBF, saved_KTBGF = carry
    t, is_first_KB, kept_KBF = inputs
    cell_KBF = jnp.where(is_first_KB[..., None], cell_K1F, cell_KBF)
    hidden_KBF = jnp.where(is_first_KB[..., None], hidden_K1F, hidden_KBF)
    gates_KBGF = lax.dynamic_index_in_dim(
      gates_KTBGF, t, axis=1, keepdims=False
    ) + _product(
      'KBE,KEGF->KBGF', _drop(hidden_KBF, kept_KBF).astype(dtype), R_KFGF
    )
    new_cell_KBF, new_hidden_KBF = _advance(cell_KBF, gates_KBGF)
    if save:
      saved_KTBGF = lax.dynamic_update_index_in_dim(
        saved_KTBGF, gates_KBGF.astype(dtype), t, axis=1
      )
    carry = new_cell_KBF, new_hidden_KBF, saved_KTBGF
    return carry, (new_hidden_KBF, cell_KBF if save else None)

  saved_KTBGF = lax.empty(gates_KTBGF.shape, dtype) if save else None
  zeros_KBF = jnp.zeros((K, B, F))
  (_, _, saved_KTBGF), (hiddens_TKBF, cells_TKBF) = lax.scan(
    step,
    (zeros_KBF, zeros_KBF, saved_KTBGF),
    (jnp.arange(T), is_first_TKB, kept_TKBF),
  )
  before_TKBF = jnp.where(
    is_first_TKB[..., None],
    hidden_K1F,
    jnp.concatenate([zeros_KBF[None], hiddens_TKBF[:-1]]),
  )
  saved = saved_KTBGF, cells_TKBF, before_TKBF, recurrent_KFGF
  return hiddens_TKBF, (*saved, is_first_TKB, kept_TKBF)


def _run_backward(
  dtype: Dtype, saved: tuple, d_hiddens_TKBF: Array
) -> tuple[Array | None, ...]:
  """Returns the gradients of `_recur`'s arguments."""
  gates_KTBGF, cells_TKBF, before_TKBF, recurrent, is_first_TKB, kept_TKBF = (
    saved
  )
  K, F, G, _ = recurrent.shape
  R_KEQ = recurrent.astype(dtype).reshape(K, F, G * F)

  def step(carry: tuple, inputs: tuple) -> tuple[tuple, None]:
    states, d_gates_KTBGF = carry
    t, d_output_KBF, cell_KBF, is_first_KB, kept_KBF = inputs
    gates_KBGF = lax.dynamic_index_in_dim(
      gates_KTBGF, t, axis=1, keepdims=False
    )
    pull = jax.vjp(_advance, cell_KBF, gates_KBGF.astype(jnp.float32))[1]
    (d_cell_KBF, d_first_cell_KBF), (d_hidden_KBF, d_first_hidden_KBF) = states
    d_cell_KBF, d_gates_KBGF = pull((d_cell_KBF, d_hidden_KBF + d_output_KBF))
    d_gates_KBGF = d_gates_KBGF.astype(dtype)
    d_hidden_KBF = _drop(
      _product('KBQ,KEQ->KBE', d_gates_KBGF.reshape(K, -1, G * F), R_KEQ),
      kept_KBF,
    )
    d_gates_KTBGF = lax.dynamic_update_index_in_dim(
      d_gates_KTBGF, d_gates_KBGF, t, axis=1
    )

    def send(d_KBF: Array, d_first_KBF: Array) -> tuple[Array, Array]:
      """Gives the gradient to the position before, or to the first state."""
      is_first_KB1 = is_first_KB[..., None]
      return (
        jnp.where(is_first_KB1, 0, d_KBF),
        d_first_KBF + jnp.where(is_first_KB1, d_KBF, 0),
      )

    states = (
      send(d_cell_KBF, d_first_cell_KBF),
      send(d_hidden_KBF, d_first_hidden_KBF),
    )
    return (states, d_gates_KTBGF), None

  zeros_KBF = jnp.zeros(cells_TKBF.shape[1:])
  (((_, d_cell_KBF), (_, d_hidden_KBF)), d_gates_KTBGF), _ = lax.scan(
    step,
    (((zeros_KBF,) * 2,) * 2, lax.empty(gates_KTBGF.shape, dtype)),
    (
      jnp.arange(len(cells_TKBF)),
      d_hiddens_TKBF,
      cells_TKBF,
      is_first_TKB,
      kept_TKBF,
    ),
    reverse=True,
  )
  d_recurrent_KFGF = _product(
    'TKBE,KTBGF->KEGF',
    _drop(before_TKBF, kept_TKBF).astype(dtype),
    d_gates_KTBGF,
  )
  return (
    d_gates_KTBGF,
    d_recurrent_KFGF,
    d_cell_KBF.sum(axis=1, keepdims=True),
    d_hidden_KBF.sum(axis=1, keepdims=True),
    # Nothing learns where sentences begin, nor what is dropped.
    None,
    None,
  )


_recur.defvjp(_run, _run_backward)


def _drop(hidden: Array, kept: Array | None) -> Array:
  return hidden if kept is None else hidden * kept


def _advance(cell_KBF: Array, gates_KBGF: Array) -> tuple[Array, Array]:
  """Returns the next cell and the next hidden state, [K, B, F]."""
  write, candidate, read = (gates_KBGF[:, :, i] for i in range(NUM_GATES))
  write_KBF = jax.nn.sigmoid(write)
  cell_KBF = (1 - write_KBF) * cell_KBF + write_KBF * jnp.tanh(candidate)
  return cell_KBF, jnp.tanh(cell_KBF) * jax.nn.sigmoid(read)


def _product(spec: str, a: Array, b: Array) -> Array:
  return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)
