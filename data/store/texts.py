"""The text of a store: raw text, or the texts of a task."""

import functools

from data.tasks import texts
from data.text import sources


def open_source(
  spec: str, *, document_break: str | None = None, text_field: str = 'text'
) -> sources.Source:
  """Opens a source of raw text, or task:NAME:FOLDER.

  See `sources.open_source` and `tasks.texts`.
  """
  return sources.open_source(
    spec,
    document_break=document_break,
    text_field=text_field,
    others={
      texts.PREFIX: functools.partial(
        texts.open_source, document_break=document_break
      )
    },
  )
