"""The JSON beside published weights: sizes and options of the model."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from etils import epath

MAX_DEPTH = 50  # of lists and objects; deeper ones cannot be printed
MAX_LAYERS = 1000  # each layer takes time before its arrays are looked for


def is_count(value: Any) -> bool:
  """Returns whether a value is a size that an array may have."""
  return type(value) is int and 0 < value < 2**31


def _is_layers(value: Any) -> bool:
  return is_count(value) and value <= MAX_LAYERS


def _is_number(value: Any) -> bool:
  # Neither 1e999, which is infinite here, nor an integer beyond a float.
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


SHARE = 'a share from 0 to below 1'
SMALL = 'a number below 1, such as 1e-5'
# Kind of a value, in words -> whether a value is of this kind.
KINDS: dict[str, Callable[[Any], bool]] = {
  'a count': is_count,
  'a count of layers': _is_layers,
  'a count of layers or nothing': lambda x: x in (0, None) or _is_layers(x),
  'a count or nothing': lambda x: x in (0, None) or is_count(x),
  'true or false': lambda x: type(x) is bool,
  'a positive number': lambda x: _is_number(x) and x > 0,
  'a positive number or nothing': lambda x: (
    x is None or (_is_number(x) and x > 0)
  ),
  SMALL: lambda x: _is_number(x) and 0 < x < 1,
  SHARE: lambda x: _is_number(x) and 0 <= x < 1,
  'pairs of a width and a count': _are_pairs,
}


def read(file: epath.Path, kind: type = dict) -> Any:
  """Returns a JSON file's dict or list (`kind`); else raises ValueError."""

  def refuse(constant: str) -> None:
    raise ValueError(f'{constant} is no number of JSON')

  try:
    found = json.loads(file.read_bytes(), parse_constant=refuse)
    is_deep = _depth(found) > MAX_DEPTH
  except ValueError as error:
    raise ValueError(f'{file}: {error}') from error
  except RecursionError:
    is_deep = True
  if is_deep:
    raise ValueError(
      f'{file}: more than {MAX_DEPTH} lists and objects inside one another'
    )
  if not isinstance(found, kind):
    raise ValueError(
      f'{file} holds a {type(found).__name__}, expected a {kind.__name__}'
    )
  return found


def _depth(value: Any) -> int:
  if not isinstance(value, dict | list):
    return 0
  parts = value.values() if isinstance(value, dict) else value
  return 1 + max(map(_depth, parts), default=0)


def look_up(config: Any, key: str) -> Any:
  """Returns the value under a key with dots; None if there is none."""
  for name in key.split('.'):
    if not isinstance(config, Mapping) or name not in config:
      return None
    config = config[name]
  return config


def read_fields(
  config: Mapping[str, Any], table: Mapping[str, tuple[str, str]]
) -> tuple[dict[str, Any], list[str]]:
  """Returns fields of a module, and a line for each value of a wrong kind."""
  fields, problems = {}, []
  for key, (field, kind) in table.items():
    value = look_up(config, key)
    if KINDS[kind](value):
      fields[field] = value
    else:
      problems.append(f'{key} is {_in_words(value)}, expected {kind}')
  return fields, problems


def read_transformer(
  config: Mapping[str, Any],
  table: Mapping[str, tuple[str, str]],
  activation: str,
  gelus: Mapping[str, str],
  always: Mapping[str, Any],
) -> tuple[dict[str, Any] | None, list[str]]:
  """Returns the fields of a transformer, None if sizes are wrong; problems.

  `table` is as in `read_fields`. `activation` is the key of the activation
  function, `gelus` map its values to forms of GELU. `always` maps keys to the
  only value known here, which a missing key has too.
  """
  fields, problems = read_fields(config, table)
  is_whole, gelu = not problems, config.get(activation)
  if not isinstance(gelu, str) or gelu not in gelus:
    problems.append(
      f'{activation} is {_in_words(gelu)}, expected {" or ".join(gelus)}'
    )
    gelu = next(iter(gelus))
  problems += [
    f'{key} is {config[key]!r}, only {value!r} is known here'
    for key, value in always.items()
    if config.get(key, value) != value
  ]
  if is_whole and fields['embed_dim'] % fields['num_heads']:
    key_of = {field: key for key, (field, _) in table.items()}
    problems.append(
      f'{key_of["embed_dim"]} is {fields["embed_dim"]}, expected a multiple of'
      f' {key_of["num_heads"]} ({fields["num_heads"]})'
    )
    is_whole = False
  return (fields | {'gelu': gelus[gelu]} if is_whole else None), problems


def _in_words(value: Any) -> str:
  return 'missing' if value is None else repr(value)
