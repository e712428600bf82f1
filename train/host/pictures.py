"""Figures that are written as PNG files."""

import warnings
from typing import TYPE_CHECKING

from etils import epath

from data import scratch
from train.host import console

if TYPE_CHECKING:
  from matplotlib.figure import Figure


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
