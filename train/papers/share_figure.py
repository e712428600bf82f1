"""Scores by the share of the training set (Peters et al. 2018, Figure 1).

A panel for each column of the table, a curve for each of a user's weights.
"""

from collections.abc import Sequence
from typing import NamedTuple

from etils import epath

from configs.tables.base import Column, Table
from train.host import console, files, pictures
from train.host.files import Json
from train.papers.table_figures import Figure
from train.papers.table_rendering import Figures, Reasons
from train.papers.table_rows import Line

PANEL = 4.8, 3.8  # inches


class Curve(NamedTuple):
  """The figures of some weights in a column, by share of the training set.

  Attributes:
    points: share -> figure.
    missing: share -> the reason that its figure is missing.
  """

  name: str
  column: Column
  points: dict[float, Figure]
  missing: dict[float, str]


def check_has_curves(table: Table, lines: Sequence[Line]) -> None:
  """Raises a ValueError if there are no weights to draw a curve of."""
  if not any(line.is_own for line in lines):
    raise ValueError(
      f'--table {table.id} has a curve for each of your weights: expected'
      ' --weights NAME=WEIGHTS once or more'
    )


def find_curves(
  table: Table, lines: Sequence[Line], figures: Figures, reasons: Reasons
) -> list[Curve]:
  """Returns the curves, column by column; a row is NAME: SHARE of a curve."""
  shares = {row.name: row.share for row in table.rows if row.share}
  names = dict.fromkeys(
    line.name.rpartition(': ')[0] for line in lines if line.is_own
  )
  curves = []
  for column in table.columns:
    for name in names:
      points, missing = {}, {}
      for row, share in shares.items():
        key = f'{name}: {row}', column.name
        if key in figures:
          points[share] = figures[key]
        else:
          missing[share] = reasons.get(key, 'has not been run')
      curves.append(Curve(name, column, points, missing))
  return curves


def write(table: Table, curves: Sequence[Curve], stem: epath.Path) -> None:
  """Writes STEM.json, and STEM.png if there is a point to draw."""
  files.write_atomically(
    stem.with_name(f'{stem.name}.json'),
    files.as_json(as_dict(table, curves)) + '\n',
  )
  path = stem.with_name(f'{stem.name}.png')
  if not any(curve.points for curve in curves):
    console.say(f'{path} is not drawn: no point of a curve has been run')
    return
  draw(curves, path)


def as_dict(table: Table, curves: Sequence[Curve]) -> dict[str, Json]:
  """Returns each curve's points, and its missing ones, for JSON."""
  return {
    'table': table.id,
    'source': table.source,
    'curves': [
      {
        'column': curve.column.name,
        'name': curve.name,
        'points': [
          {
            'share': share,
            'train_size': figure.train_size,
            'mean': figure.mean,
            'std': figure.deviation,
            'values': list(figure.values),
          }
          for share, figure in curve.points.items()
        ],
        'missing': [
          {'share': share, 'reason': reason}
          for share, reason in curve.missing.items()
        ],
      }
      for curve in curves
    ],
  }


def draw(curves: Sequence[Curve], path: epath.Path) -> None:
  """Draws the curves as PNG; bars are the seeds' standard deviation."""
  panels: dict[str, list[Curve]] = {}
  for curve in curves:
    if curve.points:
      panels.setdefault(curve.column.name, []).append(curve)
  figure = pictures.figure(PANEL[0] * len(panels), PANEL[1])
  grid = figure.subplots(1, len(panels), squeeze=False)[0]
  # A curve has its colour in every panel.
  colours = {
    name: f'C{number}'
    for number, name in enumerate(dict.fromkeys(c.name for c in curves))
  }
  for axes, (title, drawn) in zip(grid, panels.items(), strict=True):
    for curve in drawn:
      scale = 100 if curve.column.percent else 1
      found = curve.points.values()
      axes.errorbar(
        [100 * share for share in curve.points],
        [scale * each.mean for each in found],
        yerr=[scale * (each.deviation or 0.0) for each in found],
        color=colours[curve.name],
        marker='o',
        markersize=4,
        capsize=3,
        label=pictures.shown(curve.name),
      )
    axes.set_xscale('log')
    shares = sorted({share for c in drawn for share in (*c.points, *c.missing)})
    axes.set_xticks(
      [100 * share for share in shares],
      [f'{100 * share:g}' for share in shares],
    )
    axes.minorticks_off()
    axes.set_xlim(80 * shares[0], 125 * shares[-1])
    axes.set_title(title)
    axes.set_xlabel('training examples, % of all')
    axes.grid(alpha=0.3)
    axes.legend(loc='lower right')
  grid[0].set_ylabel('score on dev; bars: ± one standard deviation')
  pictures.save(figure, path, dpi=200)
