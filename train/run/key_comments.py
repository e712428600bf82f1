"""A config as text, with the comment of each key in `configs`."""

import pathlib

import ml_collections

import configs
from train.run import settings


def comments(keys: list[str]) -> dict[str, str]:
  """Returns the comments that stand beside and above the defaults of keys.

  `keys` are 'section.name'; one that no section sets has no entry.
  """
  folder = pathlib.Path(configs.__file__).parent
  files = [folder / 'base.py', *sorted((folder / 'sections').glob('*.py'))]
  lines = [
    line.strip() for file in files for line in file.read_text().splitlines()
  ]
  found = {}
  for number, line in enumerate(lines):
    key, equals, value = line.removeprefix('config.').partition(' = ')
    if equals and key in keys and key not in found:
      above = []
      while lines[number - 1 - len(above)].startswith('#'):
        above.insert(0, lines[number - 1 - len(above)].lstrip('# '))
      beside = value.partition('  # ')[2]
      found[key] = ' '.join([*above, *([beside] if beside else [])])
  return found


def as_text(config: ml_collections.ConfigDict) -> str:
  """Returns a config as lines of 'section.name = value  # comment'."""
  values = settings.flatten(config)
  said = comments([*values])
  return '\n'.join(
    f'{key} = {value!r}' + (f'  # {said[key]}' if said.get(key) else '')
    for key, value in values.items()
  )
