"""Which layers of a model are wanted, and how several become one.

Shapes: L layers with that of the words, K of them chosen, B row, T position, D
width.
"""

import json
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from etils import epath

from models import scalar_mix

LAYERS = ('all', 'mean', 'top')
COMBINATIONS = ('stack', 'concat', 'sum', 'mean', 'mix')
MIX_FORM = (
  'numbers as in --mix=0.2,-1,0.5:1.3, a weight a layer and the scale, or a'
  f' JSON file of {{"{scalar_mix.WEIGHTS}": [...], "{scalar_mix.SCALE}": ...}}'
)


class Choice(NamedTuple):
  """Layers of a model, as they are given.

  Attributes:
    layers: 'all'; 'mean' of all; 'top'; or their numbers, 0 for that of the
      words, -1 for the top.
    combine: 'stack' gives each; 'concat' one as wide as all of them; 'sum' and
      'mean' one; 'mix' a learned average, `scalar_mix.ScalarMix`.
    mix: the weight of each layer before its softmax, then the scale.
  """

  layers: str | tuple[int, ...] = 'all'
  combine: str = 'stack'
  mix: tuple[float, ...] = ()


def parse(
  layers: str, combine: str = 'stack', mix: str | None = None
) -> Choice:
  """Returns what --layers, --combine and --mix ask for.

  Raises:
    ValueError: if that makes no sense, whatever the model.
    OSError: if the file of a mix cannot be read.
  """
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
  choice = Choice(
    parse_layers(layers), combine, () if mix is None else parse_mix(mix)
  )
  if not isinstance(choice.layers, str):
    _check_mix(choice, len(choice.layers))
  return choice


def parse_layers(text: str) -> str | tuple[int, ...]:
  """Returns what --layers names.

  Raises:
    ValueError: if it is neither a name nor numbers.
  """
  if text in LAYERS:
    return text
  try:
    return tuple(int(number) for number in text.split(','))
  except ValueError:
    raise ValueError(
      f'--layers={text}: expected {", ".join(LAYERS)}, or numbers as in'
      ' --layers=-1,-2'
    ) from None


def parse_mix(text: str) -> tuple[float, ...]:
  """Returns the weights and the scale that --mix gives.

  Raises:
    ValueError: if it is something else.
    OSError: if it names a file that cannot be read.
  """
  try:
    if text.endswith('.json'):
      found = json.loads(epath.Path(text).expanduser().read_bytes())
      weights, scale = found[scalar_mix.WEIGHTS], found[scalar_mix.SCALE]
    else:
      numbers, scale = text.split(':')
      weights = numbers.split(',')
    mix = *map(float, weights), float(scale)
  except (ValueError, KeyError, TypeError):
    raise ValueError(f'--mix={text}: expected {MIX_FORM}') from None
  if not all(map(math.isfinite, mix)):
    raise ValueError(f'--mix={text}: expected finite numbers')
  return mix


def check(choice: Choice, num_layers: int) -> Choice:
  """Returns the choice, its layers a tuple of numbers where they were a list.

  Args:
    choice: the choice.
    num_layers: of the model, without that of the words.

  Raises:
    ValueError: if the model has not the layers, or a mix not their number.
  """
  layers = choice.layers
  if layers not in LAYERS:
    if isinstance(layers, str) or not all(
      -num_layers - 1 <= number <= num_layers for number in layers
    ):
      asked = layers if isinstance(layers, str) else ','.join(map(str, layers))
      raise ValueError(
        f'--layers={asked}: expected {", ".join(LAYERS)} or numbers from'
        f' {-num_layers - 1} to {num_layers}; 0 is the layer of the words'
      )
    choice = choice._replace(layers=tuple(layers))
  _check_mix(choice, num_layers + 1 if layers == 'all' else len(layers))
  return choice


def _check_mix(choice: Choice, num_chosen: int) -> None:
  if choice.combine == 'mix' and len(choice.mix) != num_chosen + 1:
    raise ValueError(
      f'--mix has {len(choice.mix) - 1} weights and a scale, expected a weight'
      f' for each of the {num_chosen} layers'
    )


def choose(layers_LBTD: jax.Array, choice: Choice) -> jax.Array:
  """Returns layers as [B, K, T, D], or one [B, T, D or K D], in float32."""
  layers_LBTD = layers_LBTD.astype(jnp.float32)
  if choice.layers == 'mean':
    return layers_LBTD.mean(axis=0)
  if choice.layers == 'top':
    return layers_LBTD[-1]
  if choice.layers != 'all':
    layers_LBTD = layers_LBTD[jnp.array(choice.layers)]
  if choice.combine == 'concat':
    return jnp.concatenate(list(layers_LBTD), axis=-1)
  if choice.combine == 'sum':
    return layers_LBTD.sum(axis=0)
  if choice.combine == 'mean':
    return layers_LBTD.mean(axis=0)
  if choice.combine == 'mix':
    *weights, scale = choice.mix
    params = {
      scalar_mix.WEIGHTS: jnp.array(weights),
      scalar_mix.SCALE: jnp.array(scale),
    }
    everywhere_BT = jnp.ones(layers_LBTD.shape[1:3], bool)
    mix = scalar_mix.ScalarMix(len(weights))
    return mix.apply({'params': params}, layers_LBTD, everywhere_BT)
  return layers_LBTD.swapaxes(0, 1)


def empty(choice: Choice, num_layers: int, width: int) -> tuple[int, ...]:
  """Returns the shape of what is given of a text without tokens.

  Args:
    choice: checked.
    num_layers: of the model, without that of the words.
    width: D.
  """
  nothing = jax.ShapeDtypeStruct((num_layers + 1, 1, 0, width), jnp.float32)
  return jax.eval_shape(lambda x: choose(x, choice), nothing).shape[1:]
