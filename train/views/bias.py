"""Attention of pronouns to occupations, with and against a stereotype.

For each sentence and layer: the attention that the pronoun pays to the right
occupation, over its attention to both occupations, each a mean over heads and
tokens of the pronoun, and a sum over tokens of the occupation. 0.5 is no
preference. In 1,522 of WinoBias' 1,584 pairs the two sentences differ in the
pronoun alone, in most others in a second pronoun too.

Shapes: B sentence, T query position, S key position, L layer, N head.
"""

import functools
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import linen as nn

from data import scratch
from data.vocabulary.byte_bpe import ByteLevel
from models.layers import Params
from models.pretrained.weights import Weights
from train.host import files, pictures
from train.host.files import Json
from train.vectors import length_batches
from train.vectors.trained_model import TrainedModel
from train.views import attention_weights
from train.views.attention_weights import AttentionRow
from train.views.winobias import KINDS, Pair, Sentence

if TYPE_CHECKING:
  from matplotlib.axes import Axes

CONFIDENCE = 1.96  # standard errors on each side: 95 %
LEAST = 1e-12  # attention; below it a share would be noise
PARTS = ('pronoun', 'right', 'other')
CURVES = (*KINDS, 'difference')


class Framed(NamedTuple):
  """A sentence's tokens, and the positions of its three `PARTS`."""

  row: AttentionRow
  places: tuple[list[int], ...]


def run(
  weights: epath.PathLike | Weights,
  pairs: Sequence[Pair],
  out: str | os.PathLike,
  json_file: str | os.PathLike,
  *,
  tokenizer: epath.PathLike | None = None,
) -> dict[str, float]:
  """Draws the figure of all pairs, and writes its numbers; returns a few.

  For `weights` and `tokenizer` see `attention_weights.open_model`. Raises
  ValueError or OSError for bad input; then no file is written.
  """
  found = attention_weights.open_model(weights, tokenizer)
  shares = measure(found, pairs)
  with scratch.replacing(out) as new:
    draw(shares, new)
    files.write_atomically(json_file, files.as_json(shares) + '\n')
  means = {name: shares['all'][name]['mean'] for name in CURVES}
  largest = int(np.argmax(np.abs(means['difference'])))
  return {
    'pairs': shares['pairs'],
    'left out': shares['left_out'],
    'layer of the largest difference': largest + 1,
    'share there with the stereotype': means['pro'][largest],
    'share there against it': means['anti'][largest],
  }


def measure(found: TrainedModel, pairs: Sequence[Pair]) -> dict[str, Json]:
  """Returns the shares of each layer, of all pairs and of each type, for JSON.

  'pro', 'anti' and 'difference', the mean of the pairs' differences, have a
  list of L for 'mean' and for 'error', half of the 95 % interval; 'heads' has
  [L, N] means of the attention itself, before it is divided. The shares leave
  out pairs whose sentences mean different occupations (two pairs, as released)
  and, in a left-to-right model, pairs whose pronoun comes before an occupation.
  """
  causal = not found.family.reads_both_ways(found.model)
  kept, framed = [], []
  for pair in pairs:
    both = [locate(found, sentence) for sentence in (pair.pro, pair.anti)]
    named = {_right(sentence) for sentence in (pair.pro, pair.anti)}
    if len(named) > 1 or (causal and any(map(_is_ahead, both))):
      continue
    kept.append(pair)
    framed += both
  if not kept:
    raise ValueError(
      'no pair is left: the sentences of each mean different occupations, or'
      ' the pronoun comes before one, which a left-to-right model does not see'
    )
  attended_BKLN = attend(found, framed).astype(np.float64)
  # Pairs P, sides (pro, anti) A, and K (right, other).
  attended_PAKLN = attended_BKLN.reshape(len(kept), 2, *attended_BKLN.shape[1:])
  mean_PAKL = attended_PAKLN.mean(axis=-1)
  total_PAL = mean_PAKL.sum(axis=2)
  share_PAL = np.where(
    total_PAL > LEAST, mean_PAKL[:, :, 0] / np.maximum(total_PAL, LEAST), 0.5
  )
  type_P = np.array([pair.type for pair in kept])
  chosen = {'all': type_P > 0}
  chosen |= {f'type {each}': type_P == each for each in sorted(set(type_P))}
  return {
    'weights': str(found.folder),
    'pairs': len(kept),
    'left_out': len(pairs) - len(kept),
    **{
      name: {'pairs': int(which.sum())} | _summary(share_PAL[which])
      for name, which in chosen.items()
    },
    'heads': {
      kind: {
        part: attended_PAKLN[:, a, k].mean(axis=0).tolist()
        for k, part in enumerate(PARTS[1:])
      }
      for a, kind in enumerate(KINDS)
    },
  }


def _summary(share_PAL: np.ndarray) -> dict[str, dict[str, list[float]]]:
  pro_PL, anti_PL = share_PAL[:, 0], share_PAL[:, 1]
  values = dict(zip(CURVES, (pro_PL, anti_PL, pro_PL - anti_PL), strict=True))
  error = CONFIDENCE / np.sqrt(len(share_PAL))
  return {
    name: {
      'mean': each.mean(axis=0).tolist(),
      'error': (error * each.std(axis=0)).tolist(),
    }
    for name, each in values.items()
  }


def locate(found: TrainedModel, sentence: Sentence) -> Framed:
  """Returns a sentence's tokens as the model reads them, and its parts' places.

  The text is cut where a part begins or ends: no token crosses such a cut.
  Raises ValueError for a sentence beyond the model's positions.
  """
  cuts = sorted({0, len(sentence.text), *_bounds(sentence)})
  texts = [sentence.text[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]
  if isinstance(
    found.tokenizer, ByteLevel
  ):  # a space belongs to the next token
    texts = _spaces_first(texts)
  begin, end = found.family.frame(found.tokenizer)
  ids, place_of = [], {}
  for cut, part in zip(cuts, found.tokenizer.encode_batch(texts), strict=False):
    first = len(begin) + len(ids)
    place_of[cut] = list(range(first, first + len(part)))
    ids += part
  row = AttentionRow.of([ids], begin, end)
  places = tuple(place_of[getattr(sentence, part)[0]] for part in PARTS)
  if len(row.ids) > found.model.max_length or not all(places):
    raise ValueError(
      f'{len(row.ids)} tokens, expected {found.model.max_length} at most with'
      f' one for the pronoun and each occupation: {sentence.text[:80]!r}'
    )
  return Framed(row, places)


def _bounds(sentence: Sentence) -> Iterator[int]:
  for part in PARTS:
    yield from getattr(sentence, part)


def _spaces_first(texts: Sequence[str]) -> list[str]:
  """Moves the spaces at the end of each text to the beginning of the next."""
  moved, spaces = [], ''
  for text in texts:
    kept = text.rstrip(' ')
    moved.append(spaces + kept)
    spaces = text[len(kept) :]
  moved[-1] += spaces
  return moved


def _right(sentence: Sentence) -> str:
  return sentence.text[slice(*sentence.right)].lower()


def _is_ahead(framed: Framed) -> bool:
  pronoun, *occupations = framed.places
  return any(max(places) > min(pronoun) for places in occupations)


def attend(found: TrainedModel, framed: Sequence[Framed]) -> np.ndarray:
  """Returns the pronouns' attention to both occupations, [B, 2, L, N].

  A mean over tokens of the pronoun, a sum over tokens of the occupation: the
  right one first.
  """
  model, params = found.prepared()
  rows, ahead = [each.row for each in framed], iter(framed)

  def compute() -> Iterator[tuple[int, jax.Array]]:
    for part, inputs in attention_weights.batches(found, rows):
      chosen = np.zeros((len(PARTS), *inputs[0].shape), np.float32)
      for b, each in enumerate(itertools.islice(ahead, len(part))):
        for k, places in enumerate(each.places):
          chosen[k, b, places] = 1
        chosen[0, b] /= len(each.places[0])
      yield len(part), _gather(model, params, chosen, *inputs)

  arrays = length_batches.on_host(compute())
  return np.concatenate([array[:count] for count, array in arrays])


@functools.partial(jax.jit, static_argnames='model')
def _gather(
  model: nn.Module, params: Params, chosen: jax.Array, *inputs: jax.Array
) -> jax.Array:
  weights_LBNTS, _ = attention_weights.compute(model, params, *inputs)
  pronoun_BT, occupations_KBS = chosen[0], chosen[1:]
  return jnp.einsum(
    'LBNTS,BT,KBS->BKLN',
    weights_LBNTS,
    pronoun_BT,
    occupations_KBS,
    precision='highest',
  )


def draw(shares: Mapping[str, Json], path: epath.Path) -> None:
  """Draws shares by layer, and the pairs' difference, as PNG."""
  figure = pictures.figure(9.6, 3.9)
  left, right = figure.subplots(1, 2)
  layers = np.arange(1, len(shares['all']['pro']['mean']) + 1)
  names = {'pro': 'with the stereotype', 'anti': 'against it'}
  for (kind, label), colour in zip(
    names.items(), ('tab:blue', 'tab:orange'), strict=True
  ):
    _curve(left, layers, shares['all'][kind], label, colour)
  left.axhline(0.5, color='grey', linewidth=0.8, linestyle=':')
  left.set_ylabel('share on the right occupation')
  left.set_title('Attention of the pronoun')
  colours = {'all': 'black', 'type 1': 'tab:green', 'type 2': 'tab:purple'}
  for name, colour in colours.items():
    if name in shares:
      label = f'{name}, {shares[name]["pairs"]:,} pairs'
      _curve(right, layers, shares[name]['difference'], label, colour)
  right.axhline(0, color='grey', linewidth=0.8, linestyle=':')
  right.set_ylabel('with minus against')
  right.set_title('Difference by the pronoun alone')
  for axes in (left, right):
    axes.set_xlabel('layer')
    axes.set_xticks(layers[:: -(-len(layers) // 12)])
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize='small')
  pictures.save(figure, path, dpi=150)


def _curve(
  axes: 'Axes',
  layers: np.ndarray,
  values: Mapping[str, list[float]],
  label: str,
  colour: str,
) -> None:
  mean, error = np.array(values['mean']), np.array(values['error'])
  axes.plot(layers, mean, '.-', color=colour, label=label)
  axes.fill_between(
    layers, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0
  )
