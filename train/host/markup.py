"""Elements of HTML and SVG, with every text inside of them escaped."""

import html
from collections.abc import Iterable

# HTML has no end tags for these.
_EMPTY = ('br', 'circle', 'line', 'path', 'rect')


class Markup(str):
  """Text that is HTML already."""

  __slots__ = ()


def element(
  name: str, *children: str | int, **attributes: str | float | None
) -> Markup:
  """Returns an element; its children are texts, or elements as they are.

  Attributes are written class_='a' and aria_label='b' for class and aria-label;
  an attribute of None is left out.
  """
  given = ''.join(
    f' {_attribute_name(key)}="{html.escape(str(value))}"'
    for key, value in attributes.items()
    if value is not None
  )
  if name in _EMPTY:
    return Markup(f'<{name}{given}/>')
  return Markup(f'<{name}{given}>{join(children)}</{name}>')


def join(children: Iterable[str | int]) -> Markup:
  """Returns texts, escaped, and elements one after the other."""
  return Markup(
    ''.join(
      each if isinstance(each, Markup) else html.escape(str(each))
      for each in children
    )
  )


def table(
  caption: str, rows: Iterable[Iterable[str | int]], **attributes: str
) -> Markup:
  """Returns a table; the first row, and each row's first cell, are heads."""
  head, *body = [list(row) for row in rows]
  return element(
    'table',
    element('caption', caption),
    element('thead', element('tr', *[_head(cell, 'col') for cell in head])),
    element(
      'tbody',
      *[
        element(
          'tr',
          _head(row[0], 'row'),
          *[element('td', cell) for cell in row[1:]],
        )
        for row in body
      ],
    ),
    **attributes,
  )


def _head(cell: str | int, scope: str) -> Markup:
  return element('th', cell, scope=scope)


def _attribute_name(key: str) -> str:
  return key if key == 'viewBox' else key.rstrip('_').replace('_', '-')
