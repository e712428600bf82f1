"""Tables: what is shown of them, in Markdown and LaTeX, letter by letter."""

import re

import pytest

from configs.tables import base
from configs.tables.base import Column, Row, Table
from data.tasks import registry
from train.papers import column_heads, table_rendering, table_rows
from train.papers.table_figures import Figure
from train.papers.table_rows import Line

MARKDOWN = r"""# Small & fine

A et al. 2018, Table 1

## Published and ours

|  | cola/matthews† | mlm/ppl | layers |
| --- | --- | --- | --- |
| training examples | 8,500 |  |  |
| Pre\|SOTA | 91.93±0.19 |  |  |
| A_B | 60.5 | 3.99 | 12 |
| A_B (ours) | 59.4 ± 1.1 | 4.10 |  |
| mine (ours) | -2.5 |  |  |

## Ours, cell by cell

| Row | Column | Published | Ours | Best on dev | Seeds | Difference | Trained on | Hardware | Revision |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| A_B | cola/matthews† | 60.5 | 59.4 ± 1.1 | 60.2 | 2 | -1.1 | 8,551 | 1 x cpu | abc |
| A_B | mlm/ppl | 3.99 | 4.10 |  | 1 | +0.11 |  |  |  |
| mine | cola/matthews† |  | -2.5 |  | 1 |  |  |  |  |

## Notes

- † Ours is of the dev set, the published figure of the test set, which a server scores: the benchmark's files do not have its labels.
- 100% real

## Warnings

- A_B: was run with x

## Not measured

- mine (mlm/ppl): needs a run
"""  # noqa: E501

LATEX = r"""% Needs \usepackage{booktabs}

\section*{Small \& fine}

A et al. 2018, Table 1

\begin{table}
\centering
\caption{Small \& fine: Published and ours. A et al. 2018, Table 1}
\label{tab:my_small}
\begin{tabular}{lrrr}
\toprule
 & CoLA (mc)\dag{} & LM (ppl) & Layers \\
\midrule
training examples & 8,500 &  &  \\
Pre|SOTA & \textbf{91.93$\pm$0.19} &  &  \\
A\_B & 60.5 & \textbf{3.99} & 12 \\
A\_B (ours) & 59.4 $\pm$ 1.1 & 4.10 &  \\
mine (ours) & $-$2.5 &  &  \\
\bottomrule
\end{tabular}
\end{table}

\begin{table}
\centering
\caption{Small \& fine: Ours, cell by cell. A et al. 2018, Table 1}
\label{tab:my_small-2}
\begin{tabular}{lrrrrrrrrr}
\toprule
Row & Column & Published & Ours & Best on dev & Seeds & Difference & Trained on & Hardware & Revision \\
\midrule
A\_B & cola/matthews\dag{} & 60.5 & 59.4 $\pm$ 1.1 & 60.2 & 2 & $-$1.1 & 8,551 & 1 x cpu & abc \\
A\_B & mlm/ppl & 3.99 & 4.10 &  & 1 & +0.11 &  &  &  \\
mine & cola/matthews\dag{} &  & $-$2.5 &  & 1 &  &  &  &  \\
\bottomrule
\end{tabular}
\end{table}

\subsection*{Notes}
\begin{itemize}
\item \dag{} Ours is of the dev set, the published figure of the test set, which a server scores: the benchmark's files do not have its labels.
\item 100\% real
\end{itemize}

\subsection*{Warnings}
\begin{itemize}
\item A\_B: was run with x
\end{itemize}

\subsection*{Not measured}
\begin{itemize}
\item mine (mlm/ppl): needs a run
\end{itemize}
"""  # noqa: E501


@pytest.fixture(scope='module')
def page():
  table = Table(
    id='my/small',
    title='Small & fine',
    source='A et al. 2018, Table 1',
    columns=(
      base.dev_for_test('cola/matthews', 'cola', 'matthews'),
      Column('mlm/ppl', percent=False),
      Column('layers'),
    ),
    rows=(
      Row('Pre|SOTA', ('91.93±0.19', '', '')),
      Row('A_B', (60.5, 3.99, 12)),
    ),
    train_sizes=(8500, '', ''),
    notes=('100% real',),
  )
  mine = Row('mine', ('', '', ''))
  lines = [Line(row, False, None, 'bert') for row in table.rows]
  lines.append(Line(mine, True, None, 'bert'))
  figures = {
    ('A_B', 'cola/matthews'): Figure(
      (0.6016, 0.5864), 0.6016, 8551, '1 x cpu', 'abc'
    ),
    ('A_B', 'mlm/ppl'): Figure((4.1,)),
    ('mine', 'cola/matthews'): Figure((-0.025,)),
  }
  return table_rendering.lay_out(
    table,
    lines,
    figures,
    {('mine', 'mlm/ppl'): 'needs a run'},
    warnings=['A_B: was run with x'],
  )


def test_markdown(page):
  assert table_rendering.as_markdown(page) == MARKDOWN


def test_latex(page):
  assert table_rendering.as_latex(page, 'my_small') == LATEX


def test_latex_has_no_bare_special_characters():
  page = table_rendering.TablePage(
    r'50% of #1 & a_b $x {y} ~ ^ \ < >', '[M]', (), ()
  )
  assert table_rendering.as_latex(page, 'a') == (
    '% Needs \\usepackage{booktabs}\n\n'
    r'\section*{50\% of \#1 \& a\_b \$x \{y\} \textasciitilde{}'
    r' \textasciicircum{} \textbackslash{} \textless{} \textgreater{}}'
    '\n\n{[}M]\n'
  )


def test_a_difference_of_nothing_has_no_sign():
  column = base.on_dev('a/f1', 'a', 'f1')
  assert table_rendering._signed(column, -0.0004) == '0.0'
  assert table_rendering._signed(column, 0.0004) == '0.0'
  assert table_rendering._signed(column, 0.0006) == '+0.1'


@pytest.mark.parametrize(
  ('table_id', 'known'),
  [
    ('bert/glue', ['MRPC', 'SST-2', 'STS-B']),
    ('bert/squad_v2_leaderboard', []),
  ],
)
def test_test_sets_are_called_public_where_they_are(table_id, known):
  table = table_rows.load_table(table_id)
  page = table_rendering.lay_out(table, [], {}, {})
  notes = dict(page.lists)['Notes']
  assert notes[0].startswith('† Ours is of the dev set')
  public = [note.partition("'s")[0] for note in notes if 'public' in note]
  assert sorted(public) == known
  # MRPC's reader has them from the file that the note names.
  assert all(
    name in str(registry.find('mrpc').files['test'])
    for name in re.findall(r'msr\w+\.txt', ' '.join(notes))
  )


def test_the_best_of_a_column_is_bold():
  sheet = table_rendering.Sheet(
    'a',
    ('', 'acc', 'ppl', 'note'),
    (
      ('training examples', '9,000', '1', ''),
      ('humans', '99.0', '', ''),
      ('x', '1,000.5', '40.1 ± 2.0', '7'),
      ('y', '80.0 / 2.0%', '40.1', '8'),
      ('z', '-3.0', '50', '9'),
    ),
    best=('', 'high', 'low', ''),
  )
  found = table_rendering._best_cells(sheet)
  assert found == {(2, 1), (2, 2), (3, 2)}


def test_heads_are_those_of_papers():
  """Each column of a shipped table has one; there are no two alike in one."""
  for name in table_rows.shipped_tables():
    columns = [each.name for each in table_rows.load_table(name).columns]
    heads = list(map(column_heads.head_of, columns))
    assert len(set(heads)) == len(heads)
    for column, head in zip(columns, heads, strict=True):
      assert '_' not in head and '/' not in head, column
  assert column_heads.head_of('squad_v1.1_dev/f1') == 'SQuAD 1.1 dev (F1)'
  assert column_heads.head_of('xnli_zh/accuracy') == 'XNLI zh (acc)'
  assert column_heads.best_of('mlm/ppl') == 'low'
  assert column_heads.best_of('layers') == ''
