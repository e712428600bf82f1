"""Wrong files of commas and tabs: file, line, found and expected."""

import pytest
from etils import epath
from text_sources import texts_of, write

from data.text import sources
from data.text.tables import csv_files


def read(path):
  table = csv_files.open_table(epath.Path(path))
  return [values for _, values in table.rows(('text',))]


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    ('a.csv', '', 'is empty, expected a line of titles'),
    (
      'a.csv',
      'id;text\n1;One\n',
      r"line 1: found one column with the title 'id;text', expected .* commas",
    ),
    (
      'a.csv',
      'id|text\n1|One\n',
      r"with the title 'id\|text', expected .* comm",
    ),
    (
      'a.tsv',
      'id|text\n1|One\n',
      r"with the title 'id\|text', expected .* tabs",
    ),
    ('a.tsv', 'id,text\n1,One\n', "with the title 'id,text', expected .* tabs"),
    (
      'a.csv',
      'id,text\n1,One\n2,Two, three\n',
      r'line 3: found 3 fields, expected 2 with commas .*\(id, text\): .2 .',
    ),
    ('a.tsv', 'id\ttext\n1\n', 'line 2: found 1 fields, expected 2'),
    (
      'a.csv',
      'id,text\n1,"One\n2,Two\n3,Three\n',
      r'line 2: found a quotation mark that opens a field and is never closed:'
      r" '\"One'; the file ends in line 4",
    ),
    (
      'a.csv',
      'id,text\n"1","a\nb ""c"" and 5"" of\n,"d"\n',
      r"line 4: found wrong quoting .* opens in line 2: '\"a'",
    ),
    (
      'a.csv',
      'id,text\n1,"One\n2,"Two"\n',
      r"line 3: found wrong quoting .* opens in line 2: '\"One'",
    ),
    ('a.csv', 'text,id,text\n1,2,3\n', "2 columns of the title 'text'"),
    ('a.csv', b'text\ncaf\xe9\n', r'not UTF-8 at byte 8 .* in line 2'),
  ],
)
@pytest.mark.parametrize('kind', ['', '.gz'])
def test_wrong_files_are_named(name, content, message, kind, tmp_path):
  path = write(tmp_path / f'{name}{kind}', content)
  with pytest.raises(ValueError, match=message) as error:
    read(path)
  assert str(path) in str(error.value)
  assert '\n' not in str(error.value)


def test_rows_of_several_lines_have_the_line_of_their_beginning(tmp_path):
  path = write(tmp_path / 'a.csv', 'text,n\n"a\nb",1\n\nc,2\n')
  table = csv_files.open_table(epath.Path(path))
  assert [*table.rows(('text',))] == [(2, ('a\nb',)), (5, ('c',))]
  assert table.place(5) == f'{path}, line 5'
  assert table.types == {'text': 'text', 'n': 'numbers'}
  assert table.texts == ('text',)


def test_the_rows_are_streamed(tmp_path, monkeypatch):
  """A wrong row far away is found when it is reached."""
  path = write(tmp_path / 'a.csv', 'text\n' + 'One.\n' * 500 + 'a,b\n')
  table = csv_files.open_table(epath.Path(path))
  rows = table.rows(('text',))
  assert next(rows) == (2, ('One.',))
  with pytest.raises(ValueError, match='line 502: found 2 fields, expected 1'):
    list(rows)


@pytest.mark.parametrize('first', ['', '7'])
def test_a_column_that_begins_without_text_may_be_named(first, tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text('id,text\n' + f'1,{first}\n' * 220 + '2,A text.\n')
  source = sources.open_source(str(path))
  found = texts_of(source)
  assert found[-1] == 'A text.' and len(found) == 1 + 220 * bool(first)
  assert source.dropped['record without text'] == 220 * (not first)


def test_a_first_line_of_text_is_told(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text('It was the best of times of all\nIt was the worst.\n')
  source = sources.open_source(str(path))
  assert 'is line 1 a record?' in source.description
