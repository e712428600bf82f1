"""Translations found by the nearest mean vector in the other language.

Shapes: N sentence of each language, L layer with the embeddings, D the vectors'
width.
"""

import os
from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath

from train.host import console, pictures
from train.host.files import Json
from train.meanings import retrieval, tables
from train.vectors.request import Choice
from train.vectors.trained_model import TrainedModel

PANEL = 4.8, 3.8  # inches


def measure(
  found: TrainedModel, texts: Sequence[Sequence[str]], by_layer: bool = False
) -> dict[str, Json]:
  """Returns how many sentences find their translation by vectors, for JSON.

  `texts` are N sentences in each of two languages, in the same order. The
  figures are of all layers if `by_layer`, else of the last one; each layer has
  the accuracies of `retrieval.accuracies`.
  """
  choice = Choice('all' if by_layer else (-1,))
  vectors_2NLD = [embed(found, each, choice) for each in texts]
  names = tables.layer_names(found.model.num_layers + 1)
  names = names if by_layer else names[-1:]
  layers = []
  for number, name in enumerate(names):
    one_ND, other_ND = (each[:, number] for each in vectors_2NLD)
    layers.append({'layer': name, **retrieval.accuracies(one_ND, other_ND)})
  count = len(texts[0])
  return {
    'sentences': count,
    'chance': 1 / count,
    'neighbours': min(retrieval.NEIGHBOURS, count),
    'layers': layers,
  }


def embed(
  found: TrainedModel, texts: Sequence[str], choice: Choice
) -> np.ndarray:
  """Returns the mean vectors of texts, see `TrainedModel.means`.

  They are float32 [N, L, D], L the chosen layers.
  """
  vectors: list[np.ndarray | None] = [None] * len(texts)
  numbered = found.means(texts, choice)
  for number, mean in console.counted(numbered, len(texts), 'sentences'):
    vectors[number] = mean
  return np.stack(vectors)


def as_text(figures: Mapping[str, Json]) -> str:
  """Returns the table of accuracies: layers as rows, both directions a cell."""
  rows = [
    [
      layer['layer'],
      *(
        ' / '.join(
          f'{100 * layer[name][way]:.1f}' for way in retrieval.DIRECTIONS
        )
        for name, *_ in retrieval.WAYS
      ),
    ]
    for layer in figures['layers']
  ]
  first, second = figures['files']
  header = ['layer', *(name for name, *_ in retrieval.WAYS)]
  return tables.markdown(header, rows) + (
    f'\nAccuracy in %: lines of {first} that find their translation among the'
    f' {figures["sentences"]:,} lines of {second} / the other way round; by'
    f' chance {100 * figures["chance"]:.2g}.\n'
    'Centred: without the mean vector of each file. Margin: the cosine over'
    f' the mean cosine with the {figures["neighbours"]} nearest lines of the'
    ' other file.\n'
  )


def write_picture(figures: Mapping[str, Json], path: str | os.PathLike) -> None:
  """Writes the accuracies of each layer as a picture, PNG, atomically.

  Besides those of `measure`, `figures` has the names of the weights and of both
  files.
  """
  _draw(figures, path)


def _draw(figures: Mapping[str, Json], path: epath.Path) -> None:
  """Draws the accuracies by layer as PNG, a panel for each direction."""
  first, second = figures['files']
  layers = figures['layers']
  canvas = pictures.figure(2 * PANEL[0], PANEL[1])
  grid = canvas.subplots(1, 2, sharey=True)
  for axes, direction, (source, target) in zip(
    grid,
    retrieval.DIRECTIONS,
    ((first, second), (second, first)),
    strict=True,
  ):
    for name, criterion, centred in retrieval.WAYS:
      axes.plot(
        [100 * layer[name][direction] for layer in layers],
        color='C0' if criterion == 'cosine' else 'C1',
        linestyle='-' if centred else '--',
        marker='o' if centred else 's',
        markersize=4,
        label=name,
      )
    axes.axhline(
      100 * figures['chance'], color='#999999', linewidth=0.8, label='chance'
    )
    axes.set_title(
      pictures.shown(f'lines of {source}\namong those of {target}'),
      fontsize='medium',
    )
    axes.set_xticks(
      range(len(layers)),
      [layer['layer'].partition(' ')[0] for layer in layers],
    )
    axes.set_xlabel('layer; 0 is the embeddings')
    axes.set_ylim(-2, 102)  # chance is near 0
    axes.grid(alpha=0.3)
  grid[0].set_ylabel(f'translations found among {figures["sentences"]:,}, %')
  handles, labels = grid[0].get_legend_handles_labels()
  canvas.legend(handles, labels, loc='outside lower center', ncols=len(labels))
  canvas.suptitle(pictures.shown(figures['weights']), fontsize='small')
  pictures.save(canvas, path, dpi=200)
