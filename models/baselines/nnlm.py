"""The neural probabilistic language model (Bengio et al. 2003).

Shapes: B batch, T position, N words of history, M embed, H hidden, V padded
vocabulary.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import layers, sampled_softmax
from models.dropout import Dropout

Array = jax.Array
Dtype = jax.typing.DTypeLike

INIT_STDDEV = 0.02  # of the token table, as GPT's


class Nnlm(nn.Module):
  """A feed-forward network on the vectors of the n - 1 words before.

  y = b + W x + U tanh(d + H x), where x are the vectors one after the other,
  the nearest word's first (eq. 1). W and U are one matrix, the softmax's.
  Words before the row's beginning have zeros for a vector.

  Attributes:
    embed_dim: m, width of the vectors.
    hidden_dim: h; 0: no hidden units, as in a row of Table 1.
    order: n, with the predicted word.
    direct: whether there is W.
    max_length: longest input; there are no positions.
    num_samples: sampled words of the loss in training; 0: all words.
    dropout_rate: of the vectors of words and of the hidden units, beyond the
      paper.
    dtype: of activations; parameters and logits are float32.
  """

  vocab_size: int
  embed_dim: int
  hidden_dim: int
  order: int
  direct: bool = True
  max_length: int = 512
  num_samples: int = 0
  dropout_rate: float = 0.0
  dtype: Dtype = jnp.float32

  def setup(self):
    """Creates the parameters."""
    self.tokens = layers.TokenTable(
      self.vocab_size,
      self.embed_dim,
      table_init=nn.initializers.normal(INIT_STDDEV),
      dtype=self.dtype,
    )
    if self.hidden_dim:
      self.hidden = layers.Linear(
        (self.hidden_dim,),
        ('embed',),
        ('mlp',),
        kernel_init=nn.initializers.lecun_normal(),
        dtype=self.dtype,
      )
    self.dropout = Dropout(self.dropout_rate)
    history = (self.order - 1) * self.embed_dim
    self.softmax = sampled_softmax.Softmax(
      self.vocab_size,
      self.hidden_dim + (history if self.direct else 0),
      self.dtype,
    )

  def __call__(
    self, tokens: Array, token_mask: Array, positions: Array, *, train: bool
  ) -> dict[str, Array]:
    """Predicts at each position the token that follows it.

    `token_mask` is bool [B, T], True at real tokens, with padding behind them.
    `positions` are unused. `train` applies dropout (rng stream 'dropout').

    Returns:
      lm_logits [B, T, V padded] in float32, meaningless at padding.
    """
    del positions
    return {'lm_logits': self.softmax(self._read(tokens, token_mask, train))}

  def score(
    self, tokens: Array, token_mask: Array, targets: Array, *, train: bool
  ) -> dict[str, Array]:
    """Returns 'losses' float32 [B, T] of the targets int [B, T], in nats.

    In training they are over `num_samples` words (rng stream 'samples').
    """
    top_1BTP = self._read(tokens, token_mask, train)[None]
    if train and self.num_samples:
      samples_1S = sampled_softmax.draw_words(
        self.make_rng('samples'), (1, self.num_samples), self.vocab_size
      )
      found = self.softmax.sampled_losses(top_1BTP, targets[None], samples_1S)
    else:
      found = self.softmax.losses(top_1BTP, targets[None])
    return {'losses': found[0]}

  def _read(self, tokens: Array, token_mask: Array, train: bool) -> Array:
    """Returns the softmax's input [B, T, H + N M], or without W [B, T, H]."""
    T = tokens.shape[1]
    layers.check_length(T, self.max_length)
    x_BTM = jnp.where(token_mask[..., None], self.tokens(tokens), 0)
    N = self.order - 1
    padded = jnp.pad(x_BTM, ((0, 0), (N - 1, 0), (0, 0)))
    history = [padded[:, N - 1 - back :][:, :T] for back in range(N)]
    x_BTD = layers.constrain_hidden(jnp.concatenate(history, axis=-1))
    x_BTD = self.dropout(x_BTD) if train else x_BTD
    if not self.hidden_dim:
      return x_BTD
    hidden_BTH = jnp.tanh(self.hidden(x_BTD))
    hidden_BTH = self.dropout(hidden_BTH) if train else hidden_BTH
    if not self.direct:
      return hidden_BTH
    return jnp.concatenate([hidden_BTH, x_BTD], axis=-1)


def rescale_init(params: dict, *, stddev: float) -> dict:
  """Rescales the new token table; the matrices keep their scale."""
  table = params['tokens']['embedding'] * (stddev / INIT_STDDEV)
  return params | {'tokens': {'embedding': table}}
