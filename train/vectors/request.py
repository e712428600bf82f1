"""Requests for vectors of texts; commands read them before they import JAX."""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

from etils import epath

from data.text import text_files

LAYERS = ('all', 'mean', 'top')
COMBINATIONS = ('stack', 'concat', 'sum', 'mean', 'mix')
MIX_FORM = (
  'numbers as in --mix=0.2,-1,0.5:1.3, a weight a layer and the scale, or a'
  ' JSON file of {"mix_weights": [...], "mix_scale": ...}'
)
DTYPES = ('float32', 'bfloat16')
UNITS = ('token', 'word', 'sentence')
PIECE = 'piece'  # as 'token', of texts that are lists of words
# By unit and whether the model reads both ways; the first is the default. The
# tagger of BERT reads a word's first piece (section 5.3); left to right, only
# the last piece has seen the whole word, and [CLS] nothing at all.
POOLS = {
  ('word', True): ('first', 'mean', 'last'),
  ('word', False): ('last', 'mean', 'first'),
  ('sentence', True): ('mean', 'cls'),
  ('sentence', False): ('mean', 'last'),
}


class Choice(NamedTuple):
  """Chosen layers of a model.

  Attributes:
    layers: 'all'; 'mean' of all; 'top'; or numbers, 0 embeddings, -1 the top.
    combine: 'stack' keeps layers apart, 'concat' joins them along D, 'sum' and
      'mean' add them up, 'mix' is the average of `scalar_mix.ScalarMix`.
    mix: the weight of each layer before its softmax, then the scale.
  """

  layers: str | tuple[int, ...] = 'all'
  combine: str = 'stack'
  mix: tuple[float, ...] = ()

  def checked(self, num_layers: int) -> 'Choice':
    """Returns the choice, checked for `num_layers` layers and embeddings."""
    layers = self.layers
    if layers in LAYERS:
      return self._check_mix(num_layers + 1)
    if isinstance(layers, str) or not all(
      -num_layers - 1 <= number <= num_layers for number in layers
    ):
      asked = layers if isinstance(layers, str) else ','.join(map(str, layers))
      raise ValueError(
        f'--layers={asked}: expected {", ".join(LAYERS)} or numbers from'
        f' {-num_layers - 1} to {num_layers}; 0 is the layer of the embeddings'
      )
    return self._replace(layers=tuple(layers))._check_mix(len(layers))

  def _check_mix(self, num_chosen: int) -> 'Choice':
    if self.combine == 'mix' and len(self.mix) != num_chosen + 1:
      raise ValueError(
        f'--mix has {len(self.mix) - 1} weights and a scale, expected a weight'
        f' for each of the {num_chosen} layers'
      )
    return self


def parse_choice(
  layers: str, combine: str = 'stack', mix: str | None = None
) -> Choice:
  """Returns the checked choice of --layers, --combine and --mix."""
  if combine != 'stack' and layers in ('mean', 'top'):
    raise ValueError(
      f'--layers={layers} --combine={combine}: that is one layer already; name'
      ' several, such as --layers=-4,-3,-2,-1, or leave --combine'
    )
  if (combine == 'mix') != (mix is not None):
    raise ValueError(
      '--mix belongs to --combine=mix and the other way round, found'
      f' --combine={combine} and --mix={mix}; expected {MIX_FORM}'
    )
  numbers = layers
  if layers not in LAYERS:
    try:
      numbers = tuple(int(number) for number in layers.split(','))
    except ValueError:
      raise ValueError(
        f'--layers={layers}: expected {", ".join(LAYERS)}, or numbers as in'
        ' --layers=-1,-2'
      ) from None
  choice = Choice(numbers, combine, () if mix is None else _parse_mix(mix))
  return choice if numbers in LAYERS else choice._check_mix(len(numbers))


def _parse_mix(text: str) -> tuple[float, ...]:
  """Returns the weights and the scale of --mix."""
  try:
    if text.endswith('.json'):
      found = text_files.read_json(epath.Path(text).expanduser())
      weights, scale = found['mix_weights'], found['mix_scale']
    else:
      numbers, scale = text.split(':')
      weights = numbers.split(',')
    mix = *map(float, weights), float(scale)
  except (ValueError, KeyError, TypeError):
    raise ValueError(f'--mix={text}: expected {MIX_FORM}') from None
  if not all(map(math.isfinite, mix)):
    raise ValueError(f'--mix={text}: expected finite numbers')
  return mix


@dataclasses.dataclass(frozen=True)
class Request:
  """Kind of vectors that a model of tokens computes for a text.

  Attributes:
    unit: one of `UNITS` or `PIECE`; each has a vector.
    pool: tokens that make the vector, see `POOLS`; None for the default.
    choice: which layers.
    normalize: scale the vectors of sentences to length 1.
    window: tokens that the model sees at once; None for all its positions.
    stride: between the windows of a longer text; None for half a window.
    split: finds the words of a text.
  """

  unit: str = 'sentence'
  pool: str | None = None
  choice: Choice = Choice('top')
  normalize: bool = False
  window: int | None = None
  stride: int | None = None
  split: Callable[[str], list[str]] = str.split

  def __post_init__(self) -> None:
    if self.unit not in (*UNITS, PIECE):
      raise ValueError(f'--unit={self.unit}: expected {", ".join(UNITS)}')
    if self.normalize and self.unit != 'sentence':
      raise ValueError(
        f'--normalize is of --unit=sentence, found --unit={self.unit}'
      )
    if self.unit in ('token', PIECE) and self.pool is not None:
      raise ValueError(
        f'--pool={self.pool}: a token has a vector of its own; give it with'
        ' --unit=word or sentence'
      )

  def pool_of(self, name: str, both_ways: bool) -> str | None:
    """Returns the pool for a model of a family, checked; None for tokens."""
    if self.unit in ('token', PIECE):
      return None
    pools = POOLS[self.unit, both_ways]
    if self.pool not in (None, *pools):
      reading = '' if both_ways else ', which reads from left to right'
      raise ValueError(
        f'--pool={self.pool}: expected {" or ".join(pools)} for --unit='
        f'{self.unit} by a {name}{reading}'
      )
    return self.pool or pools[0]
