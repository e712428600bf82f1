"""Words on a plane: their two principal components, pairs as arrows.

Shapes: W word, D the vectors' width, P pair.
"""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import rich.cells
from etils import epath

from train.host import files, labels, markup, pages, pictures
from train.host.files import Json
from train.host.markup import Markup
from train.meanings import geometry
from train.meanings.words import scores
from train.meanings.words.sources import Vectors

ENDINGS = ('.html', '.png', '.json')
MOST_WORDS = 100  # whose names have room in a picture
# A panel of a page, in the units of its picture; a letter's width and height.
WIDTH, HEIGHT, MARGIN = 640, 480, 24
_LETTER, _LINE = 7.6, 15.0
_TIP = 9.0  # length of an arrow's head
PANEL = 6.4, 4.8  # inches, of a PNG
COLUMNS = 2


def parse_pairs(given: Sequence[str]) -> list[tuple[str, str]]:
  """Returns the pairs of --pairs, as in man:woman."""
  pairs = []
  for each in given:
    words = each.split(':')
    if len(words) != 2 or not all(word.strip() for word in words):
      raise ValueError(
        f'--pairs {each}: expected two words with a colon between, as in'
        ' man:woman'
      )
    pairs.append((words[0], words[1]))
  return pairs


def words_of(
  words: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> list[str]:
  """Returns the words of a map, each once, those of the pairs last."""
  found = list(dict.fromkeys([*words, *(w for pair in pairs for w in pair)]))
  if len(found) > MOST_WORDS:
    raise ValueError(
      f'found {len(found):,} words to draw, expected {MOST_WORDS} at most'
    )
  return found


def describe(
  name: str,
  vectors: Vectors,
  words: Sequence[str],
  pairs: Sequence[tuple[str, str]],
) -> list[dict[str, Json]]:
  """Returns a map of each layer of vectors, for JSON.

  `offset_cosine` is the mean cosine of the differences b - a of each two pairs
  a:b, in all D dimensions; None for fewer than two pairs. Raises ValueError for
  words without a vector.
  """
  rows = scores.rows_of(vectors.words)
  if missing := [word for word in words if word.upper() not in rows]:
    raise ValueError(
      f'{name}: has no vector of {", ".join(missing)}; expected words that it'
      ' knows'
    )
  places = [rows[word.upper()] for word in words]
  ends = [[words.index(word) for word in pair] for pair in pairs]
  return [
    {
      'name': name,
      'layer': layer or None,
      'words': list(words),
      'points': picture.points.tolist(),
      'variance_shares': list(picture.shares),
      'pairs': [list(pair) for pair in pairs],
      'offset_cosine': _offset_cosine(vectors_WD[places], ends),
    }
    for layer, vectors_WD in zip(vectors.names, vectors.layers, strict=True)
    for picture in [geometry.project(vectors_WD[places])]
  ]


def _offset_cosine(
  vectors_WD: np.ndarray, ends_P2: Sequence[Sequence[int]]
) -> float | None:
  if len(ends_P2) < 2:
    return None
  first_P, second_P = np.array(ends_P2).T
  cosines_PP = geometry.cosines(vectors_WD[second_P] - vectors_WD[first_P])
  return float(cosines_PP[~np.eye(len(ends_P2), dtype=bool)].mean())


def as_text(figures: Mapping[str, Any]) -> Iterator[str]:
  """Yields the lines of maps, for people."""
  for each in figures['maps']:
    yield _title(each)
    width = max(map(rich.cells.cell_len, each['words']))
    for word, (x, y) in zip(each['words'], each['points'], strict=True):
      padding = ' ' * (width - rich.cells.cell_len(word))
      yield f'  {word}{padding}  {x:8.4f}  {y:8.4f}'
    yield f'  {_facts(each)}'


def _title(found: Mapping[str, Any]) -> str:
  layer = f', layer {found["layer"]}' if found['layer'] is not None else ''
  return f'{found["name"]}{layer}'


def _facts(found: Mapping[str, Any]) -> str:
  first, second = found['variance_shares']
  said = f'{first:.1%} and {second:.1%} of the variance'
  if found['offset_cosine'] is not None:
    said += f'; mean cosine of two arrows {found["offset_cosine"]:.3f}'
  return said


def write(path: epath.PathLike, figures: Mapping[str, Any]) -> None:
  """Writes maps atomically: HTML, JSON or a picture, by the path's ending."""
  ending = pathlib.Path(path).suffix
  if ending == '.html':
    files.write_atomically(path, as_html(figures))
  elif ending == '.json':
    files.write_atomically(path, files.as_json(figures) + '\n')
  else:
    _draw(path, figures['maps'])


def as_html(figures: Mapping[str, Any]) -> str:
  """Returns a page of maps, with their numbers as tables."""
  body = markup.join(part for each in figures['maps'] for part in _part(each))
  return pages.plain(
    body,
    title='Words on a plane',
    about='The first two principal components of the vectors of these words',
  )


def _part(found: Mapping[str, Any]) -> Iterator[Markup]:
  yield markup.element('h2', _title(found))
  yield _svg(found)
  yield markup.element('p', _facts(found), class_='faint')
  rows = [
    [markup.element('bdi', word), f'{x:.4f}', f'{y:.4f}']
    for word, (x, y) in zip(found['words'], found['points'], strict=True)
  ]
  head = ['word', 'component 1', 'component 2']
  yield markup.element(
    'details',
    markup.element('summary', 'Numbers'),
    markup.table('Places of the words', [head, *rows]),
  )


def _scaled(points: Sequence[Sequence[float]]) -> np.ndarray:
  """Returns points in the panel's units, both components by one scale."""
  points = np.array(points, np.float64)
  low, high = points.min(axis=0), points.max(axis=0)
  room = np.array([WIDTH - 6 * MARGIN, HEIGHT - 2 * MARGIN])
  spread = np.where(high > low, high - low, 1.0)
  scale = min(room / spread)
  centred = (points - (low + high) / 2) * scale
  return centred * [1, -1] + [WIDTH / 2, HEIGHT / 2]


def _svg(found: Mapping[str, Any]) -> Markup:
  words, points = found['words'], _scaled(found['points'])
  sizes = [(_LETTER * rich.cells.cell_len(word), _LINE) for word in words]
  lines = [points[ends] for ends in _ends(found)]
  bounds = (4, 4, WIDTH - 4, HEIGHT - 4)
  centres = labels.place(points, sizes, bounds, lines)
  parts = [part for begin, end in lines for part in _arrow(begin, end)]
  for (x, y), (left, top), word in zip(points, centres, words, strict=True):
    parts += [
      markup.element('circle', cx=f'{x:.1f}', cy=f'{y:.1f}', r=3),
      markup.element(
        'text',
        word,
        x=f'{left:.1f}',
        y=f'{top:.1f}',
        text_anchor='middle',
        dominant_baseline='central',
      ),
    ]
  return markup.element(
    'svg',
    *parts,
    viewBox=f'0 0 {WIDTH} {HEIGHT}',
    role='img',
    aria_label=_title(found),
  )


def _ends(found: Mapping[str, Any]) -> list[list[int]]:
  """Returns the numbers of both words of each pair."""
  return [[found['words'].index(word) for word in p] for p in found['pairs']]


def _arrow(begin: np.ndarray, end: np.ndarray) -> list[Markup]:
  """Returns the line and the head of an arrow."""
  length = max(np.hypot(*(end - begin)), 1e-9)
  along = (end - begin) / length
  tip = end - 3 * along
  across = np.array([-along[1], along[0]])
  sides = [tip - _TIP * along + s * _TIP / 2.5 * across for s in (-1, 1)]
  head = ' '.join(f'{x:.1f} {y:.1f}' for x, y in (tip, *sides))
  (x1, y1), (x2, y2) = begin, tip
  return [
    markup.element(
      'line',
      class_='arrow',
      x1=f'{x1:.1f}',
      y1=f'{y1:.1f}',
      x2=f'{x2:.1f}',
      y2=f'{y2:.1f}',
    ),
    markup.element('path', class_='tip', d=f'M{head}Z'),
  ]


def _draw(path: epath.PathLike, maps: Sequence[Mapping[str, Any]]) -> None:
  """Draws maps side by side, as PNG."""
  columns = min(COLUMNS, len(maps))
  rows = -(-len(maps) // columns)
  figure = pictures.figure(columns * PANEL[0], rows * PANEL[1])
  grid = figure.subplots(rows, columns, squeeze=False).ravel()
  fonts = pictures.fonts(''.join(w for each in maps for w in each['words']))
  for axes in grid[len(maps) :]:
    axes.set_axis_off()
  for axes, found in zip(grid, maps, strict=False):
    points = np.array(found['points'])
    axes.set_title(
      pictures.shown(f'{_title(found)}\n{_facts(found)}'), fontsize='small'
    )
    axes.scatter(*points.T, s=14, color='#0b2a5e', zorder=3)
    axes.margins(0.14)
    axes.set_aspect('equal', 'datalim')
    axes.tick_params(labelsize='x-small')
    for first, second in _ends(found):
      axes.annotate(
        '',
        points[second],
        points[first],
        arrowprops={'arrowstyle': '-|>', 'color': '#b3261e', 'shrinkB': 3},
      )
  pictures.label(
    figure,
    [
      (axes, np.array(found['points']), found['words'])
      for axes, found in zip(grid, maps, strict=False)
    ],
    list(map(_ends, maps)),
    size=9,
    family=fonts,
  )
  pictures.save(figure, path, dpi=150)
