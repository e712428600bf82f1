"""Minimal pairs, BLiMP's and Zorro's: published systems and a user's models.

Each model is scored once in each way that it has, and its figures are kept.
"""

import time
from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath

from configs.tables.base import Table
from train.host import console, files
from train.host.files import Json
from train.language import minimal_pairs, published_pairs
from train.language.published_pairs import System
from train.papers import column_heads, table_rendering, table_rows

# Of the command that it takes.
OPTIONS = ('weights', 'data', 'rerun', 'run', 'dry_run')
DETAILS = tuple(
  'Row|Scored|Pairs|Mean|95 % interval|Ties|Seconds|Hardware|Revision'
  '|Weights'.split('|')
)


def make(
  table: Table,
  out: epath.PathLike,
  *,
  weights: Sequence[str],
  data: str | None = None,
  rerun: bool = False,
  run: bool = True,
  dry_run: bool = False,
  unused: Sequence[str] = (),
) -> bool:
  """Scores what is missing, writes OUT/TABLE.md and .tex, prints the Markdown.

  `weights` are NAME=WEIGHTS or WEIGHTS, `data` the folder of the pairs' folder,
  or that itself. A name that was scored before is scored again with `rerun`
  alone. `dry_run` prints the missing ones. Returns True; bad input is a
  ValueError or OSError.
  """
  if unused:
    raise ValueError(f'--table {table.id}: takes no {" ".join(unused)}')
  files.check_folder('--out', out)
  out, stem = epath.Path(out), table.id.replace('/', '_')
  named: dict[str, str] = {}
  for text in weights:
    name, path = table_rows.split_name(text)
    if table_rows.slug(name) in map(table_rows.slug, named):
      raise ValueError(
        f'--weights {text}: two have the name {name!r}; rename one by'
        ' NAME=WEIGHTS'
      )
    named[name] = path
  folders = {name: out / stem / table_rows.slug(name) for name in named}
  missing = [
    name
    for name, path in named.items()
    if rerun or not _is_finished(folders[name], path)
  ]
  if missing and (run or dry_run):
    place = _find_pairs(table, data)
    pairs = minimal_pairs.read(str(place))
    _check_groups(table, pairs, place)
    if dry_run:
      for name in missing:
        print(f'{name}: {named[name]} scores {2 * len(pairs):,} sentences')
      return True
    _fill({n: (named[n], folders[n]) for n in missing}, pairs, rerun)
  elif dry_run:
    console.say(
      'nothing to run: '
      + ('all of --weights have figures' if named else table_rows.NEEDS_WEIGHTS)
    )
    return True
  page = lay_out(table, _read_ours(out / stem))
  table_rendering.write(page, out, stem)
  return True


def _scorings(folder: epath.Path) -> list[str]:
  """Returns the ways of scoring that a model has; none if it has no figures."""
  first = folder / 'sum.json'
  return files.read_json(first)['scorings'] if first.exists() else []


def _is_finished(folder: epath.Path, weights: str) -> bool:
  """Returns whether a model has all its figures; told if of other weights."""
  first = folder / 'sum.json'
  if not first.exists():
    return False
  kept = files.read_json(first)
  if kept['weights'] != weights:
    console.say(
      f'{kept["name"]} has figures of {kept["weights"]}, which stay;'
      f' --rerun scores {weights} in its place'
    )
  return all((folder / f'{way}.json').exists() for way in kept['scorings'])


def _find_pairs(table: Table, data: str | None) -> epath.Path:
  name = table.id.partition('/')[2]
  if data is None:
    raise ValueError(
      f'{table.id} needs --data DIR, where DIR/{name} holds its pairs'
    )
  place = epath.Path(data)
  return place / name if (place / name).is_dir() else place


def _check_groups(
  table: Table, pairs: Sequence[minimal_pairs.MinimalPair], place: epath.Path
) -> None:
  """Checks that pairs have the paradigms of the published rows."""
  families, _ = published_pairs.read(table.id.partition('/')[2])
  wanted = {group for of in families.values() for group in of}
  found = {pair.group for pair in pairs}
  if found != wanted:
    raise ValueError(
      f'{place}: its paradigms are not those of {table.id}: missing'
      f' {", ".join(sorted(wanted - found)) or "none"}; unknown'
      f' {", ".join(sorted(found - wanted)) or "none"}'
    )


def _fill(
  missing: Mapping[str, tuple[str, epath.Path]],
  pairs: Sequence[minimal_pairs.MinimalPair],
  rerun: bool,
) -> None:
  """Scores models, and writes a file for each and each way of scoring."""
  sentences = minimal_pairs.sentences(pairs)
  from train.host import device
  from train.language import sentence_scorers

  device.enable_compilation_cache()
  scorers = {  # all are checked before one is scored
    name: sentence_scorers.open_for_pairs(path, pairs)
    for name, (path, _) in missing.items()
  }
  for name, (path, folder) in missing.items():
    began = time.monotonic()
    for scoring in scorers[name].scorings:
      file = folder / f'{scoring}.json'
      if file.exists() and not rerun:
        continue
      console.say(f'\n{name}, {scoring}')
      if not scorers[name].reads_once:
        began = time.monotonic()
      sums, _, way = scorers[name].score(sentences, scoring=scoring)
      found = {
        'name': name,
        'weights': path,
        'scorings': list(scorers[name].scorings),
        'scoring': way,
        **minimal_pairs.figures(pairs, *np.split(sums, 2)),
        'seconds': time.monotonic() - began,
        'device': device.describe(),
        'revision': device.revision(),
      }
      folder.mkdir(parents=True, exist_ok=True)
      files.write_atomically(file, files.as_json(found) + '\n')


def _read_ours(folder: epath.Path) -> list[dict[str, Json]]:
  """Returns the figures of all models that were scored, by name and way."""
  if not folder.exists():
    return []
  places = sorted(place for place in folder.iterdir() if place.is_dir())
  return [
    files.read_json(place / f'{scoring}.json')
    for place in places
    for scoring in _scorings(place)
    if (place / f'{scoring}.json').exists()
  ]


def lay_out(
  table: Table, ours: Sequence[Mapping[str, Json]]
) -> table_rendering.TablePage:
  """Returns the page: by phenomenon, by paradigm, and how ours were scored."""
  families, systems = published_pairs.read(table.id.partition('/')[2])
  every = [group for of in families.values() for group in of]
  for found in ours:
    groups = {name: 100 * share for name, share in found['groups'].items()}
    systems.append(
      System(f'{found["name"]} (ours)', found['scoring'], 1, groups)
    )
  by_family = [
    (
      each.name,
      each.scoring,
      str(each.runs),
      f'{each.mean(every):.2f}',
      *(f'{each.mean(of):.2f}' for of in families.values()),
    )
    for each in systems
  ]
  by_group = [
    (group, *(f'{each.groups[group]:.2f}' for each in systems))
    for group in every
  ]
  details = [
    (
      f'{found["name"]}',
      found['scoring'],
      f'{found["pairs"]:,}',
      f'{100 * found["mean"]:.2f}',
      '{:.2f} to {:.2f}'.format(*(100 * each for each in found['interval'])),
      f'{found["ties"]:,}',
      f'{found["seconds"]:,.0f}',
      found['device'],
      found['revision'],
      found['weights'],
    )
    for found in ours
  ]
  names = [each.name for each in systems]
  scored = ('scored', *(each.scoring for each in systems))
  sheets = (
    table_rendering.Sheet(
      'Published and ours, per cent of pairs by phenomenon',
      ('', 'scored', 'runs', 'mean over paradigms', *families),
      tuple(by_family),
      best=('', '', '', *[column_heads.HIGH] * (1 + len(families))),
    ),
    table_rendering.Sheet('By paradigm', ('', *names), (scored, *by_group)),
    table_rendering.Sheet('Ours, row by row', DETAILS, tuple(details)),
  )
  return table_rendering.TablePage(
    table.title,
    table.source,
    tuple(sheet for sheet in sheets if sheet.rows),
    (('Notes', table.notes),),
  )
