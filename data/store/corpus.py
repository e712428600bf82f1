"""The token store: a folder of memory-mapped arrays.

  tokens.npy     uint16 or uint32 [N], every token of every document in order
  sentences.npy  int64 [S + 1], the start of each sentence in tokens, then N
  documents.npy  int64 [D + 1], the start of each document in sentences, then S
  held_out.npy   bool [D], documents never trained on
  counts.npy     int64 [V], frequencies of tokens in training documents
  languages.npy  int64 [L + 1], the start of each language in documents, then D;
                 only of several languages
  units.npy      uint8 [ceil(N / 8)], a bit a token, the lowest first: whether
                 it begins a unit; only of a text with units
  store.json     format version, counts, checksums, source, tokenizer, audit
  the files of the tokenizer, which `tokenization.load` reads

`data.store.build` writes it; `folders.new_folder` makes it appear at once.
"""

import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import shlex
import sys
import zlib
from typing import Any

import numpy as np

from data import storage
from data.store import folders
from data.text import text_files
from data.vocabulary import tokenization

FORMAT_VERSION = 1
ARRAYS = ('tokens', 'sentences', 'documents', 'held_out', 'counts')
LANGUAGES = 'languages.npy'
UNITS = 'units.npy'
CHUNK_BYTES = 64 << 20  # what one checksum covers
_STREAMS = 8  # chunks copied at a time: one stream has 100 MB/s at most


@dataclasses.dataclass(frozen=True)
class Store:
  """An open token store: views of the files in the module's table.

  `folder` is local, of a remote store the cached copy; `meta` is store.json. A
  store of one language has one name, perhaps '', in `languages`;
  `language_bounds` are languages.npy; `units` are None of a text without.
  """

  folder: pathlib.Path
  meta: dict[str, Any]
  tokens: np.ndarray
  sentences: np.ndarray
  documents: np.ndarray
  held_out: np.ndarray
  counts: np.ndarray
  languages: tuple[str, ...]
  language_bounds: np.ndarray
  tokenizer: tokenization.Tokenizer
  units: np.ndarray | None = None

  @property
  def num_sentences(self) -> int:
    """S, held-out sentences included."""
    return len(self.sentences) - 1

  @property
  def num_tokens(self) -> int:
    """N, held-out tokens included."""
    return len(self.tokens)

  @property
  def vocab_size(self) -> int:
    """V, not padded."""
    return len(self.counts)


def open_units(store: Store) -> np.ndarray:
  """Returns the bits of a store's units; ValueError if it has none."""
  if store.units is None:
    raise ValueError(
      f"{store.folder} has no units, which objective.unit='stored' masks whole:"
      ' prepare text with --units file or jieba, or ernie:PATH'
    )
  return store.units


def starts_units(units: np.ndarray, places: np.ndarray) -> np.ndarray:
  """Returns whether the tokens at some places begin a unit, bool."""
  return (units[places >> 3] >> (places & 7).astype(np.uint8) & 1).astype(bool)


def open_store(
  folder: str | os.PathLike, *, cache: str | os.PathLike | None = None
) -> Store:
  """Opens a store, local or `gs://...`, after checking that it is whole.

  The first opening reads every byte; later ones compare sizes, times and inodes
  with a stamp in the folder. A remote store, or one with a `cache`, is copied
  once a host into that folder, by default the user's cache; a copy that is
  damaged later is made again. Raises FileNotFoundError if a file is missing;
  ValueError if one is damaged or replaced, or the format is another one.
  """
  if cache is None and not storage.is_remote(folder):
    return _open(pathlib.Path(folder).expanduser())
  if cache is not None and storage.is_remote(cache):
    raise ValueError(f'data.cache={cache}: expected a local folder')
  cache = pathlib.Path(cache or folders.default_cache('stores')).expanduser()
  copy = _fetch(folder, cache)
  try:
    return _open(copy)
  except (ValueError, FileNotFoundError) as error:
    print(f'{error}\nIt is a copy, which is made again.', file=sys.stderr)
    return _open(_fetch(folder, cache, again=True))


def _open(folder: pathlib.Path) -> Store:
  meta = read_meta(folder)
  check_sizes(folder, meta)
  tokenizer = _load_tokenizer(folder, meta)
  stamp = _make_stamp(folder, meta)
  if not folders.is_stamped(folder, stamp):
    for name, entry in meta['files'].items():
      found = checksums(folder / name)
      _compare_checksums(folder / name, found, entry['crc32'])
    folders.write_stamp(folder, stamp)
  # Plain views: indexing a memmap object is several times as slow.
  arrays = {
    name: np.load(folder / f'{name}.npy', mmap_mode='r').view(np.ndarray)
    for name in ARRAYS
  }
  bounds = np.array([0, len(arrays['held_out'])])
  if LANGUAGES in meta['files']:
    bounds = np.load(folder / LANGUAGES)
  units = None
  if UNITS in meta['files']:
    units = np.load(folder / UNITS, mmap_mode='r').view(np.ndarray)
  return Store(
    folder=folder,
    meta=meta,
    tokenizer=tokenizer,
    languages=tuple(meta.get('languages', ('',))),
    language_bounds=bounds,
    units=units,
    **arrays,
  )


def read_meta(folder: Any) -> dict[str, Any]:
  """Reads and checks store.json of a local or `epath` folder."""
  path = folder / 'store.json'
  try:
    meta = text_files.read_json(path)
  except FileNotFoundError:
    if is_half_written(folder):
      raise FileNotFoundError(
        f'{folder} is half uploaded: store.json, the last file of a token '
        'store, is missing. Run data.prepare again'
      ) from None
    raise FileNotFoundError(
      f'{folder} is not a token store: it has no store.json. '
      f'Build one: python -m data.prepare --out {shlex.quote(str(folder))} ...'
    ) from None
  except ValueError as error:
    raise ValueError(
      f'{path} is damaged ({error}). Copy or build the store again.'
    ) from None
  version = meta.get('format_version') if isinstance(meta, dict) else None
  if version != FORMAT_VERSION:
    raise ValueError(
      f'{path} has format version {version!r}, this program reads '
      f'{FORMAT_VERSION}. Build the store again: python -m data.prepare '
      '--overwrite ...'
    )
  if meta.get('digest') != _digest(meta):
    raise ValueError(
      f'{path} was changed after it was written: its digest does not match. '
      'Copy or build the store again.'
    )
  return meta


def is_half_written(folder: Any) -> bool:
  """Returns whether a folder has arrays of a store but no store.json."""
  return not (folder / 'store.json').exists() and any(
    (folder / f'{name}.npy').exists() for name in ARRAYS
  )


def write_meta(folder: pathlib.Path, meta: dict[str, Any]) -> None:
  """Writes store.json, with checksums of all files already in the folder."""
  files = {
    path.name: {'size': path.stat().st_size, 'crc32': checksums(path)}
    for path in sorted(folder.iterdir())
  }
  meta = {'format_version': FORMAT_VERSION, **meta, 'files': files}
  meta['digest'] = _digest(meta)
  with open(folder / 'store.json', 'w', encoding='utf-8') as file:
    json.dump(meta, file, indent=1, ensure_ascii=False)
    file.write('\n')
    file.flush()
    os.fsync(file.fileno())
  folders.write_stamp(folder, _make_stamp(folder, meta))


def check_sizes(folder: Any, meta: dict[str, Any]) -> None:
  """Raises an error if a file of the store is missing or has another size."""
  for name, entry in meta['files'].items():
    path = folder / name
    if not path.exists():
      raise FileNotFoundError(
        f'{path} is missing: the store is half copied. Copy or build it again.'
      )
    # A replaced vocabulary gets a better message later.
    if not name.endswith('.npy'):
      continue
    stat = path.stat()
    size = stat.st_size if hasattr(stat, 'st_size') else stat.length
    if size != entry['size']:
      raise ValueError(
        f'{path} has {size} bytes, expected {entry["size"]}: the store is '
        'half copied or damaged. Copy or build it again.'
      )


def checksums(path: pathlib.Path) -> list[int]:
  """Returns the CRC-32 of each chunk of a file."""
  found = []
  with open(path, 'rb') as file:
    while crc := _read_chunk(file):
      found.append(crc[0])
  return found


def _make_stamp(folder: pathlib.Path, meta: dict[str, Any]) -> dict[str, Any]:
  return {'digest': meta['digest'], **folders.stamp(folder, meta['files'])}


def _digest(meta: dict[str, Any]) -> str:
  content = {key: value for key, value in meta.items() if key != 'digest'}
  text = json.dumps(content, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


def _load_tokenizer(
  folder: pathlib.Path, meta: dict[str, Any]
) -> tokenization.Tokenizer:
  tokenizer = tokenization.load(folder)
  if tokenizer.vocab_size <= meta['max_id']:
    raise ValueError(
      f'the vocabulary in {folder} has {tokenizer.vocab_size} pieces, but '
      f'tokens.npy holds ids up to {meta["max_id"]}: this is not the '
      "vocabulary of the store's build. Put that one back, or build again."
    )
  expected = meta['tokenizer']['fingerprint']
  if tokenizer.fingerprint != expected:
    raise ValueError(
      f'the tokenizer in {folder} has fingerprint '
      f'{tokenizer.fingerprint[:16]}, the store was built with '
      f'{expected[:16]}: the vocabulary or its settings were changed. Put the '
      'right files back, or build again.'
    )
  return tokenizer


def _compare_checksums(
  path: Any, found: list[int], expected: list[int]
) -> None:
  for chunk in range(max(len(found), len(expected))):
    if found[chunk : chunk + 1] != expected[chunk : chunk + 1]:
      raise _damaged(path, chunk)


def _damaged(path: Any, chunk: int) -> ValueError:
  return ValueError(
    f'{path} is damaged: the checksum of chunk {chunk} (from byte '
    f'{chunk * CHUNK_BYTES}) does not match. Copy or build the store again.'
  )


def _read_chunk(file: Any, copy: Any = None) -> tuple[int] | None:
  """Returns the CRC-32 of the next chunk; None at the end of the file."""
  crc, left = 0, CHUNK_BYTES
  while left and (block := file.read(min(left, 1 << 20))):
    crc = zlib.crc32(block, crc)
    left -= len(block)
    if copy is not None:
      copy.write(block)
  return None if left == CHUNK_BYTES else (crc,)


def _fetch(
  folder: str | os.PathLike, cache: pathlib.Path, *, again: bool = False
) -> pathlib.Path:
  """Returns a store's copy in the cache, made if it is missing or `again`."""
  from etils import epath

  origin = epath.Path(folder)
  meta = read_meta(origin)
  target = cache / f'{origin.name}-{meta["digest"][:16]}'
  if target.exists() and not again:
    return target
  with folders.exclusive(target):
    if target.exists() and not again:
      return target
    check_sizes(origin, meta)
    size = sum(entry['size'] for entry in meta['files'].values())
    with folders.new_folder(target) as partial:
      cure = 'name another folder by data.cache'
      storage.check_space(cache, size, f'the copy of {origin}', cure)
      print(
        f'copying the store {origin} ({size / 1e6:,.1f} MB) to {target}',
        file=sys.stderr,
      )
      _copy(origin, partial, meta)
      (partial / 'store.json').write_bytes((origin / 'store.json').read_bytes())
      folders.write_stamp(partial, _make_stamp(partial, meta))
  return target


def _copy(origin: Any, partial: pathlib.Path, meta: dict[str, Any]) -> None:
  """Copies the files of a store and checks them, several chunks at a time."""

  def copy_chunk(name: str, chunk: int, expected: int) -> None:
    with (origin / name).open('rb') as file, open(partial / name, 'r+b') as new:
      file.seek(chunk * CHUNK_BYTES)
      new.seek(chunk * CHUNK_BYTES)
      if _read_chunk(file, new) != (expected,):
        raise _damaged(origin / name, chunk)
      new.flush()
      os.fsync(new.fileno())

  chunks = []
  for name, entry in meta['files'].items():
    (partial / name).touch()
    chunks += [(name, *each) for each in enumerate(entry['crc32'])]
  with concurrent.futures.ThreadPoolExecutor(_STREAMS) as threads:
    try:
      for done in [threads.submit(copy_chunk, *chunk) for chunk in chunks]:
        done.result()
    except BaseException:
      threads.shutdown(cancel_futures=True)  # others would fail after minutes
      raise
