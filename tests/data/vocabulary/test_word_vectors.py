"""Pre-trained word vectors: each format, and each kind of damage."""

import gzip
import struct
import sys

import numpy as np
import pytest
from pyarrow import parquet, table

from data.vocabulary import word_vectors

# Not to be told from text by their first bytes: no NUL, no control character.
VECTORS = {
  'the': (0.1, -0.3, 0.7),
  'Tōkyō': (1.5, 0.25, -8.0),
  'frog': (0.9, 0.6, 0.3),
}
WORDS = ('frog', 'missing', 'the')
EXPECTED = np.array([VECTORS['the'], VECTORS['frog']], np.float32)


def lines_of(vectors):
  return [f'{word} {" ".join(map(str, row))}' for word, row in vectors.items()]


def binary_of(vectors, end=b'\n'):
  """As word2vec.c writes it: fprintf of the sizes, then word by word."""
  content = b'%d %d\n' % (len(vectors), 3)
  for word, row in vectors.items():
    content += word.encode() + b' ' + struct.pack('<3f', *row) + end
  return content


@pytest.fixture
def path(tmp_path):
  return tmp_path / 'vectors'


def check(path, num_in_file=3):
  found = word_vectors.read(path, WORDS)
  assert found.words == ('the', 'frog')  # as in the file
  assert found.vectors.dtype == np.float32
  np.testing.assert_array_equal(found.vectors, EXPECTED)
  assert found.num_in_file == num_in_file


@pytest.mark.parametrize('header', ['', '3 3\n', '\ufeff'])
@pytest.mark.parametrize('end', ['\n', ' \n', '\r\n'])
def test_text(path, header, end):
  lines = lines_of(VECTORS)
  path.write_text(header + end.join(lines) + end, newline='')
  check(path)
  compressed = path.with_suffix('.gz')
  compressed.write_bytes(gzip.compress(path.read_bytes()))
  check(compressed)


@pytest.mark.parametrize('end', [b'\n', b''])
def test_binary(path, end):
  content = binary_of(VECTORS, end)
  # The same, byte by byte: sizes, a word, a space, three floats of four bytes.
  assert content.startswith(b'3 3\nthe \xcd\xcc\xcc\x3d\x9a\x99\x99\xbe')
  assert content.endswith(b'frog ff\x66\x3f\x9a\x99\x19\x3f\x9a\x99\x99>' + end)
  path.write_bytes(content)
  check(path)


def test_a_binary_file_of_many_chunks(path, monkeypatch):
  monkeypatch.setattr(word_vectors.text_files, 'CHUNK_BYTES', 50)
  random = np.random.default_rng(0)
  words = [f'w{i}' for i in range(500)]
  rows = random.normal(size=(500, 3)).astype(np.float32)
  path.write_bytes(binary_of(dict(zip(words, rows, strict=True))))
  found = word_vectors.read(path, words[::-1])
  assert found.words == tuple(words)
  np.testing.assert_array_equal(found.vectors, rows)


def write_folder(folder, words, matrix):
  folder.mkdir()
  np.save(folder / 'small_emb.npy', matrix)
  parquet.write_table(table({'index': words}), folder / 'small_index.parquet')


def test_a_folder(path):
  write_folder(path, list(VECTORS), np.array([*VECTORS.values()], np.float32))
  check(path)


def test_released_rows(sesame_data):
  folder = sesame_data / 'allennlp_samples' / 'embeddings'
  for dim in (100, 300):
    file = folder / f'glove.6B.{dim}d.sample.txt.gz'
    with gzip.open(file, 'rt') as lines:
      rows = [line.split() for line in lines]
    found = word_vectors.read(file, [rows[7][0], rows[1][0], 'Sesame'])
    assert found.words == (rows[1][0], rows[7][0])
    assert found.num_in_file == len(rows) >= 100
    expected = np.array([rows[1][1:], rows[7][1:]], np.float32)
    assert expected.shape == (2, dim)
    np.testing.assert_array_equal(found.vectors, expected)


def test_words_with_spaces_as_in_glove_840b(path):
  path.write_text('the 0.1 0.2\n. . . 0.3 0.4\nat a@b.c 0.5 0.6\n')
  found = word_vectors.read(path, ['at a@b.c', '. . .', '.', 'at'])
  assert found.words == ('. . .', 'at a@b.c')
  expected = np.array([[0.3, 0.4], [0.5, 0.6]], np.float32)
  np.testing.assert_array_equal(found.vectors, expected)


def test_the_first_of_equal_words_counts(path):
  path.write_text('\n'.join(lines_of(VECTORS)) + '\nfrog 1 2 3\n')
  check(path, num_in_file=4)


def test_other_words_numbers_are_not_read(path):
  path.write_text('\n'.join(lines_of(VECTORS)) + '\ntoad x y nan\n')
  check(path, num_in_file=4)


def test_a_remote_file_and_folder(gs, tmp_path):
  from etils import epath

  content = gzip.compress('\n'.join(lines_of(VECTORS)).encode())
  (epath.Path(gs) / 'vectors.gz').write_bytes(content)
  check(f'{gs}/vectors.gz')
  matrix = np.array([*VECTORS.values()], np.float32)
  write_folder(tmp_path / 'folder', list(VECTORS), matrix)
  for file in (tmp_path / 'folder').iterdir():
    (epath.Path(gs) / 'folder' / file.name).write_bytes(file.read_bytes())
  check(f'{gs}/folder')


BINARY = binary_of(VECTORS)


@pytest.mark.parametrize(
  'content, message',
  [
    (b'', 'vectors: the first line is empty; expected a word and its'),
    (b'frog\n', "line 1: found b'frog.n'; expected a word and its vector"),
    (b'some prose\n', "line 1: the vector of 'some': could not .* b'prose'"),
    (b'a 1 2\nfrog 1\n', 'line 2: found 1 fields .* expected 2 numbers'),
    (b'a 1 2\nfrog 1.5 2 3\n', 'line 2: found 3 fields .* expected 2 numbers'),
    (b'a 1 2\nfrog 1  2\n', 'line 2: found 3 fields .* a space before each'),
    (b'2 2\na 1 2\nfrog 1\n', 'line 3: found 1 fields .* expected 2 numbers'),
    (b'a 1 2\n\nfrog 1 x\n', "line 3: the vector of 'frog': .*'x'; expected"),
    (b'a 1 2\nfrog 1 nan\n', "line 2: number 2 of the vector of 'frog' is nan"),
    (b'a 1 2\nfrog 1e39 0\n', "number 1 of the vector of 'frog' is inf"),
    (b'3 2\na 1 2\nfrog 1 2\n', 'found 2 vectors, expected 3, as its first'),
    (b'1 2\na 1 2\nfrog 1 2\n', 'found 2 vectors, expected 1, as its first'),
    (b'3 2\n', 'found 0 vectors, expected 3'),
    (
      BINARY[:-3],
      'truncated in word 3: found 15 bytes of it, expected the wor',
    ),
    (BINARY[:-16], 'truncated in word 3: found 2 bytes of it'),
    (b'4' + BINARY[1:], 'found 3 vectors, expected 4, as its first line says'),
    (b'2' + BINARY[1:], 'found 3 vectors, expected 2, as its first line says'),
    (
      BINARY.replace(struct.pack('<f', 0.9), struct.pack('<f', np.nan)),
      "word 3: number 1 of the vector of 'frog' is nan; expected finite",
    ),
    (b'PK\x03\x04' + BINARY, r"begins with b'PK.x03.x043 3"),
  ],
)
def test_damage_is_named(path, content, message):
  path.write_bytes(content)
  with pytest.raises(ValueError, match=message) as error:
    word_vectors.read(path, WORDS)
  assert str(path) in str(error.value)


def test_a_truncated_archive(path):
  path = path.with_suffix('.gz')
  path.write_bytes(gzip.compress('\n'.join(lines_of(VECTORS)).encode())[:-9])
  with pytest.raises(ValueError, match='vectors.gz: the .gz file is truncated'):
    word_vectors.read(path, WORDS)


def test_no_overlap(path):
  path.write_text('\n'.join(lines_of(VECTORS)))
  with pytest.raises(ValueError, match='no overlap: found 3 vectors') as error:
    word_vectors.read(path, ['toad', 'newt'])
  assert 'none of the 2 words' in str(error.value)
  assert 'lower' not in str(error.value)
  with pytest.raises(ValueError, match='2 of them are in lower case: lower-c'):
    word_vectors.read(path, ['Frog', 'THE', 'Newt'])


def test_what_is_missing(path, monkeypatch):
  with pytest.raises(FileNotFoundError, match='vectors: no such file'):
    word_vectors.read(path, WORDS)
  write_folder(path, list(VECTORS), np.ones((3, 2), np.float32))
  with monkeypatch.context() as patch:
    patch.setitem(sys.modules, 'pyarrow', None)
    with pytest.raises(OSError, match='parquet: .* pip install pyarrow'):
      word_vectors.read(path, WORDS)
  (path / 'small_emb.npy').unlink()
  with pytest.raises(FileNotFoundError, match=r'vectors has no \*_emb.npy'):
    word_vectors.read(path, WORDS)


def test_a_folder_that_does_not_fit(path):
  write_folder(path, list(VECTORS), np.ones((2, 2), np.float32))
  matrix = path / 'small_emb.npy'
  with pytest.raises(ValueError, match=r'found float32 \[2, 2\], expected fl'):
    word_vectors.read(path, WORDS)
  matrix.write_bytes(matrix.read_bytes()[:-1])
  with pytest.raises(ValueError, match='small_emb.npy: no whole NumPy array'):
    word_vectors.read(path, WORDS)
  np.save(matrix, np.full((3, 2), np.inf, np.float32))
  with pytest.raises(ValueError, match="word 1: number 1 .* 'the' is inf"):
    word_vectors.read(path, WORDS)
  (path / 'small_index.parquet').write_bytes(b'PAR')
  with pytest.raises(ValueError, match='small_index.parquet: no Parquet file'):
    word_vectors.read(path, WORDS)
  parquet.write_table(table({'row': [0, 1, 2]}), path / 'small_index.parquet')
  with pytest.raises(ValueError, match='first column is int64, expected the w'):
    word_vectors.read(path, WORDS)


def test_the_first_vectors_and_words_in_any_case(path):
  path.write_text('the 1 2\nCat 3 4\ndog 5 6\nDOG 7 8\nthe 0 0\n')
  found = word_vectors.read_first(path, 1, ['Dog'])
  assert found.words == ('the', 'dog', 'DOG') and found.num_in_file == 5
  np.testing.assert_array_equal(found.vectors, [[1, 2], [5, 6], [7, 8]])
  assert word_vectors.read_first(path, 2).words == ('the', 'Cat')
  none = word_vectors.read_first(path, 0, ['bird'])
  assert none.words == () and none.num_in_file == 5
  path.write_bytes(b'a-word-of-some-letters\xff 1\nb 2\n')
  assert word_vectors.read_first(path, 9).words[0].endswith('letters\\xff')
  path.write_bytes(b'3 1\na 1\nb 2\na 3\n')
  found = word_vectors.read_first(path, 9)
  assert found.words == ('a', 'b') and found.num_in_file == 3
  np.testing.assert_array_equal(found.vectors, [[1], [2]])


def test_words_that_other_programs_read(path):
  """NILC's files: a word ends in a number, is a space, or comes twice."""
  path.write_bytes(b'4 2\na 1 2\nversion 2.0 3 4\n  5 6\na 7 8\n')
  found = word_vectors.read(path, ['a', 'version 2.0', ' '])
  assert found.words == ('a', 'version 2.0', ' ') and found.num_in_file == 4
  np.testing.assert_array_equal(found.vectors, [[1, 2], [3, 4], [5, 6]])
  path.write_bytes(b'a\t1 2\nb\t3\t4\n')
  found = word_vectors.read(path, ['a', 'b'])
  np.testing.assert_array_equal(found.vectors, [[1, 2], [3, 4]])
  # A width that no row has is the header's fault.
  path.write_bytes(b'2 2\na 1.5 2 3\nb 1.5 2 3\n')
  with pytest.raises(ValueError, match='line 2: found 3 fields .* expected 2'):
    word_vectors.read(path, ['a'])
