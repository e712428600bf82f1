"""ERNIE's input lines: sentence pairs as token ids, with bounds of units.

A line has five fields, separated by `;`, the first four of as many numbers:
token ids `[CLS] A [SEP] B [SEP]`; segments, 0 and from B on 1; positions from
0; bounds, 0 at the first token of a word or an entity, 1 at its others and -1
at the symbols; and 1 if B follows A in the text, 0 if it is from elsewhere
(PaddlePaddle/ERNIE, release/r2.0, ERNIE/README.md).
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from etils import epath

from data.text import languages, text_files
from data.text.text_pieces import Piece, Source, digest

_FIELDS = ('ids', 'segments', 'positions', 'bounds', 'label')
_BLOCK_CHARS = 1 << 20


class LinePair(NamedTuple):
  """A line: token ids of two texts, and which of them start a unit.

  Attributes:
    first: A, without [CLS] and [SEP].
    second: B, without [SEP].
    first_starts: bool, as many as `first`.
    second_starts: bool, as many as `second`.
    follows: whether B follows A in the text.
  """

  first: list[int]
  second: list[int]
  first_starts: list[bool]
  second_starts: list[bool]
  follows: bool


class LineSymbols(NamedTuple):
  """The facts of the vocabulary that a line is checked with."""

  cls: int
  sep: int
  vocab_size: int


def blocks(
  path: epath.Path, progress: Callable[[int], None] | None = None
) -> Iterator[tuple[int, str]]:
  """Yields (number of the first line, lines of about 1 MB) of a file."""
  held, size, first = [], 0, 1
  for line in text_files.lines(text_files.chunks(path, progress), path):
    held.append(line)
    size += len(line)
    if size >= _BLOCK_CHARS:
      yield first, '\n'.join(held)
      first += len(held)
      held, size = [], 0
  if held:
    yield first, '\n'.join(held)


def parse(line: str, symbols: LineSymbols) -> LinePair:
  """Parses a line; ValueError with what was found and what was expected."""
  fields = line.split(';')
  if len(fields) != len(_FIELDS):
    raise ValueError(
      f'found {len(fields)} fields between semicolons ({line[:60]!r}), expected'
      f' {len(_FIELDS)}: {"; ".join(_FIELDS)}'
    )
  columns = []
  for name, field in zip(_FIELDS, fields, strict=True):
    try:
      columns.append(list(map(int, field.split())))
    except ValueError:
      raise ValueError(
        f'found {field[:60]!r} as {name}, expected whole numbers'
      ) from None
  ids, segments, positions, bounds, label = columns
  sizes = [len(column) for column in columns[:4]]
  if len(set(sizes)) > 1:
    named = zip(_FIELDS, sizes, strict=False)
    found = ', '.join(f'{size} {name}' for name, size in named)
    raise ValueError(f'found {found}, expected as many of each')
  if label not in ([0], [1]):
    raise ValueError(f'found the label {fields[4]!r}, expected 0 or 1')
  if not set(bounds) <= {-1, 0, 1}:
    wrong = next(bound for bound in bounds if bound not in (-1, 0, 1))
    raise ValueError(f'found the bound {wrong}, expected -1, 0 or 1')
  for place, token in enumerate(ids):
    if not 0 <= token < symbols.vocab_size:
      raise ValueError(
        f'found the id {token} at place {place}, expected 0 to'
        f' {symbols.vocab_size - 1}: is the tokenizer the vocabulary of these'
        ' lines?'
      )
  _check_symbols(ids, bounds, symbols)
  middle, last = ids.index(symbols.sep), len(ids) - 1
  if segments != [0] * (middle + 1) + [1] * (last - middle):
    raise ValueError(
      f'found other segments than 0 up to place {middle}, the first [SEP], and'
      ' 1 behind it'
    )
  if positions != list(range(len(ids))):
    raise ValueError(f'found other positions than 0 to {last} in order')
  for place in (1, middle + 1):
    if bounds[place] != 0:
      raise ValueError(
        f'found the bound {bounds[place]} at place {place}, expected 0: a text'
        ' begins with a unit, and is not empty'
      )
  starts = [bound == 0 for bound in bounds]
  return LinePair(
    ids[1:middle],
    ids[middle + 1 : last],
    starts[1:middle],
    starts[middle + 1 : last],
    label == [1],
  )


def _check_symbols(
  ids: list[int], bounds: list[int], symbols: LineSymbols
) -> None:
  """Checks that the symbols stand where the bounds are -1, and nowhere else."""
  outside = [place for place, bound in enumerate(bounds) if bound == -1]
  found = [ids[place] for place in outside]
  if (
    found != [symbols.cls, symbols.sep, symbols.sep]
    or outside[0] != 0
    or outside[-1] != len(ids) - 1
  ):
    raise ValueError(
      f'found the ids {found[:9]} at the places {outside[:9]} of bound -1,'
      f' expected [CLS] {symbols.cls} at the first, [SEP] {symbols.sep} between'
      ' the texts and at the last'
    )
  if ids.count(symbols.cls) != 1 or ids.count(symbols.sep) != 2:
    raise ValueError(
      f'found [CLS] {ids.count(symbols.cls)} and [SEP]'
      f' {ids.count(symbols.sep)} times, expected once and twice'
    )


def open_source(spec: str, text_field: str = '') -> Source:
  """Opens `ernie:` and a file, a folder or a glob of lines of ids."""
  del text_field
  paths, _, dangling = text_files.find(spec.removeprefix(languages.IDS))
  if dangling:
    raise FileNotFoundError(f'source {spec!r}: links to nothing: {dangling[0]}')
  stats = [text_files.size_and_time(path) for path in paths]
  num_bytes = sum(size for size, _ in stats)
  count = f'{len(paths)} files' if len(paths) > 1 else '1 file'
  return Source(
    spec=spec,
    description=f'{count} of token ids, {num_bytes / 1e6:.1f} MB, a document is'
    ' a line, or each of its texts that do not follow one another',
    fingerprint=digest(
      [[str(path), *stat] for path, stat in zip(paths, stats, strict=True)],
      languages.IDS,
    ),
    document_break='record',
    num_bytes=num_bytes,
    read=functools.partial(_read, paths=paths),
    form='ids',
  )


def _read(
  source: Source, white_space: str, *, paths: Sequence[epath.Path]
) -> Iterator[Piece]:
  del white_space
  base = 0
  for path in paths:

    def progress(position: int, base: int = base) -> None:
      source.bytes_read = base + position

    empty = True
    for line, text in blocks(path, progress):
      empty = False
      yield Piece(text, True, True, file=str(path), line=line, is_ids=True)
    if empty:
      source.drop_file('empty file', path)
    base += text_files.size_and_time(path)[0]
    source.bytes_read = base
