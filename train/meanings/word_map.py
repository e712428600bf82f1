"""One word in many sentences: cosines and a picture of each layer, in a file.

Shapes: N occurrence, L layer with the embeddings, D the vectors' width.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence

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
  """Draws each layer: its cosines above, its points below."""
  layers = figures['layers']
  columns = min(len(layers), LAYERS_IN_A_ROW)
  bands = -(-len(layers) // columns)
  count = len(figures['rows'])
  figure = pictures.figure(PANEL * columns, 2 * PANEL * bands + 0.6)
  figure.suptitle(
    f'“{figures["word"]}” in {count} places, {figures["weights"]}'.replace(
      '$', r'\$'
    )
  )
  grid = figure.subplots(2 * bands, columns, squeeze=False)
  names = range(1, count + 1)
  step = max(1, count // 10)
  for axes in grid.flat:
    axes.set_visible(False)
  for number, layer in enumerate(layers):
    band, column = divmod(number, columns)
    above, below = grid[2 * band : 2 * band + 2, column]
    above.set_visible(True)
    below.set_visible(True)
    cosines = np.array(layer['cosines'])
    others = cosines[~np.eye(count, dtype=bool)]
    low = others.min() if len(others) else 0.0
    high = max(others.max(), low + 1e-4) if len(others) else 1.0
    image = above.imshow(cosines, cmap='Blues', vmin=low, vmax=high)
    figure.colorbar(image, ax=above, shrink=0.7)
    above.set_title(f'layer {layer["layer"]}', fontsize='medium')
    ticks = range(0, count, step)
    above.set_xticks(ticks, names[::step], fontsize='small')
    above.set_yticks(ticks, names[::step], fontsize='small')
    points = np.array(layer['points'])
    below.scatter(*points.T, s=12, color='tab:blue')
    for name, place in zip(names, points, strict=True):
      below.annotate(
        str(name),
        place,
        xytext=(3, 3),
        textcoords='offset points',
        fontsize='small',
      )
    shares = ', '.join(f'{share:.0%}' for share in layer['variance_shares'])
    below.set_title(f'components: {shares}', fontsize='small')
    below.axhline(0, color='lightgray', zorder=0)
    below.axvline(0, color='lightgray', zorder=0)
    below.set_aspect('equal', 'datalim')
    below.tick_params(labelsize='x-small')
  pictures.save(figure, path, dpi=120)
