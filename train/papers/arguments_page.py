"""A page of the papers' arguments: a picture and a sentence of each.

It is made of the finished runs of the tables that `small_table` makes and that
quote a paper's figures.
"""

from collections.abc import Sequence

from etils import epath

from configs.tables.base import Table
from train.host import console, files
from train.papers import contrast_figure, small_table, table_rows
from train.papers.contrasts import HIDDEN, HOLDS, REVERSED, Difference

OPTIONS = ()  # of the command: nothing is run
VERBS = {HOLDS: 'holds', REVERSED: 'is reversed', HIDDEN: 'does not show'}


def make(
  table: Table, out: epath.PathLike, *, unused: Sequence[str] = ()
) -> bool:
  """Writes OUT/TABLE.md, and OUT/TABLE/NAME_N.png of each argument.

  Arguments without an interval are left out: their rows have not been
  pre-trained often enough. Returns True; raises ValueError if there is none.
  """
  if unused:
    raise ValueError(f'--table {table.id}: takes no {" ".join(unused)}')
  out = epath.Path(out)
  files.check_folder('--out', out)
  stem = table_rows.slug(table.id)
  tables = [*map(table_rows.load_table, table_rows.shipped_tables())]
  tables = [each for each in tables if _tries_a_paper(each)]
  texts, names = [], []
  for each in tables:
    found = [
      difference
      for difference in small_table.read_differences(each, out)
      if difference.bound is not None
    ]
    for number, contrast in enumerate(each.contrasts, 1):
      rows = [row for row in found if row.contrast == contrast]
      if not rows:
        continue
      name = f'{stem}/{each.id.rpartition("/")[2]}_{number}.png'
      (out / stem).mkdir(exist_ok=True)
      contrast_figure.write(each.source, rows, out / name)
      names.append(name)
      texts.append(
        f'## {contrast.claim}\n\n{each.source}: "{contrast.better}" beside'
        f' "{contrast.worse}". {tell(rows)}\n\n![{contrast.claim}]({name})\n'
      )
  if not texts:
    raise ValueError(
      f'--out {out}: no argument has an interval; expected finished runs of'
      f' {", ".join(each.id for each in tables)}'
    )
  head = '\n\n'.join((f'# {table.title}', *table.notes))
  page = out / f'{stem}.md'
  files.write_atomically(page, '\n'.join((f'{head}\n', *texts)))
  console.say(f'wrote {page} and {len(names)} pictures')
  return True


def _tries_a_paper(table: Table) -> bool:
  return table.maker == 'small_table' and any(
    value for row in table.rows for value in row.values
  )


def tell(rows: Sequence[Difference]) -> str:
  """Returns the paper's differences and ours of an argument as a sentence."""
  published = [
    f'{row.published:+.1f} in {row.column}'
    for row in rows
    if row.published is not None
  ]
  paper = 'The paper has no figures of it'
  if published:
    paper = f'In the paper the difference is {", ".join(published)}'
  parts = []
  for verdict, verb in VERBS.items():
    held = [
      f'{row.column} ({row.mean:+.1f}, {row.low:+.1f} to {row.high:+.1f})'
      for row in rows
      if row.verdict == verdict
    ]
    if held:
      parts.append(f'{verb} in {", ".join(held)}')
  return f'{paper}; here the argument {"; it ".join(parts)}.'
