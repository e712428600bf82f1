"""WiC: whether a word has the same sense in two sentences.

The release (Pilehvar and Camacho-Collados 2019) has a folder a split, with
SPLIT.data.txt and SPLIT.gold.txt.
"""

from typing import NamedTuple

from etils import epath

from data.tasks import files
from data.tasks.senses.occurrences import Occurrence

SIZES = {'train': 5428, 'dev': 638, 'test': 1400}
LABELS = {'T': True, 'F': False}
TITLES = ('word', 'part of speech', 'places', 'sentence 1', 'sentence 2')


class Pair(NamedTuple):
  """A word in two sentences; `same` tells its senses, None if unknown."""

  first: Occurrence
  second: Occurrence
  same: bool | None


def read(folder: epath.PathLike, split: str) -> list[Pair]:
  """Returns the pairs of 'train', 'dev' or 'test', in the order of the file.

  The files lie in a folder of the split's name, or in `folder` itself. A test
  set without SPLIT.gold.txt has unknown labels. Sentences are tokenised: their
  words stand between spaces. Raises FileNotFoundError if a file is missing, and
  ValueError, with file and line, at a wrong line.
  """
  root = epath.Path(folder).expanduser()
  inside = root / split if (root / split).is_dir() else root
  file = inside / f'{split}.data.txt'
  if not file.exists():
    raise FileNotFoundError(
      f'{root}: found no {split}/{split}.data.txt, expected the files of WiC'
      f' (https://pilehvar.github.io/wic/). {files.contents(root)}'
    )
  labels = _labels(inside / f'{split}.gold.txt', split)
  pairs = []
  for where, record in files.read_tsv(file, (), titles=TITLES):
    places = record['places'].split('-')
    if len(places) != 2 or not all(place.isdecimal() for place in places):
      raise ValueError(
        f'{where}: found the places {record["places"]!r}, expected two numbers'
        ' of words, as in 2-0'
      )
    found = []
    for number, place in enumerate(map(int, places), start=1):
      words = tuple(record[f'sentence {number}'].split())
      if place >= len(words):
        raise ValueError(
          f'{where}: found the place {place} in a sentence of {len(words)}'
          ' words, expected the place of one of them, from 0'
        )
      found.append(Occurrence(f'{where}, sentence {number}', words, place))
    pairs.append(Pair(*found, None))
  if labels is not None:
    if len(labels) != len(pairs):
      raise ValueError(
        f'{inside / split}.gold.txt: found {len(labels):,} labels, expected'
        f' one for each of the {len(pairs):,} pairs of {file}'
      )
    pairs = [
      pair._replace(same=same) for pair, same in zip(pairs, labels, strict=True)
    ]
  if not pairs:
    raise ValueError(f'{file}: is empty, expected a pair a line')
  if len(pairs) != SIZES[split]:
    files.note(
      f'{file}: holds {len(pairs):,} pairs, WiC has {SIZES[split]:,} in the'
      f' split {split!r}'
    )
  return pairs


def _labels(file: epath.Path, split: str) -> list[bool] | None:
  """Returns the labels of a split; None if the test set has no file of them."""
  if not file.exists():
    if split == 'test':
      return None
    raise FileNotFoundError(f'{file}: no such file, expected T or F a line')
  labels = []
  for number, line in files.read_lines(file):
    if line not in LABELS:
      raise ValueError(
        f'{file}, line {number:,}: found {line[:60]!r}, expected T or F'
      )
    labels.append(LABELS[line])
  return labels
