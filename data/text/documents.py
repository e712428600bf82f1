"""Documents in plain text: how they are recognised, split and cut."""

import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from etils import epath

from data.text import sentences, text_files

PIECE_CHARS = 1 << 20
# Lines that are read to recognise documents, over all sampled files.
SAMPLE_LINES = 2000
SAMPLE_FILES = 8


def break_name(document_break: str | None) -> str | None:
  """Returns a user's choice as `Source.document_break` names it."""
  if document_break in (None, 'file', 'blank_line'):
    return document_break
  return f'regex:{document_break.removeprefix("regex:")}'


def recognise(
  paths: Sequence[epath.Path], document_break: str | None, from_folder: bool
) -> tuple[str, bool]:
  """Returns the document break, and whether each line is a sentence.

  Reads some lines. See `sources.open_source`; `from_folder` skips binary files.
  """
  pattern = None
  if document_break not in (None, 'file', 'blank_line'):
    expression = document_break.removeprefix('regex:')
    try:
      pattern = re.compile(expression)
    except re.error as error:
      raise ValueError(
        f"document_break {expression!r} is neither 'file' nor 'blank_line' nor "
        f'a regular expression: {error}'
      ) from None
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
    blank = (not line.strip() for line in lines)
    groups = [
      len(list(g)) for is_blank, g in itertools.groupby(blank) if not is_blank
    ]
    several = len(groups) > len(picked) and max(groups) > 1
    document_break = 'blank_line' if per_line and several else 'file'
  return document_break, per_line


def _sample(path: epath.Path, num_lines: int, from_folder: bool) -> list[str]:
  """Returns the first lines of a file, of its first MB at most."""
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


def split(
  blocks: Iterable[str], document_break: str
) -> Iterator[tuple[bool, str]]:
  """Yields (whether a document starts, text of at most a block) of a file."""
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


def cut(chunks: Iterable[str], white_space: str) -> Iterator[str]:
  """Cuts joined chunks into bounded pieces, whatever the chunks' bounds."""
  text = ''
  for chunk in chunks:
    text += chunk
    while len(text) > PIECE_CHARS:
      at = _find_cut(text, white_space)
      yield text[:at]
      text = text[at:]
  if text:
    yield text


def _find_cut(text: str, white_space: str) -> int:
  """Returns the end of the text's first piece."""
  low = PIECE_CHARS // 2
  if white_space != 'ignored':
    at = sentences.find_place(text, low, PIECE_CHARS, white_space)
    return at if at >= 0 else PIECE_CHARS
  for mark in ('\n\n', '\n \n', '\n', ' '):
    if (at := text.rfind(mark, low, PIECE_CHARS)) >= 0:
      return at + len(mark)
  return PIECE_CHARS
