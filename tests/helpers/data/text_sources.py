"""Files of text, and what a source reads of them."""

import gzip
import lzma

import zstandard

from data.text import documents, sources

COMPRESS = {
  '': bytes,
  '.gz': gzip.compress,
  '.xz': lzma.compress,
  '.zst': lambda data: zstandard.ZstdCompressor().compress(data),
}


def write(path, text):
  path.parent.mkdir(parents=True, exist_ok=True)
  data = text if isinstance(text, bytes) else text.encode()
  kind = path.suffix if path.suffix in COMPRESS else ''
  path.write_bytes(COMPRESS[kind](data))
  return path


def texts_of(source):
  """The texts of a source's documents."""
  found, held = [], []
  for piece in source.pieces():
    assert 0 < len(piece.text) <= documents.PIECE_CHARS
    held.append(piece.text)
    if piece.ends_document:
      found.append(''.join(held))
      held = []
  assert not held, 'the last piece must end its document'
  return found


def read(path, **options):
  return texts_of(sources.open_source(str(path), **options))
