"""The page and the JSON of a table that pre-trains its rows."""

import statistics
from collections.abc import Mapping, Sequence

from etils import epath

from configs.tables.base import TRAINED, Table
from train.host import files
from train.host.files import Json
from train.papers import contrasts
from train.papers.table_rendering import Sheet, TablePage

ARGUMENTS = (
  'argument',
  'column',
  'published',
  'difference',
  '95 % interval',
  'verdict',
)


PRETRAININGS = (
  'config',
  'seed',
  'steps',
  'held-out perplexity',
  'seconds',
  'hardware',
  'revision',
)
TUNINGS = (
  'row',
  'seed of pre-training',
  'fine-tunings',
  'diverged',
  'seconds',
  'hardware',
  'revision',
)
# Pre-training is said to pay if it is above what does without on so many tasks
# of so many; it was settled before any table was run.
PAYS = (5, 6)
Facts = Mapping[str, Json]


def lay_out(
  table: Table,
  values: contrasts.Values,
  differences: Sequence[contrasts.Difference],
  facts: Facts,
  lists: Mapping[str, Sequence[str]],
) -> TablePage:
  """Returns the page: rows, arguments, and how ours were made.

  `facts` are `command`, `pretrainings`, see `small_table.Pretraining.facts`,
  and `fine_tunings`.
  """
  rows = []
  for row in table.rows:
    if any(map(str, row.values)):
      rows.append((row.name, *map(str, row.values)))
    ours = [
      _text(values.get((row.name, column.name))) for column in table.columns
    ]
    if any(ours):
      rows.append((f'{row.name} (ours)', *ours))
  arguments = tuple(
    (
      each.contrast.claim,
      each.column,
      '' if each.published is None else f'{each.published:+.1f}',
      f'{each.mean:+.1f}',
      '' if each.low is None else f'{each.low:+.1f} to {each.high:+.1f}',
      each.verdict,
    )
    for each in differences
  )
  sheets = (
    Sheet(
      'Published and ours',
      ('', *(column.name for column in table.columns)),
      tuple(rows),
    ),
    Sheet('Arguments', ARGUMENTS, arguments),
    Sheet(
      'Pre-trainings',
      PRETRAININGS,
      tuple(
        _of_pretraining(each)
        for each in facts['pretrainings']
        if {'metrics', 'diverged'} & each.keys()
      ),
    ),
    Sheet('Fine-tunings', TUNINGS, _of_tunings(facts['fine_tunings'])),
  )
  lists = {
    'Notes': (
      *table.notes,
      *_note_on_perplexities(table, differences),
      *_note_on_chance(differences),
      f'Made by {facts["command"]}; the JSON beside this page has the command'
      ' of each run.',
    ),
    **lists,
    'Does pre-training pay?': count_gains(table, differences),
  }
  return TablePage(
    table.title,
    table.source,
    tuple(sheet for sheet in sheets if sheet.rows),
    tuple((name, tuple(told)) for name, told in lists.items() if told),
  )


def _of_pretraining(facts: Facts) -> tuple[str, ...]:
  start = facts['name'], str(facts['seed'])
  if 'metrics' not in facts:
    return *start, f'diverged: {facts["diverged"]}', '', '', '', ''
  held_out = [
    f'{value:.1f}'
    for name, value in facts['metrics'].items()
    if name.endswith('perplexity') and 'unigram' not in name
  ]
  if 'eval/nsp_accuracy' in facts['metrics']:
    share = facts['metrics']['eval/nsp_accuracy']
    held_out.append(f'next sentences {100 * share:.0f} %')
  return (
    *start,
    f'{facts["steps"]:,}',
    ', '.join(held_out),
    f'{facts["seconds"]:,.0f}',
    facts.get('device', ''),
    facts.get('revision', ''),
  )


def _of_tunings(runs: Sequence[Facts]) -> tuple[tuple[str, ...], ...]:
  """Returns a line for each row and pre-training, all tasks in one."""
  groups: dict[tuple[str, str], list[Facts]] = {}
  for run in runs:
    key = run['row'], str(run['seed_of_pretraining'])
    groups.setdefault(key, []).append(run)
  return tuple(
    (
      *key,
      *(
        str(sum(run[name] for run in of_key)) for name in ('seeds', 'diverged')
      ),
      f'{sum(run["seconds"] for run in of_key):,.0f}',
      *(
        ', '.join(filter(None, dict.fromkeys(run[name] for run in of_key)))
        for name in ('device', 'revision')
      ),
    )
    for key, of_key in groups.items()
  )


def _note_on_perplexities(
  table: Table, differences: Sequence[contrasts.Difference]
) -> list[str]:
  names = {column.name for column in table.columns if not column.percent}
  if not any(each.column in names for each in differences):
    return []
  return [
    'A difference of perplexities is a hundred times that of their natural'
    ' logarithms, and positive where the perplexity is lower: +10 stands for'
    ' one lower by 9.5 %, +100 for one lower by 63 %.'
  ]


def _note_on_chance(
  differences: Sequence[contrasts.Difference],
) -> list[str]:
  count = sum(each.error is not None for each in differences)
  if count < 2:
    return []
  return [
    f'The arguments are {count} comparisons, and no interval is widened for'
    ' their number. At 95 %, one in twenty shows a difference by chance where'
    f' there is none: {count / 20:.1f} of these are expected.'
  ]


def count_gains(
  table: Table, differences: Sequence[contrasts.Difference]
) -> list[str]:
  """Returns on how many tasks pre-training is above what does without it."""
  kinds = {row.name: row.kind for row in table.rows}
  tasks = {column.name for column in table.columns if column.parts}
  lines = []
  for contrast in table.contrasts:
    found = [
      each
      for each in differences
      if each.contrast == contrast and each.column in tasks
      if each.error is not None
    ]
    if kinds[contrast.worse] == TRAINED or not found:
      continue
    above = [each.column for each in found if each.mean > 2 * each.error]
    lines.append(
      f'{contrast.better} is above {contrast.worse} by more than twice the'
      f' standard error on {len(above)} of {len(found)} tasks'
      + (f' ({", ".join(above)}).' if above else '.')
    )
  if lines and len(tasks) >= PAYS[0]:
    lines.append(
      'It is said to pay if it is above on at least {} of {} tasks.'.format(
        *PAYS
      )
    )
  return lines


def _text(value: contrasts.Value | None) -> str:
  if value is None:
    return ''
  mean = f'{statistics.fmean(value.every):.1f}'
  if len(value.every) < 2:
    return mean
  return f'{mean} ± {statistics.stdev(value.every):.1f}'


def write_figures(
  facts: Facts,
  values: contrasts.Values,
  differences: Sequence[contrasts.Difference],
  path: epath.Path,
) -> None:
  """Writes what is known of the runs, the cells and the differences."""
  cells = [
    {
      'row': row,
      'column': column,
      'values': dict(zip(value.origins, value.of_pretrainings, strict=True)),
    }
    for (row, column), value in values.items()
  ]
  rows = [
    {
      'argument': each.contrast.claim,
      'better': each.contrast.better,
      'worse': each.contrast.worse,
      'column': each.column,
      'published': each.published,
      'difference': each.mean,
      'low': each.low,
      'high': each.high,
      'verdict': each.verdict,
    }
    for each in differences
  ]
  found = {**facts, 'cells': cells, 'differences': rows}
  files.write_atomically(path, files.as_json(found) + '\n')
