"""Settings of cells: chosen on dev as the paper did, and told."""

import dataclasses
import json

import pytest
from etils import epath
from fake_tables import RATE, Fake, make, read, row_of, small_table

from train.papers import table_plan, tables


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
  request = table_plan.Request(
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
