"""Where weights lie: a path, or a name on Hugging Face's hub.

A name is ORGANISATION/MODEL, as in google-bert/bert-base-uncased, or an old one
without organisation: bert-base-uncased, gpt2, roberta-base. A name that may be
a misspelt path (runs/bert, or one below an existing folder) is refused: hf://
before it always means the hub. Files in the cache of huggingface_hub need no
network.
"""

import os
import re
from collections.abc import Sequence

import huggingface_hub
from etils import epath
from huggingface_hub import constants

from data import storage
from data.text import text_files

# Names without an organisation -> their owners.
OLD_NAMES = (
  (r'bert-(base|large)-[\w-]+', 'google-bert'),
  (r'gpt2(-medium|-large|-xl)?|openai-gpt', 'openai-community'),
  (r'roberta-(base|large)(-mnli)?', 'FacebookAI'),
)
SCHEME = storage.HUB
# What the README and our defaults call folders of runs and of token stores.
OUR_FOLDERS = ('runs', 'stores')
# Endings of files; no model's name ends with one.
FILE_ENDINGS = (
  '.bin',
  '.bpe',
  '.csv',
  '.gz',
  '.h5',
  '.hdf5',
  '.index',
  '.json',
  '.jsonl',
  '.model',
  '.npy',
  '.npz',
  '.pt',
  '.pth',
  '.safetensors',
  '.tsv',
  '.txt',
  '.vocab',
  '.xz',
  '.zip',
  '.zst',
)
SETTINGS = [
  'config.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
  'modules.json',
  '*_Pooling/config.json',
  '*_Normalize/config.json',
  'sentence_*_config.json',
  'config_sentence_transformers.json',
]
VOCABULARIES = ('vocab.txt', 'vocab.json', 'merges.txt', 'tokenizer.json')
# The same weights in several formats: the first that exists is read.
FORMATS = (
  ('model*.safetensors', 'model.safetensors.index.json'),
  ('pytorch_model*.bin', 'pytorch_model.bin.index.json'),
  ('flax_model*.msgpack', 'flax_model.msgpack.index.json'),
)


def find(
  weights: epath.PathLike, *, vocabulary_only: bool = False
) -> epath.Path:
  """Returns the path of weights that are given by path or by name.

  An existing path is never taken for a name, nor is a text like a path of ours
  (`_may_be_path`). A name's path is its folder in the cache; `vocabulary_only`
  needs no weights. Raises FileNotFoundError if the path does not exist, or the
  name is not in the cache and cannot be downloaded.
  """
  formats = ((),) if vocabulary_only else FORMATS
  text = str(weights)
  if text.startswith(SCHEME):
    name = _name(text.removeprefix(SCHEME))
    if name is None:
      raise ValueError(
        f'{text}: expected {SCHEME}ORGANISATION/MODEL, such as'
        f' {SCHEME}google-bert/bert-base-uncased'
      )
    return _fetch(name, formats, text)
  is_remote = storage.is_remote(text)  # or an error, of another place
  path = epath.Path(weights).expanduser()
  if path.exists():
    if not is_remote and path.is_dir():
      _check_regular(path)
    return path
  name = _name(text)
  if name is None or _may_be_path(name, path):
    raise FileNotFoundError(_missing(text, path, name))
  asked = f'{name}: there is no such path in {os.getcwd()}; as a name on'
  return _fetch(name, formats, f'{asked} Hugging Face it')


def _check_regular(folder: epath.Path) -> None:
  """Raises ValueError for a pipe or a device among the files of weights.

  Reading a pipe would wait for ever, and some devices have no end.
  """
  for name in os.listdir(folder):
    file = os.path.join(folder, name)
    is_read = name.endswith(FILE_ENDINGS) and os.path.exists(file)
    if is_read and not (os.path.isfile(file) or os.path.isdir(file)):
      raise ValueError(
        f'{file}: is no regular file, expected one of the weights or their'
        ' vocabulary'
      )


def _name(weights: str) -> str | None:
  """Returns ORGANISATION/MODEL, or None if the text can only be a path."""
  for pattern, organisation in OLD_NAMES:
    if re.fullmatch(pattern, weights):
      return f'{organisation}/{weights}'
  is_name = re.fullmatch(r'\w[\w.-]*/\w[\w.-]*', weights)
  return weights if is_name else None


def _may_be_path(name: str, path: epath.Path) -> bool:
  """Returns whether a hub name may be a misspelt path; old names may not."""
  return '/' in str(path) and (
    path.parent.exists()
    or path.parent.name in OUR_FOLDERS
    or name.endswith(FILE_ENDINGS)
  )


def _missing(text: str, path: epath.Path, name: str | None) -> str:
  """Returns the message for a path that does not exist, and may be a `name`."""
  is_whole = path.is_absolute() or storage.is_remote(text)
  where = '' if is_whole else f' in {os.getcwd()}'
  hub = f'{SCHEME}{name or "ORGANISATION/MODEL"}'
  return (
    f'{text}: there is no such file or folder{where}; a model on Hugging'
    f" Face's hub is asked for by {hub}"
  )


def _fetch(
  name: str, formats: Sequence[Sequence[str]], asked: str
) -> epath.Path:
  """Returns a name's folder in the cache, after a download if need be."""
  cause, without_vocabulary = None, None
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
      # No network, name, permission or cache entry: errors of many libraries.
      except Exception as error:
        text = str(error).strip().partition('\n')[0]
        cause = f'{type(error).__name__}: {text}'
        continue
      if _has_vocabulary(folder) and _has_weights(folder, *weights):
        return folder
      if weights and _has_weights(folder, *weights):
        # Perhaps published without a vocabulary; else download the rest.
        without_vocabulary = without_vocabulary or folder
        if not cached:
          break
      found = sorted(file.name for file in folder.iterdir())
      cause = (
        f'{folder} holds {", ".join(found) or "nothing"}, expected config.json,'
        ' a vocabulary and model.safetensors, pytorch_model.bin or'
        ' flax_model.msgpack'
      )
  if without_vocabulary is not None:
    return without_vocabulary
  raise FileNotFoundError(
    f'{asked} is not in the cache {constants.HF_HUB_CACHE} and could not be'
    f' downloaded: {cause}.'
    f' Where there is a network, run `hf download {name} --local-dir FOLDER`,'
    ' copy that folder here and give its path'
  )


def _has_vocabulary(folder: epath.Path) -> bool:
  return any((folder / name).exists() for name in VOCABULARIES)


def _has_weights(
  folder: epath.Path, weights: str | None = None, index: str | None = None
) -> bool:
  """Returns whether a folder has all weights, listed in `index` if many."""
  if weights is None:
    return True
  if not (folder / 'config.json').exists():
    return False
  if (folder / index).exists():
    try:
      parts = text_files.read_json(folder / index)['weight_map'].values()
    except (ValueError, KeyError, TypeError, AttributeError):
      return False  # damaged: fetch it again
    return all((folder / part).exists() for part in parts)
  return (folder / weights.replace('*', '')).exists()


if __name__ == '__main__':
  raise SystemExit('data.hub is no command; python -m data.prepare is one')
