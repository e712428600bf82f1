"""Files of text: found, decompressed, decoded and checked as a stream."""

import codecs
import contextlib
import glob
import gzip
import io
import itertools
import json
import lzma
import os
import pathlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import zstandard
from etils import epath

from data import storage

CHUNK_BYTES = 1 << 20
LONGEST_LINE = 100_000_000  # characters
# zstd packs up to 30,000 to 1, and its decoder returns all of it at once.
ZST_CHUNK_BYTES = 1 << 10
COMPRESSED = ('.gz', '.xz', '.zst')
TABLES = ('.parquet', '.arrow', '.feather', '.csv', '.tsv')  # with columns
NAMED = 3  # files that a message or an audit names for one reason
_DAMAGES = (gzip.BadGzipFile, lzma.LZMAError, zlib.error, zstandard.ZstdError)
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_TOO_DEEP = 'its values are nested too deep'
_SURROGATE = re.compile('[\ud800-\udfff]')  # JSON can spell half a pair


class BinaryFileError(ValueError):
  """The file is not text; `reason` says why in a few words."""

  def __init__(self, path: epath.Path, place: int):
    self.reason = f'NUL at byte {place:,}'
    super().__init__(
      f'{path}: binary, not text: {self.reason}. Give text files in UTF-8, '
      'plain or compressed (.gz, .xz, .zst)'
    )


def ending(path: epath.Path) -> str:
  """Returns a name's ending before the compression's, in lower case."""
  name = path.name.lower()
  for suffix in COMPRESSED:
    name = name.removesuffix(suffix)
  return os.path.splitext(name)[1]


def is_jsonl(path: epath.Path) -> bool:
  """Returns whether a name ends in .jsonl or .ndjson, compressed or not."""
  return ending(path) in ('.jsonl', '.ndjson')


def holds_jsonl(path: epath.Path) -> bool:
  """Returns whether a file is JSONL, by its name or, of .json, by its text.

  Raises ValueError for other JSON, whose braces and keys are no text.
  """
  if ending(path) != '.json':
    return is_jsonl(path)
  texts = itertools.dropwhile(str.isspace, chunks(path))
  try:
    text = next(texts, '{}').lstrip()
  except BinaryFileError:
    return True  # its reader tells or drops it
  if text.startswith('{'):  # else it may be a line of gigabytes
    with contextlib.suppress(ValueError, RecursionError):
      json.loads(next(lines(itertools.chain([text], texts), path)))
      return True
  raise ValueError(
    f'{path}: found JSON that begins with {text[:60]!r}, expected one object a'
    " line, as in a .jsonl file. Of an array of records, jq -c '.[]' makes such"
    ' a file; leave JSON that holds no text out of the source'
  )


def is_table(path: epath.Path) -> bool:
  """Returns whether a name ends as that of a table, compressed or not."""
  return ending(path) in TABLES


def size_and_time(path: epath.Path) -> tuple[int, int]:
  """Returns size in bytes and time of change (ns if local, s if remote)."""
  if storage.is_remote(path):
    stat = path.stat()
    return stat.length, int(stat.mtime or 0)
  stat = os.stat(path)
  return stat.st_size, stat.st_mtime_ns


def find(spec: str) -> tuple[list[epath.Path], bool, list[str]]:
  """Returns (sorted files, is a folder, dangling links) of a path or glob."""
  remote = storage.is_remote(spec)
  path = epath.Path(spec).expanduser()
  if path.is_dir():
    dangling = []
    paths = _walk(path, dangling)
    if not paths:
      what = f' but links to nothing: {name_some(dangling)}' if dangling else ''
      raise FileNotFoundError(f'folder {spec!r} holds no file{what}')
    return paths, True, dangling
  if path.exists():
    return [path], False, []
  looked = '' if remote else f' (looked from {os.getcwd()})'
  if _is_link(path):
    raise FileNotFoundError(f'source {spec!r}: {_describe_link(path)}')
  if not any(mark in spec for mark in '*?['):
    raise FileNotFoundError(f'source {spec!r}: no such file or folder{looked}')
  paths = _glob(path)
  if not paths:
    raise FileNotFoundError(f'source {spec!r}: no file matches{looked}')
  for match in paths:
    if _is_link(match) and not match.exists():
      raise FileNotFoundError(f'source {spec!r}: {_describe_link(match)}')
  return paths, False, []


def find_running(spec: str) -> list[epath.Path]:
  """Returns the sorted files of `find`; ValueError if one has records."""
  paths, _, _ = find(spec)
  for path in paths:
    if is_table(path) or is_jsonl(path) or ending(path) == '.json':
      kind = 'a table' if is_table(path) else 'JSON'
      raise ValueError(
        f'{path}: {kind}, expected running text; only data.prepare and'
        ' data.source read records'
      )
  return paths


def name_some(names: Sequence[str], count: int | None = None) -> str:
  """Returns the first few of `count` names and the number of others."""
  more = (len(names) if count is None else count) - len(names[:NAMED])
  return ', '.join(names[:NAMED]) + (f' and {more:,} more' if more else '')


def _is_link(path: epath.Path | str) -> bool:
  return not storage.is_remote(path) and os.path.islink(path)


def _describe_link(path: epath.Path) -> str:
  return f'{path} is a link to {os.readlink(path)}, which does not exist'


def _check_no_loop(folder: epath.Path | str) -> None:
  """Raises ValueError for a link to a folder that it lies in.

  Its files would be found again and again, 40 links deep.
  """
  if _is_link(folder):
    to = os.path.realpath(folder)
    if f'{os.path.realpath(os.path.dirname(folder))}/'.startswith(f'{to}/'):
      raise ValueError(
        f'{folder} is a link to {to}, in which it lies: its files would be read'
        ' again and again. Remove the link, or name the files without it'
      )


def _walk(folder: epath.Path, dangling: list[str]) -> list[epath.Path]:
  """Returns a folder's files, sorted, none hidden; fills `dangling`."""
  found = []
  for path in sorted(folder.iterdir()):
    if path.name.startswith('.'):
      continue
    _check_no_loop(path)
    if path.is_dir():
      found += _walk(path, dangling)
    elif path.is_file():
      found.append(path)
    elif _is_link(path):
      dangling.append(f'{path} -> {os.readlink(path)}')
  return found


def _glob(pattern: epath.Path) -> list[epath.Path]:
  """Returns matches and dangling links, sorted; `**` crosses folders."""
  if not storage.is_remote(pattern):
    paths = sorted(glob.glob(str(pattern), recursive=True))
    for folder in {str(f) for p in paths for f in pathlib.PurePath(p).parents}:
      _check_no_loop(folder)
    return [
      epath.Path(path)
      for path in paths
      if os.path.isfile(path) or not os.path.exists(path)
    ]
  parts = str(pattern).split('/')
  first = next(i for i, part in enumerate(parts) if re.search('[*?[]', part))
  base = epath.Path('/'.join(parts[:first]))
  return sorted(base.glob('/'.join(parts[first:])))


def check_file(path: epath.Path) -> None:
  """Raises an OSError if a path is no file; TensorFlow's would be a riddle.

  ValueError for an address of another place, see `storage.is_remote`.
  """
  storage.is_remote(path)
  if path.is_dir():
    raise IsADirectoryError(f'{path}: is a folder, expected a file')
  if not path.exists():
    raise FileNotFoundError(f'{path}: no such file')


def chunks(
  path: epath.Path, progress: Callable[[int], None] | None = None
) -> Iterator[str]:
  """Streams the text of a file, plain or .gz, .xz, .zst by its name.

  Removes a byte order mark; line ends become newlines. `progress` is called
  with the bytes read from disk so far. Raises BinaryFileError at a NUL byte,
  and ValueError, with the place, at bytes that are not UTF-8 or a damaged file.
  """
  check_file(path)
  decoder = codecs.getincrementaldecoder('utf-8')()
  newlines = io.IncrementalNewlineDecoder(None, translate=True)
  offset = 0  # of the chunk, in decompressed bytes
  line = 1  # in which the chunk begins
  first = True
  with path.open('rb') as file:
    for chunk in itertools.chain(decompressed(path, file), [b'']):
      if progress and chunk:
        progress(file.tell())
      if chunk.startswith(_UTF_16) and not offset:
        raise ValueError(
          f'{path}: this is UTF-16, UTF-8 is expected. Convert it: '
          'iconv -f UTF-16 -t UTF-8'
        )
      if (nul := chunk.find(b'\0')) >= 0:
        raise BinaryFileError(path, offset + nul)
      waiting = len(decoder.getstate()[0])
      try:
        text = decoder.decode(chunk, final=not chunk)
      except UnicodeDecodeError as error:
        at, found = offset - waiting + error.start, error.object[error.start]
        line += error.object.count(b'\n', 0, error.start)
        raise ValueError(
          f'{path}: not UTF-8 at byte {at:,} (0x{found:02x}: {error.reason})'
          f' in line {line:,}. Convert it, for example: iconv -f WINDOWS-1252'
          ' -t UTF-8'
        ) from None
      offset += len(chunk)
      line += chunk.count(b'\n')
      if first and text:
        text = text.removeprefix('\ufeff')
        first = False
      if text := newlines.decode(text, final=not chunk):
        yield text


def decompressed(path: epath.Path, file: BinaryIO) -> Iterator[bytes]:
  """Yields the file's bytes in chunks, decompressed by its ending."""
  kind = path.suffix
  try:
    if kind == '.zst':
      yield from _decompress_zst(file)
      return
    stream = file
    if kind == '.gz':
      stream = gzip.GzipFile(fileobj=file)
    elif kind == '.xz':
      stream = lzma.LZMAFile(file)
    yield from iter(lambda: stream.read(CHUNK_BYTES), b'')
  except EOFError:
    raise ValueError(
      f'{path}: the {kind} file is truncated at byte {file.tell():,}. Copy or '
      'download it again'
    ) from None
  except _DAMAGES as error:
    raise ValueError(
      f'{path}: damaged {kind} file near byte {file.tell():,}: {error}'
    ) from None


def _decompress_zst(file: BinaryIO) -> Iterator[bytes]:
  """Decompresses all frames; the library's reader accepts half a frame."""
  frame = None
  held = bytearray()
  while data := file.read(ZST_CHUNK_BYTES):
    while data:
      frame = frame or zstandard.ZstdDecompressor().decompressobj()
      held += frame.decompress(data)
      data = b''
      if frame.eof:
        data, frame = frame.unused_data, None
    while len(held) >= CHUNK_BYTES:
      yield bytes(held[:CHUNK_BYTES])
      del held[:CHUNK_BYTES]
  if frame is not None:
    raise EOFError
  if held:
    yield bytes(held)


def lines(
  texts: Iterable[str], path: str | os.PathLike = 'the text'
) -> Iterator[str]:
  """Joins chunks of text and splits them into lines, without their ends.

  Raises ValueError, with the place in `path`, at a line that is too long to be
  one of text: it would be held in memory, several times.
  """
  held, size, number = [], 0, 1
  for text in texts:
    first, *rest = text.split('\n')
    held.append(first)
    size += len(first)
    for line in rest:
      yield ''.join(held)
      held, size = [line], len(line)
      number += 1
    if size > LONGEST_LINE:
      raise ValueError(
        f'{path}, line {number:,}: is longer than {LONGEST_LINE:,} characters,'
        ' expected lines of text: break it'
      )
  if any(held):
    yield ''.join(held)


def lines_of(path: epath.Path) -> Iterator[str]:
  """Yields the lines of a file; for errors see `chunks` and `lines`."""
  return lines(chunks(path), path)


_MISSING = object()


def records(
  path: epath.Path, texts: Iterable[str], text_field: str
) -> Iterator[str | None]:
  """Yields the text of each JSONL record, None where it is null.

  Raises ValueError at a wrong line.
  """
  for number, line in enumerate(lines(texts, path), start=1):
    if not line.strip():
      continue
    try:
      record = json.loads(line)
    except (ValueError, RecursionError) as error:
      told = _TOO_DEEP if isinstance(error, RecursionError) else error
      raise ValueError(
        f'{path}, line {number:,}: not JSON ({told}); a .jsonl file holds one '
        f'JSON object a line. Found: {line[:60]!r}'
      ) from None
    if not isinstance(record, dict):
      raise ValueError(
        f'{path}, line {number:,}: expected a JSON object with a field '
        f'{text_field!r}, found {_json_kind(record)}: {line[:60]!r}'
      )
    text = record.get(text_field, _MISSING)
    if text is None:
      yield None
      continue
    if not isinstance(text, str):
      if text_field not in record:
        what = f'no field {text_field!r}; the fields are {sorted(record)}'
      else:
        what = f'field {text_field!r} is {_json_kind(text)}, not text'
      raise ValueError(
        f'{path}, line {number:,}: {what}. Name the field that holds the text '
        '(text_field)'
      )
    if found := _SURROGATE.search(text):
      raise ValueError(
        f'{path}, line {number:,}: field {text_field!r} holds '
        f'U+{ord(found[0]):04X} at character {found.start():,}, half a '
        'surrogate pair, which is no text'
      )
    yield text


def _json_kind(value: Any) -> str:
  """Returns what a value is to JSON."""
  if isinstance(value, dict):
    return f'an object with the fields {sorted(value)}'
  if isinstance(value, list):
    return 'a list'
  if isinstance(value, bool):
    return 'true or false'
  return 'text' if isinstance(value, str) else 'a number or null'


def read_json(path: str | os.PathLike) -> Any:
  """Returns the value in a JSON file, such as this program writes.

  Raises FileNotFoundError, and ValueError, for a caller that names the file:
  for other text, for values nested too deep for Python, and for a path that is
  no regular file, as a pipe is, of which the end may never come.
  """
  path = epath.Path(path)
  is_local = not storage.is_remote(path)
  if is_local and os.path.exists(path) and not os.path.isfile(path):
    raise ValueError('it is no regular file')
  try:
    return json.loads(path.read_bytes())
  except RecursionError:
    raise ValueError(_TOO_DEEP) from None


def loads(text: str) -> Any:
  """Returns the value of JSON, in whose strings all is text.

  Raises ValueError, a JSONDecodeError where the syntax is wrong; also for
  values nested too deep for Python, and for half a surrogate pair.
  """
  try:
    value = json.loads(text)
    if '\\u' in text:  # only so can JSON spell half a pair
      spelt = json.dumps(value, ensure_ascii=False)
      if half := _SURROGATE.search(spelt):
        before = spelt[max(half.start() - 30, 0) : half.start()]
        raise ValueError(
          f'U+{ord(half[0]):04X} after {before!r} is half a surrogate pair,'
          ' which is no text'
        )
  except RecursionError:
    raise ValueError(_TOO_DEEP) from None
  return value


def read_text(path: str | os.PathLike) -> str:
  """Returns the text of a file, see `chunks`; '-' is standard input."""
  return ''.join(chunks(epath.Path('/dev/stdin' if path == '-' else path)))
