"""Dialogues as a source of text: dialogue:PATH, a file, a folder or a glob.

A line is a turn, `Q<TAB>text` of who asks or `R<TAB>text` of who responds; a
blank line ends a dialogue:

  Q	Which colour do you like?
  R	Blue.
  Q	Why?

A dialogue becomes a document, and a turn a sentence that begins with its role.
A dialogue of a single turn has no response, and is dropped and counted.
"""

import functools
import hashlib
import json
from collections.abc import Iterator, Sequence

from etils import epath

from data.text import documents, languages, text_files
from data.text.text_pieces import Piece, Source

PREFIX = languages.DIALOGUES
ROLES = ('Q', 'R')


def open_source(spec: str) -> Source:
  """Opens the source; raises FileNotFoundError without a file."""
  paths, _, _ = text_files.find(spec.removeprefix(PREFIX))
  stats = [text_files.size_and_time(path) for path in paths]
  size = sum(bytes_ for bytes_, _ in stats)
  facts = [[str(path), *stat] for path, stat in zip(paths, stats, strict=True)]
  return Source(
    spec=spec,
    description=f'dialogues, {len(paths)} files, {size / 1e6:.1f} MB, a blank'
    ' line ends a dialogue, a turn a line',
    fingerprint=hashlib.sha256(
      json.dumps([PREFIX, facts]).encode()
    ).hexdigest(),
    document_break='dialogue',
    num_bytes=size,
    read=functools.partial(_read, paths=paths),
    form='records',
  )


def _read(
  source: Source, white_space: str, *, paths: Sequence[epath.Path]
) -> Iterator[Piece]:
  del white_space
  base = 0

  def progress(position: int) -> None:
    source.bytes_read = base + position

  for path in paths:
    for turns in dialogues(path, text_files.chunks(path, progress)):
      if len(turns) == 1:
        source.dropped['dialogue of one turn'] += 1
        continue
      yield from _pieces(turns)
    base += text_files.size_and_time(path)[0]


def dialogues(path: epath.Path, texts: Iterator[str]) -> Iterator[list[str]]:
  """Yields the turns of each dialogue, 'ROLE text'.

  Raises ValueError, with file and line, at a line that is no turn.
  """
  turns: list[str] = []
  for number, line in enumerate(text_files.lines(texts, path), start=1):
    if not line.strip():
      if turns:
        yield turns
      turns = []
      continue
    role, tab, text = line.partition('\t')
    text = ' '.join(text.split())
    if role not in ROLES or not tab or not text:
      raise ValueError(
        f'{path}, line {number:,}: found {line[:60]!r}, expected a turn, Q or R'
        ' and after a tab its text, or a blank line between dialogues'
      )
    turns.append(f'{role} {text}')
  if turns:
    yield turns


def _pieces(turns: Sequence[str]) -> Iterator[Piece]:
  """Yields a dialogue in pieces of bounded size."""
  held, size = [], 0
  for turn in turns:
    if held and size + len(turn) > documents.PIECE_CHARS:
      yield Piece('\n'.join(held), False, True)
      held, size = [], 0
    held.append(turn)
    size += len(turn)
  yield Piece('\n'.join(held), True, True)
