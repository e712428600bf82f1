"""One word in many sentences: cosines and a picture of each layer, in a file.

Shapes: N occurrence, L layer with the embeddings, D the vectors' width.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from data.tasks.senses.occurrences import Occurrence
from train.host import files, pictures
from train.host.files import Json
from train.meanings import geometry, tables, word_page

ENDINGS = ('.html', '.png', '.json')
# Places in a page or a picture, whose table has as many rows and columns.
MOST_PLACES = 100
LAYERS_IN_A_ROW = 5
PANEL = 3.2  # inches
LINE, LETTERS = 0.17, 14  # a sentence's height, and letters in an inch


def check_places(path: str | os.PathLike, num_places: int) -> None:
  """Checks that so many places of a word fit the form of a file."""
  if pathlib.Path(path).suffix != '.json' and num_places > MOST_PLACES:
    raise ValueError(
      f'--out {path}: found the word in {num_places:,} places, expected'
      f' {MOST_PLACES} at most; a .json file takes any number'
    )


def describe(
  word: str,
  weights: str,
  occurrences: Sequence[Occurrence],
  vectors_NLD: np.ndarray,
) -> dict[str, Json]:
  """Returns cosines, points and their facts for each layer, for JSON."""
  layers = []
  for number, name in enumerate(tables.layer_names(vectors_NLD.shape[1])):
    cosines_NN = geometry.cosines(vectors_NLD[:, number])
    picture = geometry.project(vectors_NLD[:, number])
    others = cosines_NN[~np.eye(len(cosines_NN), dtype=bool)]
    layers.append(
      {
        'layer': name,
        'mean_cosine': float(others.mean()) if len(others) else None,
        'cosines': cosines_NN.tolist(),
        'points': picture.points.tolist(),
        'variance_shares': list(picture.shares),
      }
    )
  return {
    'word': word,
    'weights': weights,
    'rows': [
      {'where': where, 'words': list(words), 'place': place}
      for where, words, place in occurrences
    ],
    'layers': layers,
  }


def write(figures: Mapping[str, Json], path: str | os.PathLike) -> None:
  """Writes the figures of `describe` atomically: HTML, JSON or a picture.

  The ending of the path chooses the format.
  """
  ending = pathlib.Path(path).suffix
  if ending == '.html':
    files.write_atomically(path, word_page.as_html(figures))
  elif ending == '.json':
    files.write_atomically(path, files.as_json(figures) + '\n')
  else:
    _draw(figures, path)


def summary(figures: Mapping[str, Json]) -> dict[str, float]:
  """Returns the numbers that the command prints."""
  return {
    'places': len(figures['rows']),
    **{
      f'layer {layer["layer"]}, mean cosine': layer['mean_cosine']
      for layer in figures['layers']
      if layer['mean_cosine'] is not None
    },
  }


def _draw(figures: Mapping[str, Json], path: epath.Path) -> None:
  """Draws each layer: its cosines above, its points below; then sentences.

  Colours mean the same in each layer, from the lowest to the highest cosine of
  two places.
  """
  layers = figures['layers']
  columns = min(len(layers), LAYERS_IN_A_ROW)
  bands = -(-len(layers) // columns)
  count = len(figures['rows'])
  width = PANEL * columns
  said = _sentences(figures['rows'], int(width * LETTERS))
  below = LINE * (len(said) + 1)
  height = 2 * PANEL * bands + 0.6 + below
  figure = pictures.figure(width, height)
  share = below / height
  figure.get_layout_engine().set(rect=(0, share, 1, 1 - share))
  figure.suptitle(
    pictures.shown(
      f'“{figures["word"]}” in {count} places, {figures["weights"]}'
    )
  )
  fonts = pictures.fonts(''.join(said))
  figure.text(
    LINE / width,
    share - LINE / height / 2,
    pictures.shown('\n'.join(said)),
    va='top',
    size=8,
    family=fonts,
    linespacing=LINE * 72 / 8 / 1.2,
  )
  grid = figure.subplots(2 * bands, columns, squeeze=False)
  names = [str(number) for number in range(1, count + 1)]
  step = max(1, count // 10)
  apart = ~np.eye(count, dtype=bool)
  others = np.concatenate([np.array(x['cosines'])[apart] for x in layers])
  low = others.min() if len(others) else 0.0
  high = max(others.max(), low + 1e-4) if len(others) else 1.0
  for axes in grid.flat:
    axes.set_visible(False)
  panels = []
  for number, layer in enumerate(layers):
    band, column = divmod(number, columns)
    above, under = grid[2 * band : 2 * band + 2, column]
    above.set_visible(True)
    under.set_visible(True)
    image = above.imshow(layer['cosines'], cmap='Blues', vmin=low, vmax=high)
    above.set_title(f'layer {layer["layer"]}', fontsize='medium')
    ticks = range(0, count, step)
    above.set_xticks(ticks, names[::step], fontsize='small')
    above.set_yticks(ticks, names[::step], fontsize='small')
    points = np.array(layer['points'])
    under.scatter(*points.T, s=12, color='tab:blue', zorder=3)
    shares = ', '.join(f'{share:.0%}' for share in layer['variance_shares'])
    under.set_title(f'components: {shares}', fontsize='small')
    under.axhline(0, color='lightgray', zorder=0)
    under.axvline(0, color='lightgray', zorder=0)
    under.margins(0.2)
    if not np.ptp(points):  # one vector everywhere, as in layer 0
      under.set_xlim(-1, 1)
      under.set_ylim(-1, 1)
    under.set_aspect('equal', 'datalim')
    under.tick_params(labelsize='x-small')
    panels.append((under, points, names))
  figure.colorbar(
    image,
    ax=list(grid[::2].flat),
    label='cosine of two places, in any layer',
    shrink=0.9,
  )
  pictures.label(figure, panels, size='small')
  pictures.save(figure, path, dpi=120)


def _sentences(rows: Sequence[Mapping[str, Any]], longest: int) -> list[str]:
  """Returns the numbered sentences, the word in brackets, cut around it."""
  lines = []
  for number, row in enumerate(rows, start=1):
    words, place = row['words'], row['place']
    before, after = ' '.join(words[:place]), ' '.join(words[place + 1 :])
    word = f'[{words[place]}]'
    room = max(0, longest - len(word) - 8)
    kept = max(room // 2, room - len(after))
    if len(before) > kept:
      before = '… ' + before[len(before) - kept :]
    kept = max(0, room - len(before))
    if len(after) > kept:
      after = after[:kept] + ' …'
    lines.append(f'{number}  {" ".join(filter(None, (before, word, after)))}')
  return lines
