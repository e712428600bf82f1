"""LSTM layers that read both ways, on features of tokens.

Shapes: B batch, T position, D features, K = 2 directions, F cells.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import lstm
from models.layers import Dtype

Array = jax.Array


class BiLstm(nn.Module):
  """Layers of two LSTMs, one in each direction, that read what both wrote.

  As `torch.nn.LSTM` with `bidirectional` does on packed sequences, but that 1
  is added to the forget gates.

  Attributes:
    num_layers: how many.
    lstm_dim: F, cells of one direction.
    dtype: of the matrix products and the outputs.
  """

  num_layers: int
  lstm_dim: int
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x_BTD: Array, mask_BT: Array) -> tuple[Array, Array]:
    """Reads each row from its first to its last real token, and back.

    Args:
      x_BTD: float [B, T, D].
      mask_BT: bool [B, T], True at real tokens, which come first.

    Returns:
      [B, T, 2 F], forward then backward, 0 at padding; and [B, 2 F], where the
      top layer's two end: forward at the last real token, backward at the first
      one. Of a row without tokens all is 0.
    """
    B = len(x_BTD)
    state_KBF = jnp.zeros((2, B, self.lstm_dim), jnp.float32)
    # Padding could hold anything; where it is masked its gradient is 0 x that.
    x_BTD = jnp.where(mask_BT[:, :, None], x_BTD, 0).astype(self.dtype)
    for i in range(self.num_layers):
      x_KBTD = jnp.stack([x_BTD, turn_around(x_BTD, mask_BT)])
      outputs_TKBF, _, last_KBF = lstm.ProjectedLstm(
        lstm_dim=self.lstm_dim,
        projection_dim=None,
        dtype=self.dtype,
        name=f'layer_{i}',
      )(x_KBTD.transpose(2, 0, 1, 3), state_KBF, state_KBF, mask_BT.T)
      forward_BTF, backward_BTF = outputs_TKBF.transpose(1, 2, 0, 3)
      x_BTD = jnp.concatenate(
        [forward_BTF, turn_around(backward_BTF, mask_BT)], axis=-1
      )
    last_BD = jnp.concatenate(list(last_KBF), axis=-1)
    return x_BTD, last_BD.astype(self.dtype)


def turn_around(x_BTD: Array, mask_BT: Array) -> Array:
  """Reverses the real tokens of each row; padding stays behind them.

  Args:
    x_BTD: [B, T, D].
    mask_BT: bool [B, T], True at real tokens, which come first.
  """
  T = x_BTD.shape[1]
  before_BT = mask_BT.sum(axis=1, keepdims=True) - 1 - jnp.arange(T)
  from_BT = jnp.where(mask_BT, before_BT, jnp.arange(T))
  return jnp.take_along_axis(x_BTD, from_BT[:, :, None], axis=1)
