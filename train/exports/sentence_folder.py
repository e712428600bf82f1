"""Folders that sentence-transformers opens.

The names of modules and settings are those of its versions up to 5, which
version 6 reads, too.
"""

import json
from collections.abc import Mapping

from etils import epath

from models.pretrained.sentence_modules import (
  FLAGS,
  MODEL_FILE,
  PACKAGE,
  TRANSFORMER_FILES,
)
from models.pretrained.weights import MODULES_FILE, SentenceForm
from train.exports import transformers_folder
from train.exports.exported import Export
from train.host import files
from train.host.files import Json

_POOLING = '1_Pooling'
_PROMPT = 'default'  # our name of the prompt that is always set


def write(folder: epath.Path, export: Export, params: Mapping) -> None:
  """Writes an encoder, and how it makes vectors of sentences."""
  transformers_folder.write(folder, export, params, encoder=True)
  model = export.weights.model
  write_settings(folder, export.vectors, model.embed_dim, model.max_length)


def write_settings(
  folder: epath.Path, form: SentenceForm, width: int, max_length: int
) -> None:
  """Writes the modules and their settings beside an encoder of a width."""
  paths = {'Transformer': '', 'Pooling': _POOLING}
  if form.normalize:
    # No settings, so no folder: there is none in published ones either.
    paths['Normalize'] = '2_Normalize'
  modules = [
    {
      'idx': i,
      'name': str(i),
      'path': path,
      'type': f'{PACKAGE}models.{kind}',
    }
    for i, (kind, path) in enumerate(paths.items())
  ]
  pooling: dict[str, Json] = {'word_embedding_dimension': width}
  pooling |= {flag: mode == form.pool for flag, mode in FLAGS.items()}
  (folder / _POOLING).mkdir()
  for name, content in {
    f'{_POOLING}/config.json': pooling | {'include_prompt': True},
    TRANSFORMER_FILES[0]: {
      'max_seq_length': form.max_length or max_length,
      'do_lower_case': form.lower_case,
    },
    MODEL_FILE: {
      'prompts': {_PROMPT: form.prompt} if form.prompt else {},
      'default_prompt_name': _PROMPT if form.prompt else None,
      'similarity_fn_name': 'cosine',
    },
    MODULES_FILE: modules,
  }.items():
    text = json.dumps(content, indent=2) + '\n'
    files.write_atomically(folder / name, text)
