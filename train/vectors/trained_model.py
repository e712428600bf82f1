"""A trained model, opened from any weights, and its vectors of texts.

Shapes: T token or word, K chosen layer, L layer with the embeddings, D the
vectors' width, 2 P of an ELMo.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import linen as nn

from data.vocabulary import characters
from models import features
from models.layers import Params
from models.pretrained.weights import NO_SOFTMAX, Weights
from train.architectures import families
from train.params import opened
from train.vectors import (
  elmo_vectors,
  length_batches,
  text_counts,
  text_vectors,
)
from train.vectors.request import PIECE, Choice, Request
from train.vectors.text_plan import TextPlan
from train.vectors.vector_files import VectorFile

ALL_LAYERS = Choice('all')
# Uses that read the softmax of a language model.
PREDICTIONS = ('score', 'generate')


class TrainedModel:
  """A model of a workdir, a folder of published weights or the hub.

  Names, sizes and the vocabulary are read at once, the parameters when `params`
  is first asked for.

  Attributes:
    weights: the opened weights, see `opened.open_weights`.
    name: the family, such as 'bert'.
    family: the family's row in the table of architectures.
    folder: where the weights are.
    tokenizer: the vocabulary; None for an ELMo as published.
    model: the module; for vectors of an ELMo, without its softmax.
  """

  def __init__(
    self,
    weights: epath.PathLike | Weights,
    tokenizer: epath.PathLike | None = None,
    *,
    use: str | None = 'embed',
    dtype: str | None = None,
  ):
    """Opens weights and checks that they serve a use.

    Args:
      weights: see `opened.open_weights`; a workdir gives its newest checkpoint.
      tokenizer: see `opened.open_weights`.
      use: 'embed', or another use in `families.FAMILIES`; None if the caller
        has a rule of its own.
      dtype: of the module's products; None for the one of its config.

    Raises:
      FileNotFoundError: if the weights are missing.
      ValueError: if they are damaged, of a family without this use, or without
        a vocabulary.
    """
    found = opened.open_weights(weights, tokenizer)
    self._with_softmax = not (use == 'embed' and found.reads_words)
    if use is not None and self._with_softmax:
      expected = families.names_for(use)
      if found.name not in expected:
        raise ValueError(
          f'{found.folder} holds a {found.name}, expected'
          f' {" or ".join(expected)}'
        )
    found.check_complete()
    if use in PREDICTIONS and NO_SOFTMAX in found.notes:
      raise ValueError(f'{found.folder}: {found.notes[NO_SOFTMAX]}')
    model = found.model
    if not self._with_softmax:
      _check_reads_characters(found)
      model = model.clone(vocab_size=0)
    if dtype is not None:
      model = model.clone(dtype=jnp.dtype(dtype))
    self.weights = found._replace(model=model)
    self.name, self.folder = found.name, found.folder
    self.family = families.ARCHITECTURES[found.name]
    self.tokenizer, self.model = found.tokenizer, model

  @functools.cached_property
  def params(self) -> Params:
    """The parameters, float32 and unboxed, on this process's first device.

    They include the heads of fine-tuning. Raises ValueError for damage, and for
    parameters that are not all finite.
    """
    if self.weights.params is not None:
      return self.weights.params
    return self.weights.load(
      {
        path: place
        for path, place in self.weights.on_one_device().items()
        if self._with_softmax or not path.startswith('softmax/')
      }
    )

  def forget(self) -> None:
    """Frees the parameters; they are read again when they are asked for."""
    self.__dict__.pop('params', None)

  def to_host(self) -> None:
    """Moves the parameters to the host's memory, until vectors are computed."""
    self.params = jax.tree.map(np.array, self.params)

  def encode(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns each text's ids, see `Weights.encode`."""
    return self.weights.encode(texts)

  def inputs(self, texts: Sequence[str]) -> tuple[jax.Array, ...]:
    """Returns the inputs of the module for a batch of B texts, one a row.

    A row is a text within its family's symbols, such as [CLS] and [SEP]. T is
    the length of the longest row.

    Args:
      texts: B texts. For an ELMo they are split into words and punctuation.

    Returns:
      Of a BERT tokens int32 [B, T], mask bool [B, T] (False at padding), token
      types int32 [B, T] (all 0) and positions int32 [B, T]. Of a GPT the same
      without types. Of an ELMo the characters of words int32 [B, T, 50] and the
      lengths of rows int32 [B].

    A prompt that stands in a folder of sentence-transformers is not added.

    Raises:
      ValueError: if a text has more tokens than the model has positions, or
        none, or there is no text.
    """
    if isinstance(texts, str) or not texts:
      raise ValueError(f'texts is {texts!r}, expected a list of texts')
    if self.reads_words:
      return _character_inputs(texts)
    begin, end = self.family.frame(self.tokenizer)
    rows = [[*begin, *ids, *end] for ids in self.encode(texts)]
    most = self.model.max_length
    for i, row in enumerate(rows):
      if not 0 < len(row) <= most:
        raise ValueError(
          f'text {i} (from 0) has {len(row):,} tokens with those around it,'
          f' expected 1 to {most:,}, the positions of the model; `vectors`'
          ' reads longer texts in parts'
        )
    length = max(map(len, rows))
    tokens_BT, lengths_B = length_batches.pad(rows, len(rows), length)
    places_BT = np.broadcast_to(
      np.arange(length, dtype=np.int32), tokens_BT.shape
    )
    mask_BT = places_BT < lengths_B[:, None]
    arrays = map(jnp.asarray, (tokens_BT, mask_BT, places_BT))
    return self.family.text_inputs(*arrays)

  @property
  def reads_words(self) -> bool:
    """Whether the model reads whole words by their characters, as an ELMo."""
    return self.family.reads_words

  @property
  def num_layers(self) -> int:
    """L, with the layer of the embeddings."""
    return self.model.num_layers + 1

  @property
  def dim(self) -> int:
    """D, the width of a layer."""
    if self.reads_words:
      return 2 * self.model.projection_dim
    return self.model.embed_dim

  def prepared(self) -> tuple[nn.Module, Params]:
    """Returns the module without heads, and its parameters on the device.

    The matrices of a model of tokens are cast to the module's dtype.
    """
    params = jax.device_put(self.params)
    if self.reads_words:
      return self.model, params
    model = self.model
    if getattr(model, 'heads', ()):
      model = model.clone(heads=())
    return model, features.cast_weights(params, model.dtype)

  def plan(self, request: Request) -> TextPlan:
    """Checks a request and returns how texts are read; reads no parameter."""
    return TextPlan(self.weights, request)

  def numbered_vectors(
    self,
    texts: Iterable[str | Sequence[str]],
    request: Request,
    *,
    batch_tokens: int | None = None,
  ) -> Iterator[tuple[int, VectorFile]]:
    """Yields (number, vectors) of texts as they come out of the batches.

    The model is one of tokens; see `text_vectors.embed_numbered`.
    """
    return text_vectors.embed_numbered(
      self.plan(request), *self.prepared(), texts, batch_tokens=batch_tokens
    )

  def vectors(
    self,
    texts: Iterable[str | Sequence[str]],
    request: Request,
    *,
    batch_tokens: int | None = None,
  ) -> Iterator[VectorFile]:
    """Yields the vectors of texts in their order; else `numbered_vectors`."""
    return length_batches.in_order(
      self.numbered_vectors(texts, request, batch_tokens=batch_tokens)
    )

  def words(
    self,
    sentences: Sequence[Sequence[str]],
    *,
    choice: Choice = ALL_LAYERS,
    pool: str | None = None,
  ) -> Iterator[tuple[int, VectorFile]]:
    """Yields (number of a sentence, vectors of its words [K, T, D]).

    They come in any order. Sentences are lists of words. `pool` is of a model
    of tokens, see `Request`: by default a BERT gives a word's first piece, a
    GPT its last one.
    """
    if self.reads_words:
      return elmo_vectors.embed_numbered(
        self.model, self.params, sentences, choice=choice
      )
    request = Request('word', pool, choice, split=list)
    return self.numbered_vectors(sentences, request)

  def pieces(
    self, sentences: Sequence[Sequence[str]]
  ) -> Iterator[tuple[int, VectorFile]]:
    """Yields (number of a sentence, vectors of its pieces [L, T, D]).

    They come in any order. Sentences are lists of words. Layer 0 is each
    piece's own vector, see `features.token_vectors`: it knows nothing of the
    piece's place, as an ELMo's. To an ELMo words are the pieces.
    """
    if self.reads_words:
      yield from self.words(sentences)
      return
    own_VD = np.asarray(features.token_vectors(self.model, self.params))
    ids = [sum(words, []) for words in self.tokenizer.encode_words(sentences)]
    request = Request(PIECE, choice=ALL_LAYERS, split=list)
    for number, found in self.numbered_vectors(sentences, request):
      found.array[0] = own_VD[ids[number]]
      yield number, found

  def count_pieces(self, sentences: Sequence[Sequence[str]]) -> list[list[int]]:
    """Returns how many pieces each word of sentences has."""
    if self.reads_words:
      return [[1] * len(words) for words in sentences]
    encoded = self.tokenizer.encode_words(sentences)
    return [[len(ids) for ids in words] for words in encoded]

  def means(
    self, texts: Sequence[str], choice: Choice
  ) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (number of a text, its mean vectors [K, D]), in any order.

    The mean is over a text's tokens and the symbols around them, see
    `TextPlan.weights`; or over the words of an ELMo, marks split off.
    """
    if self.reads_words:
      split = text_counts.splitter(running=True)
      for number, found in self.words(list(map(split, texts)), choice=choice):
        yield number, found.array.mean(axis=1)
      return
    request = Request('sentence', pool='mean', choice=choice)
    for number, found in self.numbered_vectors(texts, request):
      yield number, found.array


def check_dtype(dtype: str) -> None:
  """Refuses an option --dtype that costs time on this machine's CPU."""
  if dtype != 'float32' and jax.default_backend() == 'cpu':
    raise ValueError(
      f'--dtype={dtype}: on a CPU XLA converts every product to float32 and'
      ' back, which takes longer and rounds more; expected float32 there'
    )


def _character_inputs(texts: Sequence[str]) -> tuple[jax.Array, jax.Array]:
  """Returns `TrainedModel.inputs` of an ELMo."""
  split = text_counts.splitter(running=True)
  begin, end = characters.SENTENCE_BEGIN, characters.SENTENCE_END
  rows = [[begin, *split(text), end] for text in texts]
  lengths = [len(row) for row in rows]
  padded = [row + [''] * (max(lengths) - len(row)) for row in rows]
  words = list(itertools.chain.from_iterable(padded))
  ids, _ = characters.encode_words(words)
  ids_BTC = jnp.asarray(ids.reshape(len(rows), max(lengths), -1), jnp.int32)
  return ids_BTC, jnp.asarray(lengths, jnp.int32)


def _check_reads_characters(found: Weights) -> None:
  """Refuses an ELMo with a table of words, or of other lengths of words."""
  model = found.model
  if model.num_words:
    raise ValueError(
      f'{found.folder}: the model has a table of {model.num_words:,} words in'
      ' place of a character encoder, and nothing here tells which words they'
      ' are'
    )
  if model.max_characters != characters.MAX_CHARACTERS:
    raise ValueError(
      f'{found.folder}: the model reads {model.max_characters} characters of a'
      f' word, expected {characters.MAX_CHARACTERS}'
    )


def in_turn(models: Iterable[TrainedModel]) -> Iterator[TrainedModel]:
  """Yields models, and frees the parameters of each one after its use.

  So models that are all opened and checked take the memory of one.
  """
  for model in models:
    yield model
    model.forget()
