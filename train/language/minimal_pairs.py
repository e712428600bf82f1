"""Minimal pairs: a good sentence and a bad one that differ in little.

Read are BLiMP (Warstadt et al. 2020), Zorro (Huebner et al. 2021) and files of
one's own. A model is right where it finds the good sentence more probable; a
tie is wrong.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from data.text import text_files
from train.host import console, files, pictures
from train.language import inputs

SUMMARY = 'models_summary.jsonl'  # of BLiMP: published systems, no pairs
FIELDS = ('good', 'bad')
_DRAWS, _SEED = 1_000, 0  # of a bootstrap


class MinimalPair(NamedTuple):
  """Two sentences, and the groups that they belong to.

  Attributes:
    good: the acceptable sentence.
    bad: the other one.
    group: BLiMP's paradigm, or another name; '' without.
    family: of groups: BLiMP's phenomenon; else the group.
    place: file and line, for messages.
  """

  good: str
  bad: str
  group: str
  family: str
  place: str


def read(path: str) -> list[MinimalPair]:
  """Reads a folder of BLiMP or Zorro, or a file of one's own.

  Such a file is JSONL with `good`, `bad` and perhaps `group`, or separated by
  tabs (.tsv) with a line of these titles. Raises ValueError with file and line
  for a sentence that is missing, and for two equal ones in a file of one's own;
  BLiMP has some, which are counted on standard error.
  """
  place = epath.Path(path)
  if not place.exists():
    raise FileNotFoundError(
      f'{path}: there is no such file or folder: expected a folder of BLiMP'
      " (NAME.jsonl) or Zorro (NAME.txt), or a file of one's own (.jsonl, .tsv)"
    )
  if not place.is_dir():
    pairs = _read_own(place)
  else:
    names = sorted(each for each in place.iterdir() if each.name != SUMMARY)
    blimp = [each for each in names if each.suffix == '.jsonl']
    zorro = [each for each in names if each.suffix == '.txt']
    if not blimp and not zorro:
      raise ValueError(
        f'{path}: holds neither NAME.jsonl, as BLiMP, nor NAME.txt, as Zorro'
      )
    reader = _read_blimp if blimp else _read_zorro
    pairs = [pair for each in blimp or zorro for pair in reader(each)]
  for pair in pairs:
    if not (pair.good.strip() and pair.bad.strip()):
      raise ValueError(f'{pair.place}: a sentence is empty, expected two texts')
  if same := [pair for pair in pairs if pair.good == pair.bad]:
    first = f'{same[0].place}: both sentences are {same[0].good!r}'
    if not place.is_dir():
      raise ValueError(f'{first}, expected two that differ')
    console.say(
      f'{len(same):,} of {len(pairs):,} pairs have two equal sentences, a tie'
      f' and so wrong. The first: {first}'
    )
  return pairs


def _read_blimp(path: epath.Path) -> list[MinimalPair]:
  names = ('sentence_good', 'sentence_bad', 'UID', 'linguistics_term')
  records = inputs.number_records(
    text_files.read_text(path),
    path,
    lambda record: all(isinstance(record.get(name), str) for name in names),
    f'an object with the texts {", ".join(names)}',
  )
  return [
    MinimalPair(*(record[name] for name in names), f'{path}, line {number}')
    for number, record in records
  ]


def _read_zorro(path: epath.Path) -> list[MinimalPair]:
  # A sentence may hold the other line ends of Unicode.
  lines = text_files.read_text(path).removesuffix('\n').split('\n')
  if lines == ['']:
    raise ValueError(f'{path}: is empty; expected pairs of lines')
  if len(lines) % 2:
    raise ValueError(
      f'{path}: {len(lines):,} lines, expected an even number: a bad sentence'
      ' and then a good one'
    )
  return [
    MinimalPair(
      lines[i + 1],
      lines[i],
      path.stem,
      path.stem.partition('-')[0],
      f'{path}, line {i + 1}',
    )
    for i in range(0, len(lines), 2)
  ]


def _read_own(path: epath.Path) -> list[MinimalPair]:
  text = text_files.read_text(path)
  if text_files.is_jsonl(path):
    records = inputs.number_records(
      text,
      path,
      lambda record: (
        all(isinstance(record.get(name), str) for name in FIELDS)
        and isinstance(record.get('group', ''), str)
      ),
      'an object with the texts good, bad and perhaps group',
    )
  else:
    records = _number_rows(text, path)
  if not records:
    raise ValueError(f'{path}: holds no pair')
  return [
    MinimalPair(
      record['good'],
      record['bad'],
      record.get('group', ''),
      record.get('group', ''),
      f'{path}, line {number}',
    )
    for number, record in records
  ]


def _number_rows(
  text: str, path: epath.Path
) -> list[tuple[int, dict[str, str]]]:
  """Returns (number of the line, title -> text) of each line that has some."""
  first, *lines = text.split('\n')
  titles = first.split('\t')
  if missing := set(FIELDS) - set(titles):
    raise ValueError(
      f'{path}, line 1: no column {", ".join(sorted(missing))} among {titles},'
      ' expected good, bad and perhaps group, separated by tabs'
    )
  rows = []
  for number, line in enumerate(lines, start=2):
    if not line:
      continue
    values = line.split('\t')
    if len(values) != len(titles):
      raise ValueError(
        f'{path}, line {number}: expected {len(titles)} columns, separated by'
        f' tabs, found {len(values)}'
      )
    rows.append((number, dict(zip(titles, values, strict=True))))
  return rows


def sentences(pairs: Sequence[MinimalPair]) -> list[str]:
  """Returns the good sentences, and then the bad ones."""
  return [pair.good for pair in pairs] + [pair.bad for pair in pairs]


def limited(pairs: Sequence[MinimalPair], limit: int | None) -> list:
  """Returns `limit` pairs of each group, evenly spaced; None: all."""
  groups: dict[str, list[MinimalPair]] = {}
  for pair in pairs:
    groups.setdefault(pair.group, []).append(pair)
  found = []
  for of_group in groups.values():
    count = len(of_group) if limit is None else min(limit, len(of_group))
    found += [of_group[i * len(of_group) // count] for i in range(count)]
  return found


# Of a model: name -> figure, `interval`, and `families` and `groups` by name.
Figures = Mapping[str, files.Json]


def figures(
  pairs: Sequence[MinimalPair], good: np.ndarray, bad: np.ndarray
) -> Figures:
  """Returns the shares of right pairs, in all, by family and by group.

  `good` and `bad` are the scores of the sentences, float [pairs]. `mean` is the
  mean over the groups, with a 95 % interval by drawing pairs of each group with
  replacement; `share` is the share among all pairs; `ties` counts the pairs
  whose scores are equal; `of_family` lists the groups of each family.
  """
  right = good > bad
  places: dict[str, list[int]] = {}
  families: dict[str, dict[str, None]] = {}
  for number, pair in enumerate(pairs):
    places.setdefault(pair.group, []).append(number)
    families.setdefault(pair.family, {})[pair.group] = None
  groups = {name: float(right[at].mean()) for name, at in places.items()}
  rng = np.random.default_rng(_SEED)
  drawn = [rng.binomial(len(places[g]), groups[g], _DRAWS) for g in groups]
  means = np.mean(
    [d / len(places[g]) for d, g in zip(drawn, groups, strict=True)], axis=0
  )
  low, high = np.quantile(means, [0.025, 0.975])
  return {
    'mean': float(np.mean(list(groups.values()))),
    'interval': [float(low), float(high)],
    'share': float(right.mean()),
    'pairs': len(pairs),
    'ties': int((good == bad).sum()),
    'families': {
      family: float(right[[n for g in of for n in places[g]]].mean())
      for family, of in families.items()
    },
    'of_family': {family: [*of] for family, of in families.items()},
    'groups': groups,
  }


def mcnemar(first: np.ndarray, second: np.ndarray) -> dict[str, float]:
  """Compares two models by the pairs that each has right, bool [pairs].

  Returns how many pairs only one model has right, and the probability of so
  uneven a split if both were equally good, by McNemar's exact binomial test.
  """
  from scipy import stats

  only = int((first & ~second).sum()), int((second & ~first).sum())
  p = stats.binomtest(only[0], sum(only)).pvalue if sum(only) else 1.0
  return {'only_first': only[0], 'only_second': only[1], 'p': float(p)}


def table(
  found: Mapping[str, Figures], others: Mapping[str, Mapping[str, float]]
) -> str:
  """Returns the shares in per cent as Markdown, ours and published ones.

  Args:
    found: model -> its `figures`.
    others: system -> group -> its published share.
  """
  from train.meanings import tables

  rows = []

  def add(name: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
    rows.append([name, *(f'{100 * value:.1f}' for value in (*ours, *theirs))])

  first = next(iter(found.values()))
  for family, of in first['of_family'].items():
    ours = [each['families'][family] for each in found.values()]
    add(
      f'**{family or "all"}**',
      ours,
      [_mean(each, of) for each in others.values()],
    )
    if of == [family]:
      continue
    for group in of:
      ours = [each['groups'][group] for each in found.values()]
      add(group, ours, [each[group] for each in others.values()])
  add(
    '**mean over groups**',
    [each['mean'] for each in found.values()],
    [_mean(each, first['groups']) for each in others.values()],
  )
  return tables.markdown(['% right', *found, *others], rows)


def _mean(shares: Mapping[str, float], groups: Iterable[str]) -> float:
  return float(np.mean([shares[group] for group in groups]))


def draw(path: str, of_sets: Mapping[str, Mapping[str, files.Json]]) -> None:
  """Draws a group of bars for each family: our models, then published ones.

  `of_sets` are PAIRS -> its `models` and `published`, a panel each.
  """
  panels = {name: _bars(of) for name, of in of_sets.items()}
  heights = [
    len(families) * (0.15 + 0.09 * len(bars))
    for families, bars in panels.values()
  ]
  figure = pictures.figure(6.5, 1.2 + sum(heights) + 0.5 * (len(panels) - 1))
  column = figure.subplots(
    len(panels), squeeze=False, height_ratios=heights, sharex=True
  )
  ours = next(iter(of_sets.values()))['models']
  colors = {name: f'C{number % 10}' for number, name in enumerate(ours)}
  others = [name for of in of_sets.values() for name in of['published']]
  others = list(dict.fromkeys(others))
  greys = np.linspace(0.35, 0.85, len(others))
  colors |= {name: str(grey) for name, grey in zip(others, greys, strict=True)}
  legend = {}
  for (axes,), (set_name, (families, bars)) in zip(
    column, panels.items(), strict=True
  ):
    width = 0.8 / len(bars)
    for number, (name, values) in enumerate(bars.items()):
      legend[pictures.shown(name)] = axes.barh(
        np.arange(len(families)) + (number + 0.5) * width - 0.4,
        100 * np.array(values),
        width,
        color=colors[name],
      )
    axes.axvline(50, color='black', linewidth=0.8, linestyle=':')
    axes.set_yticks(range(len(families)), families)
    axes.set_ylim(len(families) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    if len(panels) > 1:
      axes.set_title(epath.Path(set_name).name, fontsize='medium')
  axes.set_xlabel('right pairs, %; dotted: chance')
  figure.legend(
    legend.values(),
    legend,
    loc='outside upper center',
    ncols=2,
    fontsize='small',
  )
  pictures.save(figure, path, dpi=150)


def _bars(
  of: Mapping[str, files.Json],
) -> tuple[list[str], dict[str, list[float]]]:
  """Returns the names of families, and model -> its shares of them."""
  models, published = of['models'], of['published']
  bars = {
    name: [*each['families'].values(), each['mean']]
    for name, each in models.items()
  }
  first = next(iter(models.values()))
  groups = [*first['of_family'].values(), [*first['groups']]]
  bars |= {
    name: [_mean(shares, of_family) for of_family in groups]
    for name, shares in published.items()
  }
  names = [each.replace('_', ' ') or 'all' for each in first['families']]
  return [*names, 'mean over groups'], bars


def write_scores(
  path: str,
  sets: Mapping[str, Sequence[MinimalPair]],
  scores: Mapping[str, Mapping[str, np.ndarray]],
  names: Sequence[str],
) -> None:
  """Writes a CSV of each pair, and each model's score of both sentences."""
  header = [*MinimalPair._fields[:4]]
  header += [f'{name} {side}' for name in names for side in FIELDS]
  rows = [header]
  for set_name, pairs in sets.items():
    columns = np.concatenate([scores[set_name][name] for name in names])
    rows += [
      [*pair[:4], *columns[:, number].tolist()]
      for number, pair in enumerate(pairs)
    ]
  files.write_atomically(epath.Path(path), files.as_csv(rows))
