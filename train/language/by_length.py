"""Perplexity by the length of texts: each line is a text of its own."""

import bisect
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from data.text import detokenize
from train.host import console
from train.host.files import Json
from train.language import inputs, scoring
from train.vectors.token_windows import Window
from train.vectors.trained_model import TrainedModel

LINES = 4096  # scored together; sorted by length


def score_lines(
  found: TrainedModel,
  text: str,
  *,
  unit: str,
  bins: Sequence[int] = inputs.LENGTHS,
  context: int | None = None,
  stride: int | None = None,
  detokenizer: str = 'none',
) -> dict[str, Json]:
  """Returns the figures of all lines of a text, and of the lines of each bin.

  Each line is scored by itself, without its first token; blank lines are left
  out, and lines of one token have nothing to score. A bin has lines of similar
  length, in 'words' set apart by white space or in 'tokens'; `bins` are the
  longest lengths of the bins, and one more bin has all longer lines.
  `scoring.score_text` describes the other arguments. The nats and the scored
  tokens of the bins add up to those of the whole text.
  """
  context, stride = scoring.window_sizes(found, context, stride)
  lines = [line for line in text.split('\n') if line.strip()]
  undo = detokenize.DETOKENIZERS[detokenizer]
  rows = np.zeros((len(bins) + 1, 5))
  with console.ProgressBar(0, len(lines)) as bar:
    for start in range(0, len(lines), LINES):
      part = lines[start : start + LINES]
      tokens = found.encode([undo(line) for line in part])
      nats = _nats(found, tokens, context, stride)
      for line, ids, lost in zip(part, tokens, nats, strict=True):
        words = len(line.split())
        length = words if unit == 'words' else len(ids)
        scored = max(len(ids) - 1, 0)
        row = bisect.bisect_left(bins, length)
        rows[row] += 1, words, len(ids), scored, lost
      bar.update(start + len(part), '')
  if not rows[:, 3].any():
    raise ValueError(
      f'{len(lines):,} lines, none of 2 tokens or more: the first token is'
      ' not predicted, so there is nothing to score'
    )
  firsts = [1, *(last + 1 for last in bins)]
  by_length = [
    {'unit': unit, 'from': first, 'to': last, **_figures(row)}
    for first, last, row in zip(firsts, (*bins, None), rows, strict=True)
    if row[0]
  ]
  return {
    **_figures(rows.sum(axis=0)),
    'context': context,
    'stride': stride,
    'detokenizer': detokenizer,
    'by_length': by_length,
  }


def _nats(
  found: TrainedModel,
  tokens: Sequence[Sequence[int]],
  context: int,
  stride: int,
) -> np.ndarray:
  """Returns the nats of each text's tokens but the first, float64 [texts]."""
  windows = [
    (number, window)
    for number, ids in enumerate(tokens)
    if len(ids) > 1
    for window in scoring.windows_of(len(ids), context, stride)
  ]

  def width(item: tuple[int, Window]) -> int:
    return (item[1].end - item[1].start - 2) // scoring.WIDTH_STEP

  nats = np.zeros(len(tokens))
  for _, group in itertools.groupby(sorted(windows, key=width), width):
    group = list(group)
    scores = scoring.score_sequences(
      found.model,
      found.params,
      [tokens[number][window.start : window.end] for number, window in group],
    )
    for (number, window), values in zip(group, scores, strict=True):
      new = values[-(window.last - window.first) :]
      nats[number] -= new.astype(np.float64).sum()
  return nats


def _figures(row: np.ndarray) -> dict[str, float | None]:
  """Returns the named sums of lines, and their perplexity."""
  *counts, nats = row.tolist()
  names = ('lines', 'words', 'tokens', 'scored_tokens')
  figures = {name: int(n) for name, n in zip(names, counts, strict=True)}
  mean = nats / figures['scored_tokens'] if figures['scored_tokens'] else None
  perplexity = None if mean is None else scoring.perplexity(mean)
  return {**figures, 'nats': nats, 'perplexity': perplexity}


def shown(figures: Mapping[str, Json]) -> dict[str, Json]:
  """Returns figures to print, with a line of text for each bin."""
  rows = {}
  for row in figures['by_length']:
    last = row['to']
    name = f'{row["from"]} to {last}' if last else f'{row["from"]} or more'
    value = row['perplexity']
    rows[f'perplexity, {name} {row["unit"]}'] = (
      f'{"none" if value is None else f"{value:,.6g}"} ({row["lines"]:,} lines,'
      f' {row["scored_tokens"]:,} tokens)'
    )
  return {**figures, **rows}
