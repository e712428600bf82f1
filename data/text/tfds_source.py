"""TensorFlow Datasets as a source of text."""

import functools
from collections.abc import Iterator

from data.text import languages, tfds_text
from data.text.text_pieces import Piece, Source, digest, record_pieces


def open_source(spec: str, text_field: str) -> Source:
  """Opens `tfds:` and what `tfds_text.open_split` takes."""
  data = tfds_text.open_split(spec.removeprefix(languages.TFDS), text_field)
  return Source(
    spec=spec,
    description=f'TFDS {data.name}, split {data.split}, field {data.field}: '
    f'{data.num_records:,} records, a document is a record',
    fingerprint=digest(data.name, data.split, data.num_records, data.field),
    document_break='record',
    num_bytes=data.num_bytes,
    read=functools.partial(_read, data=data),
    form='records',
  )


def _read(
  source: Source, white_space: str, *, data: tfds_text.TextSplit
) -> Iterator[Piece]:
  for number, text in enumerate(data.texts(), start=1):
    yield from record_pieces(source, text, white_space)
    source.bytes_read = data.num_bytes * number // data.num_records
