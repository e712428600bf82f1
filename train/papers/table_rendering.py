"""A table of published figures and ours as Markdown and LaTeX."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from etils import epath

from configs.tables.base import KNOWN_TESTS, Column, Table
from train.host import files
from train.papers import column_heads
from train.papers.table_figures import Figure, compare, published_number
from train.papers.table_rows import Line

Figures = Mapping[tuple[str, str], Figure]  # of (row, column)
Reasons = Mapping[tuple[str, str], str]  # of (row, column) without a figure

DEV_MARK = '†'
DEV_NOTE = (
  f'{DEV_MARK} Ours is of the dev set, the published figure of the test set,'
  " which a server scores: the benchmark's files do not have its labels."
)
SETTINGS = 'Settings'
TRAINING_EXAMPLES = 'training examples'  # name of a row of sizes
# Beginnings of rows that are no systems, so never the best.
UNRANKED = (TRAINING_EXAMPLES, 'humans')
CIRCUMSTANCES = ('Trained on', 'Hardware', 'Revision')
DETAILS = tuple(
  'Row|Column|Published|Ours|Best on dev|Seeds|Difference'.split('|')
)
COMPARISON = tuple(
  'Ours|Seeds|Its seeds|Difference|Twice its standard error|Verdict'.split('|')
)
LATEX = {
  '\\': r'\textbackslash{}',
  '~': r'\textasciitilde{}',
  '^': r'\textasciicircum{}',
  '<': r'\textless{}',
  '>': r'\textgreater{}',
  '±': r'$\pm$',
  '†': r'\dag{}',
} | {sign: f'\\{sign}' for sign in '&%$#_{}'}


@dataclasses.dataclass(frozen=True)
class Sheet:
  """Rows of texts under a header of the same length.

  Attributes:
    heads: the header as the paper prints it, for LaTeX; empty: the header.
    best: of each column which value is the best, `column_heads.LOW` or `HIGH`,
      or '' for none; empty: of no column.
  """

  title: str
  header: tuple[str, ...]
  rows: tuple[tuple[str, ...], ...]
  heads: tuple[str, ...] = ()
  best: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class TablePage:
  """A table's texts, for Markdown and LaTeX; `lists` are (title, lines)."""

  title: str
  source: str
  sheets: tuple[Sheet, ...]
  lists: tuple[tuple[str, tuple[str, ...]], ...]


def lay_out(
  table: Table,
  lines: Sequence[Line],
  figures: Figures,
  reasons: Reasons,
  *,
  warnings: Sequence[str] = (),
  reference: Mapping[str, Mapping[str, Figure]] | None = None,
) -> TablePage:
  """Returns the page of a table.

  `reasons` say why a figure is missing, `warnings` name misleading cells, and
  `reference` maps rows to another program's {column: figure}.
  """
  if reference is None:
    sheets = _wide(table, lines, figures), _detailed(table, lines, figures)
  else:
    sheets = (_compared(table, lines, figures, reference),)
  notes = (*_test_notes(table), *table.notes)
  lists = (
    ('Notes', notes),
    ('Warnings', tuple(warnings)),
    ('Not measured', tuple(_gather(table, reasons))),
  )
  return TablePage(
    table.title,
    table.source,
    tuple(sheet for sheet in sheets if sheet.rows),
    tuple((title, texts) for title, texts in lists if texts),
  )


def _test_notes(table: Table) -> list[str]:
  columns = [column for column in table.columns if column.dev_for_test]
  tasks = dict.fromkeys(part.task for each in columns for part in each.parts)
  known = [KNOWN_TESTS[task] for task in tasks if task in KNOWN_TESTS]
  return [DEV_NOTE, *known] if columns else []


def _wide(table: Table, lines: Sequence[Line], figures: Figures) -> Sheet:
  """Returns the published table with our figures below each row."""
  rows = []
  if table.train_sizes:
    sizes = (f'{size:,}' if size else '' for size in table.train_sizes)
    rows.append((TRAINING_EXAMPLES, *sizes))
  for line in lines:
    if not line.is_own and any(map(str, line.row.values)):
      rows.append((line.name, *map(str, line.row.values)))
    ours = [
      _increase(table, line, column, figures)
      if line.row.increase
      else _ours(column, figures.get((line.name, column.name)))
      for column in table.columns
    ]
    if any(ours):
      rows.append((f'{line.name} (ours)', *ours))
  header = ('', *(_head(column) for column in table.columns))
  names = [column.name for column in table.columns]
  marks = [DEV_MARK * column.dev_for_test for column in table.columns]
  heads = [
    column_heads.head_of(name) + mark
    for name, mark in zip(names, marks, strict=True)
  ]
  best = map(column_heads.best_of, names)
  return Sheet(
    'Published and ours', header, tuple(rows), ('', *heads), ('', *best)
  )


def _detailed(table: Table, lines: Sequence[Line], figures: Figures) -> Sheet:
  """Returns our cells, a row each."""
  rows = []
  for line in lines:
    for published, column in zip(line.row.values, table.columns, strict=True):
      figure = figures.get((line.name, column.name))
      if figure is None:
        continue
      number = published_number(published)
      difference = ''
      if number is not None:
        difference = _signed(column, figure.mean - number / _scale(column))
      best = '' if figure.best is None else _number(column, figure.best)
      rows.append(
        (
          line.name,
          _head(column),
          str(published),
          _ours(column, figure),
          best,
          str(len(figure.values)),
          difference,
          *_circumstances(figure),
          figure.settings,
        )
      )
  header = (*DETAILS, *CIRCUMSTANCES, SETTINGS)
  if not any(row[-1] for row in rows):
    header, rows = header[:-1], [row[:-1] for row in rows]
  return Sheet('Ours, cell by cell', header, tuple(rows))


def _compared(
  table: Table,
  lines: Sequence[Line],
  figures: Figures,
  reference: Mapping[str, Mapping[str, Figure]],
) -> Sheet:
  """Returns our cells beside another program's cells, a row each."""
  rows = []
  for line in lines:
    for column in table.columns:
      ours = figures.get((line.name, column.name))
      if ours is None:
        continue
      theirs = reference.get(line.name, {}).get(column.name)
      cells = ('', '', '', '')
      if theirs is not None:
        difference, bound, agrees = compare(ours, theirs)
        cells = (
          str(len(theirs.values)),
          _signed(column, difference),
          '' if bound is None else _number(column, bound),
          'agrees' if agrees else 'differs',
        )
      rows.append(
        (
          line.name,
          column.name,
          _ours(column, theirs),
          _ours(column, ours),
          str(len(ours.values)),
          *cells,
          *_circumstances(ours),
        )
      )
  header = ('Row', 'Column', table.rows[0].name, *COMPARISON, *CIRCUMSTANCES)
  return Sheet('Ours beside the reference', header, tuple(rows))


def _circumstances(figure: Figure) -> tuple[str, ...]:
  size = '' if figure.train_size is None else f'{figure.train_size:,}'
  return size, figure.device, figure.revision


def _head(column: Column) -> str:
  return column.name + (DEV_MARK if column.dev_for_test else '')


def _scale(column: Column) -> float:
  return 100.0 if column.percent else 1.0


def _number(column: Column, value: float) -> str:
  return f'{value * _scale(column):.{1 if column.percent else 2}f}'


def _signed(column: Column, value: float) -> str:
  text = _number(column, value)
  if not float(text):
    return text.removeprefix('-')
  return text if value < 0 else f'+{text}'


def _ours(column: Column, figure: Figure | None) -> str:
  if figure is None:
    return ''
  text = _number(column, figure.mean)
  if figure.deviation is None:
    return text
  return f'{text} ± {_number(column, figure.deviation)}'


def _increase(
  table: Table, line: Line, column: Column, figures: Figures
) -> str:
  """Returns the difference of two rows, and its share of the error."""
  before, after = (
    figures.get((name, column.name)) for name in line.row.increase
  )
  if before is None or after is None or before.mean >= 1:
    return ''
  difference = after.mean - before.mean
  relative = difference / (1 - before.mean)
  return f'{_number(column, difference)} / {relative:.1%}'


def _gather(table: Table, reasons: Reasons) -> list[str]:
  """Returns a line for each reason and row, with the columns."""
  gathered: dict[tuple[str, str], list[str]] = {}
  for (row, column), reason in reasons.items():
    gathered.setdefault((row, reason), []).append(column)
  texts = []
  for (row, reason), columns in gathered.items():
    is_all = len(columns) == len(table.columns)
    which = '' if is_all else f' ({", ".join(columns)})'
    texts.append(f'{row}{which}: {reason}')
  unfilled = {row for row, _ in reasons}
  for row in table.rows:
    if unfilled.intersection(row.increase):
      texts.append(f'{row.name}: needs both rows that it compares')
  return texts


def as_markdown(page: TablePage) -> str:
  """Returns a page as Markdown, with the pipes of GitHub's tables."""
  blocks = [f'# {_markdown(page.title)}', f'{_markdown(page.source)}']
  for sheet in page.sheets:
    lines = [sheet.header, ('---',) * len(sheet.header), *sheet.rows]
    blocks.append(f'## {sheet.title}')
    blocks.append(
      '\n'.join(f'| {" | ".join(map(_markdown, line))} |' for line in lines)
    )
  for title, texts in page.lists:
    blocks.append(f'## {title}')
    blocks.append('\n'.join(f'- {_markdown(text)}' for text in texts))
  return '\n\n'.join(blocks) + '\n'


def _markdown(text: str) -> str:
  text = re.sub(r'([\\|*<])', r'\\\1', text)
  return re.sub(r'^#', r'\\#', text)


def write(page: TablePage, out: epath.Path, stem: str) -> None:
  """Writes a page as OUT/STEM.md and STEM.tex, and prints the Markdown."""
  markdown = as_markdown(page)
  out.mkdir(parents=True, exist_ok=True)
  files.write_atomically(out / f'{stem}.md', markdown)
  files.write_atomically(out / f'{stem}.tex', as_latex(page, stem))
  print(markdown, end='')


def as_latex(page: TablePage, name: str) -> str:
  """Returns a page as LaTeX for the package booktabs.

  `name` makes the labels, tab:NAME and tab:NAME-2 and so on. The best of the
  numbers of a column is bold, where there are two.
  """
  blocks = [
    '% Needs \\usepackage{booktabs}',
    f'\\section*{{{_latex(page.title)}}}',
    _latex(page.source),
  ]
  for number, sheet in enumerate(page.sheets, start=1):
    columns = 'l' + 'r' * (len(sheet.header) - 1)
    bold = _best_cells(sheet)
    lines = [
      ' & '.join(map(_latex, sheet.heads or sheet.header)) + r' \\',
      *(
        ' & '.join(
          f'\\textbf{{{_latex(cell)}}}'
          if (row, column) in bold
          else _latex(cell)
          for column, cell in enumerate(cells)
        )
        + r' \\'
        for row, cells in enumerate(sheet.rows)
      ),
    ]
    caption = f'{page.title}: {sheet.title}. {page.source}'
    label = name if number == 1 else f'{name}-{number}'
    block = [
      r'\begin{table}',
      r'\centering',
      f'\\caption{{{_latex(caption)}}}',
      f'\\label{{tab:{label}}}',
      f'\\begin{{tabular}}{{{columns}}}',
      r'\toprule',
      lines[0],
      r'\midrule',
      *lines[1:],
      r'\bottomrule',
      r'\end{tabular}',
      r'\end{table}',
    ]
    blocks.append('\n'.join(block))
  for title, texts in page.lists:
    block = [
      f'\\subsection*{{{_latex(title)}}}',
      r'\begin{itemize}',
      *(f'\\item {_latex(text)}' for text in texts),
      r'\end{itemize}',
    ]
    blocks.append('\n'.join(block))
  return '\n\n'.join(blocks) + '\n'


def _best_cells(sheet: Sheet) -> set[tuple[int, int]]:
  """Returns (row, column) of the best numbers; equal ones are all best."""
  found = set()
  for column, which in enumerate(sheet.best):
    values = {
      row: number
      for row, cells in enumerate(sheet.rows)
      if not cells[0].startswith(UNRANKED)
      and (number := _number_of(cells[column])) is not None
    }
    if which and len(values) > 1:
      pick = max if which == column_heads.HIGH else min
      best = pick(values.values())
      found |= {(row, column) for row, x in values.items() if x == best}
  return found


def _number_of(cell: str) -> float | None:
  """Returns the number of a cell, perhaps with a deviation behind it."""
  found = re.fullmatch(r'(-?\d[\d,]*(?:\.\d+)?)(?: ?± ?[\d.]+)?', cell)
  return float(found[1].replace(',', '')) if found else None


def _latex(text: str) -> str:
  text = ''.join(LATEX.get(character, character) for character in text)
  # A minus sign, not a hyphen.
  text = re.sub(r'(?<![\w.-])-(?=\d)', '$-$', text)
  # Otherwise LaTeX reads it as the optional length of the \\ before it.
  return re.sub(r'^\[', '{[}', text)
