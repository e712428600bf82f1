"""Several languages: their names in a source, and their shares of training."""

import re
from collections.abc import Sequence

import numpy as np
from etils import epath

# P(L)^0.7, renormalised (google-research/bert, multilingual.md).
EXPONENT = 0.7
_NAMED = re.compile(r'[A-Za-z][\w-]*=')
FOLDERS = '/*/'  # behind a folder that has one for each language
# Before a path: of token ids, of articles, of dialogues, of a task's sets.
IDS, WIKITEXT = 'ernie:', 'wikitext:'
DIALOGUES, TASK = 'dialogue:', 'task:'
# Before the name of a data set: of TFDS, and of Hugging Face.
TFDS, HUGGING_FACE = 'tfds:', 'hf:'
_BEFORE_PATH = re.compile(f'(?:{IDS}|{WIKITEXT}|{DIALOGUES}|{TASK}[^:]*:)')


def check_exponent(exponent: float) -> None:
  """Raises a ValueError unless the exponent is in 0 to 1."""
  if not 0 <= exponent <= 1:
    raise ValueError(
      f'language_exponent {exponent}: expected a number from 0 (equal shares)'
      ' to 1 (shares of the text)'
    )


def smooth(sizes: Sequence[int] | np.ndarray, exponent: float) -> np.ndarray:
  """Returns p^exponent, renormalised, float64 [L]; p are shares of `sizes`."""
  weights = (np.asarray(sizes, np.float64) / np.sum(sizes)) ** exponent
  return weights / weights.sum()


def paths(spec: str) -> list[str]:
  """Returns the sources of a source, of all languages, as paths.

  Nothing is listed: of `FOLDER/*/`, the path is FOLDER.
  """
  if has_folders(spec):
    return [_base(spec)]
  found = []
  for part in parts(spec):
    if part.startswith(f'{HUGGING_FACE}gs:'):
      part = named_parts(part)[0]
    prefix = _BEFORE_PATH.match(part)
    found.append(part[prefix.end() :] if prefix else part)
  return found


def parts(spec: str) -> list[str]:
  """Returns the sources of a source: those of all languages, or itself."""
  return [part for of in split(spec).values() for part in of] or [spec]


def is_named(spec: str) -> bool:
  """Returns whether a source begins with the name of a language."""
  return bool(_NAMED.match(spec))


def has_folders(spec: str) -> bool:
  """Returns whether a source is a folder with one for each language."""
  return spec.endswith(FOLDERS)


def split(spec: str) -> dict[str, list[str]]:
  """Returns language -> sources of a list by language; {} of a plain source.

  Of `FOLDER/*/`, each folder in a folder is the text of the language that it
  is named after. Raises ValueError for a source in a list without a name or
  given twice, a name without a source, and a folder of no language's name.
  """
  if has_folders(spec):
    return _find_folders(spec)
  if not is_named(spec):
    return {}
  found = {}
  for part in spec.split(','):
    name, _, source = part.strip().partition('=')
    if not (is_named(part.strip()) and source):
      raise ValueError(
        f'source {spec!r}: found {part!r}, expected NAME=SOURCE, a language and'
        ' its text. A comma separates languages, and stands in no path'
      )
    if source in found.setdefault(name, []):
      raise ValueError(
        f'source {spec!r}: language {name!r} has {source!r} twice, expected'
        ' each of its sources once'
      )
    found[name].append(source)
  return found


def may_download(part: str) -> bool:
  """Returns whether a source is a data set that may lie elsewhere."""
  if part.startswith(HUGGING_FACE):
    return not epath.Path(named_parts(part)[0]).expanduser().is_dir()
  return part.startswith(TFDS)


def named_parts(spec: str) -> list[str]:
  """Returns NAME, and perhaps CONFIG and SPLIT, of hf:NAME[:CONFIG][:SPLIT].

  NAME may be a folder gs://BUCKET/NAME, of whose slashes a path keeps one.
  """
  name = re.sub('^gs:/+', 'gs://', spec.removeprefix(HUGGING_FACE))
  return re.split(':(?!//)', name)


def of_dialogues(spec: str) -> dict[str, bool]:
  """Returns the languages of a source, '' of a plain one -> is it dialogues.

  Languages of `FOLDER/*/` are left out: their folders hold other text.
  """
  if has_folders(spec):
    return {}
  parts = split(spec) or {'': [spec]}
  return {
    name: all(part.startswith(DIALOGUES) for part in of)
    for name, of in parts.items()
  }


def _base(spec: str) -> str:
  return spec.removesuffix(FOLDERS) or '/'


def _find_folders(spec: str) -> dict[str, list[str]]:
  base = epath.Path(_base(spec)).expanduser()
  if not base.is_dir():
    return {}
  found = {}
  for path in sorted(base.iterdir()):
    if path.name.startswith('.') or not path.is_dir():
      continue
    if not is_named(f'{path.name}='):
      raise ValueError(
        f'source {spec!r}: found the folder {path.name!r}, expected the name of'
        ' a language: letters, then also digits, - and _'
      )
    found[path.name] = [str(path)]
  return found
