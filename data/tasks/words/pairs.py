"""Pairs of words with people's scores of their similarity.

WordSim-353, SimLex-999, SimVerb-3500, MEN, RG-65 and others, as they were
published or with three columns.
"""

import csv
import math
from collections.abc import Sequence
from typing import NamedTuple

from etils import epath

from data.tasks import files


class WordPair(NamedTuple):
  """Two words and their similarity as people see it, on any scale."""

  first: str
  second: str
  score: float


def read(path: epath.PathLike) -> list[WordPair]:
  """Returns the pairs of a file: a line has two words, then a score.

  Columns are set apart by tabs, commas or spaces. The score is the first number
  behind the words; columns before it (a part of speech) and behind it are not
  read. Lines that begin with # and a first line of titles are skipped. Raises
  FileNotFoundError, and ValueError, with file and line, at a line without a
  score, and if there are fewer than two pairs.
  """
  path = epath.Path(path).expanduser()
  pairs = []
  is_first = True
  for number, line in files.read_lines(path):
    if not line.strip() or line.startswith('#'):
      continue
    fields = _split(line)
    scores = [x for x in map(_number, fields[2:]) if x is not None]
    if scores and all(fields[:2]):
      pairs.append(WordPair(fields[0], fields[1], scores[0]))
    elif not is_first or len(fields) < 3:
      raise ValueError(
        f'{path}, line {number:,}: found {line[:60]!r}, expected two words and'
        ' a score, with tabs, commas or spaces between them'
      )
    is_first = False
  if len(pairs) < 2:
    raise ValueError(
      f'{path}: found {len(pairs)} pairs, expected two or more: two words and'
      ' a score a line'
    )
  return pairs


def read_all(paths: Sequence[epath.PathLike]) -> dict[str, list[WordPair]]:
  """Returns the pairs of files by their names without ending, see `read`."""
  found: dict[str, list[WordPair]] = {}
  for path in paths:
    name = epath.Path(path).stem
    if name in found:
      raise ValueError(
        f'{path}: found a second file {name}, expected files of other names'
      )
    found[name] = read(path)
  return found


def _split(line: str) -> list[str]:
  """Returns the columns of a line."""
  if '\t' in line:
    return [field.strip() for field in line.split('\t')]
  if ',' in line:
    return [field.strip() for field in next(csv.reader([line]))]
  return line.split()


def _number(text: str) -> float | None:
  try:
    number = float(text)
  except ValueError:
    return None
  return number if math.isfinite(number) else None
