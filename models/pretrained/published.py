"""Opens a folder of published weights, whichever format its files have."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
from etils import epath

from models import layers
from models.pretrained import (
  bert,
  config_files,
  elmo,
  gpt,
  gpt_release,
  weight_files,
)
from models.pretrained.strict import Published

__all__ = ['Published', 'cut_vocabulary', 'is_published', 'open_folder']

# Parameters of BERT and GPT with a row for each piece of the vocabulary.
VOCABULARY = ('embeddings/tokens/embedding', 'mlm/bias')
CONFIG_FILES = ('config.json', 'bert_config.json')
MODEL_TYPES = ('bert', *gpt.MODEL_TYPES)  # of Hugging Face's that we have
LOOKED_FOR = (
  'config.json with model.safetensors or pytorch_model.bin (Hugging Face),'
  ' bert_config.json with bert_model.ckpt.index (BERT, TensorFlow),'
  f' {gpt.HPARAMS_FILE} with model.ckpt.index (GPT-2, TensorFlow),'
  f' {gpt_release.SHAPES_FILE} with params_0.npy and so on (GPT, OpenAI),'
  ' *options.json with *weights.hdf5 (ELMo)'
)


def is_published(folder: epath.PathLike) -> bool:
  """Returns whether a folder holds published weights, by the files in it.

  False for a workdir of ours, and for anything else; a folder that is one but
  for missing or damaged files is one.
  """
  folder = epath.Path(folder)
  file = _config_file(folder)
  if file is None:
    return any(
      any(folder.glob(pattern))
      for pattern in (
        gpt.HPARAMS_FILE,
        gpt_release.SHAPES_FILE,
        f'*{elmo.OPTIONS_FILE}',
      )
    )
  try:
    config = config_files.read(file)
  except ValueError:
    return (
      file.name != 'config.json'  # which runs of ours have too
      or weight_files.hugging_face_file(folder) is not None
    )
  if isinstance(config.get('model'), dict):
    return False  # of a run of ours
  return (
    _model_type(config) is not None
    or weight_files.hugging_face_file(folder) is not None
  )


def open_folder(folder: epath.PathLike) -> Published:
  """Opens published weights: sizes and names, no array.

  Args:
    folder: as it was published, with nothing converted.

  Raises:
    FileNotFoundError: if it holds nothing of what we know, or lacks a file.
    ValueError: if a file is damaged.
  """
  folder = epath.Path(folder)
  if not folder.is_dir():
    raise FileNotFoundError(f'{folder} is no folder')
  if not is_published(folder):
    raise FileNotFoundError(
      f'{folder} holds no published weights that are known here: looked for'
      f' {LOOKED_FOR}; it holds {weight_files.listing(folder)}'
    )
  file = _config_file(folder)
  if file is None:
    return _open_release(folder)
  config = config_files.read(file)
  name = _model_type(config)
  if name not in MODEL_TYPES:
    return Published(
      folder,
      'Hugging Face',
      str(name),
      problems=(
        f'model_type is {name!r}, expected {" or ".join(MODEL_TYPES)}',
      ),
    )
  if name == 'bert' and weight_files.hugging_face_file(folder) is None:
    index = weight_files.tensorflow_index(folder)
    if index is not None:
      entries = weight_files.from_tensorflow(index)
      return bert.from_tensorflow(folder, config, entries)
  entries = weight_files.from_hugging_face(folder)
  if name == 'bert':
    return bert.from_hugging_face(folder, config, entries)
  return gpt.from_hugging_face(folder, gpt.MODEL_TYPES[name], config, entries)


def cut_vocabulary(found: Published, size: int) -> Published:
  """Returns weights without the last rows of their token table.

  Args:
    found: of a BERT or a GPT, with a model; its misfits are known already.
    size: V, the rows that stay.
  """
  rows = slice(size)
  pieces = [
    piece._replace(rows=rows, place=(rows,))
    if piece.path in VOCABULARY
    else piece
    for piece in found.pieces
  ]
  tables = {
    path: jax.ShapeDtypeStruct(
      (layers.pad_vocab(size), *leaf.shape[1:]), leaf.dtype
    )
    for path, leaf in found.shapes.items()
    if path in VOCABULARY
  }
  return dataclasses.replace(
    found,
    model=found.model.clone(vocab_size=size),
    pieces=pieces,
    shapes={**found.shapes, **tables},
  )


def _open_release(folder: epath.Path) -> Published:
  """Opens what has no config of a Hugging Face or BERT kind."""
  if (
    folder / gpt_release.SHAPES_FILE
  ).exists():  # with or without HPARAMS_FILE
    return gpt_release.open_folder(folder)
  if (folder / gpt.HPARAMS_FILE).exists():
    hparams = config_files.read(folder / gpt.HPARAMS_FILE)
    index = weight_files.tensorflow_index(folder)
    if index is None:
      raise FileNotFoundError(
        f'{folder} has {gpt.HPARAMS_FILE} but no model.ckpt.index; it holds'
        f' {weight_files.listing(folder)}'
      )
    return gpt.from_tensorflow(
      folder, hparams, weight_files.from_tensorflow(index)
    )
  return elmo.open_folder(folder)


def _config_file(folder: epath.Path) -> epath.Path | None:
  """Returns the file that describes the model, None where there is none."""
  for name in CONFIG_FILES:
    if (folder / name).exists():
      return folder / name
  return None


def _model_type(config: Mapping[str, Any]) -> Any:
  """Returns what a config is of; early ones do not tell, but by their keys."""
  if 'model_type' in config:
    return config['model_type']
  if 'hidden_size' in config and 'type_vocab_size' in config:
    return 'bert'
  if 'n_embd' in config:
    return 'openai-gpt' if 'afn' in config else 'gpt2'
  return None
