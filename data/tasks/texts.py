"""A task's training texts as a source of text: task:NAME:FOLDER.

FOLDER is as `data.source` of a fine-tuning. An example is a document, and each
of its texts a paragraph: of choices, the right one; of questions, the text that
answers them. A document that another example has too, such as the text of the
next question, is read once. Labels are not read.
"""

import functools
import hashlib
import json
from collections.abc import Iterator

from data.tasks import examples, registry
from data.text.text_pieces import Piece, Source, record_pieces

PREFIX = 'task:'


def open_source(spec: str, document_break: str | None = None) -> Source:
  """Opens the source; ValueError or FileNotFoundError where a set is wrong."""
  name, _, folder = spec.removeprefix(PREFIX).partition(':')
  if not folder:
    raise ValueError(
      f'source {spec!r}: expected {PREFIX}NAME:FOLDER, the name of a task and'
      ' the folder of its files'
    )
  if document_break:
    raise ValueError(
      f'document_break {document_break!r} does not apply to {spec!r}: each of'
      ' its examples is a document. Leave it out.'
    )
  task = registry.find(name)
  found = registry.load(task, folder, 'train')
  texts = list(dict.fromkeys(map(_document, found)))
  size = sum(map(len, texts))
  return Source(
    spec=spec,
    description=f'training texts of {task.title}: {len(found):,} examples,'
    f' {size / 1e6:.1f} MB, a document is an example',
    fingerprint=hashlib.sha256(json.dumps(texts).encode()).hexdigest(),
    document_break='record',
    num_bytes=size,
    read=functools.partial(
      _read, texts=texts, num_repeated=len(found) - len(texts)
    ),
    form='records',
  )


def _read(
  source: Source,
  white_space: str,
  *,
  texts: list[str],
  num_repeated: int,
) -> Iterator[Piece]:
  source.dropped['text of an earlier example'] += num_repeated
  for text in texts:
    yield from record_pieces(source, text, white_space)
    source.bytes_read += len(text)


def _document(example: examples.Example) -> str:
  return '\n\n'.join(filter(str.strip, _paragraphs(example)))


@functools.singledispatch
def _paragraphs(example: examples.Example) -> tuple[str, ...]:
  raise TypeError(f'found {type(example).__name__}, which has no text')


@_paragraphs.register
def _(example: examples.TextExample) -> tuple[str, ...]:
  return example.texts


@_paragraphs.register
def _(example: examples.ChoiceExample) -> tuple[str, ...]:
  return example.context, example.question, example.choices[example.label]


@_paragraphs.register
def _(example: examples.TaggedExample) -> tuple[str, ...]:
  return (' '.join(example.words),)


@_paragraphs.register
def _(example: examples.SpanExample) -> tuple[str, ...]:
  return (example.context,)


@_paragraphs.register
def _(example: examples.DocumentExample) -> tuple[str, ...]:
  return tuple(map(' '.join, example.sentences))
