"""Opens folders of published weights, of any known format."""

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
  sentence_modules,
  tensorflow_file,
  weight_files,
)
from models.pretrained.weights import Weights

CONFIG_FILES = ('config.json', 'bert_config.json')
RELEASE_FILES = (  # files of the formats that have no such config
  gpt.HPARAMS_FILE,
  gpt_release.SHAPES_FILE,
  f'*{elmo.OPTIONS_FILE}',
)
MODEL_TYPES = ('bert', *gpt.MODEL_TYPES)  # of Hugging Face, known here
LOOKED_FOR = (
  'config.json with model.safetensors or pytorch_model.bin (Hugging Face),'
  ' bert_config.json with bert_model.ckpt.index (BERT, TensorFlow),'
  f' {gpt.HPARAMS_FILE} with model.ckpt.index (GPT-2, TensorFlow),'
  f' {gpt_release.SHAPES_FILE} with params_0.npy and so on (GPT, OpenAI),'
  ' *options.json with *weights.hdf5 (ELMo)'
)


def is_published(folder: epath.PathLike) -> bool:
  """Returns whether a folder has files, even damaged, of published weights."""
  folder = epath.Path(folder)
  file = _config_file(folder)
  if file is None:
    return any(weight_files.find(folder, name) for name in RELEASE_FILES)
  has_weights = weight_files.hugging_face_file(folder) is not None
  try:
    config = config_files.read(file)
  except ValueError:
    return has_weights or file.name != 'config.json'  # which workdirs have too
  if isinstance(config.get('model'), dict):
    return False  # the config of a run
  return has_weights or _model_type(config) is not None


def open_folder(folder: epath.PathLike) -> Weights:
  """Opens published weights, unchanged files: sizes and names, no array.

  Raises FileNotFoundError for unknown or missing files, ValueError for damage.
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
  form, problems = sentence_modules.read(folder)
  found = _open_hugging_face(folder, name, config)
  return found._replace(
    sentence_form=form, problems=(*found.problems, *problems)
  )


def _open_hugging_face(
  folder: epath.Path, name: Any, config: Mapping[str, Any]
) -> Weights:
  """Opens a folder by its config, which BERT's own release has, too."""
  if name not in MODEL_TYPES:
    problem = f'model_type is {name!r}, expected {" or ".join(MODEL_TYPES)}'
    return Weights(folder, 'Hugging Face', str(name), problems=(problem,))
  if name == 'bert' and weight_files.hugging_face_file(folder) is None:
    index = tensorflow_file.index_of(folder)
    if index is not None:
      entries = tensorflow_file.entries(index)
      return bert.from_tensorflow(folder, config, entries)
  entries = weight_files.from_hugging_face(folder)
  if name == 'bert':
    return bert.from_hugging_face(folder, config, entries)
  return gpt.from_hugging_face(folder, gpt.MODEL_TYPES[name], config, entries)


def cut_vocabulary(weights: Weights, size: int) -> Weights:
  """Returns a BERT's or GPT's weights with `size` rows of the token table."""
  rows = slice(size)
  pieces = [
    piece._replace(rows=rows, place=(rows,))
    if piece.path in bert.VOCABULARY
    else piece
    for piece in weights.pieces
  ]
  tables = {
    path: jax.ShapeDtypeStruct(
      (layers.pad_vocab(size), *leaf.shape[1:]), leaf.dtype
    )
    for path, leaf in weights.shapes.items()
    if path in bert.VOCABULARY
  }
  return weights._replace(
    model=weights.model.clone(vocab_size=size),
    pieces=pieces,
    shapes={**weights.shapes, **tables},
  )


def _open_release(folder: epath.Path) -> Weights:
  """Opens a folder without a config of Hugging Face's or BERT's."""
  # OpenAI's GPT may have GPT-2's hparams.json too.
  if (folder / gpt_release.SHAPES_FILE).exists():
    return gpt_release.open_folder(folder)
  file = folder / gpt.HPARAMS_FILE
  if not file.exists():
    return elmo.open_folder(folder)
  hparams, index = config_files.read(file), tensorflow_file.index_of(folder)
  if index is None:
    raise FileNotFoundError(
      f'{folder} has {gpt.HPARAMS_FILE} but no model.ckpt.index; it holds'
      f' {weight_files.listing(folder)}'
    )
  return gpt.from_tensorflow(folder, hparams, tensorflow_file.entries(index))


def _config_file(folder: epath.Path) -> epath.Path | None:
  files = (folder / name for name in CONFIG_FILES)
  return next((file for file in files if file.exists()), None)


def _model_type(config: Mapping[str, Any]) -> Any:
  """Returns a config's model type, in early configs by their keys; or None."""
  if 'model_type' in config:
    return config['model_type']
  if 'hidden_size' in config and 'type_vocab_size' in config:
    return 'bert'
  if 'n_embd' in config:
    return 'openai-gpt' if 'afn' in config else 'gpt2'
  return None
