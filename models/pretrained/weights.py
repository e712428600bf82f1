"""Opened weights: names and sizes are known, and no array is read yet."""

import functools
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from etils import epath
from flax import linen as nn
from jax.sharding import Sharding, SingleDeviceSharding

from models.pretrained import strict
from models.pretrained.strict import Entry, Piece

# (path of a parameter, the array on its devices) -> the leaf of the result.
Keep = Callable[[str, jax.Array], Any]
# Key of `Weights.notes`: the files hold no softmax of a language model.
NO_SOFTMAX = 'softmax'
# Paths of parameters with a row for each piece of the vocabulary.
VOCABULARY = ('embeddings/tokens/embedding', 'mlm/table/embedding', 'mlm/bias')
# Of a folder of sentence-transformers, beside Hugging Face's files.
MODULES_FILE = 'modules.json'
# The option that names a vocabulary kept apart from its weights.
TOKENIZER_OPTION = '--tokenizer PATH'


class SentenceForm(NamedTuple):
  """The vector of a sentence, as the weights were trained to make it.

  Attributes:
    pool: 'cls' or 'mean'.
    normalize: whether vectors have length 1.
    prompt: set before each text.
    lower_case: texts are lower-cased before the tokenizer sees them.
    max_length: tokens after which sentence-transformers cuts a text; None for
      the positions of the model. Vectors here are of whole texts.
  """

  pool: str
  normalize: bool = False
  prompt: str = ''
  lower_case: bool = False
  max_length: int | None = None

  def read(self, text: str) -> str:
    """Returns a text as the tokenizer is given it."""
    text = self.prompt + text
    return text.lower() if self.lower_case else text


class Weights(NamedTuple):
  """Weights of a workdir, or as published.

  Attributes:
    kind: 'workdir', 'Hugging Face', 'TensorFlow', 'OpenAI' or 'ELMo'.
    name: the family, such as 'bert'; an unknown family's published name.
    model: the module; None if the files do not describe one.
    shapes: 'path/of/parameter' -> ShapeDtypeStruct, heads included.
    heads: heads of fine-tuning, each with a kernel [D, K] and a bias [K].
    labels: number of a class, as a string -> its name, if known.
    set_aside: known but unused arrays, such as an optimiser's.
    notes: facts that the files leave open, and how they are read here.
    problems: reasons why the weights cannot be used, a line each.
    sentence_form: how the vectors of sentences were trained, if it is known.
    reads_words: whether the model reads whole words, so needs no vocabulary.
    pieces: of published weights: how their arrays make up the parameters.
    entries: of published weights: name -> array, not read yet.
    read: reads parameters as `load` does; None: from `entries`.
    tokenizer: None without a vocabulary.
    vocabulary: the vocabulary's path, to pass to other commands.
    params: the parameters, unboxed, once they are loaded.
  """

  folder: epath.Path
  kind: str
  name: str
  model: nn.Module | None = None
  shapes: Mapping[str, jax.ShapeDtypeStruct] = {}
  heads: tuple[str, ...] = ()
  labels: Mapping[str, str] = {}
  set_aside: tuple[str, ...] = ()
  notes: Mapping[str, Any] = {}
  problems: tuple[str, ...] = ()
  sentence_form: SentenceForm | None = None
  reads_words: bool = False
  pieces: Sequence[Piece] = ()
  entries: Mapping[str, Entry] = {}
  read: Callable[[Mapping[str, Sharding], Keep], dict] | None = None
  tokenizer: Any = None
  vocabulary: str = ''
  params: Any = None

  def check_complete(self, option: str = TOKENIZER_OPTION) -> None:
    """Checks that there are no problems, and a vocabulary if one is needed."""
    self.check_problems()
    if self.tokenizer is None and not self.reads_words:
      raise ValueError(
        f'{self.folder} holds no vocabulary, only weights: name the vocabulary'
        f' of their training by {option}, or make a workdir of both by python'
        f' -m train.weights import {shlex.quote(str(self.folder))} WORKDIR'
        f' {TOKENIZER_OPTION}'
      )

  def check_problems(self) -> None:
    """Checks that there are no problems, else raises ValueError listing all."""
    if self.problems:
      raise ValueError(
        f'{self.folder}: these weights cannot be used:\n  '
        + '\n  '.join(self.problems)
      )

  def load(
    self,
    shardings: Mapping[str, Sharding] | None = None,
    keep: Keep = lambda path, leaf: leaf,
  ) -> dict:
    """Returns the tree of parameters, float32, unboxed, heads included.

    Only the paths of `shardings` are read, by default all as `on_one_device`;
    `keep` makes each leaf. Raises ValueError for problems and damage.
    """
    self.check_problems()
    read = self.read or self._read_entries
    return read(self.on_one_device() if shardings is None else shardings, keep)

  def on_one_device(self) -> dict[str, Sharding]:
    """Returns 'path/of/parameter' -> the first device of this process."""
    place = SingleDeviceSharding(jax.local_devices()[0])
    return dict.fromkeys(self.shapes, place)

  def of_model(
    self,
    model: nn.Module | None,
    entries: Mapping[str, Entry],
    pieces_of: Callable[[Mapping[str, Any]], Iterable[Piece]],
    problems: Iterable[str],
    head_shapes: Mapping[str, jax.ShapeDtypeStruct] | None = None,
  ) -> 'Weights':
    """Returns published weights with their model, and the misfits of arrays.

    `pieces_of` tells how entries of plain names make up parameters of given
    shapes; `head_shapes` are of heads beside the model's.
    """
    if model is None:
      return self._replace(problems=tuple(problems))
    shapes = shapes_of(model) | dict(head_shapes or {})
    pieces = list(pieces_of(shapes))
    return self._replace(
      model=model,
      entries=entries,
      pieces=pieces,
      shapes=shapes,
      problems=(*problems, *strict.misfits(entries, pieces)),
    )

  def encode(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns each text's ids; '<|endoftext|>' in it is GPT-2's symbol."""
    if hasattr(self.tokenizer, 'end_of_text_id'):
      return self.tokenizer.encode_batch(texts, special=True)
    return self.tokenizer.encode_batch(texts)

  def _read_entries(
    self, shardings: Mapping[str, Sharding], keep: Keep
  ) -> dict:
    def place(path: str, array: Any) -> Any:
      # Each process makes the shards that its devices hold.
      leaf = jax.make_array_from_callback(
        array.shape, shardings[path], array.__getitem__
      )
      return keep(path, leaf)

    shapes = {path: self.shapes[path] for path in shardings}
    try:
      return strict.gather(self.entries, self.pieces, shapes, place)
    except ValueError as error:
      raise ValueError(f'{self.folder}: {error}') from error


@functools.lru_cache(maxsize=16)
def abstract_params(model: nn.Module) -> Any:
  """Returns a model's parameters as boxed ShapeDtypeStructs, traced once.

  A model that is not called with tokens, their mask and their positions says by
  `example_inputs` how it is.
  """
  ids = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  mask = jax.ShapeDtypeStruct((1, 1), bool)
  inputs, modes = (ids, mask, ids), {'train': False}
  if hasattr(model, 'example_inputs'):
    inputs, modes = model.example_inputs()
  return jax.eval_shape(
    lambda *inputs: model.init(*inputs, **modes)['params'],
    jax.random.key(0),
    *inputs,
  )


def shapes_of(model: nn.Module) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns 'path/of/parameter' -> shape of all parameters of a model."""
  # Unboxed as shapes: with a mesh, flax would place arrays on devices.
  return strict.flatten(jax.eval_shape(nn.unbox, abstract_params(model)))
