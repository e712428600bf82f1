"""ELMo: a bidirectional LSTM language model on characters (Peters et al. 2018).

Shapes: B batch, T position, C characters of a word, K the two towers
(0 forward, 1 backward), F cells, P projection, L layers, V vocabulary, padded
to a multiple of 128.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import char_cnn, initial, layers, lstm, sampled_softmax
from models.dropout import Dropout

Array = jax.Array
Dtype = jax.typing.DTypeLike

NUM_TOWERS = 2


class State(NamedTuple):
  """LSTM states, float32: cell [L, K, B, F] and hidden [L, K, B, P]."""

  cell: Array
  hidden: Array


class Elmo(nn.Module):
  """The biLM: word encoder, an LSTM stack per direction, and the softmax.

  `__call__` and `embed` give vectors of sentences; `read_on` is for training,
  where each tower reads its own text.

  Attributes:
    vocab_size: rows of the softmax, unpadded; 0: no softmax, as published.
    projection_dim: P, below F and below the number of filters; otherwise the
      released program has no projections.
    filters: (width, count) of each group of filters on characters.
    num_highway: highway layers after the filters.
    num_words: rows of a word table in place of characters; 0: characters.
    use_skip_connections: add each layer's input to its output but the first's.
    cell_clip: largest absolute value of an LSTM cell; None: no limit.
    projection_clip: the same of a projection.
    dropout_rate: of every layer's input and the last output, in training.
    num_samples: sampled words of each tower's training loss; 0: all words.
    dtype: of activations; parameters, states and logits are float32.
  """

  FORM = 'elmo'  # see `task_model`

  vocab_size: int
  lstm_dim: int
  projection_dim: int
  num_layers: int = 2
  filters: tuple[tuple[int, int], ...] = ()
  num_highway: int = 1
  char_embed_dim: int = 16
  max_characters: int = 50
  num_words: int = 0
  use_skip_connections: bool = True
  cell_clip: float | None = 3.0
  projection_clip: float | None = 3.0
  dropout_rate: float = 0.1
  num_samples: int = 0
  dtype: Dtype = jnp.float32

  def example_inputs(self) -> tuple[tuple, dict[str, Any]]:
    """Returns shapes of a smallest call's inputs, and its keyword arguments."""
    letters = () if self.num_words else (self.max_characters,)
    words = jax.ShapeDtypeStruct((1, 1, *letters), jnp.int32)
    return (words, jax.ShapeDtypeStruct((1,), jnp.int32)), {}

  def setup(self):
    """Creates the modules and checks the sizes."""
    self.check_sizes()
    if self.num_words:
      self.encoder = layers.TokenTable(
        self.num_words,
        self.projection_dim,
        # TensorFlow's default, as bilm-tf's training.py leaves it.
        table_init=initial.glorot_uniform(self.num_words, self.projection_dim),
        dtype=self.dtype,
      )
    else:
      self.encoder = char_cnn.CharacterEncoder(
        self.char_embed_dim,
        self.filters,
        self.num_highway,
        self.projection_dim,
        self.dtype,
      )
    self.layers = [
      lstm.ProjectedLstm(
        self.lstm_dim,
        self.projection_dim,
        self.cell_clip,
        self.projection_clip,
        self.dtype,
      )
      for _ in range(self.num_layers)
    ]
    self.dropout = Dropout(self.dropout_rate)
    if self.vocab_size:
      self.softmax = sampled_softmax.Softmax(
        self.vocab_size, self.projection_dim, self.dtype
      )

  def check_sizes(self) -> None:
    """Checks that the sizes fit together, else raises ValueError."""
    P = self.projection_dim
    if P >= self.lstm_dim:
      raise ValueError(
        f'projection_dim is {P}, expected less than lstm_dim ({self.lstm_dim})'
      )
    if self.num_words:
      return
    widest = max((width for width, _ in self.filters), default=0)
    if not 0 < widest <= self.max_characters:
      raise ValueError(
        f'filters are {self.filters}, expected (width, count) pairs with widths'
        f' up to max_characters ({self.max_characters})'
      )
    count = sum(count for _, count in self.filters)
    if P >= count:
      raise ValueError(
        f'projection_dim is {P}, expected less than the number of filters'
        f' ({count})'
      )

  def __call__(
    self,
    ids: Array,
    lengths: Array,
    state: State | None = None,
    *,
    words: Array | None = None,
  ) -> tuple[Array, State]:
    """Encodes sentences and returns the results of `embed`.

    `ids` are characters, int [B, T, C], or words, [B, T]. `words`, int [B, T]
    below 2^30, number the distinct words, each then encoded once.
    """
    if self.is_initializing() and self.vocab_size:
      self.softmax.create()
    if words is None or self.num_words:
      x_BTP = self.encode(ids)
    else:
      x_BTP = self._encode_once(ids[None], words[None])[0]
    return self.embed(x_BTP, lengths, state)

  def encode(self, ids: Array) -> Array:
    """Returns vectors [..., P] of words: characters [..., C] or ids [...]."""
    if not self.num_words and ids.shape[-1:] != (self.max_characters,):
      raise ValueError(
        f'ids are {ids.shape}, expected {self.max_characters} characters of'
        ' each word along the last axis'
      )
    if self.num_words or self.is_initializing():
      return self.encoder(ids)
    encode, params = self._encoder()
    return char_cnn.without_padding(
      lambda ids: encode(params, ids), ids, self._widest
    )

  def embed(
    self, x_BTP: Array, lengths: Array, state: State | None = None
  ) -> tuple[Array, State]:
    """Returns every layer's vectors of the words, and the next state.

    The forward tower reads a sentence from its first word, the backward tower
    from its last. Padding has no influence, and its vectors are zero.

    Args:
      x_BTP: word vectors of `encode`, perhaps from a cache.
      lengths: int [B], words of each sentence; 0 keeps the row's state.
      state: after the preceding text; None: at its start.

    Returns:
      [L + 1, B, T, 2 P] in `dtype`: the word vectors twice, then each layer's
      output, forward then backward; and the state after the sentences.
    """
    B, T = x_BTP.shape[:2]
    if lengths.shape != (B,):
      raise ValueError(
        f'lengths are {lengths.shape}, expected one of each sentence ({B},)'
      )
    mask_BT = jnp.arange(T) < lengths[:, None]
    x_BTP = jnp.where(mask_BT[:, :, None], x_BTP, 0).astype(self.dtype)
    x_KBTP = jnp.stack([x_BTP, lstm.reverse(x_BTP, mask_BT)])
    outputs, state = self._run_layers(x_KBTP, state, mask_BT, train=False)
    pairs = [(x_BTP, x_BTP)]
    pairs += [(ahead, lstm.reverse(back, mask_BT)) for ahead, back in outputs]
    layers_LBTP = jnp.stack([jnp.concatenate(pair, axis=-1) for pair in pairs])
    return layers_LBTP, state

  def read_on(
    self,
    words_KBT: Array,
    characters_KBTC: Array | None,
    targets_KBT: Array,
    cell: Array,
    hidden: Array,
    *,
    train: bool,
  ) -> dict[str, Array]:
    """Predicts every next word of two texts a row, from the carried state.

    Args:
      words_KBT: int, the words of each tower's text in its reading order.
      characters_KBTC: int, their characters; None with a word table.
      targets_KBT: int, the word after each, below V.
      cell: float32 [B, L, K, F], as in `State` but with the rows first.
      hidden: float32 [B, L, K, P].
      train: dropout and sampled softmax (rng streams 'dropout', 'samples').

    Returns:
      'losses' float32 [K, B, T] in nats, and the next 'cell' and 'hidden'.
    """
    state = State(*(jnp.moveaxis(array, 0, 2) for array in (cell, hidden)))
    if self.num_words:
      x_KBTP = self.encode(words_KBT)
    else:
      x_KBTP = self._encode_once(characters_KBTC, words_KBT)
    top_KBTP, state = self.run_streams(x_KBTP, state, train=train)
    if train and self.num_samples:
      samples_KS = sampled_softmax.draw_words(
        self.make_rng('samples'),
        (NUM_TOWERS, self.num_samples),
        self.vocab_size,
      )
      losses = self.softmax.sampled_losses(top_KBTP, targets_KBT, samples_KS)
    else:
      losses = self.softmax.losses(top_KBTP, targets_KBT)
    cell, hidden = (jnp.moveaxis(array, 2, 0) for array in state)
    return {'losses': losses, 'cell': cell, 'hidden': hidden}

  def _encode_once(self, characters: Array, words: Array) -> Array:
    if self.is_initializing():
      return self.encode(characters)
    encode, params = self._encoder()
    return char_cnn.encode_once(encode, self._widest, params, characters, words)

  def _encoder(self) -> tuple[char_cnn.Encode, dict]:
    """Returns the encoder as a function, and its parameters."""
    encoder, variables = self.encoder.unbind()

    def encode(params: dict, ids: Array) -> Array:
      return encoder.apply({'params': params}, ids)

    return encode, variables['params']

  @property
  def _widest(self) -> int:
    return max(width for width, _ in self.filters)

  def run_streams(
    self, x_KBTP: Array, state: State | None = None, *, train: bool
  ) -> tuple[Array, State]:
    """Returns the last layer's output [2, B, T, P] and the next state.

    `x_KBTP` are in reading order, unpadded. Gradients flow through the state.
    """
    outputs, state = self._run_layers(x_KBTP, state, None, train=train)
    top_KBTP = outputs[-1]
    return self.dropout(top_KBTP) if train else top_KBTP, state

  def logits(self, hidden_KBTP: Array) -> Array:
    """Returns float32 logits [K, B, T, V padded]; towers share the softmax."""
    if not self.vocab_size:
      raise ValueError(
        'this model has no softmax (vocab_size is 0), like all published'
        ' weights: set vocab_size and train one'
      )
    return self.softmax(hidden_KBTP)

  def _run_layers(
    self,
    x_KBTP: Array,
    state: State | None,
    mask_BT: Array | None,
    *,
    train: bool,
  ) -> tuple[list[Array], State]:
    """Returns each layer's output [K, B, T, P] and the next state."""
    K, B, _, P = x_KBTP.shape
    if (K, P) != (NUM_TOWERS, self.projection_dim):
      raise ValueError(
        f'streams are {x_KBTP.shape}, expected {NUM_TOWERS} of them, of vectors'
        f' of {self.projection_dim}'
      )
    empty = empty_state(self, B)
    state = empty if state is None else state
    _check_state(state, empty)
    mask_TB = None if mask_BT is None else mask_BT.T
    x_TKBP = x_KBTP.astype(self.dtype).transpose(2, 0, 1, 3)
    outputs, cells, hiddens = [], [], []
    for i, layer in enumerate(self.layers):
      x_TKBP = _constrain(x_TKBP)
      if train:
        x_TKBP = self.dropout(x_TKBP)
      y_TKBP, cell_KBF, hidden_KBP = layer(
        x_TKBP, state.cell[i], state.hidden[i], mask_TB
      )
      # The skip adds the layer's input after dropout (bilm-tf, training.py).
      skip = self.use_skip_connections and i > 0
      x_TKBP = _constrain(y_TKBP + x_TKBP if skip else y_TKBP)
      outputs.append(x_TKBP.transpose(1, 2, 0, 3))
      cells.append(cell_KBF)
      hiddens.append(hidden_KBP)
    return outputs, State(jnp.stack(cells), jnp.stack(hiddens))


def empty_state(model: Elmo, batch: int) -> State:
  """Returns the state at the start of `batch` texts: zeros."""
  shape = (model.num_layers, NUM_TOWERS, batch)
  return State(
    jnp.zeros((*shape, model.lstm_dim)),
    jnp.zeros((*shape, model.projection_dim)),
  )


def _check_state(state: State, empty: State) -> None:
  """Checks that a state has the shapes of the empty one."""
  found, expected = (
    {name: array.shape for name, array in each._asdict().items()}
    for each in (state, empty)
  )
  if found != expected:
    raise ValueError(f'the state is {found}, expected {expected}')


def _constrain(x_TKBP: Array) -> Array:
  return nn.with_logical_constraint(
    x_TKBP, ('activation_length', None, 'batch', 'activation_embed')
  )
