"""Loads the weights of workdirs and of publishers, ready for use."""

from typing import Any

from etils import epath

from data.vocabulary import characters
from models import elmo
from models.pretrained.weights import NO_SOFTMAX, Weights
from train.architectures import families
from train.params import opened

LEFT_TO_RIGHT = families.names_for('generate')
SCORING = families.names_for('score')
TRANSFORMERS = families.names_for('embed')


def load(
  weights: epath.PathLike | Weights,
  *,
  expected: tuple[str, ...],
  tokenizer: epath.PathLike | None = None,
) -> Weights:
  """Loads weights of one of the `expected` families, onto the first device.

  For the arguments see `opened.open_weights`; a workdir gives its newest
  checkpoint. The `params` include the heads of fine-tuning. Raises ValueError
  if the weights are of another family, damaged, not finite or without
  vocabulary.
  """
  found = opened.open_weights(weights, tokenizer)
  if found.name not in expected:
    raise ValueError(
      f'{found.folder} holds a {found.name}, expected {" or ".join(expected)}'
    )
  found.check_complete()
  if NO_SOFTMAX in found.notes and set(expected) <= set(SCORING):
    raise ValueError(f'{found.folder}: {found.notes[NO_SOFTMAX]}')
  return found._replace(params=found.load())


def load_elmo(
  weights: epath.PathLike | Weights,
) -> tuple[elmo.Elmo, Any, str | None]:
  """Loads an ELMo that reads characters, without its softmax.

  Returns the model, its unboxed parameters, and the word splitting of its
  training (see `data.vocabulary.words`; None if no file tells).
  """
  found = opened.open_weights(weights)
  if not found.reads_words:
    raise ValueError(
      f'{found.folder} holds a {found.name}, expected the workdir of an elmo or'
      ' released weights of one'
    )
  found.check_complete()
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
