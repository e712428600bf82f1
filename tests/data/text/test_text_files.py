"""Text out of files: compression, encodings and damage."""

import json
import os

import pytest
from etils import epath
from text_sources import COMPRESS, read, texts_of, write

from data.text import sources, text_files


def test_text_does_not_depend_on_the_chunks(tmp_path, monkeypatch):
  text = 'Añ😀b c\rd\r\n\r\n é\r'
  path = write(tmp_path / 'a.txt', '\ufeff' + text)
  for size in range(1, 12):
    monkeypatch.setattr(text_files, 'CHUNK_BYTES', size)
    assert ''.join(text_files.chunks(path_of(path))) == 'Añ😀b c\nd\n\n é\n'


def path_of(path):
  from etils import epath

  return epath.Path(path)


@pytest.mark.parametrize('kind', COMPRESS)
def test_kinds_of_files_give_the_same_text(kind, tmp_path):
  text = 'Ünï çödé 😀 text.\nSecond line\n\nParagraph.\n' * 3000
  data = ('\ufeff' + text.replace('\n', '\r\n')).encode()
  source = sources.open_source(str(write(tmp_path / f'a.txt{kind}', data)))
  assert texts_of(source) == [text]
  assert source.bytes_read == source.num_bytes
  assert source.num_bytes == os.path.getsize(tmp_path / f'a.txt{kind}')


@pytest.mark.parametrize('kind', ['.gz', '.xz', '.zst'])
def test_several_compressed_streams_in_a_file(kind, tmp_path):
  path = tmp_path / f'a.txt{kind}'
  path.write_bytes(COMPRESS[kind](b'One.\n') + COMPRESS[kind](b'Two.\n'))
  assert read(path) == ['One.\nTwo.\n']


def test_place_of_a_wrong_byte_deep_in_a_file(tmp_path, monkeypatch):
  text = 2 * ('é' * 499 + '\n\n')
  path = write(tmp_path / 'a.txt', text.encode() + b'\xe9 ' + text.encode())
  for size in (1, 3, 64, 2001, 1 << 20):
    monkeypatch.setattr(text_files, 'CHUNK_BYTES', size)
    with pytest.raises(ValueError, match='at byte 2,000 .* in line 5'):
      ''.join(text_files.chunks(path_of(path)))


@pytest.mark.parametrize('kind', ['.gz', '.xz', '.zst'])
def test_truncated_and_damaged_archives(kind, tmp_path):
  text = ''.join(f'Line {i * i} of text.\n' for i in range(20_000))
  path = write(tmp_path / f'a.txt{kind}', text)
  whole = path.read_bytes()
  for share in (0.3, 0.9, 0.9999):
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ValueError, match='file is truncated at byte') as error:
      read(path)
    assert str(path) in str(error.value)
  path.write_bytes(b'This is no archive at all.')
  with pytest.raises(ValueError, match=f'a.txt{kind}: damaged {kind} file'):
    read(path)


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('{"text": ', 'line 3: not JSON'),
    (r'{"text": "no \ud83d text"}', r'line 3: .*U\+D83D at character 3'),
    ('["a"]', "expected a JSON object with a field 'text', found a list"),
    ('{"text": {"b": 1}}', r"line 3: .* is an object with the fields \['b'\]"),
    ('{"body": "a", "id": 1}', "line 3: no field 'text'.*'body', 'id'"),
    ('{"text": 7}', "line 3: field 'text' is a number or null, not text"),
  ],
)
def test_bad_records_are_named(line, message, tmp_path):
  path = write(tmp_path / 'a.jsonl', '{"text": "Fine."}\n\n' + line)
  with pytest.raises(ValueError, match=message) as error:
    read(path)
  assert str(path) in str(error.value)


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    ('a.txt', b'', 'is empty'),
    ('a.txt', b' \n\n\t', 'holds no text at all'),
    ('a.txt.gz', b' \n', 'holds no text at all'),
    ('a.jsonl', b'\n', 'holds no text at all'),
    ('a.txt', b'Text\0more', 'binary, not text: NUL at byte 4'),
    ('a.txt', 'caf\xe9s'.encode('latin-1'), r'not UTF-8 at byte 3 \(0xe9'),
    ('a.txt', 'Text.'.encode('utf-16'), 'this is UTF-16'),
    ('a.txt', '€'.encode()[:2], 'not UTF-8 at byte 0'),
  ],
)
def test_bad_files_are_named(name, content, message, tmp_path):
  path = write(tmp_path / name, content)
  with pytest.raises(ValueError, match=message) as error:
    read(path)
  assert str(path) in str(error.value)


@pytest.mark.parametrize('kind', COMPRESS)
def test_jsonl_records_are_documents(kind, tmp_path):
  rows = ['One.\n\nStill one.', '  ', 'Two é.\r\nLine.', 'x' * 3_000_000]
  text = '\n'.join(json.dumps({'id': i, 'body': t}) for i, t in enumerate(rows))
  path = write(tmp_path / f'a.jsonl{kind}', text)
  source = sources.open_source(str(path), text_field='body')
  assert source.document_break == 'record'
  assert texts_of(source) == [rows[0], 'Two é.\nLine.', rows[3]]
  assert source.dropped == {'record without text': 1}


@pytest.mark.parametrize(
  'name', ['a.ndjson', 'a.NDJSON.gz', 'a.json', 'a.json.xz']
)
def test_other_names_of_jsonl(name, tmp_path):
  path = write(tmp_path / name, '\n \n{"text": "One."}\n{"text": "Two."}\n')
  source = sources.open_source(str(path))
  assert source.document_break == 'record'
  assert texts_of(source) == ['One.', 'Two.']


@pytest.mark.parametrize(
  'text',
  [
    '[{"text": "One."}]',
    '{\n  "text": "One."\n}',
    '{"text": "One."}, {"text": "Two."}',
    '"One."',
  ],
)
def test_other_json_is_refused(text, tmp_path):
  path = write(tmp_path / 'a.json', text)
  write(tmp_path / 'b.txt', 'Text.')
  for spec in (path, tmp_path):
    with pytest.raises(
      ValueError,
      match=r"a\.json: found JSON that begins with .* jq -c '\.\[\]'",
    ) as error:
      sources.open_source(str(spec))
    assert repr(text.split('\n')[0])[1:-1] in str(error.value)


def test_a_long_array_of_one_line_is_not_read_whole(tmp_path, monkeypatch):
  monkeypatch.setattr(text_files, 'CHUNK_BYTES', 50)
  monkeypatch.setattr(text_files, 'LONGEST_LINE', 200)
  write(tmp_path / 'a.json', '[' + '{"text": "One."},' * 100)
  with pytest.raises(ValueError, match=r"begins with '\[\{"):
    text_files.holds_jsonl(epath.Path(tmp_path / 'a.json'))


def test_json_without_text_in_a_folder(tmp_path):
  write(tmp_path / 'a.json', '')
  write(tmp_path / 'b.json', b'\0')
  write(tmp_path / 'c.txt', 'Text.')
  source = sources.open_source(str(tmp_path))
  assert texts_of(source) == ['Text.']
  assert source.dropped == {'empty file': 1, 'binary file': 1}


@pytest.mark.parametrize('name', ['a.csv', 'a.jsonl', 'a.ndjson.gz', 'a.json'])
def test_records_are_no_running_text(name, tmp_path):
  write(tmp_path / name, '{"text": "One."}')
  kind = 'a table' if name == 'a.csv' else 'JSON'
  with pytest.raises(ValueError, match=f'{name}: {kind}, expected running tex'):
    text_files.find_running(str(tmp_path))


@pytest.mark.parametrize('target', ['.', '..', 'inside'])
def test_a_link_to_a_folder_that_it_lies_in_is_refused(target, tmp_path):
  folder = tmp_path / 'books' / 'inside'
  folder.mkdir(parents=True)
  (folder / 'a.txt').write_text('One.')
  (folder / 'loop').symlink_to(tmp_path / 'books' / target)
  for source in (tmp_path / 'books', f'{tmp_path}/books/**/*.txt'):
    with pytest.raises(
      ValueError, match='loop is a link to .* again and again'
    ):
      text_files.find(str(source))


def test_a_link_to_another_folder_is_read(tmp_path):
  for name in ('books', 'others'):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'a.txt').write_text('One.')
  (tmp_path / 'books' / 'more').symlink_to(tmp_path / 'others')
  for source in (tmp_path / 'books', f'{tmp_path}/books/**/*.txt'):
    assert len(text_files.find(str(source))[0]) == 2


def test_a_line_that_would_fill_memory_is_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(text_files, 'CHUNK_BYTES', 50)
  monkeypatch.setattr(text_files, 'LONGEST_LINE', 200)
  path = epath.Path(tmp_path / 'text.txt')
  path.write_text('a' * 200 + '\n' + 'b' * 90 + '\nend\n')
  assert [len(line) for line in text_files.lines_of(path)] == [200, 90, 3]
  path.write_text('a\n' + 'b' * 400)
  with pytest.raises(ValueError, match='text.txt, line 2: is longer than 200'):
    list(text_files.lines_of(path))


def test_json_is_told_from_what_is_none(tmp_path):
  file = tmp_path / 'a.json'
  file.write_text('{"a": [1]}')
  assert text_files.read_json(file) == {'a': [1]}
  file.write_text('[' * 100_000)
  with pytest.raises(ValueError, match='^its values are nested too deep$'):
    text_files.read_json(file)
  file.unlink()
  with pytest.raises(FileNotFoundError):
    text_files.read_json(file)
  file.symlink_to('/dev/zero')
  with pytest.raises(ValueError, match='^it is no regular file$'):
    text_files.read_json(file)
  file.unlink()
  os.mkfifo(file)
  with pytest.raises(ValueError, match='^it is no regular file$'):
    text_files.read_json(file)


def test_a_null_text_is_dropped_and_counted(tmp_path):
  path = write(tmp_path / 'a.jsonl', '{"text": null}\n{"text": "Fine."}\n')
  source = sources.open_source(str(path))
  assert texts_of(source) == ['Fine.']
  assert source.dropped == {'record with a null text': 1}
