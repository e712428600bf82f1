"""Sources of text: files, folders, JSONL, TFDS, the Python manual.

The `pieces()` of a source stream its text in bounded memory: about 1 MB each,
cut at a paragraph, else a line, else white space, else anywhere. A source of
several languages, NAME=SOURCE,NAME=SOURCE, is their sources in turn.
"""

import collections
import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from etils import epath

from data.text import documents, languages, manual, text_files, tfds_text

_NAMED = 12  # languages that a description tells of


@dataclasses.dataclass(frozen=True)
class Piece:
  """A bounded piece of a document's text.

  Attributes:
    text: at most `documents.PIECE_CHARS` characters, and kept white space at
      their ends; line ends are newlines.
    ends_document: True at the last piece of its document.
    sentence_per_line: else running text; a blank line ends a paragraph.
    language: number of the language in `Source.languages`.
  """

  text: str
  ends_document: bool
  sentence_per_line: bool
  language: int = 0


@dataclasses.dataclass
class Source:
  """A text source, ready to be read any number of times.

  Attributes:
    fingerprint: hex digest that changes when the input or its options change.
    document_break: 'file', 'blank_line', 'regex:...' or 'record'.
    num_bytes: bytes on disk.
    read: (source, white_space) -> pieces; see `pieces`.
    dropped: reason -> count, filled while iterating, of the last pass.
    dropped_files: reason -> the first files that were dropped for it.
    bytes_read: progress of the last pass, in the unit of `num_bytes`.
    parts: language -> source, in the order of the text, if it has names.
  """

  spec: str
  description: str
  fingerprint: str
  document_break: str
  num_bytes: int
  read: Callable[['Source', str], Iterator[Piece]]
  dropped: collections.Counter = dataclasses.field(
    default_factory=collections.Counter
  )
  dropped_files: dict[str, list[str]] = dataclasses.field(default_factory=dict)
  bytes_read: int = 0
  parts: Mapping[str, 'Source'] = dataclasses.field(default_factory=dict)

  @property
  def languages(self) -> tuple[str, ...]:
    """Names of the languages; of a plain source one, ''."""
    return tuple(self.parts) or ('',)

  def pieces(self, white_space: str = 'ignored') -> Iterator[Piece]:
    """Streams the text from its beginning, always in the same order.

    `white_space` is as in `tokenization.Tokenizer`. 'kept': a document's pieces
    joined are its text, cut between tokens; else pieces without text may be
    missing. Raises ValueError, with file and place, without readable text.
    """
    self.dropped.clear()
    self.dropped_files.clear()
    self.bytes_read = 0
    empty = True
    for piece in self.read(self, white_space):
      empty = False
      yield piece
    if empty:
      dropped = describe_dropped(self.dropped, self.dropped_files)
      raise ValueError(
        f'source {self.spec!r} holds no text at all'
        + (f' (dropped: {dropped})' if dropped else '')
      )

  def drop_file(self, reason: str, name: object) -> None:
    """Counts a dropped file, and keeps its name if it is among the first."""
    self.dropped[reason] += 1
    names = self.dropped_files.setdefault(reason, [])
    if len(names) < text_files.NAMED:
      names.append(str(name))


def describe_dropped(
  dropped: Mapping[str, int], files: Mapping[str, Sequence[str]]
) -> str:
  """Returns one line: reasons, counts and files of dropped text."""
  return '; '.join(
    f'{reason}: {describe_count(count, files.get(reason, ()))}'
    for reason, count in sorted(dropped.items())
    if count
  )


def describe_count(count: int, names: Sequence[str]) -> str:
  """Returns a count and the names of some of the files."""
  named = f' ({text_files.name_some(names, count)})' if names else ''
  return f'{count:,}{named}'


def open_source(
  spec: str,
  *,
  document_break: str | None = None,
  text_field: str = 'text',
  others: Mapping[str, Callable[[str], Source]] | None = None,
) -> Source:
  """Opens a text source.

  `spec` is `manual` (the documentation inside every Python); a file, a glob or
  a folder (all its files, recursively) of plain text or JSONL, each perhaps
  compressed (.gz, .xz, .zst); or `tfds:NAME[/config][:split]`. Or it is a list
  of such sources by language, `en=SOURCE,de=SOURCE`; a path that begins like
  this one is written as `./en=...`.

  `document_break` bounds documents in plain text: 'file'; 'blank_line'; or a
  regular expression: a line that begins with a match starts a document. By
  default it is 'blank_line' when practically every line looks like one sentence
  (BERT's input format), else 'file', where a blank line ends a paragraph. Each
  JSONL or TFDS record, with `text_field`, and page of the manual is a document.
  `others` are prefix -> how a source that begins with it is opened.
  """
  if parts := languages.split(spec):
    options = dict(
      document_break=document_break, text_field=text_field, others=others
    )
    opened = {}
    for name, part in parts.items():
      try:
        opened[name] = open_source(part, **options)
      except FileNotFoundError as error:
        raise FileNotFoundError(
          f'{error} (the text of language {name!r}; a path that begins like a'
          f' language is written ./{name}={part})'
        ) from None
    return _join_languages(spec, opened)
  for prefix, opener in (others or {}).items():
    if spec.startswith(prefix):
      return opener(spec)
  if spec == 'manual' or spec.startswith('tfds:'):
    if document_break:
      raise ValueError(
        f'document_break {document_break!r} does not apply to {spec!r}: each '
        'of its records is a document. Leave it out.'
      )
    return _open_manual() if spec == 'manual' else _open_tfds(spec, text_field)
  return _open_files(spec, document_break or None, text_field)


def _join_languages(spec: str, parts: Mapping[str, Source]) -> Source:
  """Returns the sources of several languages as one."""
  rules = {part.document_break for part in parts.values()}
  num_bytes = sum(part.num_bytes for part in parts.values())
  return Source(
    spec=spec,
    description=f'{len(parts)} languages, {num_bytes / 1e6:,.1f} MB: '
    + '; '.join(f'{n}: {parts[n].description}' for n in list(parts)[:_NAMED])
    + ('; ...' if len(parts) > _NAMED else ''),
    fingerprint=_digest(
      [[name, part.fingerprint] for name, part in parts.items()]
    ),
    document_break=rules.pop()
    if len(rules) == 1
    else ', '.join(
      f'{name}={part.document_break}' for name, part in parts.items()
    ),
    num_bytes=num_bytes,
    read=_read_languages,
    parts=parts,
  )


def _read_languages(source: Source, white_space: str) -> Iterator[Piece]:
  """Streams the text of one language after the other."""
  base = 0
  for number, part in enumerate(source.parts.values()):
    for piece in part.pieces(white_space):
      source.bytes_read = base + part.bytes_read
      yield dataclasses.replace(piece, language=number)
    base += part.num_bytes
    source.bytes_read = base
    source.dropped.update(part.dropped)
    for reason, names in part.dropped_files.items():
      known = source.dropped_files.setdefault(reason, [])
      known += names[: text_files.NAMED - len(known)]


def _digest(*parts: object) -> str:
  return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _to_pieces(
  parts: Iterable[tuple[bool, str]], sentence_per_line: bool, white_space: str
) -> Iterator[Piece]:
  """Yields the pieces of documents that have text, the last one marked."""
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


def record_pieces(
  source: Source, text: str, white_space: str
) -> Iterator[Piece]:
  """Yields the pieces of a record, which is a document."""
  if not text.strip():
    source.dropped['record without text'] += 1
  text = text.replace('\r\n', '\n').replace('\r', '\n')
  parts = ((False, part) for part in documents.cut([text], white_space))
  yield from _to_pieces(parts, False, white_space)


def _open_manual() -> Source:
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
    yield from record_pieces(source, text, white_space)
    source.bytes_read += len(text)


def _open_files(
  spec: str, document_break: str | None, text_field: str
) -> Source:
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
    document_break, sentence_per_line = documents.recognise(
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
  headings = base = 0

  def progress(position: int):
    source.bytes_read = base + position

  def split(texts: Iterable[str]) -> Iterator[tuple[bool, str]]:
    nonlocal headings
    blocks = documents.cut(texts, white_space)
    for starts, text in documents.split(blocks, source.document_break):
      headings += starts
      yield starts, text

  for path in paths:
    texts = text_files.chunks(path, progress)
    try:
      first = next(texts, '')
      if not first:
        source.drop_file('empty file', path)
    except text_files.BinaryFileError as error:
      if not from_folder:
        raise
      first = ''
      source.drop_file('binary file', f'{path}: {error.reason}')
    texts = itertools.chain([first], texts) if first else ()
    if text_files.is_jsonl(path):
      for text in text_files.records(path, texts, text_field):
        yield from record_pieces(source, text, white_space)
    else:
      piece = None
      for piece in _to_pieces(split(texts), sentence_per_line, white_space):
        yield piece
      if first and piece is None:
        source.drop_file('file of white space', path)
    base += text_files.size_and_time(path)[0]
    source.bytes_read = base
  if source.document_break.startswith('regex:') and not headings:
    raise ValueError(
      f'source {source.spec!r}: no line matches document_break '
      f'{source.document_break.removeprefix("regex:")!r}'
    )


def _open_tfds(spec: str, text_field: str) -> Source:
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
    yield from record_pieces(source, text, white_space)
    source.bytes_read = data.num_bytes * number // data.num_records
