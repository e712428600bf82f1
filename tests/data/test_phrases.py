"""The command that joins phrases: passes, lower case, errors."""

import pytest

from data import phrases


def test_passes_make_longer_phrases_in_lower_case(tmp_path, capsys):
  text = tmp_path / 'text.txt'
  others = [f'b{i} c{i}' for i in range(200)]
  text.write_text('\n'.join(['New York Times', *others] * 6))
  out = tmp_path / 'out.txt'
  arguments = [str(text), str(out), '--lower', '--delta', '1', '--thresholds']
  assert phrases.main([*arguments, '300']) == 0
  assert out.read_text().splitlines()[0] == 'new_york times'
  assert phrases.main([*arguments, '300', '150']) == 0
  assert out.read_text().splitlines()[0] == 'new_york_times'
  assert [path.name for path in tmp_path.iterdir()] == ['text.txt', 'out.txt']
  told = capsys.readouterr()
  assert not told.err
  assert [line[:13] for line in told.out.splitlines()] == [
    *('pass 1: 2,418',) * 2,
    'pass 2: 1,212',
  ]


@pytest.mark.parametrize(
  ('text', 'options', 'message'),
  [
    (None, [], 'no such file'),
    ('', [], 'no words, expected a text'),
    ('a b', ['--thresholds', '-1'], 'expected thresholds of 0 or more'),
  ],
)
def test_errors_leave_nothing(tmp_path, capsys, text, options, message):
  path, out = tmp_path / 'text.txt', tmp_path / 'out.txt'
  if text is not None:
    path.write_text(text)
  assert phrases.main([str(path), str(out), *options]) == 1
  assert message in capsys.readouterr().err
  assert not out.exists()


def test_the_text_is_written_to_this_machine(tmp_path, capsys):
  (tmp_path / 'text.txt').write_text('a b\n')
  text = str(tmp_path / 'text.txt')
  assert phrases.main([text, 'gs://books/out.txt']) == 1
  assert 'gs://books/out.txt: the text is written to' in capsys.readouterr().err
  assert phrases.main([text, 's3://books/out.txt']) == 1
  assert 's3://books/out.txt: nothing is read' in capsys.readouterr().err


def test_no_plain_text_gets_a_compressed_name(tmp_path, capsys):
  (tmp_path / 'text.txt').write_text('a b\n')
  out = tmp_path / 'out.txt.gz'
  assert phrases.main([str(tmp_path / 'text.txt'), str(out)]) == 1
  assert 'out.txt.gz: expected a name without .gz' in capsys.readouterr().err
  assert not out.exists()


def test_a_table_is_no_running_text(tmp_path, capsys):
  (tmp_path / 'text.csv').write_text('id,text\n1,a b\n')
  out = tmp_path / 'out.txt'
  assert phrases.main([str(tmp_path / 'text.csv'), str(out)]) == 1
  assert 'text.csv: a table, expected running text' in capsys.readouterr().err
  assert not out.exists()
