"""Tables: declarations are whole; weights belong to rows."""

import math

import pytest
from fake_tables import SPLITS

from configs.tables import base
from train.papers import table_rows
from train.run import settings

METRICS = {
  *'accuracy f1 matthews pearson spearman em average_f1'.split(),
  'accuracy/middle',
  'accuracy/high',
  'f1/verb',
}
TABLES = table_rows.shipped_tables()


def test_all_tables_are_there():
  assert len(TABLES) == 40
  assert {'bert/glue', 'gpt/ablation', 'elmo/where', 'sesame/elmo'} <= set(
    TABLES
  )


@pytest.mark.parametrize('table_id', TABLES)
def test_declarations_are_whole(table_id):
  table = table_rows.load_table(table_id)
  assert table.id == table_id
  names = [row.name for row in table.rows]
  assert len({table_rows.slug(name) for name in names}) == len(names)
  columns = [column.name for column in table.columns]
  assert len(set(columns)) == len(columns)
  assert not any(',' in name for name in columns)  # --only splits at them
  assert set(table.repeated) <= set(names)
  assert len(table.train_sizes) in (0, len(columns))
  for row in table.rows:
    assert len(row.values) == len(columns), row.name
    assert set(row.increase) <= set(names)
    ways = bool(row.family), bool(row.missing), bool(row.increase)
    assert sum(ways) <= 1, row.name
    assert bool(row.needs) == bool(row.family), row.name
  for column in table.columns:
    assert not (column.parts and column.missing), column.name
    for part in column.parts:
      assert part.metrics
      if part.task == base.PRETRAINING:
        continue
      for metric in part.metrics:
        split, _, name = metric.partition('/')
        assert split in SPLITS[part.task], metric
        assert name in METRICS, metric


@pytest.mark.parametrize('table_id', ['bert/glue', 'gpt/ablation'])
def test_published_averages_are_those_of_the_columns(table_id):
  # The same columns are averaged as were by the paper.
  table = table_rows.load_table(table_id)
  names = [column.name for column in table.columns]
  average = names.index('average')
  parts = table.columns[average].parts
  singles = [column for column in table.columns if column.name != 'average']
  assert parts == tuple(part for column in singles for part in column.parts)
  for row in table.rows:
    others = [v for i, v in enumerate(row.values) if i != average]
    mean = math.fsum(others) / len(others)
    # The columns are rounded, and so is the average.
    assert abs(mean - row.values[average]) <= 0.07, row.name


def test_weights_are_of_a_row_or_of_ones_own(tmp_path):
  glue = table_rows.load_table('bert/glue')
  named = table_rows.name_weights(
    glue, ['BERT-Base=a/b', 'models/MiniLM/', 'mine=c', 'google-bert/bert-x']
  )
  assert named == {
    'BERT-Base': 'a/b',
    'MiniLM': 'models/MiniLM/',
    'mine': 'c',
    'bert-x': 'google-bert/bert-x',
  }
  # A path may have an equals sign where it is there.
  folder = tmp_path / 'lr=1'
  folder.mkdir()
  named = table_rows.name_weights(glue, [str(folder)])
  assert named == {'lr=1': str(folder)}
  # And a row's name: the longest that fits.
  layers = table_rows.load_table('bert/masking')
  assert table_rows.name_weights(layers, ['80 / 10 / 10=x']) == {
    '80 / 10 / 10': 'x'
  }


@pytest.mark.parametrize(
  ('given', 'message'),
  [
    (['bert-base=a'], "the row is called 'BERT-Base'"),
    (['Pre-OpenAI SOTA=a'], 'is quoted'),
    (['a/mine', 'b/mine'], 'two have the name'),
    (['mine='], 'expected WEIGHTS or NAME=WEIGHTS'),
  ],
)
def test_weights_that_make_no_sense_are_refused(given, message):
  glue = table_rows.load_table('bert/glue')
  with pytest.raises(ValueError, match=message):
    table_rows.name_weights(glue, given)


def test_weights_of_a_row_that_takes_none_are_refused():
  squad = table_rows.load_table('bert/squad')
  with pytest.raises(ValueError, match='is an ensemble of 7 systems'):
    table_rows.name_weights(squad, ['BERT-Large (Ensemble)=a'])
  ours = table_rows.load_table('sesame/elmo')
  with pytest.raises(ValueError, match="'Drawn vectors' takes no weights"):
    table_rows.name_weights(ours, ['Drawn vectors=a'])


def test_an_unknown_table_names_those_there_are():
  with pytest.raises(ValueError, match='--table bert/gleu: .*bert/glue'):
    table_rows.load_table('bert/gleu')


@pytest.mark.parametrize('table_id', TABLES)
def test_what_tables_tell_and_try_are_keys(table_id):
  table = table_rows.load_table(table_id)
  known = {
    key
    for name in ('transfer:task=mrpc', 'transfer:task=mrpc,model=esim')
    for key in settings.flatten(settings.load_config(name))
  }
  keys = {key for grid in table.grids.values() for key in grid}
  assert keys <= set(table.tells) <= known
