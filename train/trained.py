"""Opens what a run left, to use it: model, parameters and tokenizer."""

import json
from typing import Any, NamedTuple

import jax
import ml_collections
from etils import epath
from flax import linen as nn

from data import tokenization
from train import assemble, checkpoint, settings, state
from train.architecture import Vocabulary

LEFT_TO_RIGHT = ('gpt', 'gpt2')


class Trained(NamedTuple):
  """A trained model, ready for use.

  Attributes:
    name: 'bert', 'gpt' or 'gpt2'.
    model: the module.
    params: its parameters, unboxed.
    tokenizer: of its vocabulary.
  """

  name: str
  model: nn.Module
  params: Any
  tokenizer: Any


def load(weights: epath.PathLike, *, expected: tuple[str, ...]) -> Trained:
  """Opens the newest checkpoint of a workdir.

  Args:
    weights: the workdir.
    expected: the models that will do.

  Raises:
    FileNotFoundError: if there is none.
    ValueError: if it is of another model, or damaged.
  """
  folder = epath.Path(weights)
  if not (folder / 'config.json').exists():
    raise FileNotFoundError(
      f'{folder}: no config.json, so this is no workdir of train.main'
    )
  config = _read_config(folder)
  name = config.model.name
  if name not in expected:
    raise ValueError(
      f'{folder} holds a {name}, expected {" or ".join(expected)}'
    )
  tokenizer = tokenization.load(folder)
  architecture = assemble.architecture_of(config)
  model = architecture.build_model(config.model, tokenizer.vocab_size)
  vocabulary = Vocabulary.of(tokenizer)
  length = settings.check_phases(config)[-1].length
  inputs = assemble.model_inputs(
    architecture,
    architecture.build_objective(config, length, vocabulary),
    length,
    1,
  )
  params = checkpoint.restore_params(folder, _shapes(model, inputs))
  return Trained(name, model, params, tokenizer)


def _read_config(folder: epath.Path) -> ml_collections.ConfigDict:
  try:
    config = settings.read_workdir_config(folder)
    config.model.name  # noqa: B018, asks whether it is there
  except (json.JSONDecodeError, AttributeError, ValueError) as error:
    raise ValueError(
      f'{folder / "config.json"}: not the config of a run ({error})'
    ) from error
  return config


def _shapes(model: nn.Module, inputs: tuple) -> Any:
  """Returns the parameters' shapes on one device."""
  place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  return jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
    nn.unbox(state.abstract_params(model, inputs)),
  )
