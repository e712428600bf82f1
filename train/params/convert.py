"""Weights looked at, and turned into other formats."""

import contextlib
import json
import uuid
from collections.abc import Iterator
from typing import Any

import ml_collections
from etils import epath

from configs import base
from data.vocabulary import tokenizer_export
from models import layers
from models.pretrained import elmo as pretrained_elmo
from models.pretrained import gpt as pretrained_gpt
from models.pretrained import hugging_face, strict
from train.host import console
from train.params import opened, warm_start
from train.params.opened import Opened
from train.run import checkpoint, settings

# Key of Hugging Face's config -> our name of the id.
SYMBOLS = {
  'pad_token_id': 'pad_id',
  'bos_token_id': 'end_of_text_id',
  'eos_token_id': 'end_of_text_id',
}


def inspect(
  weights: epath.PathLike, tokenizer: epath.PathLike | None = None
) -> dict[str, Any]:
  """Returns what weights are, for people and as JSON; no array is read.

  Args:
    weights: see `opened.open_weights`.
    tokenizer: likewise.

  Returns:
    folder, kind, architecture; sizes: the settings of `config.model`;
    parameters: how many, as published; vocabulary_size; tokenizer: in words,
    None where none is there; gelu; heads; set_aside: names that are not used;
    notes: what the files do not tell; overrides: arguments of `train.main` with
    which these weights fit; problems: why they cannot be used.
  """
  found = opened.open_weights(weights, tokenizer)
  report: dict[str, Any] = {
    'folder': str(found.folder),
    'kind': found.kind,
    'architecture': found.name,
    'tokenizer': found.tokenizer and found.tokenizer.description,
    'heads': [*getattr(found.model, 'heads', ()), *found.heads],
    'set_aside': list(found.set_aside),
    'notes': dict(found.notes),
    'problems': list(found.problems),
  }
  if found.model is None:
    return report
  sizes = warm_start.module_settings(found.name, found.model)
  shapes: dict = {}
  for path, leaf in found.shapes.items():
    strict.put(shapes, path.split('/'), leaf)
  return report | {
    'sizes': sizes,
    'parameters': layers.num_parameters(
      shapes, found.model.vocab_size or getattr(found.model, 'num_words', 0)
    ),
    'vocabulary_size': found.model.vocab_size,
    'gelu': getattr(found.model, 'gelu', None),
    'overrides': [
      warm_start.override(f'model.{key}', value) for key, value in sizes.items()
    ],
  }


def export(
  weights: epath.PathLike,
  folder: epath.PathLike,
  tokenizer: epath.PathLike | None = None,
) -> None:
  """Writes weights as others read them.

  Args:
    weights: see `opened.open_weights`.
    folder: a new one; config.json, model.safetensors and the files of the
      tokenizer, if there is one, or options.json, lm_weights.hdf5 and words.txt
      of an ELMo.
    tokenizer: see `opened.open_weights`.

  Raises:
    FileExistsError: if the folder holds anything.
    FileNotFoundError: if there are no such weights.
    ValueError: if they cannot be used.
  """
  _check_new(folder)
  found = opened.open_weights(weights, tokenizer)
  parts = {path.partition('/')[0] for path in found.shapes}
  added = sorted(parts.intersection(opened.HEADS + opened.BETWEEN))
  if found.name == 'elmo' and added:
    raise ValueError(
      f'{found.folder}: found {", ".join(added)} on an ELMo, which its released'
      ' format has no place for; export the weights that the run began with'
    )
  params = found.load(found.on_one_device())
  with _new_folder(folder) as new:
    if found.name == 'elmo':
      pretrained_elmo.write_folder(new, found.model, params)
      if found.tokenizer is not None:
        found.tokenizer.save(new)
      return
    extra: dict[str, Any] = {
      key: getattr(found.tokenizer, name)
      for key, name in SYMBOLS.items()
      if hasattr(found.tokenizer, name)
    }
    if found.labels:
      extra['id2label'] = dict(found.labels)
      extra['label2id'] = {
        name: int(number) for number, name in found.labels.items()
      }
    if pretrained_gpt.NO_SOFTMAX in found.notes:
      extra |= pretrained_gpt.HEADLESS[found.name]
    hugging_face.write_folder(new, found.model, params, extra)
    if found.tokenizer is None:
      console.say(
        f'{found.folder} holds no vocabulary: the weights are written alone.'
      )
      return
    tokenizer_export.export(
      found.tokenizer, new, max_length=found.model.max_length
    )


def import_(
  weights: epath.PathLike,
  workdir: epath.PathLike,
  tokenizer: epath.PathLike | None = None,
) -> None:
  """Writes published weights as a workdir whose checkpoint is of step 0.

  Args:
    weights: see `opened.open_weights`.
    workdir: a new folder, local or remote; no run continues there, but one can
      begin with it by `init.weights`.
    tokenizer: see `opened.open_weights`.

  Raises:
    FileExistsError: if the folder holds anything.
    FileNotFoundError: if there are no such weights.
    ValueError: if they cannot be used, or are a workdir already, or have no
      vocabulary, which a workdir needs.
  """
  _check_new(workdir)
  found = opened.open_weights(weights, tokenizer)
  if found.kind == 'workdir':
    raise ValueError(
      f'{found.folder} is a workdir already: give published weights, or copy it'
    )
  found.check()
  params = found.load(found.on_one_device())
  config = _config_of(found, str(weights), str(tokenizer or weights))
  with _new_folder(workdir) as new:
    (new / 'config.json').write_text(settings.as_json(config) + '\n')
    if found.tokenizer is not None:
      found.tokenizer.save(new)
    with checkpoint.Checkpoints(new, keep=1) as checkpoints:
      checkpoints.save(0, {'params': params})
    imported = {
      'weights': str(weights),
      'kind': found.kind,
      'tokenizer': found.tokenizer is not None,
      'fields': opened.fields_beside(found.model),
      'labels': dict(found.labels),
      'notes': dict(found.notes),
    }
    (new / opened.IMPORTED_FILE).write_text(
      json.dumps(imported, indent=2) + '\n'
    )


def _config_of(
  found: Opened, weights: str, tokenizer: str
) -> ml_collections.ConfigDict:
  """Returns a config of the model's sizes that begins with the weights."""
  if found.name == 'elmo':
    config = base.get_elmo_config()
  else:
    config = base.get_config()
    length = min(config.train.phases[0][1], found.model.max_length)
    config.train.phases = ((1_000, length, 32, 'continue'),)
  if found.name != 'bert':
    config.train.objective = 'lm'
  config.model.name = found.name
  sizes = warm_start.module_settings(found.name, found.model)
  with config.ignore_type():  # no clip is None
    config.model.update(sizes)
  config.data.tokenizer = tokenizer
  config.init.weights = weights
  return config.lock()


def _check_new(folder: epath.PathLike) -> None:
  """Refuses, before work is done, to write over anything.

  Raises:
    FileExistsError: if there is something.
  """
  folder = epath.Path(folder)
  if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
    raise FileExistsError(f'{folder} exists already: name a new folder')


@contextlib.contextmanager
def _new_folder(folder: epath.PathLike) -> Iterator[epath.Path]:
  """Makes a folder that appears whole, or not at all."""
  folder = epath.Path(folder)
  if '://' not in str(folder):
    folder = folder.resolve()  # of '.' too
  new = folder.with_name(f'.{folder.name}.{uuid.uuid4().hex}.new')
  try:
    new.mkdir(parents=True)
    yield new
    if folder.exists():
      folder.rmdir()  # empty
    new.rename(folder)
  except BaseException:
    new.rmtree(missing_ok=True)
    raise
