"""Figures of cells: of the settings chosen on dev, read and compared."""

import dataclasses
import json

import pytest
from etils import epath
from fake_tables import RATE, Fake, cells_of, make, read, row_of, small_table

from configs.tables.base import Column, Part
from train.papers import table_figures, table_plan, table_rows, tables
from train.papers.table_figures import Figure
from train.run import settings


@pytest.fixture
def fake():
  return Fake()


def test_of_a_grid_the_best_settings_count(fake, tmp_path):
  make(fake, tmp_path)
  path = tmp_path / 'my_small/BERT/mrpc/summary.json'
  summary = json.loads(path.read_text())
  best = {RATE: 5e-5}
  for run in summary['runs']:
    run['settings'] = best
  worse = {'seed': 0, 'settings': {RATE: 2e-5}, 'metrics': {'dev/f1': 0.1}}
  summary |= {'settings': best, 'runs': [worse, *summary['runs']]}
  summary['config'][RATE] = 5e-5
  path.write_text(json.dumps(summary))
  make(fake, tmp_path)
  assert len(fake.runs) == 2
  text = read(tmp_path)
  assert row_of(text, 'BERT', 'mrpc/f1†')[3:6] == ['88.0 ± 2.0', '90.0', '3']
  assert 'was run with' not in text


def test_what_the_paper_chose_on_dev_is_chosen_and_said(fake, tmp_path, capsys):
  rates = (5e-5, 3e-5)
  table = small_table()
  plain = dataclasses.replace(
    table, rows=tuple(dataclasses.replace(r, overrides={}) for r in table.rows)
  )
  chosen = dataclasses.replace(plain, grids={'bert': {RATE: rates}})

  def shown():
    return row_of(read(tmp_path), 'BERT', 'rte/accuracy')

  def dry(**options):
    capsys.readouterr()
    make(fake, tmp_path, table=chosen, dry_run=True, only=['rte'], **options)
    return capsys.readouterr().out

  assert '--grid optim.learning_rate=5e-05,3e-05 --seeds' in dry()
  # What was run at one rate does not pass for the best of two.
  make(fake, tmp_path, table=plain, only=['rte'])
  make(fake, tmp_path, table=chosen, run=False)
  warning = (
    f'BERT, rte: was run with {RATE}=1e-05 and not the best of 5e-05, 3e-05'
  )
  assert warning in read(tmp_path)
  assert shown()[-1] == (
    'learning_rate=1e-05'
    ' (alone; the paper took the best on dev of 5e-05, 3e-05)'
  )
  make(fake, tmp_path, table=chosen, only=['rte'], rerun=True)
  assert warning not in read(tmp_path)
  assert (shown()[3], shown()[5]) == ('84.0 ± 2.0', '3')  # of the best rate
  assert shown()[-1] == 'learning_rate=5e-05 (best on dev of 5e-05, 3e-05)'
  # One rate that a user names is run alone.
  request = table_plan.CellRequest(
    chosen, epath.Path(tmp_path / 'one'), 'sets', 1, {RATE: 2e-5}
  )
  assert tables.make_table(
    request, {'BERT': 'b'}, only=['rte'], engine=fake.engine
  )
  text = (tmp_path / 'one/my_small.md').read_text()
  assert 'learning_rate=2e-05 (alone; the paper took' in text
  assert 'was run with' not in text
  # The recipe of another family is none of the paper's that the table is of.
  make(fake, tmp_path, {'GPT, large': 'gpt'}, table=chosen, only=['rte'])
  assert row_of(read(tmp_path), 'GPT, large', 'rte/accuracy')[-1] == (
    'learning_rate=1e-05'
  )


@pytest.mark.parametrize(
  ('printed', 'number'),
  [
    (84.4, 84.4),
    (3, 3.0),
    ('91.93±0.19', 91.93),
    ('4.7 / 24.9%', 4.7),
    ('', None),
    ('n/a', None),
  ],
)
def test_the_number_of_a_printed_figure(printed, number):
  assert table_figures.published_number(printed) == number


@pytest.mark.parametrize(
  ('ours', 'theirs', 'expected'),
  [
    # The difference, twice its standard error, and whether they agree.
    ((0.905,), (0.9,), (0.005, None, True)),
    ((0.906,), (0.9,), (0.006, None, False)),
    ((0.90, 0.94), (0.95, 0.95), (-0.03, 0.04, True)),
    ((0.90, 0.92), (0.95, 0.95), (-0.04, 0.02, False)),
  ],
)
def test_comparison_of_means(ours, theirs, expected):
  difference, bound, agrees = table_figures.compare(
    Figure(ours), Figure(theirs)
  )
  assert difference == pytest.approx(expected[0])
  assert bound == (None if expected[1] is None else pytest.approx(expected[1]))
  assert agrees == expected[2]


def test_seeds_that_all_parts_share_are_averaged():
  column = Column(
    'average', (Part('a', ('dev/f1',)), Part('b', ('dev/x', 'dev/y')))
  )
  first = {
    'runs': [
      {'seed': 0, 'metrics': {'dev/f1': 0.5}},
      {'seed': 1, 'metrics': {'dev/f1': 0.7}},
    ]
  }
  second = {'runs': [{'seed': 1, 'metrics': {'dev/x': 0.1, 'dev/y': 0.3}}]}
  figure = table_figures.figure_of(column, [first, second])
  assert figure.values == pytest.approx((0.45,))
  assert figure.deviation is None
  del second['runs'][0]['metrics']['dev/y']
  assert table_figures.figure_of(column, [first, second]) is None


@pytest.mark.parametrize('text', ['{', '[]', '{"runs": [{"seed": 1}]}'])
def test_a_damaged_summary_is_named(fake, tmp_path, text):
  make(fake, tmp_path)
  path = tmp_path / 'my_small/BERT/mrpc/summary.json'
  path.write_text(text)
  with pytest.raises(ValueError, match=r'BERT/mrpc/summary\.json: expected'):
    make(fake, tmp_path)


def test_committed_figures_are_of_the_configs_that_are_here():
  table = table_rows.load_table('sesame/transfer')
  root = epath.Path(table_rows.__file__).parents[2]
  folder = root / 'results' / 'tables' / 'sesame_transfer' / 'MiniLM'
  cells = cells_of(table, {'MiniLM': 'm'}, {'m': 'bert'})
  runs = {run.part.task: run for cell in cells for run in cell.runs}
  for task, run in runs.items():
    summary = table_figures.read_summary(folder / task / 'summary.json')
    # Where weights and data lay, and what they were run on, is their own.
    run = dataclasses.replace(
      run, overrides=run.overrides | {'init.weights': None, 'data.source': None}
    )
    wanted = settings.flatten(table_plan.resolve(run))
    assert not table_figures.describe_changes(run, summary, wanted), task
    assert summary['config']['train.select'] == wanted['train.select'] == 'last'
