"""ARPA files: back-off models as text, for and from other programs.

After the numbers of n-grams of each order, a line has an n-gram's log10
probability, its words, and the log10 weight of shorter histories after it.
"""

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, TextIO

import numpy as np
from etils import epath

from data.ngrams import counts
from data.ngrams.model import Level, Model, lookup

ZERO = -99.0  # the logarithm of 0
MAX_WORDS = 1 << 24  # a key has the number of an n-gram and that of a word
_BLOCK = 1 << 16  # n-grams written at once
# What separates words, as for KenLM: a no-break space is a letter.
_SPACES = ' \t\n\r\v\f\0'
_FIELD = re.compile(f'[^{_SPACES}]+')


def write(model: Model, file: TextIO) -> None:
  """Writes a model; words must have no white space in them."""
  for word in model.words:
    if not _FIELD.fullmatch(word):
      raise ValueError(
        f'word {word!r}: expected no white space in the words of an ARPA file'
      )
  file.write('\\data\\\n')
  for n, level in enumerate(model.levels, start=1):
    file.write(f'ngram {n}={len(level.keys)}\n')
  words = np.array(model.words, object)
  for n, level in enumerate(model.levels, start=1):
    file.write(f'\n\\{n}-grams:\n')
    for first in range(0, len(level.keys), _BLOCK):
      numbers = np.arange(first, min(first + _BLOCK, len(level.keys)))
      part = slice(first, first + _BLOCK)
      texts = words[_spell(model, n, numbers).T]
      columns = (
        _shown(level.log_probs[part]),
        map(' '.join, texts),
        _shown(level.backoffs[part]),
      )
      rows = zip(*columns[: 2 if n == model.order else 3], strict=True)
      file.writelines('\t'.join(row) + '\n' for row in rows)
  file.write('\n\\end\\\n')


def _shown(values: np.ndarray) -> list[str]:
  found = np.maximum(values, ZERO).tolist()
  return [f'{value:.8g}' for value in found]


def _spell(model: Model, order: int, numbers: np.ndarray) -> np.ndarray:
  """Returns the word ids of n-grams, int64 [order, n-grams]."""
  found = []
  for level in model.levels[order - 1 : 0 : -1]:
    numbers, last = np.divmod(level.keys[numbers], len(model.words))
    found.append(last)
  return np.stack([numbers, *found[::-1]])


def read(path: epath.PathLike) -> Model:
  """Reads an ARPA file, perhaps .gz.

  A file without <unk> gives unknown words probability 0. Raises ValueError,
  with the line, for a damaged file.
  """
  path = epath.Path(path)
  with path.open('rb') as raw:
    stream = gzip.GzipFile(fileobj=raw) if path.suffix == '.gz' else raw
    return _Reader(path, stream).read()


class _Reader:
  """Reads one file line by line; knows its place for messages."""

  def __init__(self, path: epath.Path, file: BinaryIO) -> None:
    self._path = path
    self._lines = self._numbered(file)
    self._line = 0

  def _numbered(self, file: BinaryIO) -> Iterator[str]:
    try:
      for self._line, line in enumerate(file, start=1):
        if self._line == 1:
          line = line.removeprefix(codecs.BOM_UTF8)
        yield line.decode().rstrip('\r\n')
    except UnicodeDecodeError as error:
      raise self._wrong(
        f'not UTF-8 at byte {error.start:,} of the line'
        f' (0x{error.object[error.start]:02x}: {error.reason}). Convert the'
        ' file, for example: iconv -f WINDOWS-1252 -t UTF-8'
      ) from None
    except (EOFError, OSError, zlib.error) as error:
      raise self._wrong(f'cannot be read: {error}') from error
    self._line += 1

  def _wrong(self, text: str) -> ValueError:
    return ValueError(f'{self._path}, line {self._line:,}: {text}')

  def _next(self, expected: str) -> str:
    """Returns the next line that is not blank."""
    for line in self._lines:
      if line := line.strip(_SPACES):
        return line
    raise self._wrong(f'the file ends, expected {expected}')

  def read(self) -> Model:
    """Returns the model of the file."""
    for line in self._lines:  # any text may stand before
      if line.strip() == '\\data\\':
        break
    else:
      raise self._wrong('the file ends, expected \\data\\: not an ARPA file')
    sizes = []
    while match := re.fullmatch(
      r'ngram\s+(\d+)\s*=\s*(\d+)', line := self._next('ngram N=COUNT')
    ):
      if int(match[1]) != len(sizes) + 1:
        raise self._wrong(f'{line!r}: expected ngram {len(sizes) + 1}=COUNT')
      sizes.append(int(match[2]))
    if not sizes:
      raise self._wrong(f'{line[:60]!r}: expected ngram 1=COUNT')
    self._heading(line, '\\1-grams:')
    words, first = self._read_words(sizes[0], len(sizes) > 1)
    # Other programs' spelling of it.
    levels, ids = [first], {'<UNK>': 0} | {w: i for i, w in enumerate(words)}
    for n, size in enumerate(sizes[1:], start=2):
      self._heading(self._next(f'\\{n}-grams:'), f'\\{n}-grams:')
      levels.append(self._read_level(n, size, n < len(sizes), levels, ids))
    self._heading(self._next('\\end\\'), '\\end\\')
    return Model(tuple(words), tuple(levels), f'read from {self._path}')

  def _heading(self, line: str, expected: str) -> None:
    if line != expected:
      raise self._wrong(
        f'{line[:60]!r}: expected {expected}, after as many n-grams as \\data\\'
        ' says'
      )

  def _rows(
    self, order: int, size: int, weighs: bool
  ) -> Iterator[tuple[float, list[str], float]]:
    """Yields probability, words and back-off weight of each n-gram."""
    for _ in range(size):
      line = self._next(f'{size:,} {order}-grams')
      parts = _FIELD.findall(line)
      extra = len(parts) - order - 1
      if line.startswith('\\') or extra not in (0, 1) or extra > weighs:
        raise self._wrong(
          f'{line[:60]!r}: expected a log10 probability, {order} words'
          + (' and perhaps a back-off weight' if weighs else '')
          + f', one of {size:,} {order}-grams'
        )
      try:
        value = float(parts[0])
        weight = float(parts[-1]) if extra else 0.0
      except ValueError:
        raise self._wrong(
          f'{line[:60]!r}: expected numbers before and behind the words'
        ) from None
      if not value <= 0 or weight != weight:
        raise self._wrong(
          f'{line[:60]!r}: {value:g} is not the logarithm of a probability'
          if not value <= 0
          else f'{line[:60]!r}: the back-off weight is not a number'
        )
      yield value, parts[1 : order + 1], weight

  def _read_words(self, size: int, weighs: bool) -> tuple[list[str], Level]:
    """Returns the words, `counts.SYMBOLS` first, and their level."""
    symbols = {word: i for i, word in enumerate(counts.SYMBOLS)}
    words, rows = [*counts.SYMBOLS], [(ZERO, 0.0)] * len(symbols)
    seen = set()
    for value, (word,), weight in self._rows(1, size, weighs):
      word = '<unk>' if word == '<UNK>' else word
      if word in seen:
        raise self._wrong(f'{word!r} a second time')
      seen.add(word)
      if word in symbols:
        rows[symbols[word]] = value, weight
      else:
        words.append(word)
        rows.append((value, weight))
    if len(words) > MAX_WORDS:
      raise self._wrong(f'{len(words):,} words, expected {MAX_WORDS:,} at most')
    values, weights = np.array(rows, np.float32).T
    return words, Level(np.arange(len(words)), _zeros(values), _zeros(weights))

  def _read_level(
    self, order: int, size: int, weighs: bool, levels: Any, ids: dict[str, int]
  ) -> Level:
    """Returns the n-grams of one order; `levels` are the lower ones."""
    num_words = len(levels[0].keys)
    numbers = np.empty((size, order), np.int64)
    values = np.empty((2, size), np.float32)
    start = self._line
    for row, (value, words, weight) in enumerate(
      self._rows(order, size, weighs)
    ):
      try:
        numbers[row] = [ids[word] for word in words]
      except KeyError as error:
        raise self._wrong(
          f'{error.args[0]!r} is not among the 1-grams'
        ) from None
      values[:, row] = value, weight
    heads = numbers[:, 0]
    for n, level in enumerate(levels[1:], start=1):
      heads = lookup(level.keys, heads * num_words + numbers[:, n])
      if (missing := np.flatnonzero(heads < 0)).size:
        self._line = start + int(missing[0]) + 1
        raise self._wrong(
          f'the first {order - 1} words of a {order}-gram are not among the'
          f' {order - 1}-grams'
        )
    keys = heads * num_words + numbers[:, -1]
    places = np.argsort(keys, kind='stable')
    keys = keys[places]
    if (again := np.flatnonzero(keys[1:] == keys[:-1])).size:
      self._line = start + int(places[again[0] + 1]) + 1
      raise self._wrong(f'a {order}-gram a second time')
    return Level(keys, *map(_zeros, values[:, places]))


def _zeros(values: np.ndarray) -> np.ndarray:
  return np.where(values <= ZERO, -np.inf, values).astype(np.float32)
