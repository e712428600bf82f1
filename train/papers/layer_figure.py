"""The learned weights of layers as a heat map (Peters et al. 2018, Figure 2).

The figure is drawn as PNG, and its numbers are written as JSON, Markdown and
LaTeX.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from configs.tables.base import Table
from train.host import files, pictures
from train.host.files import Json
from train.papers import table_rendering
from train.papers.layer_weights import (
  PLACES,
  Mix,
  WeightsRow,
  average,
  find_runs,
  read_row,
)

CELL = 0.75, 0.5  # inches
OPTIONS = ('weights', 'dry_run')  # of the command that it takes


class WeightCurve(NamedTuple):
  """A row of the figure at one place; `deviation` is None for one run."""

  label: str
  mean: Mix
  deviation: Mix | None


def make(
  table: Table,
  out: epath.PathLike,
  *,
  weights: Sequence[str],
  unused: Sequence[str] = (),
  dry_run: bool = False,
) -> bool:
  """Writes OUT/TABLE.png, .json, .md and .tex, and prints the Markdown.

  `weights` are NAME=WORKDIR, see `layer_weights.find_runs`; all are read before
  the first file is written, and with `dry_run` none is written. `unused` are
  options of a command that a figure does not have. Returns True; raises
  ValueError or OSError for bad input.
  """
  if unused or not weights:
    without = f', and not {" ".join(unused)}' if unused else ''
    raise ValueError(
      f'--table {table.id} is drawn from finished runs: expected --weights'
      f' NAME=WORKDIR once or more{without}'
    )
  files.check_folder('--out', out)
  runs = find_runs(weights)
  import jax  # after the cheap checks

  # An accelerator belongs to a run, which may be at work.
  jax.config.update('jax_platforms', 'cpu')
  rows = [read_row(name, workdirs) for name, workdirs in runs.items()]
  page = lay_out(table, rows)
  markdown = table_rendering.as_markdown(page)
  if not dry_run:
    out = epath.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    stem = table.id.replace('/', '_')
    draw(rows, out / f'{stem}.png')
    for ending, text in (
      ('json', files.as_json(as_dict(table, rows)) + '\n'),
      ('md', markdown),
      ('tex', table_rendering.as_latex(page, stem)),
    ):
      files.write_atomically(out / f'{stem}.{ending}', text)
  print(markdown, end='')
  return True


def as_dict(table: Table, rows: Sequence[WeightsRow]) -> dict[str, Json]:
  """Returns mean, deviation and each run's figures, for JSON."""

  def of_place(row: WeightsRow, place: str) -> dict[str, Json]:
    mean, deviation = average(row.mixes[place])
    return {
      **mean._asdict(),
      'std': None if deviation is None else deviation._asdict(),
      'runs': [
        {'workdir': workdir, **mix._asdict()}
        for workdir, mix in zip(row.workdirs, row.mixes[place], strict=True)
      ],
    }

  return {
    'table': table.id,
    'source': table.source,
    'rows': [
      {'name': row.name, 'task': row.task}
      | {place: of_place(row, place) for place in row.mixes}
      for row in rows
    ],
  }


def lay_out(
  table: Table, rows: Sequence[WeightsRow]
) -> table_rendering.TablePage:
  """Returns the page with a table for each place, and the runs of each row."""
  sheets = []
  for place, lines in _panels(rows).items():
    columns = _layer_names(lines)
    cells = []
    for label, mean, deviation in lines:
      *shares, gamma = _texts(mean, deviation, ' ')
      shares += [''] * (len(columns) - len(shares))
      cells.append((label, *shares, gamma))
    header = ('', *columns, 'gamma')
    sheets.append(table_rendering.Sheet(place.title(), header, tuple(cells)))
  read = [f'{row.name} ({row.task}): {", ".join(row.workdirs)}' for row in rows]
  lists = ('Notes', table.notes), ('Runs', tuple(read))
  return table_rendering.TablePage(
    table.title, table.source, tuple(sheets), lists
  )


def draw(rows: Sequence[WeightsRow], path: epath.Path) -> None:
  """Draws the heat map as PNG: a panel for each place, numbers in the cells."""
  panels = _panels(rows)
  names = [_label(row) for row in rows]
  counts = [len(_layer_names(lines)) for lines in panels.values()]
  # One scale for all panels, from 0 to the next tenth.
  largest = max(
    max(line.mean.weights) for lines in panels.values() for line in lines
  )
  top = np.ceil(10 * largest - 1e-9) / 10
  figure = pictures.figure(
    2.5 + CELL[0] * sum(count + 1.2 for count in counts),
    1.4 + CELL[1] * len(rows),
  )
  grid = figure.subplots(
    1,
    len(panels),
    squeeze=False,
    sharey=True,
    width_ratios=[count + 1.1 for count in counts],
  )[0]
  for axes, count, (place, lines) in zip(
    grid, counts, panels.items(), strict=True
  ):
    shares = np.full((len(rows), count), np.nan)
    for label, mean, deviation in lines:
      y = names.index(label)
      shares[y, : len(mean.weights)] = mean.weights
      for x, text in enumerate(_texts(mean, deviation, '\n')):
        x = count if x == len(mean.weights) else x  # gamma is last
        dark = x < count and shares[y, x] > 0.6 * top
        axes.text(
          x,
          y,
          text,
          ha='center',
          va='center',
          color='white' if dark else 'black',
          fontsize='small',
        )
    image = axes.pcolormesh(
      np.arange(count + 1) - 0.5,
      np.arange(len(rows) + 1) - 0.5,
      np.ma.masked_invalid(shares),
      cmap='Blues',
      vmin=0,
      vmax=top,
      edgecolors='white',
      linewidth=1,
    )
    axes.set_title(place.title())
    axes.set_xlim(-0.5, count + 0.6)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(count + 1), [*_layer_names(lines), r'$\gamma$'])
    axes.set_yticks(range(len(rows)), [pictures.shown(name) for name in names])
    axes.set_xlabel('layer')
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
  figure.colorbar(image, ax=grid, label='softmax weight')
  pictures.save(figure, path, dpi=200)


def _panels(rows: Sequence[WeightsRow]) -> dict[str, list[WeightCurve]]:
  """Returns place -> its rows, of places that have any."""
  panels = {
    place: [
      WeightCurve(_label(row), *average(row.mixes[place]))
      for row in rows
      if place in row.mixes
    ]
    for place in PLACES
  }
  return {place: lines for place, lines in panels.items() if lines}


def _layer_names(lines: Sequence[WeightCurve]) -> list[str]:
  """Returns the names of the columns: token, 1, 2, ... of the deepest model."""
  count = max(len(line.mean.weights) for line in lines)
  return ['token', *map(str, range(1, count))]


def _label(row: WeightsRow) -> str:
  count = len(row.workdirs)
  return row.name if count == 1 else f'{row.name} ({count} runs)'


def _texts(mean: Mix, deviation: Mix | None, separator: str) -> list[str]:
  """Returns each weight and last gamma, with deviations if there are any."""
  means = [f'{value:.2f}' for value in (*mean.weights, mean.gamma)]
  if deviation is None:
    return means
  errors = (*deviation.weights, deviation.gamma)
  return [
    f'{text}{separator}± {error:.2f}'
    for text, error in zip(means, errors, strict=True)
  ]
