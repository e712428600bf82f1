"""Where weights lie: a path, or a name on Hugging Face's hub.

A name is ORGANISATION/MODEL, as in google-bert/bert-base-uncased, or one of
those that were known before organisations were: bert-base-uncased, gpt2. What
the cache of huggingface_hub holds is used as it is, so that a run goes on where
there is no network; else the few files that we read are downloaded into it.
"""

import json
import re
from collections.abc import Sequence

import huggingface_hub
from etils import epath
from huggingface_hub import constants

# Names without an organisation -> whose they are.
OLD_NAMES = (
  (r'bert-(base|large)-[\w-]+', 'google-bert'),
  (r'gpt2(-medium|-large|-xl)?|openai-gpt', 'openai-community'),
)
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


def find(
  weights: epath.PathLike, *, vocabulary_only: bool = False
) -> epath.Path:
  """Returns the path of weights that are given by path or by name.

  A path that exists is never taken for a name, and neither is one below a
  folder that exists.

  Args:
    weights: a path, local or remote; or a name.
    vocabulary_only: where a name's weights are not needed.

  Returns:
    The path, which may not exist; of a name its folder in the cache.

  Raises:
    FileNotFoundError: if a name is neither in the cache nor can be downloaded.
  """
  path = epath.Path(weights).expanduser()
  name = _name(str(weights))
  if (
    name is None or path.exists() or ('/' in str(path) and path.parent.exists())
  ):
    return path
  return _fetch(name, ((),) if vocabulary_only else FORMATS)


def _name(weights: str) -> str | None:
  """Returns ORGANISATION/MODEL, None for what can only be a path."""
  for pattern, organisation in OLD_NAMES:
    if re.fullmatch(pattern, weights):
      return f'{organisation}/{weights}'
  is_name = re.fullmatch(r'\w[\w.-]*/\w[\w.-]*', weights)
  return weights if is_name else None


def _fetch(name: str, formats: Sequence[Sequence[str]]) -> epath.Path:
  """Returns the folder of a name in the cache, filled if need be.

  Args:
    name: ORGANISATION/MODEL.
    formats: the files of weights, as in `FORMATS`, the first that is there;
      none where only the vocabulary is needed.
  """
  cause = None
  for cached in (True, False):
    for weights in formats:
      try:
        folder = epath.Path(
          huggingface_hub.snapshot_download(
            name,
            allow_patterns=[*SETTINGS, *VOCABULARIES, *weights],
            local_files_only=cached,
          )
        )
      # No network, no such name, no right to it, not in the cache: each has an
      # error of its own, some of libraries beneath.
      except Exception as error:
        text = str(error).strip().partition('\n')[0]
        cause = f'{type(error).__name__}: {text}'
        continue
      if _is_whole(folder, *weights):
        return folder
      found = sorted(file.name for file in folder.iterdir())
      cause = (
        f'{folder} holds {", ".join(found) or "nothing"}, expected config.json,'
        ' a vocabulary and model.safetensors or pytorch_model.bin'
      )
  raise FileNotFoundError(
    f'{name}: there is no such path; as a name on Hugging Face it is not in'
    f' the cache {constants.HF_HUB_CACHE} and could not be downloaded: {cause}.'
    f' Where there is a network, run `hf download {name} --local-dir FOLDER`,'
    ' copy that folder here and give its path'
  )


def _is_whole(
  folder: epath.Path, weights: str | None = None, index: str | None = None
) -> bool:
  """Returns whether a folder holds a vocabulary and a format's weights."""
  if not any((folder / name).exists() for name in VOCABULARIES):
    return False
  if weights is None:
    return True
  if not (folder / 'config.json').exists():
    return False
  if (folder / index).exists():
    try:
      parts = json.loads((folder / index).read_bytes())['weight_map'].values()
    except (ValueError, KeyError, TypeError, AttributeError):
      return False  # damaged: fetch it again
    return all((folder / part).exists() for part in parts)
  return (folder / weights.replace('*', '')).exists()
