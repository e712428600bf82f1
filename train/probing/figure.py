"""The weights of layers of each task as bars (Tenney et al. 2019b, fig. 2)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from etils import epath

from train.host import pictures
from train.probing.plan import Record

if TYPE_CHECKING:
  from matplotlib.lines import Line2D

PANEL = 5.5, 1.15  # inches


def draw(title: str, records: Sequence[Record], path: epath.Path) -> None:
  """Draws the softmax weights of the mix of all layers as PNG.

  Each task with such a mix has a row, with its expected layer and its centre of
  gravity as lines; error bars are the intervals over seeds.
  """
  drawn = [x for x in records if x['figures']['shares']]
  canvas = pictures.figure(PANEL[0], 0.9 + PANEL[1] * max(len(drawn), 1))
  # They may lie outside of a panel, so the title has the numbers.
  lines: dict[str, Line2D] = {}
  grid = canvas.subplots(max(len(drawn), 1), 1, squeeze=False, sharex=True)
  for (axes,), record in zip(grid, drawn, strict=False):
    figures = record['figures']
    shares = figures['shares']
    axes.bar(
      range(len(shares)),
      [share['mean'] for share in shares],
      yerr=[share['interval'] or 0.0 for share in shares],
      color='#7aa6d8',
      ecolor='#555555',
      error_kw={'linewidth': 0.8},
    )
    said = [record['title']]
    for name, label, style, colour in (
      ('expected_layer', 'expected layer', '--', 'C3'),
      ('centre', 'centre of gravity', '-', 'C0'),
    ):
      value = figures[name]['mean']
      if value is not None:
        said.append(f'{label} {value:.2f}')
        lines[label] = axes.axvline(
          value, color=colour, linestyle=style, linewidth=1.5
        )
    axes.set_title(
      pictures.shown(', '.join(said)), loc='left', fontsize='medium'
    )
    axes.axhline(1 / len(shares), color='#999999', linewidth=0.6)
    axes.set_xlim(-0.6, len(shares) - 0.4)
    axes.set_ylim(0, None)
    axes.spines[['top', 'right']].set_visible(False)
  last = grid[-1][0]
  if drawn:
    count = len(drawn[0]['figures']['shares'])
    last.set_xticks(range(0, count, 1 if count < 16 else 2))
    last.set_xlabel('layer; the grey line is an equal share')
    canvas.legend(
      lines.values(), lines, loc='outside upper right', fontsize='small'
    )
  else:
    last.text(0.5, 0.5, 'no mix of all layers was trained', ha='center')
  canvas.supylabel('weight of a layer in the mix', fontsize='medium')
  canvas.suptitle(pictures.shown(title), x=0.01, ha='left', fontsize='small')
  pictures.save(canvas, path, dpi=200)
