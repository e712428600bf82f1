"""An LSTM language model in GPT's place (Radford et al. 2018, section 5).

Shapes: B batch, T position, D embed, F cells, V padded vocabulary.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import layers, lstm
from models.dropout import Dropout

Array = jax.Array
Dtype = jax.typing.DTypeLike

INIT_STDDEV = 0.02  # of the token table, as GPT's


class LstmLm(nn.Module):
  """LSTM language model with a softmax tied to the embeddings, no bias.

  The paper says no more than a single layer of 2,048 units "using the same
  framework". So embeddings have GPT's width, and the cells are projected to
  this width before they recur, as in Jozefowicz et al. 2016, section 5. Dropout
  applies to each layer's input and the last output (Zaremba et al. 2014).

  There is no position table: `max_length` only limits the input. `dtype` is of
  activations; parameters, cells and logits are float32.
  """

  FORM = 'lstm'  # see `task_model`

  vocab_size: int
  embed_dim: int
  lstm_dim: int
  num_layers: int = 1
  max_length: int = 512
  dropout_rate: float = 0.1
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(
    self, tokens: Array, token_mask: Array, positions: Array, *, train: bool
  ) -> dict[str, Array]:
    """Predicts at each position the token that follows it.

    With the collection 'intermediates' mutable, hidden states [B, T, D] are
    sown, each in a tuple of one: `embedded`, `layers_0/hidden` and so on.
    `token_mask` is bool [B, T], True at real tokens; padding may lie anywhere.
    `positions` are unused. `train` applies dropout (rng stream 'dropout').

    Returns:
      hidden [B, T, D] in `dtype` and lm_logits [B, T, V padded] in float32,
      both meaningless at padding; in training lm_head, see `layers.Head`.
    """
    del positions
    layers.check_length(tokens.shape[1], self.max_length)
    table = layers.TokenTable(
      self.vocab_size,
      self.embed_dim,
      table_init=nn.initializers.normal(INIT_STDDEV),
      dtype=self.dtype,
      name='tokens',
    )
    dropout = Dropout(self.dropout_rate if train else 0.0)
    x_BTD = layers.constrain_hidden(table(tokens))
    self.sow('intermediates', 'embedded', x_BTD)
    for i in range(self.num_layers):
      x_BTD = Layer(
        lstm_dim=self.lstm_dim, dtype=self.dtype, name=f'layers_{i}'
      )(dropout(x_BTD), token_mask)
    x_BTD = layers.constrain_hidden(dropout(x_BTD))
    head = table.head(x_BTD)
    outputs = {
      'hidden': x_BTD,
      'lm_logits': nn.with_logical_constraint(
        head.logits(), ('batch', 'activation_length', 'activation_vocab')
      ),
    }
    return outputs | ({'lm_head': head} if train else {})


class Layer(nn.Module):
  """One LSTM layer over whole rows; sows its output 'hidden' [B, T, D]."""

  lstm_dim: int
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(self, x_BTD: Array, mask_BT: Array) -> Array:
    """Returns [B, T, D] for [B, T, D] and bool [B, T]."""
    B, _, D = x_BTD.shape
    x_TKBD, _, _ = lstm.ProjectedLstm(
      lstm_dim=self.lstm_dim, projection_dim=D, dtype=self.dtype, name='lstm'
    )(
      x_BTD.swapaxes(0, 1)[:, None],
      jnp.zeros((1, B, self.lstm_dim)),
      jnp.zeros((1, B, D)),
      mask_BT.T,
    )
    x_BTD = x_TKBD[:, 0].swapaxes(0, 1)
    self.sow('intermediates', 'hidden', x_BTD)
    return x_BTD


def rescale_init(params: dict, *, stddev: float) -> dict:
  """Rescales the new token table; the LSTM keeps TensorFlow's default scale."""
  table = params['tokens']['embedding'] * (stddev / INIT_STDDEV)
  return params | {'tokens': {'embedding': table}}
