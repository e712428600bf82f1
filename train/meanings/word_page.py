"""A page about one word in many sentences, in one file and without network.

The page holds the figures of `word_map.describe` as JSON. Its script draws the
picture as SVG, and the cosines as a table; layers change by buttons or by the
arrow keys, and every number can be reached by keyboard.
"""

import pathlib
from collections.abc import Mapping

from train.host import pages
from train.host.files import Json

DIGITS = 4  # of the numbers in the page
FOLDER = pathlib.Path(__file__).parent / 'page'


def as_html(figures: Mapping[str, Json]) -> str:
  """Returns the page of `word_map.describe`'s figures."""
  rows = []
  for row in figures['rows']:
    before = row['words'][: row['place']]
    begin = len(' '.join(before)) + bool(before)
    rows.append(
      {
        'sentence': ' '.join(row['words']),
        'begin': begin,
        'end': begin + len(row['words'][row['place']]),
      }
    )
  # JavaScript counts UTF-16 units: a character beyond U+FFFF has two.
  for row in rows:
    for key in ('begin', 'end'):
      before = row['sentence'][: row[key]]
      row[key] = len(before.encode('utf-16-le')) // 2
  data = {'rows': rows, 'layers': _rounded(figures['layers'])}
  return pages.fill(
    FOLDER,
    ['word.js'],
    data,
    title=f'“{figures["word"]}” in {len(rows):,} places',
    weights=figures['weights'],
  )


def _rounded(value: Json) -> Json:
  if isinstance(value, dict):
    return {key: _rounded(each) for key, each in value.items()}
  if isinstance(value, list | tuple):
    return [_rounded(each) for each in value]
  if isinstance(value, float):
    return round(value, DIGITS) + 0.0  # no -0
  return value
