"""Pieces of text, and the sources that stream them."""

import collections
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from data.text import documents, text_files


@dataclasses.dataclass(frozen=True)
class Piece:
  """A bounded piece of a document's text.

  Attributes:
    text: at most `documents.PIECE_CHARS` characters, and kept white space at
      their ends; line ends are newlines.
    ends_document: True at the last piece of its document.
    sentence_per_line: else running text; a blank line ends a paragraph.
    language: number of the language in `Source.languages`.
    file: the file, of plain text; else empty.
    line: number of the file's line that the text begins in, from 1.
    is_ids: the text is lines of `ernie_lines`, each with documents of its own.
  """

  text: str
  ends_document: bool
  sentence_per_line: bool
  language: int = 0
  file: str = ''
  line: int = 0
  is_ids: bool = False


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
    form: 'text'; 'records', each a document; or 'ids', see `Piece.is_ids`.
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
  form: str = 'text'

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


def digest(*parts: object) -> str:
  """Returns the fingerprint of JSON values, such as `Source.fingerprint`."""
  return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


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


def to_pieces(
  parts: Iterable[tuple[bool, str]],
  sentence_per_line: bool,
  white_space: str,
  file: str = '',
) -> Iterator[Piece]:
  """Yields the pieces of documents that have text, the last one marked.

  `file` is named where `parts`, joined, are its text.
  """
  pending = None
  starts_document = True
  line = following = 1
  held = ''  # white space that text or the document's end has to follow
  for starts, text in parts:
    begins, following = following, following + text.count('\n')
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
      yield Piece(
        pending, starts_document, sentence_per_line, file=file, line=line
      )
    pending, starts_document, line = text, False, begins
  if pending is not None:
    tail = '' if starts_document else held
    yield Piece(pending + tail, True, sentence_per_line, file=file, line=line)


NULL_TEXT = 'record with a null text'  # why records are dropped


def record_pieces(
  source: Source, text: str, white_space: str
) -> Iterator[Piece]:
  """Yields the pieces of a record, which is a document."""
  if not text.strip():
    source.dropped['record without text'] += 1
  text = text.replace('\r\n', '\n').replace('\r', '\n')
  parts = ((False, part) for part in documents.cut([text], white_space))
  yield from to_pieces(parts, False, white_space)
