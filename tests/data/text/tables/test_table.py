"""Records of tables, with the names of their classes."""

import pyarrow as pa
import pytest
from etils import epath
from pyarrow import parquet
from small_tables import WRITERS, make_table

from data.text.tables import arrow_files, table


def test_classes_are_named(tmp_path):
  WRITERS['a.parquet'](tmp_path / 'a.parquet', make_table(['One.', 'Two.']))
  opened = arrow_files.open_table(epath.Path(tmp_path / 'a.parquet'))
  assert opened.classes == {'label': ['bad', 'good']}
  records = list(table.records([opened], ['id', 'body', 'label', 'none']))
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
    list(table.records([opened], ['label']))


def test_texts_in_a_column_of_classes_are_named(tmp_path):
  texts = make_table(['One.', 'Two.']).drop_columns(['label'])
  texts = texts.append_column('label', [['good', 'bad']])
  WRITERS['stream.arrow'](tmp_path / 'a.arrow', texts)
  opened = [arrow_files.open_table(epath.Path(tmp_path / 'a.arrow'))]
  with pytest.raises(ValueError, match="row 1: found the class 'good' in the"):
    list(table.records(opened, ['label']))
  # Classes of a column that is not there are none of the others'.
  WRITERS['stream.arrow'](tmp_path / 'b.arrow', texts.drop_columns(['label']))
  opened = [arrow_files.open_table(epath.Path(tmp_path / 'b.arrow'))]
  assert [record['id'] for _, record in table.records(opened, ['id'])] == [0, 1]


def test_columns_that_are_not_needed_are_not_read(tmp_path):
  path = tmp_path / 'a.parquet'
  dates = pa.array([0, 10**8], pa.date32())  # the second of the year 275760
  images = pa.array([b'PNG', b'\xff'], pa.binary()).view(pa.string())
  columns = [['One.', 'Two.'], dates, images, [1, 2], [3, 4]]
  names = ['body', 'date', 'image', 'twice', 'twice']
  parquet.write_table(pa.table(columns, names=names), path)
  opened = [arrow_files.open_table(epath.Path(path))]
  unread = dict.fromkeys(('date', 'image', 'twice'), ...)
  found = [record for _, record in table.records(opened, ['body', 'id'])]
  assert found == [{'body': text, **unread} for text in ('One.', 'Two.')]
  for column, message in {
    'date': r"row 2: found date32\[day\] in the column 'date' that is no value",
    'image': "row 2: found the byte 0xff in the column 'image' at byte 0",
    'twice': "found 2 columns named 'twice', expected one",
    'none': r"found none of the columns \['none'\], expected some: its columns",
  }.items():
    with pytest.raises(ValueError, match=f'a.parquet.*{message}') as error:
      list(table.records(opened, [column]))
    assert '\n' not in str(error.value)
