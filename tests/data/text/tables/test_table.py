"""Records of tables, with the names of their classes."""

import pytest
from etils import epath
from small_tables import WRITERS, make_table

from data.text.tables import arrow_files, table


def test_classes_are_named(tmp_path):
  WRITERS['a.parquet'](tmp_path / 'a.parquet', make_table(['One.', 'Two.']))
  opened = arrow_files.open_table(epath.Path(tmp_path / 'a.parquet'))
  assert opened.classes == {'label': ['bad', 'good']}
  records = list(table.records([opened]))
  assert records[1] == (
    f'{tmp_path}/a.parquet, row 2',
    {'id': 1, 'body': 'Two.', 'label': 'good'},
  )
  more = make_table(['One.']).set_column(2, 'label', [[7]])
  more = more.replace_schema_metadata(make_table(['One.']).schema.metadata)
  WRITERS['a.parquet'](tmp_path / 'a.parquet', more)
  opened = arrow_files.open_table(epath.Path(tmp_path / 'a.parquet'))
  with pytest.raises(
    ValueError, match='row 1: found the class 7 in the column'
  ):
    list(table.records([opened]))


def test_texts_in_a_column_of_classes_are_named(tmp_path):
  texts = make_table(['One.', 'Two.']).drop_columns(['label'])
  texts = texts.append_column('label', [['good', 'bad']])
  WRITERS['stream.arrow'](tmp_path / 'a.arrow', texts)
  opened = [arrow_files.open_table(epath.Path(tmp_path / 'a.arrow'))]
  with pytest.raises(ValueError, match="row 1: found the class 'good' in the"):
    list(table.records(opened))
  # Classes of a column that is not there are none of the others'.
  WRITERS['stream.arrow'](tmp_path / 'b.arrow', texts.drop_columns(['label']))
  opened = [arrow_files.open_table(epath.Path(tmp_path / 'b.arrow'))]
  assert [record['id'] for _, record in table.records(opened)] == [0, 1]
