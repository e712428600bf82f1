"""Loads a workdir or published weights, to use them: model and tokenizer."""

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

from etils import epath
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from configs import base
from data.vocabulary import characters
from models import elmo
from models.pretrained import gpt, strict
from train.engine import sharding
from train.params import opened

LEFT_TO_RIGHT = ('gpt', 'gpt2')  # those that write, too
SCORING = (*LEFT_TO_RIGHT, 'lstm')  # give each token a probability
TRANSFORMERS = ('bert', *LEFT_TO_RIGHT)
HELP = (
  'workdir of a GPT or GPT-2, a folder of published weights and vocabulary, or'
  " a name on Hugging Face's hub such as openai-community/gpt2"
)
ELMO_HELP = (
  'workdir of an ELMo, or a folder of released weights (one *options.json, one'
  ' *weights.hdf5)'
)
EMBED_HELP = (
  'workdir of a model, a folder of published weights and vocabulary, or a name'
  " on Hugging Face's hub such as google-bert/bert-base-uncased"
)


def add_weights(parser: argparse.ArgumentParser, help_text: str) -> None:
  """Adds the arguments `weights` and `tokenizer` to a command."""
  parser.add_argument('weights', metavar='WEIGHTS', help=help_text)
  parser.add_argument(
    '--tokenizer',
    metavar='PATH',
    help='the vocabulary that the weights were trained with, where it does not'
    ' lie beside them; a name on the hub will do',
  )


class Trained(NamedTuple):
  """A trained model, ready for use.

  Attributes:
    name: 'bert', 'gpt', 'gpt2' or 'lstm'.
    model: the module; of a BERT with the heads that are there.
    params: its parameters, unboxed; beside them the heads of fine-tuning that
      published weights have, see `opened.HEADS`.
    tokenizer: of its vocabulary.
  """

  name: str
  model: nn.Module
  params: Any
  tokenizer: Any

  def encode(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns each text's ids; '<|endoftext|>' in it is GPT-2's symbol."""
    if hasattr(self.tokenizer, 'end_of_text_id'):
      return self.tokenizer.encode_batch(texts, special=True)
    return self.tokenizer.encode_batch(texts)


def load(
  weights: epath.PathLike | opened.Opened,
  *,
  expected: tuple[str, ...],
  tokenizer: epath.PathLike | None = None,
  mesh: Mesh | None = None,
) -> Trained:
  """Loads the newest checkpoint of a workdir, or published weights.

  Args:
    weights: a workdir; a folder of published weights and their vocabulary, of
      any kind that `models.pretrained.published` knows; a name on Hugging
      Face's hub; or what is opened already.
    expected: the models that will do.
    tokenizer: see `opened.open_weights`.
    mesh: over which the parameters are split as `mesh.rules` of
      configs/base.py say, read straight into their parts; by default they lie
      on the first device.

  Raises:
    FileNotFoundError: if there is none.
    ValueError: if it is of another model, or damaged, or not finite, or has no
      vocabulary.
  """
  found = _opened(weights, tokenizer)
  if found.name not in expected:
    raise ValueError(
      f'{found.folder} holds a {found.name}, expected {" or ".join(expected)}'
    )
  found.check()
  if gpt.NO_SOFTMAX in found.notes and set(expected) <= set(SCORING):
    raise ValueError(f'{found.folder}: {found.notes[gpt.NO_SOFTMAX]}')
  places = found.on_one_device() if mesh is None else _on_mesh(found, mesh)
  params = found.load(places)
  return Trained(found.name, found.model, params, found.tokenizer)


def load_elmo(
  weights: epath.PathLike | opened.Opened,
) -> tuple[elmo.Elmo, Any, str | None]:
  """Loads an ELMo to embed sentences with: all of it but its softmax.

  Args:
    weights: a workdir; or a folder with the options.json and the HDF5 weights
      of the released program; or what is opened already.

  Returns:
    The model; its parameters, unboxed; and how the words that it was trained on
    were split, see `data.vocabulary.words`, None where nobody told.

  Raises:
    FileNotFoundError: if there is none.
    ValueError: if it is of another model, or damaged, or not finite, or does
      not read characters.
  """
  found = _opened(weights)
  if found.name != 'elmo':
    raise ValueError(
      f'{found.folder} holds a {found.name}, expected the workdir of an elmo or'
      ' released weights of one'
    )
  found.check()
  _check_characters(found)
  places = {
    path: place
    for path, place in found.on_one_device().items()
    if not path.startswith('softmax/')
  }
  split = None if found.tokenizer is None else found.tokenizer.split
  return found.model.clone(vocab_size=0), found.load(places), split


def _opened(
  weights: epath.PathLike | opened.Opened,
  tokenizer: epath.PathLike | None = None,
) -> opened.Opened:
  if isinstance(weights, opened.Opened):
    return weights
  return opened.open_weights(weights, tokenizer)


def _on_mesh(found: opened.Opened, mesh: Mesh) -> dict[str, Sharding]:
  """Returns 'path/of/parameter' -> its place; heads lie on every device."""
  replicated = NamedSharding(mesh, PartitionSpec())
  places = sharding.parameter_shardings(
    opened.abstract_params(found.model), mesh, base.get_config().mesh.rules
  )
  return dict.fromkeys(found.shapes, replicated) | strict.flatten(places)


def _check_characters(found: opened.Opened) -> None:
  """Refuses a model that does not read words as we spell them.

  Raises:
    ValueError: if so.
  """
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
