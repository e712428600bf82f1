"""Opens folders of published weights, of any known format."""

import importlib
from collections.abc import Mapping
from typing import Any

import jax
from etils import epath

from models import layers
from models.pretrained import config_files, weight_files
from models.pretrained.weights import MODULES_FILE, VOCABULARY, Weights

CONFIG_FILES = ('config.json', 'bert_config.json')
RELEASE_FILES = (  # files of the formats that have no such config
  'hparams.json',  # GPT-2, TensorFlow
  'params_shapes.json',  # GPT, OpenAI
  '*options.json',  # ELMo
)
OTHER_BERTS = ('modernbert', 'distilbert', 'roberta')  # modules of these names
# Hugging Face's model_type -> our family.
MODEL_TYPES = {
  **dict.fromkeys(('bert', *OTHER_BERTS), 'bert'),
  'openai-gpt': 'gpt',
  'gpt2': 'gpt2',
}
LOOKED_FOR = (
  'config.json with model.safetensors, pytorch_model.bin or flax_model.msgpack'
  ' (Hugging Face),'
  ' bert_config.json with bert_model.ckpt.index (BERT, TensorFlow),'
  ' hparams.json with model.ckpt.index (GPT-2, TensorFlow),'
  ' params_shapes.json with params_0.npy and so on (GPT, OpenAI),'
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
  found = _open_hugging_face(folder, name, config)
  if (folder / MODULES_FILE).exists():
    from models.pretrained import sentence_modules

    return sentence_modules.add_form(found)
  return found


def _open_hugging_face(
  folder: epath.Path, name: Any, config: Mapping[str, Any]
) -> Weights:
  """Opens a folder by its config, which BERT's own release has, too."""
  if name not in tuple(MODEL_TYPES):  # it may be any value of JSON
    problem = f'model_type is {name!r}, expected {" or ".join(MODEL_TYPES)}'
    return Weights(folder, 'Hugging Face', str(name), problems=(problem,))
  if name in OTHER_BERTS:
    format_ = importlib.import_module(f'models.pretrained.{name}')
    entries = weight_files.from_hugging_face(folder)
    return format_.from_hugging_face(folder, config, entries)
  if name != 'bert':
    from models.pretrained import gpt

    entries = weight_files.from_hugging_face(folder)
    return gpt.from_hugging_face(folder, MODEL_TYPES[name], config, entries)
  from models.pretrained import bert

  if weight_files.hugging_face_file(folder) is None:
    from models.pretrained import tensorflow_file

    index = tensorflow_file.index_of(folder)
    if index is not None:
      entries = tensorflow_file.entries(index)
      return bert.from_tensorflow(folder, config, entries)
  entries = weight_files.from_hugging_face(folder)
  return bert.from_hugging_face(folder, config, entries)


def cut_vocabulary(weights: Weights, size: int) -> Weights:
  """Returns a BERT's or GPT's weights with `size` rows of the token table."""
  rows = slice(size)
  pieces = [
    piece._replace(rows=rows, place=(rows,))
    if piece.path in VOCABULARY
    else piece
    for piece in weights.pieces
  ]
  tables = {
    path: jax.ShapeDtypeStruct(
      (layers.pad_vocab(size), *leaf.shape[1:]), leaf.dtype
    )
    for path, leaf in weights.shapes.items()
    if path in VOCABULARY
  }
  return weights._replace(
    model=weights.model.clone(vocab_size=size),
    pieces=pieces,
    shapes={**weights.shapes, **tables},
  )


def _open_release(folder: epath.Path) -> Weights:
  """Opens a folder without a config of Hugging Face's or BERT's."""
  gpt2_file, gpt_file, _ = RELEASE_FILES
  # OpenAI's GPT may have GPT-2's hparams.json too.
  if (folder / gpt_file).exists():
    from models.pretrained import gpt_release

    return gpt_release.open_folder(folder)
  file = folder / gpt2_file
  if not file.exists():
    from models.pretrained import elmo

    return elmo.open_folder(folder)
  from models.pretrained import gpt, tensorflow_file

  hparams, index = config_files.read(file), tensorflow_file.index_of(folder)
  if index is None:
    raise FileNotFoundError(
      f'{folder} has {gpt2_file} but no model.ckpt.index; it holds'
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
