"""Files that are whole or not there, and checks before work is done."""

import json

import pytest
from etils import epath

from data import scratch
from train.host import files


def test_numbers_without_end_are_null():
  assert json.loads(files.as_json({'a': [float('inf')], 'b': 1.5})) == {
    'a': [None],
    'b': 1.5,
  }


def test_what_would_fail_at_the_end_fails_at_the_beginning(tmp_path):
  files.check_writable(None)
  files.check_writable(tmp_path / 'out.csv')
  with pytest.raises(FileNotFoundError, match='no such folder to write to'):
    files.check_writable(tmp_path / 'no' / 'out.csv')
  with pytest.raises(FileNotFoundError, match='none: no such file'):
    files.check_readable(tmp_path / 'none')
  with pytest.raises(ValueError, match='holds no config.json'):
    files.check_workdir(tmp_path)
  files.check_folder('--workdir', tmp_path / 'new' / 'run')
  (tmp_path / 'file').touch()
  for path in ('file', 'file/run'):
    with pytest.raises(ValueError, match='--workdir .*/file is a file, expect'):
      files.check_folder('--workdir', tmp_path / path)


def test_rows_without_a_line_end_do_not_count(tmp_path):
  file = files.RowFile(tmp_path / 'rows.csv', ('a', 'b'), [(1, 'x,y')])
  file.append([(2, 'z')])
  file.append([(3, 'w')], whole=True)
  rows = [['1', 'x,y'], ['2', 'z'], ['3', 'w']]
  assert files.read_rows(tmp_path / 'rows.csv') == rows
  with (tmp_path / 'rows.csv').open('a') as text:
    text.write('4,cut')
  assert files.read_rows(tmp_path / 'rows.csv') == rows
  assert files.read_rows(tmp_path / 'none.csv') == []


def test_a_bucket_has_the_whole_file_or_none(gs, loopback):
  path = epath.Path(f'{gs}/run/file')
  with pytest.raises(KeyboardInterrupt):
    with scratch.replacing(path) as new:
      new.write_text('half')
      raise KeyboardInterrupt
  assert not loopback.requests
  files.write_atomically(path, 'new')
  assert loopback.counts('^POST')['POST'] == 1
  assert path.read_text() == 'new'
  files.check_folder('--workdir', f'{gs}/run')
  files.check_folder('--workdir', gs)
  with pytest.raises(ValueError, match='--out .*/run/file is a file, expected'):
    files.check_folder('--out', path)
  for wrong in ('gs:/bucket/run', 'gs://'):
    for check in (
      files.check_writable,
      lambda path: files.check_folder('', path),
    ):
      with pytest.raises(ValueError, match='expected gs://BUCKET/NAME'):
        check(wrong)
