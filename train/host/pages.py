"""HTML pages whole in one file: style, scripts and data are inside."""

import html
import json
import pathlib
import re
from collections.abc import Sequence

from train.host.files import Json
from train.host.markup import Markup

PLAIN = pathlib.Path(__file__).parent / 'plain_page'


def fill(
  folder: pathlib.Path, scripts: Sequence[str], data: Json, **texts: str
) -> str:
  """Returns the page.html of a folder, with all of its marks filled.

  {{style}} becomes style.css, {{script}} the scripts one after another,
  {{data}} the data as JSON for an element <script type="application/json">,
  and {{name}} the text of that name, escaped. The filled page is not searched
  for marks again, so data and texts may hold anything.

  Args:
    folder: of page.html, style.css and the scripts.
    scripts: names of files, each before those that use its functions.
    data: fills {{data}}.
    **texts: a text for each other mark.

  Raises:
    ValueError: if the data hold an infinity or NaN, which JSON does not have,
      or if the page has other marks.
  """
  try:
    packed = json.dumps(data, separators=(',', ':'), allow_nan=False)
  except ValueError as error:
    raise ValueError(
      'found an infinity or NaN among the numbers of the page, expected'
      ' finite numbers: are the weights finite?'
    ) from error
  parts = {name: html.escape(text) for name, text in texts.items()} | {
    'script': '\n'.join(_read(folder, name) for name in scripts),
    'data': packed.replace('<', '\\u003c'),  # else </script> would end it
  }
  return _filled(folder, parts)


def plain(body: Markup, *, title: str, about: str) -> str:
  """Returns a page without scripts: a title, a line about it, and a body."""
  parts = {'title': html.escape(title), 'about': html.escape(about)}
  return _filled(PLAIN, parts | {'body': body})


def _read(folder: pathlib.Path, name: str) -> str:
  return (folder / name).read_text(encoding='utf-8')


def _filled(folder: pathlib.Path, parts: dict[str, str]) -> str:
  """Returns the page of a folder with its marks, and the style's, filled."""
  parts = parts | {'style': _read(folder, 'style.css')}
  mark, page = r'\{\{(\w+)\}\}', _read(folder, 'page.html')
  if (found := set(re.findall(mark, page))) != parts.keys():
    raise ValueError(
      f'{folder / "page.html"}: found the marks {sorted(found)}, expected'
      f' {sorted(parts)}'
    )
  return re.sub(mark, lambda match: parts[match[1]], page)
