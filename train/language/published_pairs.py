"""What published systems have right of the minimal pairs of BLiMP and Zorro."""

import csv
import io
import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from configs import tables

FOLDER = pathlib.Path(tables.__file__).parent / 'published'
NAMES = ('blimp', 'zorro')
# The systems that stand beside a user's models, if these are scored likewise.
BESIDE = (
  '5-gram, 3.1 G words',
  'LSTM, 83 M words',
  'Transformer-XL',
  'GPT-2 774M',
  'BabyBERTa, Wikipedia-1',
  'RoBERTa-base, 10 M words (Warstadt et al. 2020)',
)
ABOUT = (
  'log-probabilities of sentences, from BLiMP; of BabyBERTa and RoBERTa'
  ' pseudo-log-likelihoods, or the way of --scoring=holistic, from Huebner et'
  ' al. 2021'
)
_HOLISTIC = 'mean cross-entropy of the unmasked sentence'


class System(NamedTuple):
  """A published system, or a user's.

  Attributes:
    name: of its row.
    scoring: how it scores, for people.
    runs: number of runs that the figures are means of.
    groups: paradigm -> per cent of right pairs.
  """

  name: str
  scoring: str
  runs: int
  groups: Mapping[str, float]

  def mean(self, groups: Sequence[str]) -> float:
    """Returns the mean over some paradigms, in per cent."""
    return statistics.fmean(self.groups[group] for group in groups)


def read(name: str) -> tuple[dict[str, list[str]], list[System]]:
  """Returns phenomenon -> its paradigms, and the systems of one of `NAMES`."""
  text = (FOLDER / f'{name}.csv').read_text(encoding='utf-8')
  (_, _, *names), ways, runs, *rows = csv.reader(io.StringIO(text))
  families: dict[str, list[str]] = {}
  for group, family, *_ in rows:
    families.setdefault(family, []).append(group)
  systems = [
    System(
      names[i],
      ways[i + 2],
      int(runs[i + 2]),
      {row[0]: float(row[i + 2]) for row in rows},
    )
    for i in range(len(names))
  ]
  return families, systems


def beside(groups: Iterable[str], scoring: str) -> dict[str, dict[str, float]]:
  """Returns system -> paradigm -> its share right, of `BESIDE`.

  None if `groups` are neither all paradigms of BLiMP nor all of Zorro.
  `scoring` is 'holistic' or another way of `train.minimal_pairs`.
  """
  for name in NAMES:
    families, systems = read(name)
    if {group for of in families.values() for group in of} == set(groups):
      return {
        each.name: {group: share / 100 for group, share in each.groups.items()}
        for each in systems
        if each.name in BESIDE
        and (each.scoring == _HOLISTIC) == (scoring == 'holistic')
      }
  return {}
