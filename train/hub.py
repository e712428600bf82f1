"""Where weights lie: a path, or a name on Hugging Face's hub.

A name is ORGANISATION/MODEL, as in google-bert/bert-base-uncased. What the
cache of huggingface_hub holds is used as it is, so that a run goes on where
there is no network; else the few files that we read are downloaded into it.
"""

import json
import re

import huggingface_hub
from etils import epath
from huggingface_hub import constants

SETTINGS = (
  'config.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
)
VOCABULARIES = ('vocab.txt', 'vocab.json', 'merges.txt', 'tokenizer.json')
# The same weights twice: the first that is there.
FORMATS = (
  ('model*.safetensors', 'model.safetensors.index.json'),
  ('pytorch_model*.bin', 'pytorch_model.bin.index.json'),
)


def find(weights: epath.PathLike) -> epath.Path:
  """Returns the path of weights that are given by path or by name.

  A path that exists is never taken for a name, and neither is one below a
  folder that exists.

  Args:
    weights: a path, local or remote; or ORGANISATION/MODEL.

  Returns:
    The path, which may not exist; of a name its folder in the cache.

  Raises:
    FileNotFoundError: if a name is neither in the cache nor can be downloaded.
  """
  path = epath.Path(weights).expanduser()
  is_name = re.fullmatch(r'\w[\w.-]*/\w[\w.-]*', str(weights))
  if not is_name or path.exists() or path.parent.exists():
    return path
  return _fetch(str(weights))


def _fetch(name: str) -> epath.Path:
  """Returns the folder of a name in the cache, filled if need be."""
  cause = None
  for cached in (True, False):
    for weights, index in FORMATS:
      try:
        folder = epath.Path(
          huggingface_hub.snapshot_download(
            name,
            allow_patterns=[*SETTINGS, *VOCABULARIES, weights, index],
            local_files_only=cached,
          )
        )
      # No network, no such name, no right to it, not in the cache: each has an
      # error of its own, some of libraries beneath.
      except Exception as error:
        text = str(error).strip().partition('\n')[0]
        cause = f'{type(error).__name__}: {text}'
        continue
      if _is_whole(folder, weights, index):
        return folder
      found = sorted(file.name for file in folder.iterdir())
      cause = (
        f'{folder} holds {", ".join(found) or "nothing"}, expected config.json,'
        ' a vocabulary and model.safetensors or pytorch_model.bin'
      )
  raise FileNotFoundError(
    f'{name}: there is no such folder; as a name on Hugging Face it is not in'
    f' the cache {constants.HF_HUB_CACHE} and could not be downloaded: {cause}.'
    f' Where there is a network, run `hf download {name} --local-dir FOLDER`,'
    ' copy that folder here and give its path'
  )


def _is_whole(folder: epath.Path, weights: str, index: str) -> bool:
  """Returns whether a folder holds all of a model in one format."""
  if not (folder / 'config.json').exists() or not any(
    (folder / name).exists() for name in VOCABULARIES
  ):
    return False
  if (folder / index).exists():
    parts = json.loads((folder / index).read_bytes())['weight_map'].values()
    return all((folder / part).exists() for part in parts)
  return (folder / weights.replace('*', '')).exists()
