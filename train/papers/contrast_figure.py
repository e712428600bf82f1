"""A paper's arguments as differences with their intervals, one panel each."""

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from etils import epath

from train.host import pictures
from train.papers.contrasts import HIDDEN, HOLDS, REVERSED, Difference

if TYPE_CHECKING:
  from matplotlib.axes import Axes

# Inches.
HEIGHT = 12.0  # at most, and from which panels stand side by side
WIDTH = 4.4  # of a panel
ROW, HEAD, EDGES = 0.2, 0.75, 1.1
LINE = 62  # letters of a panel's title
COLOURS = {HOLDS: 'C0', REVERSED: 'C3', HIDDEN: 'gray', '': 'lightgray'}


def write(
  title: str, differences: Sequence[Difference], path: epath.Path
) -> None:
  """Draws the differences as PNG: ours with intervals, the paper's as crosses.

  To the right of 0 the argument holds. All panels have a row for each column.
  """
  panels: dict[str, list[Difference]] = {}
  for each in differences:
    panels.setdefault(each.contrast.claim, []).append(each)
  names = [*dict.fromkeys(each.column for each in differences)]
  height = HEAD + ROW * len(names)
  across = math.ceil(len(panels) * height / (HEIGHT - EDGES))
  down = math.ceil(len(panels) / across)
  figure = pictures.figure(
    WIDTH * across + 1 + 2 * (across == 1), height * down + EDGES
  )
  grid = figure.subplots(down, across, squeeze=False, sharey=True)
  for axes in grid.flat[len(panels) :]:
    axes.set_axis_off()
  for axes, (claim, rows) in zip(grid.flat, panels.items(), strict=False):
    _draw(axes, claim, rows, names)
  for verdict, colour in COLOURS.items():
    if verdict:
      grid.flat[0].errorbar(
        [], [], xerr=[], color=colour, marker='o', label=f'ours: {verdict}'
      )
  if any(each.published is not None for each in differences):
    grid.flat[0].scatter([], [], color='black', marker='x', label='published')
  figure.legend(
    loc='outside lower center',
    ncols=4,
    fontsize=8,
    title='difference of scores in points (of perplexities in per cent), with'
    ' its 95 % interval',
    title_fontsize=8,
  )
  figure.suptitle(title, fontsize=11)
  pictures.save(figure, path, dpi=150)


def _draw(
  axes: 'Axes', claim: str, rows: Sequence[Difference], names: Sequence[str]
) -> None:
  for each in rows:
    place = names.index(each.column)
    axes.errorbar(
      each.mean,
      place,
      xerr=each.bound,
      color=COLOURS[each.verdict],
      marker='o',
      markersize=4,
      capsize=3,
    )
    if each.published is not None:
      axes.scatter(each.published, place, color='black', marker='x', zorder=3)
  axes.axvline(0, color='black', linewidth=0.8)
  axes.set_yticks(range(len(names)), names, fontsize=8)
  axes.set_ylim(len(names) - 0.5, -0.5)
  axes.tick_params(axis='x', labelsize=8)
  axes.grid(axis='x', alpha=0.3)
  lines = [*textwrap.wrap(claim, LINE), describe_verdicts(rows)]
  axes.set_title('\n'.join(lines), loc='left', fontsize=9)


def describe_verdicts(rows: Sequence[Difference]) -> str:
  """Returns in how many columns an argument holds, is reversed or hidden."""
  counts = Counter(each.verdict for each in rows if each.verdict)
  if len(rows) == 1:
    return rows[0].verdict
  return ', '.join(
    f'{verdict} in {counts[verdict]}' for verdict in COLOURS if counts[verdict]
  )
