"""Sources of text: files, folders, JSONL, tables, TFDS, the Python manual.

The `pieces()` of a source stream its text in bounded memory: about 1 MB each,
cut at a paragraph, else a line, else white space, else anywhere. A source of
several languages, NAME=SOURCE,NAME=SOURCE, is their sources in turn. Pieces of
`ernie:PATH` are lines of token ids, see `ernie_lines`.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

from etils import epath

from data.by_name import ByName
from data.text import documents, languages, manual, text_files
from data.text.text_pieces import (
  NULL_TEXT,
  Piece,
  Source,
  digest,
  record_pieces,
  to_pieces,
)

_NAMED = 12  # languages that a description tells of
# The beginning of a source -> (source, text_field) -> Source; and for files of
# tables (source, paths, whether they are of a folder, text_field) -> Source.
_OPENERS = ByName(
  {
    languages.IDS: 'data.text.ernie_lines:open_source',
    languages.WIKITEXT: 'data.text.wikitext_articles:open_source',
    languages.TFDS: 'data.text.tfds_source:open_source',
    languages.HUGGING_FACE: 'data.text.tables.texts:open_named',
  }
)
_OF_FILES = ByName({'tables': 'data.text.tables.texts:open_files'})


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
  compressed (.gz, .xz, .zst), or of tables, see `tables.texts`; `ernie:` and
  such files of lines of ERNIE; `wikitext:` and such files of WikiText;
  `tfds:NAME[/config][:split]`; or `hf:NAME[:CONFIG][:SPLIT]`. Or it is a list
  of such sources by language, `en=SOURCE,de=SOURCE`; a path that begins like
  this one is written as `./en=...`.

  `document_break` bounds documents in plain text: 'file'; 'blank_line'; or a
  regular expression: a line that begins with a match starts a document. By
  default it is 'blank_line' when practically every line looks like one sentence
  (BERT's input format), else 'file', where a blank line ends a paragraph. Each
  JSONL or TFDS record or row of a table, with `text_field`, and page of the
  manual is a document.
  `others` are prefix -> how a source that begins with it is opened.
  """
  if parts := languages.split(spec):
    options = dict(
      document_break=document_break, text_field=text_field, others=others
    )
    opened = {}
    for name, specs in parts.items():
      found = []
      for part in specs:
        try:
          found.append(open_source(part, **options))
        except FileNotFoundError as error:
          raise FileNotFoundError(
            f'{error} (the text of language {name!r}; a path that begins like a'
            f' language is written ./{name}={part})'
          ) from None
      opened[name] = found[0] if len(found) == 1 else _join(name, found)
    return _join_languages(spec, opened)
  for prefix, opener in (others or {}).items():
    if spec.startswith(prefix):
      return opener(spec)
  prefix = next(filter(spec.startswith, _OPENERS), '')
  found = ([], False, [])
  if not prefix and spec != 'manual':
    found = text_files.find(spec)
  of_tables = any(map(text_files.is_table, found[0]))
  if document_break and (prefix or spec == 'manual' or of_tables):
    raise ValueError(
      f'document_break {document_break!r} does not apply to {spec!r}: each '
      'of its records is a document. Leave it out.'
    )
  if prefix:
    return _OPENERS[prefix](spec, text_field)
  if of_tables:
    return _OF_FILES['tables'](spec, *found[:2], text_field)
  if spec == 'manual':
    return _open_manual()
  return _open_files(spec, *found, document_break or None, text_field)


def _join(language: str, parts: Sequence[Source]) -> Source:
  """Returns several sources of a language as one.

  Records, each a document, may follow running text, whose documents all end by
  one rule.
  """
  rules: dict[tuple[str, bool], Source] = {}
  for part in parts:
    rules.setdefault((part.document_break, part.form == 'ids'), part)
  strict = {rule: rules[rule] for rule in rules if rule != ('record', False)}
  if len(strict) > 1 or (('record', True) in rules and len(rules) > 1):
    first, part, *_ = (strict if len(strict) > 1 else rules).values()
    raise ValueError(
      f'language {language!r}: the documents of {first.spec!r} end by'
      f' {first.document_break!r} ({first.description}), those of'
      f' {part.spec!r} by {part.document_break!r} ({part.description});'
      ' expected one rule for both: set document_break, or give text of one'
      ' form'
    )
  return Source(
    spec=' and '.join(part.spec for part in parts),
    description=' and '.join(part.description for part in parts),
    fingerprint=digest([part.fingerprint for part in parts]),
    document_break=' and '.join(rule for rule, _ in rules),
    num_bytes=sum(part.num_bytes for part in parts),
    read=functools.partial(_read_parts, parts=parts),
    form=parts[0].form
    if len({part.form for part in parts}) == 1
    else 'records',
  )


def _join_languages(spec: str, parts: Mapping[str, Source]) -> Source:
  """Returns the sources of several languages as one."""
  rules = {part.document_break for part in parts.values()}
  num_bytes = sum(part.num_bytes for part in parts.values())
  return Source(
    spec=spec,
    description=f'{len(parts)} languages, {num_bytes / 1e6:,.1f} MB: '
    + '; '.join(f'{n}: {parts[n].description}' for n in list(parts)[:_NAMED])
    + ('; ...' if len(parts) > _NAMED else ''),
    fingerprint=digest(
      [[name, part.fingerprint] for name, part in parts.items()]
    ),
    document_break=rules.pop()
    if len(rules) == 1
    else ', '.join(
      f'{name}={part.document_break}' for name, part in parts.items()
    ),
    num_bytes=num_bytes,
    read=functools.partial(
      _read_parts, parts=list(parts.values()), by_language=True
    ),
    parts=parts,
  )


def _read_parts(
  source: Source,
  white_space: str,
  *,
  parts: Sequence[Source],
  by_language: bool = False,
) -> Iterator[Piece]:
  """Streams the text of one source, perhaps a language, after the other."""
  base = 0
  for number, part in enumerate(parts):
    for piece in part.pieces(white_space):
      source.bytes_read = base + part.bytes_read
      yield dataclasses.replace(piece, language=number * by_language)
    base += part.num_bytes
    source.bytes_read = base
    source.dropped.update(part.dropped)
    for reason, names in part.dropped_files.items():
      known = source.dropped_files.setdefault(reason, [])
      known += names[: text_files.NAMED - len(known)]


def fingerprint_of_manual() -> str:
  """Returns the fingerprint of 'manual', which takes seconds to open."""
  return digest(manual.fingerprint())


def _open_manual() -> Source:
  texts, _ = manual.documents()
  size = sum(map(len, texts))
  return Source(
    spec='manual',
    description=f'the documentation of Python: {len(texts)} documents, '
    f'{size / 1e6:.1f} MB',
    fingerprint=fingerprint_of_manual(),
    document_break='record',
    num_bytes=size,
    read=_read_manual,
    form='records',
  )


def _read_manual(source: Source, white_space: str) -> Iterator[Piece]:
  texts, dropped = manual.documents()
  source.dropped.update(dropped)
  for text in texts:
    yield from record_pieces(source, text, white_space)
    source.bytes_read += len(text)


def _open_files(
  spec: str,
  paths: Sequence[epath.Path],
  from_folder: bool,
  dangling: Sequence[str],
  document_break: str | None,
  text_field: str,
) -> Source:
  stats = [text_files.size_and_time(path) for path in paths]
  if not any(size for size, _ in stats):
    names = text_files.name_some([str(path) for path in paths])
    what = f'holds empty files only: {names}'
    if dangling:
      what += f'; links to nothing: {text_files.name_some(dangling)}'
    if len(paths) == 1 and not from_folder:
      what = 'is empty'
    raise ValueError(f'source {spec!r} {what}')
  of_records = {path for path in paths if text_files.holds_jsonl(path)}
  plain = [path for path in paths if path not in of_records]
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
    fingerprint=digest(
      [[str(path), *stat] for path, stat in zip(paths, stats, strict=True)],
      document_break,
      sentence_per_line,
      text_field,
    ),
    document_break=document_break,
    num_bytes=num_bytes,
    form='text' if len(plain) == len(paths) else 'records',
    read=functools.partial(
      _read_files,
      paths=paths,
      from_folder=from_folder,
      dangling=dangling,
      of_records=of_records,
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
  of_records: Set[epath.Path],
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
    if path in of_records:
      for text in text_files.records(path, texts, text_field):
        if text is None:
          source.dropped[NULL_TEXT] += 1
        else:
          yield from record_pieces(source, text, white_space)
    else:
      piece = None
      for piece in to_pieces(
        split(texts), sentence_per_line, white_space, str(path)
      ):
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
