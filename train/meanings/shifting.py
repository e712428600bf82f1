"""Shift invariance: a text's vectors when all its positions are moved.

BERT, GPT and GPT-2 learn a vector for each position, so a text that begins at
position k has other vectors than at position 0. Here k is added to the position
ids of the whole text, [CLS] and [SEP] included; nothing is put before it.

Shapes: B batch, T position, L layer with the embeddings, D embed.
"""

from collections.abc import Mapping, Sequence

import jax
import numpy as np
from etils import epath

from train.host.files import Json
from train.meanings import geometry, tables
from train.vectors import text_counts, text_layers
from train.vectors.request import Choice, Request
from train.vectors.trained_model import TrainedModel

_layers = jax.jit(
  text_layers.hidden_layers, static_argnames=('model', 'family')
)


def measure(
  found: TrainedModel, file: epath.PathLike, shifts: Sequence[int]
) -> dict[str, Json]:
  """Returns how far the vectors of a file's lines move by shifts, for JSON.

  For each shift and layer: the mean and the lowest cosine of a token's vectors
  before and after, over all tokens of all texts but [CLS] and [SEP]; and the
  mean distance, relative to the length of the vector before. For comparison,
  `next_token_cosine` is the mean cosine of a token and the next one, unmoved.
  Raises ValueError, with the number of the line, for a text that leaves the
  model's positions; and for a file without tokens.
  """
  plan = found.plan(Request('token', choice=Choice('all')))
  model, params = found.prepared()
  most = model.max_length
  encoded = found.encode(list(text_counts.lines(file)))
  for number, ids in enumerate(encoded, start=1):
    length = len(ids) + plan.added
    if length + max(shifts) > most:
      raise ValueError(
        f'{file}, line {number:,} has {length} tokens, with --shift='
        f'{max(shifts)} up to position {length + max(shifts)}; expected {most}'
        ' at most, the positions of the model'
      )
  if not any(encoded):
    raise ValueError(f'{file}: no line has a token, expected texts')
  moved: dict[int, list[np.ndarray]] = {shift: [] for shift in shifts}
  scale = []
  items = [item for item in enumerate(encoded) if item[1]]
  for batch, inputs in text_layers.batches(plan, items):

    def layers_at(
      shift: int, inputs: tuple[np.ndarray, np.ndarray] = inputs
    ) -> np.ndarray:
      found = _layers(model, params, *inputs, shift, family=plan.family)
      return np.asarray(found).swapaxes(0, 1)

    before = layers_at(0)
    after = {shift: layers_at(shift) for shift in shifts}
    for row, ids in enumerate(batch.texts):
      own = slice(len(plan.begin), len(plan.begin) + len(ids))
      old = before[row, :, own]
      scale.append(_cosines(old[:, :-1], old[:, 1:]))
      for shift in shifts:
        new = after[shift][row, :, own]
        lengths = np.maximum(np.linalg.norm(old, axis=-1), 1e-12)
        far = np.linalg.norm(new - old, axis=-1) / lengths
        moved[shift].append(np.stack([_cosines(old, new), far]))
  names = tables.layer_names(model.num_layers + 1)
  next_token = np.concatenate(scale, axis=-1)
  results = []
  for shift, parts in moved.items():
    cosines_LN, distances_LN = np.concatenate(parts, axis=-1)
    results.append(
      {
        'shift': shift,
        'cosine': dict(zip(names, cosines_LN.mean(1).tolist(), strict=True)),
        'lowest_cosine': dict(
          zip(names, cosines_LN.min(1).tolist(), strict=True)
        ),
        'distance': dict(
          zip(names, distances_LN.mean(1).tolist(), strict=True)
        ),
      }
    )
  figures = {
    'texts': len(encoded),
    'tokens': sum(map(len, encoded)),
    'shifts': results,
  }
  if next_token.shape[1]:
    values = next_token.mean(axis=1).tolist()
    figures['next_token_cosine'] = dict(zip(names, values, strict=True))
  return figures


def _cosines(one_LTD: np.ndarray, other_LTD: np.ndarray) -> np.ndarray:
  """Returns the cosines of vectors in pairs, float64 [L, T]."""
  products = geometry.unit(one_LTD) * geometry.unit(other_LTD)
  return np.clip(products.sum(axis=-1), -1.0, 1.0)


def as_text(figures: Mapping[str, Json]) -> str:
  """Returns the table of mean cosines, a row a shift, a column a layer."""
  names = list(figures['shifts'][0]['cosine'])
  rows = [
    [str(each['shift']), *(f'{x:.4f}' for x in each['cosine'].values())]
    for each in figures['shifts']
  ]
  if 'next_token_cosine' in figures:
    scale = figures['next_token_cosine'].values()
    rows.append(['next token, shift 0', *(f'{value:.4f}' for value in scale)])
  header = ['shift', *(f'layer {name}' for name in names)]
  return tables.markdown(header, rows) + (
    f'\nMean cosine of a token with itself at other positions,'
    f' {figures["tokens"]:,} tokens of {figures["texts"]:,} texts.\n'
  )
