"""The JSON beside published weights: sizes, and what a model is told to do."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from etils import epath

MAX_DEPTH = 50
_TOO_DEEP = f'more than {MAX_DEPTH} lists and objects inside one another'
# Of layers, each of which takes time before its arrays are looked for.
MAX_LAYERS = 1000


def is_count(value: Any) -> bool:
  """Returns whether a value is a size that an array may have."""
  return type(value) is int and 0 < value < 2**31


def _is_number(value: Any) -> bool:
  # Not 1e999, which is infinite here; no whole number beyond a float.
  return type(value) in (int, float) and abs(value) < 1e30


def _are_pairs(value: Any) -> bool:
  return (
    isinstance(value, list | tuple)
    and len(value) <= MAX_LAYERS
    and all(
      isinstance(pair, list | tuple)
      and len(pair) == 2
      and all(map(is_count, pair))
      for pair in value
    )
  )


# What a value must be, in words -> whether it is.
KINDS: dict[str, Callable[[Any], bool]] = {
  'a count': is_count,
  'a count of layers': lambda value: is_count(value) and value <= MAX_LAYERS,
  'a count of layers or nothing': lambda value: (
    value in (0, None) or (is_count(value) and value <= MAX_LAYERS)
  ),
  'a count or nothing': lambda value: value in (0, None) or is_count(value),
  'true or false': lambda value: type(value) is bool,
  'a positive number or nothing': lambda value: (
    value is None or (_is_number(value) and value > 0)
  ),
  'a number below 1, such as 1e-5': lambda value: (
    _is_number(value) and 0 < value < 1
  ),
  'a share from 0 to below 1': lambda value: (
    _is_number(value) and 0 <= value < 1
  ),
  'pairs of a width and a count': _are_pairs,
}


def read(file: epath.Path, kind: type = dict) -> Any:
  """Returns what a JSON file holds.

  Args:
    file: the file.
    kind: dict or list.

  Raises:
    ValueError: if it is damaged, or holds something else.
  """

  def refuse(constant: str) -> None:
    raise ValueError(f'{constant} is no number of JSON')

  try:
    found = json.loads(file.read_bytes(), parse_constant=refuse)
    _check_depth(found)
  except ValueError as error:
    raise ValueError(f'{file}: {error}') from error
  except RecursionError:
    raise ValueError(f'{file}: {_TOO_DEEP}') from None
  if not isinstance(found, kind):
    raise ValueError(
      f'{file} holds a {type(found).__name__}, expected a {kind.__name__}'
    )
  return found


def _check_depth(value: Any) -> None:
  """Refuses what cannot be written out again in a message."""
  parts = [value]
  for _ in range(MAX_DEPTH):
    parts = [
      part
      for whole in parts
      if isinstance(whole, dict | list)
      for part in (whole.values() if isinstance(whole, dict) else whole)
    ]
    if not parts:
      return
  raise ValueError(_TOO_DEEP)


def look_up(config: Any, key: str) -> Any:
  """Returns the value under a key with dots; None where there is none."""
  for name in key.split('.'):
    if not isinstance(config, Mapping) or name not in config:
      return None
    config = config[name]
  return config


def read_fields(
  config: Mapping[str, Any], table: Mapping[str, tuple[str, str]]
) -> tuple[dict[str, Any], list[str]]:
  """Returns our fields, and a line for each value that is not of its kind.

  Args:
    config: key -> value.
    table: key, with dots where objects are nested -> our field, and its kind,
      of `KINDS`.
  """
  fields, problems = {}, []
  for key, (field, kind) in table.items():
    value = look_up(config, key)
    if KINDS[kind](value):
      fields[field] = value
    else:
      found = 'missing' if value is None else repr(value)
      problems.append(f'{key} is {found}, expected {kind}')
  return fields, problems


def read_choice(
  config: Mapping[str, Any], key: str, choices: Mapping[str, Any]
) -> tuple[Any, list[str]]:
  """Returns what a value stands for; a line if it is none of the choices."""
  value = config.get(key)
  if isinstance(value, str) and value in choices:
    return choices[value], []
  found = 'missing' if value is None else repr(value)
  return None, [f'{key} is {found}, expected {" or ".join(choices)}']


def deviations(
  config: Mapping[str, Any], always: Mapping[str, Any]
) -> list[str]:
  """Returns a line for each value that is not the only one we can do.

  Args:
    config: key -> value; what is not there is as it always is.
    always: key -> the value.
  """
  return [
    f'{key} is {config[key]!r}, only {value!r} is known here'
    for key, value in always.items()
    if config.get(key, value) != value
  ]
