"""What any import of published weights needs; what does not fit is named."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np


def misfits(
  given: Mapping[str, np.ndarray], expected: Mapping[str, tuple[int, ...]]
) -> list[str]:
  """Returns a line for each name that is missing, not known, or misshapen.

  Args:
    given: name -> array.
    expected: name -> shape.
  """
  problems = [
    f'missing: {name} {shape}'
    for name, shape in expected.items()
    if name not in given
  ]
  problems += [
    f'not known: {name} {array.shape}'
    for name, array in given.items()
    if name not in expected
  ]
  return problems + [
    f'another shape: {name} is {given[name].shape}, expected {shape}'
    for name, shape in expected.items()
    if name in given and given[name].shape != shape
  ]


def flatten(tree: Mapping) -> dict[str, Any]:
  """Returns 'path/of/leaf' -> leaf."""
  return {
    jax.tree_util.keystr(path, simple=True, separator='/'): leaf
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }


def put(tree: dict, path: Sequence[str], value: Any) -> None:
  """Puts a value into nested dicts, made where they are not there."""
  *folders, last = path
  for folder in folders:
    tree = tree.setdefault(folder, {})
  tree[last] = value
