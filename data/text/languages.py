"""Several languages: their names in a source, and their shares of training."""

import re
from collections.abc import Sequence

import numpy as np

# P(L)^0.7, renormalised (google-research/bert, multilingual.md).
EXPONENT = 0.7
_NAMED = re.compile(r'[A-Za-z][\w-]*=')
IDS = 'ernie:'  # before the path of text that is token ids already


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
  """Returns the sources of a source, of each language one, as paths."""
  parts = split(spec).values() or [spec]
  return [part.removeprefix(IDS) for part in parts]


def split(spec: str) -> dict[str, str]:
  """Returns language -> source of a list by language; {} of a plain source.

  Raises ValueError for a language that is named twice, and for a source in the
  list without a name or a name without a source.
  """
  if not _NAMED.match(spec):
    return {}
  found = {}
  for part in spec.split(','):
    name, _, source = part.strip().partition('=')
    if not (_NAMED.match(part.strip()) and source):
      raise ValueError(
        f'source {spec!r}: found {part!r}, expected NAME=SOURCE, a language and'
        ' its text. A comma separates languages, and stands in no path'
      )
    if name in found:
      raise ValueError(
        f'source {spec!r}: language {name!r} is named twice, for'
        f' {found[name]!r} and {source!r}, expected once: give all its text,'
        ' under one rule for documents, by one folder or glob'
      )
    found[name] = source
  return found
