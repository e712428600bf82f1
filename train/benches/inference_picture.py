"""A picture of what systems take to read texts, by the length of a text."""

from collections.abc import Mapping

from etils import epath

from train.host import pictures

PANELS = {'ms alone': 'milliseconds, a text alone', 'texts/s': 'texts a second'}


def write(figures: Mapping[str, float], path: epath.PathLike) -> None:
  """Writes a PNG: a row of panels a use, a line a system.

  `figures` are of `inference.bench`: 'system | use | length | unit' -> figure.
  """
  points: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
  for name, figure in figures.items():
    system, use, length, unit = name.split(' | ')
    if unit in PANELS:
      lines = points.setdefault((use, unit), {})
      lines.setdefault(system, {})[int(length)] = figure
  uses = list(dict.fromkeys(use for use, _ in points))
  systems = list(dict.fromkeys(s for lines in points.values() for s in lines))
  figure = pictures.figure(11, 3.2 * len(uses))
  axes = figure.subplots(len(uses), len(PANELS), squeeze=False)
  for row, use in enumerate(uses):
    for column, (unit, text) in enumerate(PANELS.items()):
      panel = axes[row][column]
      for system, values in points[use, unit].items():
        style = dict(
          color=f'C{systems.index(system)}', marker='o', markersize=3
        )
        panel.plot(values.keys(), values.values(), label=system, **style)
      lengths = sorted(values)
      panel.set(
        xscale='log', yscale='log', title=f'{use}: {text}', xlabel='tokens'
      )
      panel.set_xticks(lengths, map(str, lengths), minor=False)
      panel.minorticks_off()
      panel.grid(alpha=0.3)
  handles = {}
  for panel in axes.flat:
    for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
      handles.setdefault(label, handle)
  figure.legend(
    handles.values(), handles.keys(), loc='outside right upper', fontsize=8
  )
  pictures.save(figure, path, dpi=110)
