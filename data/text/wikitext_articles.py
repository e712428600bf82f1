"""WikiText's articles as a source of text: wikitext:PATH, a file or a glob.

WikiText's files (Merity et al. 2016) stand in lines of words and marks with
spaces between them; ` = Title = `, between blank lines, begins an article, more
signs a section of it. An article becomes a document, whose text is as it was
before it was cut, without headings, which BERT left out of Wikipedia, too
(Devlin et al. 2018). `<unk>` stays where WikiText has it for a rare word.
"""

import functools
import itertools
import re
from collections.abc import Iterator, Sequence

from etils import epath

from data.text import detokenize, languages, text_files
from data.text.text_pieces import Piece, Source, digest, record_pieces

_HEADING = re.compile(r'((?:= )+)[^=].*?((?: =)+)')
_EXPECTED = "expected ' = Title = ', the heading of an article"


def open_source(spec: str, text_field: str) -> Source:
  """Opens the source; raises FileNotFoundError without a file."""
  del text_field
  paths, _, dangling = text_files.find(spec.removeprefix(languages.WIKITEXT))
  if dangling:
    raise FileNotFoundError(f'source {spec!r}: links to nothing: {dangling[0]}')
  stats = [text_files.size_and_time(path) for path in paths]
  num_bytes = sum(size for size, _ in stats)
  return Source(
    spec=spec,
    description=f'WikiText, {len(paths)} files, {num_bytes / 1e6:.1f} MB, a'
    ' document is an article, without headings',
    fingerprint=digest(
      [[str(path), *stat] for path, stat in zip(paths, stats, strict=True)],
      languages.WIKITEXT,
    ),
    document_break='record',
    num_bytes=num_bytes,
    read=functools.partial(_read, paths=paths),
    form='records',
  )


def _read(
  source: Source, white_space: str, *, paths: Sequence[epath.Path]
) -> Iterator[Piece]:
  base = 0

  def progress(position: int) -> None:
    source.bytes_read = base + position

  for path in paths:
    for text in articles(path, text_files.chunks(path, progress)):
      yield from record_pieces(source, text, white_space)
    base += text_files.size_and_time(path)[0]


def articles(path: epath.Path, texts: Iterator[str]) -> Iterator[str]:
  """Yields the text of each article, a paragraph a line, between blank lines.

  Raises ValueError, with file and line, at text before the first heading.
  """
  stripped = (line.strip() for line in text_files.lines(texts, path))
  lines = itertools.chain([''], stripped, [''])
  pairs = itertools.pairwise(itertools.pairwise(lines))
  paragraphs: list[str] | None = None
  for number, ((before, line), (_, after)) in enumerate(pairs, start=1):
    signs = None if before or after else _HEADING.fullmatch(line)
    if signs and signs[1].split() == signs[2].split():
      if len(signs[1]) == len('= '):
        if paragraphs:
          yield '\n\n'.join(paragraphs)
        paragraphs = []
    elif line and paragraphs is None:
      raise ValueError(
        f'{path}, line {number:,}: found {line[:60]!r}, {_EXPECTED}'
      )
    elif line:
      paragraphs.append(detokenize.wikitext(line))
  if paragraphs:
    yield '\n\n'.join(paragraphs)
