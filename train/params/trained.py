"""Loads the weights of workdirs and of publishers, ready for use."""

import argparse
from typing import Any

from etils import epath
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from configs import base
from data.vocabulary import characters
from models import elmo
from models.pretrained import gpt, strict
from models.pretrained.weights import Weights, abstract_params
from train.architectures import families
from train.engine import sharding
from train.params import opened

Trained = Weights
LEFT_TO_RIGHT = families.names_for('generate')
SCORING = families.names_for('score')
TRANSFORMERS = families.names_for('embed')
MASKED = families.names_for('fill_masks')
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


def load(
  weights: epath.PathLike | Weights,
  *,
  expected: tuple[str, ...],
  tokenizer: epath.PathLike | None = None,
  mesh: Mesh | None = None,
) -> Weights:
  """Loads the newest checkpoint of a workdir, or published weights.

  Args:
    weights: see `opened.open_weights`; or weights that are open already.
    expected: the families that will do.
    tokenizer: see `opened.open_weights`.
    mesh: over which the parameters are split as `mesh.rules` of
      configs/base.py say, read straight into their parts; by default they lie
      on the first device.

  Returns:
    The weights with their `params`, which include the heads of fine-tuning.

  Raises:
    FileNotFoundError: if there are no such weights.
    ValueError: if they are of another family, or damaged, or not finite, or
      have no vocabulary.
  """
  found = _open(weights, tokenizer)
  if found.name not in expected:
    raise ValueError(
      f'{found.folder} holds a {found.name}, expected {" or ".join(expected)}'
    )
  found.check()
  if gpt.NO_SOFTMAX in found.notes and set(expected) <= set(SCORING):
    raise ValueError(f'{found.folder}: {found.notes[gpt.NO_SOFTMAX]}')
  places = None if mesh is None else _on_mesh(found, mesh)
  return found._replace(params=found.load(places))


def load_elmo(
  weights: epath.PathLike | Weights,
) -> tuple[elmo.Elmo, Any, str | None]:
  """Loads an ELMo without its softmax, to embed sentences.

  Args:
    weights: see `opened.open_weights`; or weights that are open already.

  Returns:
    The model; its parameters, unboxed; and how the words of its training were
    split, see `data.vocabulary.words`, None if no file tells.

  Raises:
    FileNotFoundError: if there are no such weights.
    ValueError: if they are of another family, or damaged, or not finite, or do
      not read characters.
  """
  found = _open(weights)
  if not found.reads_words:
    raise ValueError(
      f'{found.folder} holds a {found.name}, expected the workdir of an elmo or'
      ' released weights of one'
    )
  found.check()
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
  places = {
    path: place
    for path, place in found.on_one_device().items()
    if not path.startswith('softmax/')
  }
  split = None if found.tokenizer is None else found.tokenizer.split
  return model.clone(vocab_size=0), found.load(places), split


def _open(
  weights: epath.PathLike | Weights, tokenizer: epath.PathLike | None = None
) -> Weights:
  if isinstance(weights, Weights):
    return weights
  return opened.open_weights(weights, tokenizer)


def _on_mesh(found: Weights, mesh: Mesh) -> dict[str, Sharding]:
  """Returns 'path/of/parameter' -> its place; heads lie on every device."""
  replicated = NamedSharding(mesh, PartitionSpec())
  places = sharding.parameter_shardings(
    abstract_params(found.model), mesh, base.get_config().mesh.rules
  )
  return dict.fromkeys(found.shapes, replicated) | strict.flatten(places)
