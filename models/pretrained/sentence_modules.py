"""How a folder of sentence-transformers makes vectors of sentences.

Its modules.json lists what the texts go through: the Transformer, a Pooling of
its last layer, perhaps Normalize. Each module's settings are in a folder.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from etils import epath

from models.pretrained import config_files

MODULES_FILE = 'modules.json'
# Settings of Pooling -> ours. Newer releases name one in `pooling_mode`.
_POOLS = {
  'pooling_mode_cls_token': 'cls',
  'pooling_mode_mean_tokens': 'mean',
}
_MODULES = ['Transformer', 'Pooling', 'Normalize']
_CURE = (
  f'a copy of the folder without {MODULES_FILE} is read as a plain encoder'
)


class SentenceForm(NamedTuple):
  """The vector of a sentence, as the weights were trained to make it.

  Attributes:
    pool: 'cls' or 'mean'.
    normalize: whether vectors have length 1.
  """

  pool: str
  normalize: bool


def read(folder: epath.Path) -> tuple[SentenceForm | None, tuple[str, ...]]:
  """Returns (form, problems) of a folder; (None, ()) if it has no modules.

  A problem is a module or a setting that is not known here. Raises ValueError
  for damaged files.
  """
  file = folder / MODULES_FILE
  if not file.exists():
    return None, ()
  modules = config_files.read(file, list)
  kinds = [
    str(config_files.look_up(module, 'type')).rpartition('.')[2]
    for module in modules
  ]
  if kinds not in (_MODULES[:2], _MODULES):
    return None, (
      f'{file.name} has the modules {", ".join(kinds)}, expected Transformer,'
      f' Pooling and perhaps Normalize: {_CURE}',
    )
  path = f'{modules[1].get("path", "1_Pooling")}/config.json'
  if not (folder / path).exists():
    return None, (f'{path} is missing, which {file.name} names: {_CURE}',)
  settings = config_files.read(folder / path)
  pool = _pool(settings)
  if pool is None:
    chosen = {
      key: value
      for key, value in settings.items()
      if key.startswith('pooling_mode') and value
    }
    return None, (
      f'{path} has {chosen}, expected one of {", ".join(_POOLS)}: {_CURE}',
    )
  return SentenceForm(pool, 'Normalize' in kinds), ()


def _pool(settings: Mapping[str, Any]) -> str | None:
  """Returns the pool of a Pooling's settings; None if it is not known here."""
  if 'pooling_mode' in settings:
    mode = settings['pooling_mode']
    return mode if mode in ('cls', 'mean') else None
  chosen = [
    key
    for key, value in settings.items()
    if key.startswith('pooling_mode_') and value
  ]
  if not chosen:
    return 'mean'  # as sentence-transformers
  return _POOLS.get(chosen[0]) if len(chosen) == 1 else None
