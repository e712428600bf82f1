"""ELMo: a bidirectional LSTM language model on characters (Peters et al. 2018).

Shapes: B batch, T position, C characters of a word, K the two towers
(0 forward, 1 backward), F cells, P projection, L layers, V vocabulary, padded
to a multiple of 128.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import char_cnn, layers, lstm, sampled_softmax

Array = jax.Array
Dtype = jax.typing.DTypeLike

NUM_TOWERS = 2


class State(NamedTuple):
  """What the towers remember between one piece of text and the next.

  Attributes:
    cell: float32 [L, K, B, F].
    hidden: float32 [L, K, B, P], without the skip connection.
  """

  cell: Array
  hidden: Array


class Elmo(nn.Module):
  """The biLM: words to vectors, an LSTM stack a direction, and the softmax.

  Two ways in: `__call__` or `embed` for sentences, both towers on the same
  text; `read_on` for training, where each tower reads a text of its own.

  Attributes:
    vocab_size: V, rows of the softmax, unpadded; 0: none, as in published
      weights.
    lstm_dim: F.
    projection_dim: P, below F and below the sum of all filters: beyond, the
      released program leaves projections out.
    num_layers: L.
    filters: (width, count) of each group of filters on characters.
    num_highway: highway layers after the filters.
    char_embed_dim: E.
    max_characters: C, characters of a word.
    num_words: rows of a table of word vectors instead of the character
      encoder; 0: characters. The fields about characters mean nothing then.
    use_skip_connections: add a layer's input to its output, from the second
      layer on.
    cell_clip: largest absolute value in an LSTM's cell; None: any.
    projection_clip: largest one that a projection returns; None: any.
    dropout_rate: of every layer's input and the last one's output, in training.
    num_samples: S, words that the loss is drawn from in training, for each
      tower; 0: all words.
    dtype: of activations; parameters, states and logits are float32 always.
  """

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

  def setup(self):
    """Names the parts; refuses sizes that do not fit each other."""
    self.check_sizes()
    if self.num_words:
      self.encoder = layers.TokenTable(
        self.num_words,
        self.projection_dim,
        # TensorFlow's default, as bilm-tf's training.py leaves it.
        table_init=lstm.glorot_uniform(self.num_words, self.projection_dim),
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
    self.dropout = layers.Dropout(self.dropout_rate)
    if self.vocab_size:
      self.softmax = sampled_softmax.Softmax(
        self.vocab_size, self.projection_dim, self.dtype
      )

  def check_sizes(self) -> None:
    """Raises a ValueError if the sizes do not fit each other."""
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
        f'projection_dim is {P}, expected less than there are filters ({count})'
      )

  def __call__(
    self,
    ids: Array,
    lengths: Array,
    state: State | None = None,
    *,
    words: Array | None = None,
  ) -> tuple[Array, State]:
    """Embeds sentences: `encode`, then `embed`.

    Args:
      ids: int [B, T, C] of characters, or [B, T] of words.
      lengths: int [B], words of each sentence, at most T.
      state: as in `embed`.
      words: int [B, T], 0 to 2^30, equal where the characters are: then each
        distinct word is encoded once.

    Returns:
      As `embed`.
    """
    if self.is_initializing() and self.vocab_size:
      self.softmax.create()
    if words is None or self.num_words:
      x_BTP = self.encode(ids)
    else:
      x_BTP = self._encode_once(ids[None], words[None])[0]
    return self.embed(x_BTP, lengths, state)

  def encode(self, ids: Array) -> Array:
    """Returns the vectors of words, [..., P] in `dtype`.

    Args:
      ids: int [..., C] of characters, see `char_cnn`, or [...] of
        words where the model has a table of them.

    Raises:
      ValueError: if there are other than C characters.
    """
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
    """Returns every layer's vectors of words in their sentences.

    The forward tower reads a sentence from its first word, the backward tower
    from its own last one, each from where `state` left it. What stands beyond
    a sentence's end is not looked at, and zero in the result.

    Args:
      x_BTP: float [B, T, P], what `encode` returns for each word, maybe from a
        cache.
      lengths: int [B], words of each sentence, at most T; of 0 the state stays.
      state: what the towers remember of each row's text; None: nothing, so
        that vectors do not depend on what was read before.

    Returns:
      [L + 1, B, T, 2 P] in `dtype`: the words' own vectors twice, then each
      layer's, forward then backward; and the state after the sentences.

    Raises:
      ValueError: if the shapes do not fit each other.
    """
    B, T = x_BTP.shape[:2]
    if lengths.shape != (B,):
      raise ValueError(
        f'lengths are {lengths.shape}, expected one of each sentence ({B},)'
      )
    mask_BT = jnp.arange(T) < lengths[:, None]
    x_BTP = jnp.where(mask_BT[:, :, None], x_BTP, 0).astype(self.dtype)
    # Its own inverse.
    reversed_BT = jnp.where(
      mask_BT, lengths[:, None] - 1 - jnp.arange(T), jnp.arange(T)
    )

    def turn_around(x_BTP: Array) -> Array:
      return jnp.take_along_axis(x_BTP, reversed_BT[:, :, None], axis=1)

    x_KBTP = jnp.stack([x_BTP, turn_around(x_BTP)])
    outputs, state = self._run_layers(x_KBTP, state, mask_BT, train=False)
    pairs = [(x_BTP, x_BTP)]
    pairs += [(forward, turn_around(back)) for forward, back in outputs]
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
    """Reads on in the two texts of each row, and predicts every next word.

    Args:
      words_KBT: int, the words of the forward text, and those of the other in
        the order in which the backward tower reads them.
      characters_KBTC: int, their characters; None where words are looked up.
      targets_KBT: int, the word that follows each, below V.
      cell: float32 [B, L, K, F], see `State`, but the rows first; no gradient
        flows into what was read before.
      hidden: float32 [B, L, K, P].
      train: apply dropout, which needs a key for the stream 'dropout', and
        sample the softmax, which needs one for 'samples'.

    Returns:
      'losses' float32 [K, B, T] in nats, and the next 'cell' and 'hidden'.

    Raises:
      ValueError: if the shapes do not fit each other.
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
    """Returns `encode(characters)`, each distinct word encoded once."""
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
    """Returns what predicts each stream's next words.

    Args:
      x_KBTP: float [2, B, T, P], what `encode` returns for the words of two
        texts a row: one for the forward tower, and one whose words the
        backward tower reads in this order. There is no padding.
      state: after the positions before; None: at the start.
      train: apply dropout, which needs a key for the stream 'dropout'.

    Returns:
      The last layer's output [2, B, T, P] in `dtype`, and the state after the
      last position, through which gradients flow unless the caller stops them.

    Raises:
      ValueError: if the shapes do not fit each other.
    """
    outputs, state = self._run_layers(x_KBTP, state, None, train=train)
    top_KBTP = outputs[-1]
    return self.dropout(top_KBTP) if train else top_KBTP, state

  def logits(self, hidden_KBTP: Array) -> Array:
    """Scores every word of the vocabulary.

    Args:
      hidden_KBTP: float [K, B, T, P], of `run_streams`; with any number of
        towers, which share this softmax.

    Returns:
      float32 [K, B, T, V padded]; padding has the lowest float32.

    Raises:
      ValueError: if the model has no softmax.
    """
    if not self.vocab_size:
      raise ValueError(
        'this model has no softmax (vocab_size is 0): published weights come'
        ' without, set vocab_size and train one'
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
    """Returns each layer's output [K, B, T, P], and the state at the end."""
    K, B, _, P = x_KBTP.shape
    if (K, P) != (NUM_TOWERS, self.projection_dim):
      raise ValueError(
        f'streams are {x_KBTP.shape}, expected {NUM_TOWERS} of them, of vectors'
        f' of {self.projection_dim}'
      )
    state = _check_state(self, state, B)
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
      # The skip adds what the layer saw, dropout included (bilm-tf's
      # training.py), and never at the first layer.
      skip = self.use_skip_connections and i > 0
      x_TKBP = _constrain(y_TKBP + x_TKBP if skip else y_TKBP)
      outputs.append(x_TKBP.transpose(1, 2, 0, 3))
      cells.append(cell_KBF)
      hiddens.append(hidden_KBP)
    return outputs, State(jnp.stack(cells), jnp.stack(hiddens))


def empty_state(model: Elmo, batch: int) -> State:
  """Returns the state of `batch` rows that have read nothing: zeros."""
  shape = (model.num_layers, NUM_TOWERS, batch)
  return State(
    jnp.zeros((*shape, model.lstm_dim)),
    jnp.zeros((*shape, model.projection_dim)),
  )


def _check_state(model: Elmo, state: State | None, batch: int) -> State:
  """Returns the state, an empty one for None; refuses one of other shapes."""
  empty = jax.eval_shape(lambda: empty_state(model, batch))
  if state is None:
    return empty_state(model, batch)
  found, expected = (
    {name: array.shape for name, array in each._asdict().items()}
    for each in (state, empty)
  )
  if found != expected:
    raise ValueError(
      f'the state is {found}, expected {expected} for {batch} rows'
    )
  return state


def _constrain(x_TKBP: Array) -> Array:
  """Pins how hidden states are sharded between layers."""
  return nn.with_logical_constraint(
    x_TKBP, ('activation_length', None, 'batch', 'activation_embed')
  )
