"""Figures that are written as PNG files."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from etils import epath

from data import scratch
from train.host import console, labels

if TYPE_CHECKING:
  from matplotlib.axes import Axes
  from matplotlib.figure import Figure

FAR = 14  # pixels between a point and its name, from which a line joins them


def figure(width: float, height: float) -> 'Figure':
  """Returns an empty figure of so many inches."""
  import matplotlib.figure  # takes half a second

  return matplotlib.figure.Figure(figsize=(width, height), layout='constrained')


def save(figure: 'Figure', path: epath.PathLike, *, dpi: int) -> None:
  """Writes a figure as PNG; the file appears whole, or not at all."""
  with scratch.replacing(path) as new, new.open('wb') as file:
    with warnings.catch_warnings():
      # `fonts` tells of these once, in one line.
      warnings.filterwarnings('ignore', r'Glyph .* missing', UserWarning)
      figure.savefig(file, format='png', dpi=dpi)


def label(
  figure: 'Figure',
  panels: Sequence[tuple['Axes', np.ndarray, Sequence[str]]],
  lines: Sequence[Sequence[tuple[int, int]]] | None = None,
  **style: Any,
) -> None:
  """Writes names beside the points of axes so that none covers another.

  Args:
    figure: with all else drawn: labels are placed by its layout.
    panels: axes, points [N, 2] in their coordinates, and N names.
    lines: of each panel the numbers of points that lines join; None: no lines.
    **style: of the texts, as of `Axes.text`.
  """
  from matplotlib.backends import backend_agg

  renderer = backend_agg.FigureCanvasAgg(figure).get_renderer()
  figure.draw_without_rendering()
  figure.set_layout_engine(
    'none'
  )  # else labels would move what they are beside
  for number, (axes, points, names) in enumerate(panels):
    texts = [
      axes.text(0, 0, shown(name), ha='center', va='center', **style)
      for name in names
    ]
    sizes = [text.get_window_extent(renderer).size + 2 for text in texts]
    pixels = axes.transData.transform(points)
    bounds = axes.get_window_extent(renderer).extents
    joined = [pixels[list(pair)] for pair in lines[number]] if lines else ()
    centres = labels.place(pixels, sizes, tuple(bounds), joined)
    back = axes.transData.inverted()
    for text, point, size, centre in zip(
      texts, pixels, sizes, centres, strict=True
    ):
      text.set_position(back.transform(centre))
      away = np.abs(centre - point) - np.asarray(size) / 2
      if max(away) > FAR:  # a line leads from the name to its point
        edge = np.clip(point, centre - size / 2, centre + size / 2)
        axes.plot(
          *back.transform([point, edge]).T,
          color='gray',
          linewidth=0.6,
          zorder=1,
        )


def fonts(text: str) -> list[str]:
  """Returns the names of fonts that together have the letters of a text.

  A letter that no installed font has is a box in the figure; a line tells so.
  """
  from matplotlib import font_manager, ft2font

  names = ['DejaVu Sans']
  missing = {letter for letter in text if letter.isprintable()} - {'\ufe0f'}
  plain = font_manager.findfont(names[0])
  for path in [plain, *font_manager.findSystemFonts()]:
    if not missing:
      break
    try:
      font = ft2font.FT2Font(path)
    except (OSError, RuntimeError):  # of a form that it does not read
      continue
    found = {letter for letter in missing if ord(letter) in font.get_charmap()}
    if found:
      names.append(font.family_name)
      missing -= found
  if missing:
    shown = ' '.join(sorted(missing)[:10])
    console.say(
      f'no installed font has {shown}: a box stands for it in the picture'
    )
  return list(dict.fromkeys(names))


def shown(text: str) -> str:
  """Returns a user's text as a figure shows it: a dollar begins no formula."""
  return text.replace('$', r'\$')
