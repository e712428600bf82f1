"""The text of a store: raw text, the texts of a task, or dialogues."""

import functools

from data.tasks import texts
from data.text import dialogue_lines, sources


def open_source(
  spec: str, *, document_break: str | None = None, text_field: str = 'text'
) -> sources.Source:
  """Opens a source of raw text, or task:NAME:FOLDER, or dialogue:PATH.

  See `sources.open_source`, `tasks.texts` and `dialogue_lines`.
  """
  others = {
    texts.PREFIX: functools.partial(
      texts.open_source, document_break=document_break
    ),
    dialogue_lines.PREFIX: dialogue_lines.open_source,
  }
  return sources.open_source(
    spec, document_break=document_break, text_field=text_field, others=others
  )
