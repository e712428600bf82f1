"""A paper's arguments as differences with their intervals, one panel each."""

from collections.abc import Sequence

from etils import epath

from train.host import pictures
from train.papers.contrasts import Difference

WIDTH = 7.0  # inches
ROW = 0.32  # of a column of a panel
HEAD = 0.75


def write(
  title: str, differences: Sequence[Difference], path: epath.Path
) -> None:
  """Draws the differences as PNG: ours with intervals, the paper's as crosses.

  To the right of 0 the argument holds.
  """
  panels: dict[str, list[Difference]] = {}
  for each in differences:
    panels.setdefault(each.contrast.claim, []).append(each)
  heights = [HEAD + ROW * len(rows) for rows in panels.values()]
  figure = pictures.figure(WIDTH, sum(heights) + HEAD)
  grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[
    :, 0
  ]
  for axes, (claim, rows) in zip(grid, panels.items(), strict=True):
    for place, each in enumerate(rows):
      bars = None
      if each.low is not None:
        bars = [[each.mean - each.low], [each.high - each.mean]]
      axes.errorbar(
        each.mean,
        place,
        xerr=bars,
        color='C0',
        marker='o',
        capsize=3,
        label='ours, 95 % interval' if place == 0 else None,
      )
    printed = [
      (each.published, place)
      for place, each in enumerate(rows)
      if each.published is not None
    ]
    if printed:
      axes.scatter(*zip(*printed, strict=True), color='C1', marker='x')
    axes.axvline(0, color='black', linewidth=0.8)
    axes.set_yticks(range(len(rows)), [each.column for each in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_title(claim, loc='left', fontsize=10)
    axes.grid(axis='x', alpha=0.3)
  if any(each.published is not None for each in differences):
    grid[0].scatter([], [], color='C1', marker='x', label='published')
  grid[0].legend(fontsize=8)
  grid[-1].set_xlabel(
    'difference of scores, points (of perplexities: per cent)'
  )
  figure.suptitle(title)
  pictures.save(figure, path, dpi=150)
