"""Rows of inputs as text, as a page without scripts, or as a picture."""

import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import rich.cells

from train.host import files, markup, pages, pictures
from train.host.files import Json
from train.host.markup import Markup
from train.views.input_rows import InputRow

if TYPE_CHECKING:
  from matplotlib.axes import Axes

ENDINGS = ('.html', '.png', '.json')
# Tokens in a table of a page, cells in a line of the terminal or of a picture.
PAGE_COLUMNS, TEXT_CELLS, PICTURE_CELLS = 16, 79, 110
# Most tokens in a picture, all rows together: a slide has room for no more.
MOST_TOKENS = 200
_CELL_WIDTH, _LINE_HEIGHT = 0.105, 0.29  # inches
_COLORS = {'first': '#dbe7ff', 'second': '#ffe3cc', 'symbol': '#e6e8eb'}
_STRONG = '#b3261e'


def as_text(row: InputRow) -> Iterator[str]:
  """Yields the lines of a row, each at most `TEXT_CELLS` wide if it can be."""
  yield row.title
  names = max(map(len, row.lines))
  for number, part in enumerate(_parts(row, TEXT_CELLS - names - 2)):
    if number:
      yield ''
    for name, values in row.lines.items():
      cells = [_padded(_shown(values[i]), _width(row, i)) for i in part]
      yield f'  {name:{names}}  {"  ".join(cells)}'.rstrip()
  yield from (f'  {note}' for note in row.notes)


def _shown(value: str | int | None) -> str:
  """Returns a value as text of one line."""
  text = '' if value is None else str(value)
  return ''.join(
    letter if letter.isprintable() else f'\\x{ord(letter):02x}'
    for letter in text
  )


def _width(row: InputRow, i: int) -> int:
  """Returns the cells of a terminal that a token's column takes."""
  return max(
    rich.cells.cell_len(_shown(values[i])) for values in row.lines.values()
  )


def _padded(text: str, width: int) -> str:
  return text + ' ' * (width - rich.cells.cell_len(text))


def _parts(row: InputRow, cells: int) -> Iterator[list[int]]:
  """Yields the numbers of the tokens of each line of at most so many cells."""
  part, taken = [], 0
  for i in range(len(row.parts)):
    width = _width(row, i) + 2
    if part and taken + width > cells:
      yield part
      part, taken = [], 0
    part.append(i)
    taken += width
  yield part


def check_size(path: str | os.PathLike, rows: Sequence[InputRow]) -> None:
  """Checks that the rows have room in the form of a file."""
  count = sum(len(row.parts) for row in rows)
  if pathlib.Path(path).suffix == '.png' and count > MOST_TOKENS:
    raise ValueError(
      f'--out {path}: found {count:,} tokens, expected {MOST_TOKENS} at most in'
      ' a picture; a .html file takes any number'
    )


def write(
  path: str | os.PathLike, rows: Sequence[InputRow], name: str, about: str
) -> None:
  """Writes rows atomically: HTML, a picture or JSON, by the path's ending."""
  check_size(path, rows)
  ending = pathlib.Path(path).suffix
  if ending == '.html':
    title = f'The input of {name}'
    files.write_atomically(path, as_html(rows, title, about))
  elif ending == '.png':
    _draw(path, rows)
  else:
    figures = as_dict(rows, name)
    files.write_atomically(path, files.as_json(figures) + '\n')


def as_dict(rows: Sequence[InputRow], name: str) -> dict[str, Json]:
  """Returns rows for JSON."""
  return {'weights': name, 'rows': [row.as_dict() for row in rows]}


def as_html(rows: Sequence[InputRow], title: str, about: str) -> str:
  """Returns the page of rows."""
  body = markup.join(part for row in rows for part in _section(row))
  return pages.plain(body, title=title, about=about)


def _section(row: InputRow) -> Iterator[Markup]:
  yield markup.element('h2', row.title, dir='auto')
  count = len(row.parts)
  for first in range(0, count, PAGE_COLUMNS):
    columns = range(first, min(first + PAGE_COLUMNS, count))
    lines = [
      markup.element(
        'tr',
        markup.element('th', name, scope='row'),
        *[
          markup.element(
            'td',
            markup.element('bdi', '' if values[i] is None else values[i]),
            class_=row.parts[i] + ' strong' * row.strong[i],
          )
          for i in columns
        ],
      )
      for name, values in row.lines.items()
    ]
    yield markup.element(
      'div', markup.element('table', *lines, class_='grid'), class_='scroll'
    )
  for note in row.notes:
    yield markup.element('p', note, class_='faint')


def _draw(path: str | os.PathLike, rows: Sequence[InputRow]) -> None:
  """Draws rows one below the other, as PNG."""
  blocks = [(row, list(_parts(row, PICTURE_CELLS))) for row in rows]
  names = max(len(name) for row in rows for name in row.lines) + 2
  lines = sum(
    len(parts) * (len(row.lines) + 0.6) + 1.4 + 0.9 * len(row.notes)
    for row, parts in blocks
  )
  cells = names + max(
    sum(_width(row, i) + 2 for i in part)
    for row, parts in blocks
    for part in parts
  )
  cells = max(
    cells,
    *(len(note) for row in rows for note in [row.title, *row.notes]),
  )
  figure = pictures.figure(cells * _CELL_WIDTH, lines * _LINE_HEIGHT)
  figure.set_layout_engine('none')
  axes = figure.add_axes((0, 0, 1, 1))
  axes.set_axis_off()
  axes.set_xlim(0, cells)
  axes.set_ylim(lines, 0)
  texts = ''.join(
    _shown(value)
    for row in rows
    for values in [[row.title], *row.lines.values()]
    for value in values
  )
  fonts = pictures.fonts(texts)
  at = 0.0
  for row, parts in blocks:
    _write(axes, 0.5, at, row.title, fonts, weight='bold')
    at += 1.1
    for part in parts:
      for name, values in row.lines.items():
        _write(axes, 0.5, at, name, fonts, color='#5c626b')
        left = names
        for i in part:
          width = _width(row, i) + 2
          _cell(axes, left, at, width, _shown(values[i]), row, i, fonts)
          left += width
        at += 1
      at += 0.6
    for note in row.notes:
      _write(axes, 0.5, at - 0.3, note, fonts, color='#5c626b', size=8)
      at += 0.9
    at += 0.3
  pictures.save(figure, path, dpi=150)


def _write(
  axes: 'Axes',
  left: float,
  top: float,
  text: str,
  fonts: Sequence[str],
  **style: str | float,
) -> None:
  style = {'size': 9, 'family': fonts, 'va': 'center'} | style
  axes.text(left, top + 0.5, pictures.shown(text), **style)


def _cell(
  axes: 'Axes',
  left: float,
  top: float,
  width: float,
  text: str,
  row: InputRow,
  i: int,
  fonts: Sequence[str],
) -> None:
  from matplotlib.patches import Rectangle

  axes.add_patch(
    Rectangle(
      (left, top),
      width,
      1,
      facecolor=_COLORS[row.parts[i]],
      edgecolor='white',
      linewidth=1.5,
    )
  )
  style = {'color': _STRONG, 'weight': 'bold'} if row.strong[i] else {}
  _write(axes, left + width / 2, top, text, fonts, ha='center', **style)
