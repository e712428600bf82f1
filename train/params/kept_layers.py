"""Weights with some of their layers alone: `init.layers`."""

import re
from collections.abc import Mapping

import jax
import ml_collections
import numpy as np
from flax import linen as nn
from jax.sharding import Sharding

from configs import base
from models.pretrained.weights import Keep, Weights

ALL = 'all'
_LAYERS = 'layers/'  # begins the paths of parameters that are stacked by layer
# Sizes of a transformer that its layers decide -> attribute of the module.
_SIZES = ('embed_dim', 'num_heads', 'mlp_dim')


def find_layers(asked: str, num_layers: int) -> list[int]:
  """Returns the numbers of the layers that `init.layers` names, from 0.

  'every:N' is each N-th from the first on, 'first:N' the first N; numbers with
  commas between them name each layer.

  Raises:
    ValueError: if the text is none of these, or names another layer than the
      `num_layers` of the weights have.
  """
  expected = (
    f"init.layers={asked!r}: expected 'all', 'every:N' or 'first:N' with N from"
    f' 1 to {num_layers}, the layers of the weights, or some of the numbers'
    f' 0 to {num_layers - 1} in rising order, such as'
    f" '{','.join(map(str, range(0, num_layers, 2)))}'"
  )
  if asked == ALL:
    return [*range(num_layers)]
  if found := re.fullmatch(r'(every|first):(\d+)', asked):
    number = int(found[2])
    if not 1 <= number <= num_layers:
      raise ValueError(expected)
    each, first = (number, num_layers)
    if found[1] == 'first':
      each, first = 1, number
    return [*range(0, first, each)]
  if not re.fullmatch(r'\d+(,\d+)*', asked):
    raise ValueError(expected)
  numbers = [*map(int, asked.split(','))]
  if sorted(set(numbers)) != numbers or numbers[-1] >= num_layers:
    raise ValueError(expected)
  return numbers


def _depends_on_place(model: nn.Module) -> str:
  """Returns why the layers of a model are not alike, else nothing."""
  if getattr(model, 'embeds_norm', False):
    return 'the first layer has no norm'
  return 'some layers see a window' if model.window else ''


def keep(weights: Weights, config: ml_collections.ConfigDict) -> Weights:
  """Returns weights whose model has the layers of `init.layers` alone.

  All else is theirs: the table of tokens, the pooler, the heads.

  Raises:
    ValueError: for weights without stacked layers, layers that they lack, or a
      config that asks for another size of the layers.
  """
  asked = config.init.layers
  if not hasattr(weights.model, 'scan_layers'):
    raise ValueError(
      f'init.layers={asked!r}: only of a BERT or a GPT some layers are taken,'
      f' {weights.folder} holds a model of the family {weights.name}'
    )
  rows = find_layers(asked, weights.model.num_layers)
  moved = rows != [*range(len(rows))]
  if moved and (why := _depends_on_place(weights.model)):
    raise ValueError(
      f'init.layers={asked!r}: in the model of {weights.folder} {why}, so a'
      " layer computes by its place: expected 'first:N' or 'all'"
    )
  model = weights.model.clone(num_layers=len(rows))
  defaults = base.bert_model()
  for key in ('num_layers', *_SIZES):
    found, taken = config.model[key], getattr(model, key)
    if found not in (defaults[key], taken):
      raise ValueError(
        f'model.{key}={found}: init.layers={asked!r} takes layers of'
        f' {weights.folder}, whose model.{key} is then {taken}: leave'
        f' model.{key} out, or init.layers and init.weights, to begin without'
        ' pre-training'
      )
  places = np.array(rows)

  def cut(path: str, leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    if not path.startswith(_LAYERS):
      return leaf
    return jax.ShapeDtypeStruct((len(rows), *leaf.shape[1:]), leaf.dtype)

  def read(shardings: Mapping[str, Sharding], keep_leaf: Keep) -> dict:
    def take(path: str, leaf: jax.Array) -> jax.Array:
      if path.startswith(_LAYERS):
        leaf = jax.device_put(leaf[places], shardings[path])
      return keep_leaf(path, leaf)

    return weights.load(shardings, take)

  shapes = {path: cut(path, leaf) for path, leaf in weights.shapes.items()}
  return weights._replace(model=model, shapes=shapes, read=read)
