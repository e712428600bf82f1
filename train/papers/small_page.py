"""The page and the JSON of a table that pre-trains its rows."""

import statistics
from collections.abc import Mapping, Sequence

from etils import epath

from configs.tables.base import Table
from train.host import files
from train.host.files import Json
from train.papers import contrasts, table_rendering

ARGUMENTS = (
  'argument',
  'column',
  'published',
  'difference',
  '95 % interval',
  'verdict',
)


def lay_out(
  table: Table,
  values: contrasts.Values,
  differences: Sequence[contrasts.Difference],
  pretrainings: Sequence[Mapping[str, Json]],
  lists: Mapping[str, Sequence[str]],
) -> table_rendering.TablePage:
  """Returns the page: rows, arguments, and how ours were made.

  `pretrainings` are what is known of each, see `small_table.Pretraining.facts`.
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
  details = []
  for each in pretrainings:
    if 'metrics' in each:
      held_out = [
        f'{value:.1f}'
        for name, value in each['metrics'].items()
        if name.endswith('perplexity') and 'unigram' not in name
      ]
      if 'eval/nsp_accuracy' in each['metrics']:
        share = each['metrics']['eval/nsp_accuracy']
        held_out.append(f'next sentences {100 * share:.0f} %')
      details.append(
        (
          each['name'],
          str(each['seed']),
          f'{each["steps"]:,}',
          ', '.join(held_out),
          f'{each["seconds"]:,.0f}',
          each.get('device', ''),
          each.get('revision', ''),
        )
      )
  columns = [column.name for column in table.columns]
  sheets = (
    table_rendering.Sheet('Published and ours', ('', *columns), tuple(rows)),
    table_rendering.Sheet('Arguments', ARGUMENTS, arguments),
    table_rendering.Sheet(
      'Pre-trainings',
      (
        'config',
        'seed',
        'steps',
        'held-out perplexity',
        'seconds',
        'hardware',
        'revision',
      ),
      tuple(details),
    ),
  )
  return table_rendering.TablePage(
    table.title,
    table.source,
    tuple(sheet for sheet in sheets if sheet.rows),
    tuple((name, tuple(told)) for name, told in lists.items() if told),
  )


def _text(value: contrasts.Value | None) -> str:
  if value is None:
    return ''
  mean = f'{statistics.fmean(value.every):.1f}'
  if len(value.every) < 2:
    return mean
  return f'{mean} ± {statistics.stdev(value.every):.1f}'


def write_figures(
  facts: Mapping[str, Json],
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
