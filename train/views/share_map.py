"""What each head attends to, as a mean over the texts of a file.

Shapes: L layer, N head.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath

from data import scratch
from models.pretrained.weights import Weights
from train.host import files, pictures
from train.vectors.trained_model import TrainedModel
from train.views import attention_shares, attention_weights
from train.views.attention_shares import MEASURES
from train.views.attention_texts import ShownText

COLUMNS = 4  # of maps in the picture


def run(
  weights: epath.PathLike | Weights,
  texts: Sequence[ShownText],
  out: str | os.PathLike,
  json_file: str | os.PathLike,
  *,
  source: str = '',
  tokenizer: epath.PathLike | None = None,
) -> dict[str, float]:
  """Draws the mean shares of each head, writes them; returns a few means.

  For `weights` and `tokenizer` see `attention_weights.open_model`; `source`,
  the file of the texts, is in the figure and in messages. Raises ValueError or
  OSError for bad input; then no file is written.
  """
  found = attention_weights.open_model(weights, tokenizer)
  named = f'{source}, line' if source else 'text'
  means, counts = measure(found, texts, named)
  title = f'{found.folder.name}, a mean over {len(texts):,} texts'
  if source:
    title += f' of {epath.Path(source).name}'
  figures = {
    'weights': str(found.folder),
    'sentences': source,
    'texts': len(texts),
    'measures': {
      name: {
        'of': MEASURES[name][1],
        'texts': counts[name],
        'mean': float(mean_LN.mean()),
        'heads': mean_LN.tolist(),
      }
      for name, mean_LN in means.items()
    },
  }
  with scratch.replacing(out) as new:
    draw(means, new, title)
    files.write_atomically(json_file, files.as_json(figures) + '\n')
  return {'texts': len(texts)} | {
    f'mean share of {MEASURES[name][0]}': float(mean_LN.mean())
    for name, mean_LN in means.items()
  }


def measure(
  found: TrainedModel, texts: Sequence[ShownText], named: str = 'text'
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
  """Returns each measure's mean shares [L, N], and its number of texts.

  The mean is over the texts that have the measure, see
  `attention_shares.measure`; each text counts once, however long it is.
  """
  causal = not found.family.reads_both_ways(found.model)
  null_key = getattr(found.model, 'null_key', False)
  totals: dict[str, float | np.ndarray] = defaultdict(float)
  counts: dict[str, int] = defaultdict(int)
  for attention in attention_weights.attend(found, texts, named):
    shares = attention_shares.measure(
      attention, causal=causal, null_key=null_key
    )
    for name, share_LN in shares.items():
      totals[name] = totals[name] + share_LN
      counts[name] += 1
  named = [name for name in MEASURES if name in counts]
  return {name: totals[name] / counts[name] for name in named}, dict(counts)


def draw(
  means: Mapping[str, np.ndarray], path: epath.PathLike, title: str
) -> None:
  """Draws a map of layers by heads for each measure, as PNG."""
  rows = -(-len(means) // COLUMNS)
  L, N = next(iter(means.values())).shape
  width, height = 0.9 + max(1.6, 0.17 * N), 0.8 + max(1.4, 0.17 * L)
  figure = pictures.figure(COLUMNS * width + 0.8, rows * height + 0.3)
  grid = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
  for axes in grid[len(means) :]:
    axes.set_axis_off()
  figure.suptitle(pictures.shown(title), x=0.01, ha='left', fontsize='small')
  image = None
  for axes, (name, mean_LN) in zip(grid, means.items(), strict=False):
    image = axes.imshow(
      mean_LN,
      vmin=0,
      vmax=1,
      cmap='Blues',
      aspect='auto',
      extent=(0.5, N + 0.5, L + 0.5, 0.5),
    )
    axes.set_title(
      f'{MEASURES[name][0]}: {mean_LN.mean():.3f}', loc='left', fontsize='small'
    )
    axes.set_xticks(range(1, N + 1, -(-N // 6)))
    axes.set_yticks(range(1, L + 1, -(-L // 6)))
    axes.tick_params(labelsize='x-small')
  figure.supxlabel('head', fontsize='small')
  figure.supylabel('layer', fontsize='small')
  figure.colorbar(
    image, ax=list(grid), label='mean share of attention', shrink=0.8
  )
  pictures.save(figure, path, dpi=150)
