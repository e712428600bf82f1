"""Figures that are written as PNG files."""

from typing import TYPE_CHECKING

from etils import epath

from data import scratch

if TYPE_CHECKING:
  from matplotlib.figure import Figure


def figure(width: float, height: float) -> 'Figure':
  """Returns an empty figure of so many inches."""
  import matplotlib.figure  # takes half a second

  return matplotlib.figure.Figure(figsize=(width, height), layout='constrained')


def save(figure: 'Figure', path: epath.PathLike, *, dpi: int) -> None:
  """Writes a figure as PNG; the file appears whole, or not at all."""
  with scratch.replacing(path) as new, new.open('wb') as file:
    figure.savefig(file, format='png', dpi=dpi)


def shown(text: str) -> str:
  """Returns a user's text as a figure shows it: a dollar begins no formula."""
  return text.replace('$', r'\$')
