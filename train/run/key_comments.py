"""A config as text, with the comment of each key in `configs`."""

import ast
import inspect
from collections.abc import Callable

import ml_collections

from configs import variants
from train.run import settings


def comments(config: ml_collections.ConfigDict) -> dict[str, str]:
  """Returns the comments that stand beside and above the defaults of the keys.

  They are those of the function that makes the config's defaults, and of the
  functions that it calls. A key, 'section.name', without one has no entry.
  """
  keys = settings.flatten(config).keys()
  maker = variants.maker_of(config)
  lines = [
    line.strip()
    for function in (_with_called(maker) if maker else [])
    for line in inspect.getsource(function).splitlines()
  ]
  found = {}
  for number, line in enumerate(lines):
    key, equals, value = line.removeprefix('config.').partition(' = ')
    if equals and key in keys and not found.get(key):
      above = []
      while lines[number - 1 - len(above)].startswith('#'):
        above.insert(0, lines[number - 1 - len(above)].lstrip('# '))
      beside = value.partition('  # ')[2]
      found[key] = ' '.join([*above, *([beside] if beside else [])])
  return {key: said for key, said in found.items() if said}


def _with_called(function: Callable) -> list[Callable]:
  """Returns a function and those of `configs` that it calls, itself first."""
  found = []
  waiting = [function]
  while waiting:
    each = waiting.pop(0)
    if each not in found:
      found.append(each)
      waiting += _called(each)
  return found


def _called(function: Callable) -> list[Callable]:
  """Returns the functions of `configs` that the body of one names in calls."""
  found = []
  for node in ast.walk(ast.parse(inspect.getsource(function))):
    match node:
      case ast.Call(func=ast.Name(id=name)):
        called = function.__globals__.get(name)
      case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)):
        called = getattr(function.__globals__.get(module), name, None)
      case _:
        continue
    if inspect.isfunction(called) and called.__module__.startswith('configs.'):
      found.append(called)
  return found


def as_text(config: ml_collections.ConfigDict) -> str:
  """Returns a config as lines of 'section.name = value  # comment'."""
  values = settings.flatten(config)
  said = comments(config)
  return '\n'.join(
    f'{key} = {value!r}' + (f'  # {said[key]}' if key in said else '')
    for key, value in values.items()
  )
