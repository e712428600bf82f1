"""The text of a store: raw text, the texts of a task, or dialogues."""

from typing import Any

from data.text import languages, sources


def open_source(
  spec: str, *, document_break: str | None = None, text_field: str = 'text'
) -> sources.Source:
  """Opens a source of raw text, or task:NAME:FOLDER, or dialogue:PATH.

  See `sources.open_source`, `tasks.texts` and `dialogue_lines`.
  """

  def open_task(spec: str) -> Any:
    from data.tasks import texts  # all tasks, for this kind of source alone

    return texts.open_source(spec, document_break=document_break)

  def open_dialogues(spec: str) -> Any:
    from data.text import dialogue_lines

    return dialogue_lines.open_source(spec)

  others = {languages.TASK: open_task, languages.DIALOGUES: open_dialogues}
  return sources.open_source(
    spec, document_break=document_break, text_field=text_field, others=others
  )
