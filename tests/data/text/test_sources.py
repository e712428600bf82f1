"""Text sources: what is read, what a document is, and bad input."""

import collections
import gzip
import json
import lzma
import os
import subprocess
import sys
import sysconfig
import time
import tracemalloc

import pytest
import zstandard

from data.text import manual, sentences, sources, text_files

COMPRESS = {
  '': bytes,
  '.gz': gzip.compress,
  '.xz': lzma.compress,
  '.zst': lambda data: zstandard.ZstdCompressor().compress(data),
}


def write(path, text):
  path.parent.mkdir(parents=True, exist_ok=True)
  data = text if isinstance(text, bytes) else text.encode()
  kind = path.suffix if path.suffix in COMPRESS else ''
  path.write_bytes(COMPRESS[kind](data))
  return path


def documents(source):
  """The texts of a source's documents."""
  found, held = [], []
  for piece in source.pieces():
    assert 0 < len(piece.text) <= sources.PIECE_CHARS
    held.append(piece.text)
    if piece.ends_document:
      found.append(''.join(held))
      held = []
  assert not held, 'the last piece must end its document'
  return found


def read(path, **options):
  return documents(sources.open_source(str(path), **options))


# --- The manual


def test_manual_is_the_documentation_of_python():
  source = sources.open_source('manual')
  assert source.document_break == 'record'
  found = documents(source)
  words = sum(len(text.split()) for text in found)
  assert 350 < len(found) < 700 and 200_000 < words < 600_000
  assert source.bytes_read == source.num_bytes
  assert sum(source.dropped.values()) > 20
  assert all(len(text.split()) >= manual.MIN_WORDS for text in found)
  assert sum('This module' in text for text in found) > 20
  assert any(text.startswith('Customizing attribute access') for text in found)
  assert documents(source) == found
  assert not any(piece.sentence_per_line for piece in source.pieces())


def test_manual_reads_source_and_imports_nothing(tmp_path, monkeypatch):
  words = ' '.join(f'word{i}' for i in range(30))
  write(
    tmp_path / 'b.py',
    f'"""Module. {words}"""\nraise SystemExit("imported")\n'
    'if True:\n  class A:\n    """Class A.\n\n    Indented."""\n'
    '    def f(self):\n      "Method f."\n      def g():\n        "Inner g."\n'
    'async def h():\n  """Title\n  =====\n\n  Coroutine h."""\n',
  )
  write(tmp_path / 'a' / '__init__.py', f'"""First. {words}"""')
  write(tmp_path / 'a' / 'small.py', '"""Too small."""')
  write(tmp_path / 'a' / 'broken.py', 'def (')
  write(tmp_path / 'test' / 'test_b.py', f'"""Test. {words}"""')
  write(tmp_path / 'site-packages' / 'c.py', f'"""Third party. {words}"""')
  monkeypatch.setattr(sysconfig, 'get_path', lambda name: str(tmp_path))
  monkeypatch.setattr(manual, '_topics', lambda: iter(()))
  manual.documents.cache_clear()
  try:
    texts, dropped = manual.documents()
  finally:
    manual.documents.cache_clear()
  assert texts == (
    f'Module. {words}\n\nClass A.\n\nIndented.\n\nMethod f.\n\nInner g.\n\n'
    'Title\n\nCoroutine h.',
    f'First. {words}',
  )
  assert dropped == {
    'module that cannot be parsed': 1,
    f'module with fewer than {manual.MIN_WORDS} words of docstrings': 1,
  }


def test_manual_without_library_source(tmp_path, monkeypatch):
  monkeypatch.setattr(sysconfig, 'get_path', lambda name: str(tmp_path))
  manual.documents.cache_clear()
  with pytest.raises(FileNotFoundError, match='no module source under'):
    sources.open_source('manual')


# --- Reading files


@pytest.mark.parametrize('kind', COMPRESS)
def test_kinds_of_files_give_the_same_text(kind, tmp_path):
  text = 'Ünï çödé 😀 text.\nSecond line\n\nParagraph.\n' * 3000
  data = ('\ufeff' + text.replace('\n', '\r\n')).encode()
  source = sources.open_source(str(write(tmp_path / f'a.txt{kind}', data)))
  assert documents(source) == [text]
  assert source.bytes_read == source.num_bytes
  assert source.num_bytes == os.path.getsize(tmp_path / f'a.txt{kind}')


@pytest.mark.parametrize('kind', ['.gz', '.xz', '.zst'])
def test_several_compressed_streams_in_a_file(kind, tmp_path):
  path = tmp_path / f'a.txt{kind}'
  path.write_bytes(COMPRESS[kind](b'One.\n') + COMPRESS[kind](b'Two.\n'))
  assert read(path) == ['One.\nTwo.\n']


def test_text_does_not_depend_on_the_chunks(tmp_path, monkeypatch):
  text = 'Añ😀b c\rd\r\n\r\n é\r'
  path = write(tmp_path / 'a.txt', '\ufeff' + text)
  for size in range(1, 12):
    monkeypatch.setattr(text_files, 'CHUNK_BYTES', size)
    assert ''.join(text_files.chunks(path_of(path))) == 'Añ😀b c\nd\n\n é\n'


def path_of(path):
  from etils import epath

  return epath.Path(path)


def test_pieces_are_bounded_whole_and_cut_well(tmp_path, monkeypatch):
  monkeypatch.setattr(sources, 'PIECE_CHARS', 100)
  lines = [f'Line {i} of text' for i in range(60)]
  paragraphs = '\n\n'.join('\n'.join(lines[i : i + 3]) for i in range(0, 60, 3))
  cases = {
    paragraphs: '\n\n',
    paragraphs.replace('\n\n', '\n \n'): '\n \n',
    '\n'.join(lines): '\n',
    ' '.join(lines): ' ',
    'x' * 350: 'x',
  }
  path = tmp_path / 'a.txt'
  for text, end in cases.items():
    expected = None
    for size in (7, 64, 1 << 20):
      monkeypatch.setattr(text_files, 'CHUNK_BYTES', size)
      write(path, text)
      pieces = list(sources.open_source(str(path)).pieces())
      texts = [piece.text for piece in pieces]
      assert ''.join(texts) == text and len(texts) > 3
      assert max(map(len, texts)) <= 100
      assert all(part.endswith(end) for part in texts[:-1])
      assert [p.ends_document for p in pieces] == [False] * (len(texts) - 1) + [
        True
      ]
      assert expected in (None, texts)
      expected = texts


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
    assert documents(source) == expected
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

SENTENCES = 'The cat sat.\nIt slept well!\n\nDr. Who came.\n"Why?" he asked.\n'
WRAPPED = (
  'The quick brown fox jumped over\nthe lazy dog. It slept on and on,\n'
  'and nobody came.\n\nThen it woke.\n'
)
PARAGRAPHS = 'The cat sat. It slept. It woke.\n\nOne sentence.\n\nTwo. Three.\n'


@pytest.mark.parametrize(
  ('text', 'document_break', 'per_line', 'count'),
  [
    (SENTENCES, 'blank_line', True, 2),
    (SENTENCES.replace('\n\n', '\n'), 'file', True, 1),
    (SENTENCES.replace('\n', '\n\n'), 'file', True, 1),
    (SENTENCES + '\nCHAPTER TWO\n', 'file', False, 1),
    (WRAPPED, 'file', False, 1),
    (PARAGRAPHS, 'file', False, 1),
    (PARAGRAPHS.replace('\n\n', '\n'), 'file', False, 1),
    ('我们去北京。\n你来吗？\n\n好！\n他说：“走。”\n', 'blank_line', True, 2),
  ],
)
def test_what_a_document_is(text, document_break, per_line, count, tmp_path):
  source = sources.open_source(str(write(tmp_path / 'a.txt', text)))
  assert source.document_break == document_break
  assert len(documents(source)) == count
  assert {p.sentence_per_line for p in source.pieces()} == {per_line}


def test_what_a_document_is_can_be_said(tmp_path):
  path = write(tmp_path / 'a.txt', WRAPPED)
  assert read(path, document_break='blank_line') == [
    WRAPPED.split('\n\n')[0] + '\n',
    '\nThen it woke.\n',
  ]
  path = write(tmp_path / 'a.txt', SENTENCES)
  assert read(path, document_break='file') == [SENTENCES]
  text = 'Preface.\n= A =\nText a.\n\nMore.\n= B =\n = = Sub = =\nText b.'
  path = write(tmp_path / 'a.txt', text)
  source = sources.open_source(str(path), document_break='= [A-Z]')
  assert source.document_break == 'regex:= [A-Z]'
  assert documents(source) == [
    'Preface.\n',
    '= A =\nText a.\n\nMore.\n',
    '= B =\n = = Sub = =\nText b.',
  ]


def test_documents_that_cross_pieces(tmp_path, monkeypatch):
  monkeypatch.setattr(sources, 'PIECE_CHARS', 50)
  words = [
    'First one here',
    'x' * 170,
    '\t',
    'Second',
    'y ' * 60,
    '',
    '',
    'End',
  ]
  path = write(tmp_path / 'a.txt', '\n'.join(words))
  for size in (5, 1 << 20):
    monkeypatch.setattr(text_files, 'CHUNK_BYTES', size)
    found = read(path, document_break='blank_line')
    assert [''.join(text.split()) for text in found] == [
      'Firstonehere' + 'x' * 170,
      'Second' + 'y' * 60,
      'End',
    ]


def test_real_texts(sesame_data, tmp_path):
  novel = sorted((sesame_data / 'novels').glob('*.txt'))[3]
  source = sources.open_source(str(novel))
  assert source.document_break == 'file'
  (text,) = documents(source)
  assert not any(p.sentence_per_line for p in source.pieces())

  wiki = sesame_data / 'wikitext-2/wiki.valid.tokens'
  assert sources.open_source(str(wiki)).document_break == 'file'
  found = read(wiki, document_break=r'^ = [^=].* = $')
  assert len(found) == 60  # articles, as published
  assert all(text.startswith(' = ') for text in found)

  split = sentences.split_sentences(text)
  assert 2000 < len(split) < 20_000
  path = write(tmp_path / 'bert.txt', '\n'.join(split))
  assert sources.open_source(str(path)).description.endswith('sentence a line')
  # BERT's input format: a blank line after every 50 sentences.
  groups = [split[i : i + 50] for i in range(0, len(split), 50)]
  path = write(tmp_path / 'b.txt', '\n\n'.join(map('\n'.join, groups)))
  source = sources.open_source(str(path))
  assert source.document_break == 'blank_line'
  assert list(map(sentences.split_lines, documents(source))) == groups


# --- JSON lines


@pytest.mark.parametrize('kind', COMPRESS)
def test_jsonl_records_are_documents(kind, tmp_path):
  rows = ['One.\n\nStill one.', '  ', 'Two é.\r\nLine.', 'x' * 3_000_000]
  text = '\n'.join(json.dumps({'id': i, 'body': t}) for i, t in enumerate(rows))
  path = write(tmp_path / f'a.jsonl{kind}', text)
  source = sources.open_source(str(path), text_field='body')
  assert source.document_break == 'record'
  assert documents(source) == [rows[0], 'Two é.\nLine.', rows[3]]
  assert source.dropped == {'record without text': 1}


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('{"text": ', 'line 3: not JSON'),
    (r'{"text": "no \ud83d text"}', r'line 3: .*U\+D83D at character 3'),
    ('["a"]', "expected a JSON object with a field 'text', found list"),
    ('{"body": "a", "id": 1}', "line 3: no field 'text'.*'body', 'id'"),
    ('{"text": 7}', "line 3: field 'text' is int, not text"),
  ],
)
def test_bad_records_are_named(line, message, tmp_path):
  path = write(tmp_path / 'a.jsonl', '{"text": "Fine."}\n\n' + line)
  with pytest.raises(ValueError, match=message) as error:
    read(path)
  assert str(path) in str(error.value)


# --- Bad files


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
    assert documents(source) == ['Text.']
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


def test_document_breaks_that_cannot_be(tmp_path):
  path = write(tmp_path / 'a.txt', 'Text.')
  with pytest.raises(ValueError, match='nor a regular expression: .*position'):
    sources.open_source(str(path), document_break='(')
  with pytest.raises(ValueError, match="no line matches document_break 'Chap'"):
    read(path, document_break='Chap')
  records = write(tmp_path / 'a.jsonl', '{"text": "a"}')
  for spec in (str(records), 'manual', 'tfds:any'):
    with pytest.raises(ValueError, match='does not apply'):
      sources.open_source(spec, document_break='file')


# --- TFDS

WRITE_TFDS = """
import numpy as np
import tensorflow_datasets as tfds
texts = {'train': [f' Document {i}.\\n\\nÜber it.\\n ' for i in range(50)],
         'test': ['Held out.']}
tfds.dataset_builders.store_as_tfds_dataset(
  name='tiny_texts', version='1.0.0',
  features=tfds.features.FeaturesDict(
    {'body': tfds.features.Text(), 'id': np.int64}),
  split_datasets={split: [(i, {'body': t, 'id': i}) for i, t in enumerate(ts)]
                  for split, ts in texts.items()},
)
"""
READ_TFDS = """
import json, sys
from data.text import sources
for spec, field in json.loads(sys.argv[1]):
  try:
    source = sources.open_source(spec, text_field=field)
    assert 'tensorflow' in sys.modules
    pieces = list(source.pieces('kept'))
    assert all(piece.ends_document for piece in pieces)
    assert pieces == list(source.pieces())
    assert source.bytes_read == source.num_bytes > 0
    print(json.dumps([source.description, [p.text for p in pieces]]))
  except ValueError as error:
    print(json.dumps(['error', str(error)]))
"""


@pytest.mark.slow
def test_tfds_reads_what_tfds_wrote(tmp_path):
  """In processes of their own: TFDS reads its folder's name at import."""
  env = os.environ | {'TFDS_DATA_DIR': str(tmp_path)}
  env['TF_CPP_MIN_LOG_LEVEL'] = '3'
  write = [sys.executable, '-c', WRITE_TFDS]
  subprocess.run(write, env=env, check=True, capture_output=True, timeout=400)
  specs = [
    ('tfds:tiny_texts', 'text'),  # the only text feature
    ('tfds:tiny_texts:1.0.0:train[:10%]', 'body'),
    ('tfds:tiny_texts:train[2:4]', 'body'),
    ('tfds:tiny_texts:test', 'body'),
    ('tfds:tiny_texts:valid', 'body'),
    ('tfds:tiny_texts', 'title'),
    ('tfds:no_such_set', 'text'),
    ('tfds:', 'text'),
  ]
  command = [sys.executable, '-c', READ_TFDS, json.dumps(specs)]
  done = subprocess.run(
    command, env=env, check=True, capture_output=True, text=True, timeout=400
  )
  whole, part, some, test, *errors = map(json.loads, done.stdout.splitlines())
  expected = [f' Document {i}.\n\nÜber it.\n ' for i in range(50)]
  assert collections.Counter(whole[1]) == collections.Counter(expected)
  assert whole[1][:5] == part[1]
  assert whole[1][2:4] == some[1]
  assert test[1] == ['Held out.']
  assert 'field body: 50 records' in whole[0]
  assert all(kind == 'error' for kind, _ in errors)
  assert "no split 'valid'; the splits of tiny_texts are" in errors[0][1]
  assert "['test', 'train']" in errors[0][1]
  assert "no text field 'title'; its text fields are ['body']" in errors[1][1]
  assert "no data set 'no_such_set'" in errors[2][1]
  assert 'expected tfds:NAME' in errors[3][1]

  prepare = [sys.executable, '-m', 'data.prepare', '--json']
  prepare += ['--source', 'tfds:tiny_texts', '--tokenizer']
  prepare += ['train:wordpiece:100', '--out', str(tmp_path / 'store')]
  done = subprocess.run(
    prepare, env=env, check=True, capture_output=True, text=True, timeout=400
  )
  assert json.loads(done.stdout)['documents'] == 50


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


def test_running_text_becomes_sentences():
  text = (
    'Mr. Smith went to\nWashington. He  said: "No."\n\n'
    'A heading\n \nThen he left!\tWhy? Dr. No knew.\n\n\n'
  )
  assert sentences.split_sentences(text) == [
    'Mr. Smith went to Washington.',
    'He said: "No."',
    'A heading',
    'Then he left!',
    'Why?',
    'Dr. No knew.',
  ]
  assert sentences.split_sentences(' \n\n\t') == []
  assert sentences.split_lines('One  line. Two.\n\n Next\tone \n') == [
    'One line. Two.',
    'Next one',
  ]


def test_cjk_sentences():
  assert sentences.split_sentences('我们去。他问：“来吗？”好！！ Yes. No.') == [
    '我们去。',
    '他问：“来吗？”',
    '好！！',
    'Yes.',
    'No.',
  ]


def test_no_text_is_lost_and_time_is_linear(sesame_data):
  novel = sorted((sesame_data / 'novels').glob('*.txt'))[7]
  text = novel.read_text('utf-8-sig')
  hard = ['a.b' * 90_000, '.' * 300_000, '. ' * 90_000, '!?)' * 60_000]
  hard += ['。' * 300_000, 'word ' * 90_000, ').' * 60_000]
  for sample in (text, *hard):
    start = time.process_time()
    found = sentences.split_sentences(sample)
    seconds = time.process_time() - start
    assert ''.join(found).replace(' ', '') == ''.join(sample.split())
    assert max(map(len, found)) <= sentences.MAX_SPAN
    assert seconds < 10, (sample[:10], seconds)
