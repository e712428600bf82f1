"""A task's training texts as a source of text: task:NAME:FOLDER.

FOLDER is as `data.source` of a fine-tuning. An example is a document, and each
of its texts a paragraph: of choices, the right one; of questions, the text that
answers them. A document that another example has too, such as the text of the
next question, is read once. Labels are not read.
"""

import functools
import hashlib
import json
import re
from collections.abc import Iterator, Sequence

from data.tasks import examples, registry
from data.text import languages
from data.text.text_pieces import Piece, Source, record_pieces

PREFIX = languages.TASK  # which data.store.texts knows, too
# Text without spaces: Chinese, Japanese, their marks, and full-width letters.
_UNSPACED = (
  '\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff'
)
_NO_SPACE = re.compile(f'(?<=[{_UNSPACED}])\0(?=[{_UNSPACED}])')


def open_source(spec: str, document_break: str | None = None) -> Source:
  """Opens the source; ValueError or FileNotFoundError where a set is wrong."""
  task, folder = _parse(spec)
  if document_break:
    raise ValueError(
      f'document_break {document_break!r} does not apply to {spec!r}: each of'
      ' its examples is a document. Leave it out.'
    )
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


def needs_download(spec: str) -> bool:
  """Returns whether `open_source` would download a set."""
  return registry.needs_download(*_parse(spec), 'train')


def _parse(spec: str) -> tuple[examples.Task, str]:
  name, _, folder = spec.removeprefix(PREFIX).partition(':')
  if not folder:
    raise ValueError(
      f'source {spec!r}: expected {PREFIX}NAME:FOLDER, the name of a task and'
      ' the folder of its files'
    )
  return registry.find(name), folder


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
  return (_join(example.words),)


@_paragraphs.register
def _(example: examples.SpanExample) -> tuple[str, ...]:
  return (example.context,)


@_paragraphs.register
def _(example: examples.DocumentExample) -> tuple[str, ...]:
  return tuple(map(_join, example.sentences))


def _join(words: Sequence[str]) -> str:
  """Returns the text of words, without spaces between Chinese words."""
  return _NO_SPACE.sub('', '\0'.join(words)).replace('\0', ' ')
