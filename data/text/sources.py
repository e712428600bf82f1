"""Where text comes from: files, folders, JSONL, TFDS, the Python manual.

`open_source(spec)` checks what can be checked early and returns a `Source`,
whose `pieces()` streams the text in bounded memory: a document, which may be
gigabytes, comes as pieces of about 1 MB cut at a paragraph, else a line, else
white space, else anywhere. What a document is, is decided once for a source;
see `open_source`.
"""

import collections
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from etils import epath

from data.text import manual, sentences, text_files, tfds_text

PIECE_CHARS = 1 << 20
# Lines that are read to find out what a document is, over all sampled files.
SAMPLE_LINES = 2000
SAMPLE_FILES = 8

# (starts a new document, text)
_Part = tuple[bool, str]


@dataclasses.dataclass(frozen=True)
class Piece:
  """A bounded piece of a document's text.

  Attributes:
    text: at most `PIECE_CHARS` characters and kept white space at their ends;
      line ends are newlines.
    ends_document: True at the last piece of its document.
    sentence_per_line: the text is one sentence a line; else running text, in
      which a blank line ends a paragraph.
  """

  text: str
  ends_document: bool
  sentence_per_line: bool


@dataclasses.dataclass
class Source:
  """A text source, ready to be read any number of times.

  Attributes:
    spec: as given by the user.
    description: one line for people.
    fingerprint: hex digest that changes when the input or its options change.
    document_break: 'file', 'blank_line', 'regex:...' or 'record'.
    num_bytes: bytes on disk; None when unknown.
    dropped: reason -> count, filled while iterating, of the last pass.
    dropped_files: reason -> the first files that were dropped for it.
    bytes_read: how far the last pass is, in the unit of `num_bytes`.
  """

  spec: str
  description: str
  fingerprint: str
  document_break: str
  num_bytes: int | None
  read: dataclasses.InitVar[Callable[['Source', str], Iterator[Piece]]]
  dropped: collections.Counter = dataclasses.field(
    default_factory=collections.Counter
  )
  dropped_files: dict[str, list[str]] = dataclasses.field(default_factory=dict)
  bytes_read: int = 0

  def __post_init__(self, read):
    self._read = read

  def pieces(self, white_space: str = 'ignored') -> Iterator[Piece]:
    """Streams the text from its beginning, always in the same order.

    Args:
      white_space: what it means to the reader (`tokenization.Tokenizer`). Kept,
        the pieces of a document joined are its text, and are cut where its
        tokens are; else pieces without text may be missing.

    Raises:
      ValueError: at text that is not UTF-8, binary or truncated files, records
        without text, naming the file and the place; or if there is no text,
        naming what was dropped.
    """
    self.dropped.clear()
    self.dropped_files.clear()
    self.bytes_read = 0
    empty = True
    for piece in self._read(self, white_space):
      empty = False
      yield piece
    if empty:
      dropped = describe_dropped(self.dropped, self.dropped_files)
      raise ValueError(
        f'source {self.spec!r} holds no text at all'
        + (f' (dropped: {dropped})' if dropped else '')
      )

  def drop_file(self, reason: str, name: object) -> None:
    """Counts a file that is dropped, and names it if it is among the first."""
    self.dropped[reason] += 1
    names = self.dropped_files.setdefault(reason, [])
    if len(names) < text_files.NAMED:
      names.append(str(name))


def describe_dropped(
  dropped: Mapping[str, int], files: Mapping[str, Sequence[str]]
) -> str:
  """Returns what was dropped, how often and which files, in one line."""
  return '; '.join(
    f'{reason}: {describe_count(count, files.get(reason, ()))}'
    for reason, count in sorted(dropped.items())
    if count
  )


def describe_count(count: int, names: Sequence[str]) -> str:
  """Returns a count, and the files that are named of so many."""
  named = f' ({text_files.name_some(names, count)})' if names else ''
  return f'{count:,}{named}'


def open_source(
  spec: str,
  *,
  document_break: str | None = None,
  text_field: str = 'text',
) -> Source:
  """Opens a text source.

  Args:
    spec: `manual` (the documentation inside every Python); a file, a glob or a
      folder (all its files, recursively) of plain text or JSONL, each may be
      compressed (.gz, .xz, .zst); or `tfds:NAME[/config][:split]`.
    document_break: what a document is in plain text. 'file'; 'blank_line'; or a
      regular expression: a line whose beginning matches starts a document. By
      default 'blank_line' when practically every line looks like one sentence
      (BERT's input format), else 'file', where a blank line is a paragraph. A
      JSONL or TFDS record is always a document, and so is a page of the manual.
    text_field: the field of JSONL or TFDS records.

  Raises:
    FileNotFoundError: if nothing is there.
    ValueError: if the input or an option cannot be used; says why.
  """
  if spec == 'manual' or spec.startswith('tfds:'):
    if document_break:
      raise ValueError(
        f'document_break {document_break!r} does not apply to {spec!r}: each '
        'of its records is a document. Leave it out.'
      )
    return _open_manual() if spec == 'manual' else _open_tfds(spec, text_field)
  return _open_files(spec, document_break or None, text_field)


def _digest(*parts: object) -> str:
  return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _cut(chunks: Iterable[str], white_space: str) -> Iterator[str]:
  """Joins chunks of text and cuts them into pieces of bounded length.

  The cuts depend on the text alone, not on the chunks.
  """
  text = ''
  for chunk in chunks:
    text += chunk
    while len(text) > PIECE_CHARS:
      if white_space != 'ignored':
        at = sentences.find_place(
          text, PIECE_CHARS // 2, PIECE_CHARS, white_space
        )
        at = PIECE_CHARS if at < 0 else at
        yield text[:at]
        text = text[at:]
        continue
      for mark in ('\n\n', '\n \n', '\n', ' '):
        at = text.rfind(mark, PIECE_CHARS // 2, PIECE_CHARS)
        if at >= 0:
          at += len(mark)
          break
      else:
        at = PIECE_CHARS
      yield text[:at]
      text = text[at:]
  if text:
    yield text


def _to_pieces(
  parts: Iterable[_Part], sentence_per_line: bool, white_space: str
) -> Iterator[Piece]:
  """Marks the last piece of each document; drops documents without text.

  So are pieces without text, unless white space is kept.
  """
  pending = None
  starts_document = True
  held = ''  # white space that text or the document's end has to follow
  for starts, text in parts:
    if starts:
      if not starts_document:
        pending += held
      starts_document, held = True, ''
    if not text.strip():
      held += text if white_space == 'kept' else ''
      continue
    text, held = held + text, ''
    if white_space == 'newlines' and starts_document:
      text = text.lstrip()
    if pending is not None:
      yield Piece(pending, starts_document, sentence_per_line)
    pending, starts_document = text, False
  if pending is not None:
    tail = '' if starts_document else held
    yield Piece(pending + tail, True, sentence_per_line)


def _record_pieces(
  source: Source, text: str, white_space: str
) -> Iterator[Piece]:
  """The pieces of a record, which is a document."""
  if not text.strip():
    source.dropped['record without text'] += 1
  text = text.replace('\r\n', '\n').replace('\r', '\n')
  parts = ((False, part) for part in _cut([text], white_space))
  yield from _to_pieces(parts, False, white_space)


# --- The manual


def _open_manual() -> Source:
  """The documentation inside every Python."""
  texts, _ = manual.documents()
  size = sum(map(len, texts))
  return Source(
    spec='manual',
    description=f'the documentation of Python: {len(texts)} documents, '
    f'{size / 1e6:.1f} MB',
    fingerprint=_digest(manual.fingerprint()),
    document_break='record',
    num_bytes=size,
    read=_read_manual,
  )


def _read_manual(source: Source, white_space: str) -> Iterator[Piece]:
  texts, dropped = manual.documents()
  source.dropped.update(dropped)
  for text in texts:
    yield from _record_pieces(source, text, white_space)
    source.bytes_read += len(text)


# --- Files


def _open_files(
  spec: str, document_break: str | None, text_field: str
) -> Source:
  """A file, a glob or a folder."""
  paths, from_folder, dangling = text_files.find(spec)
  stats = [text_files.size_and_time(path) for path in paths]
  if not any(size for size, _ in stats):
    names = text_files.name_some([str(path) for path in paths])
    what = f'holds empty files only: {names}'
    if dangling:
      what += f'; links to nothing: {text_files.name_some(dangling)}'
    if len(paths) == 1 and not from_folder:
      what = 'is empty'
    raise ValueError(f'source {spec!r} {what}')
  plain = [path for path in paths if not text_files.is_jsonl(path)]
  sentence_per_line = False
  if plain:
    document_break, sentence_per_line = _resolve_break(
      plain, document_break, from_folder
    )
  elif document_break:
    raise ValueError(
      f'document_break {document_break!r} does not apply to {spec!r}: each '
      'JSONL record is a document. Leave it out.'
    )
  else:
    document_break = 'record'
  num_bytes = sum(size for size, _ in stats)
  count = f'{len(paths)} files' if len(paths) > 1 else '1 file'
  unit = {
    'file': 'a document is a file',
    'blank_line': 'a blank line ends a document',
    'record': 'a document is a record',
  }.get(document_break, f'a document starts at a line of {document_break}')
  style = ', one sentence a line' if sentence_per_line else ''
  return Source(
    spec=spec,
    description=f'{count}, {num_bytes / 1e6:.1f} MB, {unit}{style}',
    fingerprint=_digest(
      [[str(path), *stat] for path, stat in zip(paths, stats, strict=True)],
      document_break,
      sentence_per_line,
      text_field,
    ),
    document_break=document_break,
    num_bytes=num_bytes,
    read=functools.partial(
      _read_files,
      paths=paths,
      from_folder=from_folder,
      dangling=dangling,
      sentence_per_line=sentence_per_line,
      text_field=text_field,
    ),
  )


def document_break_name(document_break: str | None) -> str | None:
  """Returns a user's choice as `Source.document_break` names it."""
  if document_break in (None, 'file', 'blank_line'):
    return document_break
  return f'regex:{document_break.removeprefix("regex:")}'


def _resolve_break(
  paths: Sequence[epath.Path], document_break: str | None, from_folder: bool
) -> tuple[str, bool]:
  """What a document is, and whether a line is a sentence, from a sample."""
  pattern = None
  if document_break not in (None, 'file', 'blank_line'):
    pattern = _compile(document_break.removeprefix('regex:'))
  picked = paths[:: -(-len(paths) // SAMPLE_FILES)]
  lines = []
  for path in picked:
    sample = _sample(path, SAMPLE_LINES // len(picked), from_folder)
    lines += [*sample, '']
  text = [line for line in lines if not (pattern and pattern.match(line))]
  per_line = sentences.is_sentence_per_line(text)
  if pattern is not None:
    return f'regex:{pattern.pattern}', per_line
  if document_break is None:
    # Groups of one line are paragraphs, not documents.
    blank = (not line.strip() for line in lines)
    groups = [
      len(list(g)) for is_blank, g in itertools.groupby(blank) if not is_blank
    ]
    several = len(groups) > len(picked) and max(groups) > 1
    document_break = 'blank_line' if per_line and several else 'file'
  return document_break, per_line


def _compile(expression: str) -> re.Pattern:
  try:
    return re.compile(expression)
  except re.error as error:
    raise ValueError(
      f"document_break {expression!r} is neither 'file' nor 'blank_line' nor "
      f'a regular expression: {error}'
    ) from None


def _sample(path: epath.Path, num_lines: int, from_folder: bool) -> list[str]:
  """The first lines of a file, of its first MB at most."""
  chunks = text_files.chunks(path)
  try:
    text = next(chunks, '')
  except text_files.BinaryFileError:
    if from_folder:
      return []
    raise
  lines = text.split('\n')
  if len(lines) > 1 and next(chunks, None) is not None:
    lines.pop()  # the chunk ends inside it
  return lines[:num_lines]


def _read_files(
  source: Source,
  white_space: str,
  *,
  paths: Sequence[epath.Path],
  from_folder: bool,
  dangling: Sequence[str],
  sentence_per_line: bool,
  text_field: str,
) -> Iterator[Piece]:
  """Streams files one after the other; a document never crosses files."""
  for link in dangling:
    source.drop_file('link to nothing', link)
  headings = 0
  base = 0

  def progress(position: int):
    source.bytes_read = base + position

  def count(parts: Iterable[_Part]) -> Iterator[_Part]:
    nonlocal headings
    for starts, text in parts:
      headings += starts
      yield starts, text

  for path in paths:
    texts = text_files.chunks(path, progress)
    try:
      first = next(texts, '')
    except text_files.BinaryFileError as error:
      if not from_folder:
        raise
      first = None
      source.drop_file('binary file', f'{path}: {error.reason}')
    if first:
      texts = itertools.chain([first], texts)
      if text_files.is_jsonl(path):
        for text in text_files.records(path, texts, text_field):
          yield from _record_pieces(source, text, white_space)
      else:
        blocks = _cut(texts, white_space)
        parts = count(_split(blocks, source.document_break))
        pieces = _to_pieces(parts, sentence_per_line, white_space)
        first = next(pieces, None)
        if first is None:
          source.drop_file('file of white space', path)
        else:
          yield first
          yield from pieces
    elif first is not None:
      source.drop_file('empty file', path)
    base += text_files.size_and_time(path)[0]
    source.bytes_read = base
  if source.document_break.startswith('regex:') and not headings:
    raise ValueError(
      f'source {source.spec!r}: no line matches document_break '
      f'{source.document_break.removeprefix("regex:")!r}'
    )


def _split(blocks: Iterable[str], document_break: str) -> Iterator[_Part]:
  """Splits a file's text into documents, in parts of at most a block."""
  if document_break == 'file':
    for block in blocks:
      yield False, block
    return
  is_heading = None
  if document_break.startswith('regex:'):
    is_heading = re.compile(document_break.removeprefix('regex:')).match
  starts = False
  line_start = True  # a block may begin inside a very long line
  for block in blocks:
    held = []
    for line in io.StringIO(block, newline='\n'):
      # White space at a block's end may be the beginning of a line of text.
      whole = line.endswith('\n')
      if line_start and (
        is_heading(line.removesuffix('\n'))
        if is_heading
        else whole and line.isspace()
      ):
        yield starts, ''.join(held)
        starts, held = True, []
      held.append(line)
      line_start = whole or (line_start and line.isspace())
    yield starts, ''.join(held)
    starts = False


# --- TensorFlow data sets


def _open_tfds(spec: str, text_field: str) -> Source:
  """A data set of TFDS."""
  data = tfds_text.open_split(spec.removeprefix('tfds:'), text_field)
  return Source(
    spec=spec,
    description=f'TFDS {data.name}, split {data.split}, field {data.field}: '
    f'{data.num_records:,} records, a document is a record',
    fingerprint=_digest(data.name, data.split, data.num_records, data.field),
    document_break='record',
    num_bytes=data.num_bytes,
    read=functools.partial(_read_tfds, data=data),
  )


def _read_tfds(
  source: Source, white_space: str, *, data: tfds_text.TextSplit
) -> Iterator[Piece]:
  for number, text in enumerate(data.texts(), start=1):
    yield from _record_pieces(source, text, white_space)
    source.bytes_read = data.num_bytes * number // data.num_records
