"""Text sources: what is read, what a document is, and bad input."""

import os
import subprocess
import sys
import time
import tracemalloc

import pytest
from text_sources import read, texts_of, write

from data.text import sentences, sources

# --- The manual


# --- Reading files


@pytest.mark.parametrize('kind', ['', '.gz', '.zst'])
def test_a_huge_line_takes_little_memory_and_time(kind, tmp_path):
  size = 50_000_000
  path = write(tmp_path / f'a.txt{kind}', b'0123456789' * (size // 10))
  tracemalloc.start()
  start = time.perf_counter()
  total = split = 0
  for piece in sources.open_source(str(path)).pieces():
    total += len(piece.text)
    if not split:
      split = len(sentences.split_sentences(piece.text))
  seconds = time.perf_counter() - start
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert total == size and split > 10
  limit = 100e6 if kind == '.zst' else 16e6  # 30,000 to 1: see the reader
  assert peak < limit, peak
  assert seconds < 20


def test_folder_is_read_recursively_and_in_order(tmp_path):
  write(tmp_path / 'b.txt', 'Text b.')
  write(tmp_path / 'a' / 'z.txt.gz', 'Text z.')
  write(tmp_path / 'a' / 'deep' / 'y.txt', 'Text y.')
  write(tmp_path / 'c.jsonl', '{"text": "One."}\n\n{"text": "Two."}\n')
  write(tmp_path / 'empty.txt', '')
  write(tmp_path / 'white.txt', ' \n\n')
  write(tmp_path / 'photo.png', b'\x89PNG\0\0')
  write(tmp_path / '.hidden', 'Hidden.')
  source = sources.open_source(str(tmp_path))
  expected = ['Text y.', 'Text z.', 'Text b.', 'One.', 'Two.']
  for _ in range(2):  # counts are of one pass
    assert texts_of(source) == expected
    assert source.dropped == {
      'empty file': 1,
      'file of white space': 1,
      'binary file': 1,
    }
  assert source.description.startswith('7 files, 0.0 MB, a document is a file')


def test_globs(tmp_path):
  for name in ('b.txt', 'a.txt', 'c.md', 'x/d.txt'):
    write(tmp_path / name, name)
  assert read(tmp_path / '*.txt') == ['a.txt', 'b.txt']
  assert read(tmp_path / '**' / '*.txt') == ['a.txt', 'b.txt', 'x/d.txt']
  assert read(write(tmp_path / 'odd[1].txt', 'odd')) == ['odd']


def test_fingerprint_changes_with_the_input(tmp_path):
  path = write(tmp_path / 'a.txt', 'One.')
  first = sources.open_source(str(path)).fingerprint
  assert sources.open_source(str(path)).fingerprint == first
  other = {
    sources.open_source(str(path), document_break='blank_line').fingerprint,
    sources.open_source(str(path), document_break='One').fingerprint,
  }
  stat = path.stat()
  os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
  other.add(sources.open_source(str(path)).fingerprint)
  write(path, 'Other text.')
  other.add(sources.open_source(str(path)).fingerprint)
  assert len(other | {first}) == 5


# --- What a document is


# --- JSON lines


# --- Bad files


def test_binary_among_named_files_is_an_error(tmp_path):
  write(tmp_path / 'a.txt', 'Text.')
  write(tmp_path / 'b.txt', b'\0')
  with pytest.raises(ValueError, match='b.txt: binary'):
    read(tmp_path / '*.txt')


def test_dropped_files_are_named(tmp_path):
  for name in ('a.bin', 'b.bin', 'c.bin', 'd.bin'):
    write(tmp_path / name, b'ab\0')
  write(tmp_path / 'empty.txt', '')
  write(tmp_path / 'white.txt', ' \n')
  write(tmp_path / 'e.jsonl', '{"text": " "}\n{"text": ""}\n')
  (tmp_path / 'gone.txt').symlink_to(tmp_path / 'away.txt')
  with pytest.raises(ValueError, match='holds no text at all') as error:
    list(sources.open_source(str(tmp_path)).pieces())
  for part in (
    f'binary file: 4 ({tmp_path}/a.bin: NUL at byte 2, {tmp_path}/b.bin: NUL',
    'c.bin: NUL at byte 2 and 1 more)',
    f'empty file: 1 ({tmp_path}/empty.txt)',
    f'file of white space: 1 ({tmp_path}/white.txt)',
    f'link to nothing: 1 ({tmp_path}/gone.txt -> {tmp_path}/away.txt)',
    'record without text: 2',
  ):
    assert part in str(error.value)
  write(tmp_path / 'text.txt', 'Text.')
  source = sources.open_source(str(tmp_path))
  for _ in range(2):  # of one pass
    assert texts_of(source) == ['Text.']
    assert source.dropped['binary file'] == 4
    assert [len(names) for names in source.dropped_files.values()] == [
      1,
      3,
      1,
      1,
    ]


def test_links_to_nothing_are_named(tmp_path):
  (tmp_path / 'a.txt').symlink_to('away.txt')
  for spec in (tmp_path, tmp_path / 'a.txt', tmp_path / '*.txt'):
    with pytest.raises(FileNotFoundError, match=r'a\.txt .*away\.txt'):
      sources.open_source(str(spec))
  write(tmp_path / 'b.txt', 'Text.')
  assert read(tmp_path) == ['Text.']
  # What was asked for by name is not dropped, as no binary file is.
  with pytest.raises(FileNotFoundError, match='a.txt is a link to away.txt'):
    sources.open_source(str(tmp_path / '*.txt'))
  (tmp_path / 'c.txt').symlink_to(tmp_path / 'b.txt')
  assert read(tmp_path / '[bc].txt') == ['Text.', 'Text.']
  write(tmp_path / 'b.txt', '')
  with pytest.raises(ValueError, match=r'empty files only: .*a\.txt -> away'):
    sources.open_source(str(tmp_path))


def test_nothing_there(tmp_path):
  for spec, message in {
    tmp_path / 'no.txt': 'no such file or folder',
    tmp_path / '*.txt': 'no file matches',
    tmp_path: 'holds no file',
  }.items():
    with pytest.raises(FileNotFoundError, match=message):
      sources.open_source(str(spec))
  write(tmp_path / 'a.txt', '')
  write(tmp_path / 'b.txt', '')
  with pytest.raises(ValueError, match='holds empty files only'):
    sources.open_source(str(tmp_path))


# --- TFDS


def test_other_sources_do_not_import_tensorflow(tmp_path):
  path = write(tmp_path / 'a.txt', 'Text.')
  code = (
    'import sys; sys.modules["tensorflow"] = None\n'
    'from data.text import sources\n'
    f'assert len(list(sources.open_source({str(path)!r}).pieces())) == 1\n'
    'assert "tensorflow_datasets" not in sys.modules'
  )
  subprocess.run([sys.executable, '-c', code], check=True)


# --- Sentences
